"""A backend of joblib: ``n_jobs=`` of joblib and scikit-learn runs on the workers of a pool, on any machine."""

from __future__ import annotations

from distsync._import_gate import importing

__all__ = ["register"]


def register() -> None:
    """Register the backend ``"distsync"`` with joblib. Idempotent.

    ``joblib.parallel_config("distsync", name="jobs")`` then selects it: all ``n_jobs=`` of joblib and of
    scikit-learn in its ``with`` block run on the workers of the pool ``jobs``, which
    ``python -m distsync worker jobs`` starts on any machine. Without a name, they run on ``n_jobs``
    processes of this machine, and need no server. Both are kept until the end of the ``with`` block.
    ``joblib.parallel_backend`` takes the same parameters:

    * ``name``: Name of the pool; None for a pool of this program alone.
    * ``processes``: Number of workers that are started here for a pool with a name. Default: 0.
    * ``client``: The client to use; None uses the default client.
    * ``wait_for_workers``: Seconds to wait until a pool with a name has a worker. Default: 10.
    * The other parameters of `distsync.futures.Executor`, such as ``max_payload``, ``initializer`` and
      ``mp_context``. Processes are spawned unless ``mp_context`` says otherwise, because
      OpenMP, which scikit-learn uses, does not survive a fork.

    Raises:
        ModuleNotFoundError: joblib is not installed.

    Note:
        With a name, ``n_jobs=-1`` means all workers that are there at the start of a call, and another
        number limits how many batches of calls are sent at a time. ``n_jobs=1`` runs in this process.

        A call inside of a task runs in its worker: by threads, which is joblib's default, or one after the
        other if it selects this backend, because it would wait for a worker while it keeps one.

        If a call fails, is interrupted or reaches its ``timeout``, its tasks that no worker has started are
        removed. Those that run are ended without a name, and run to their ends with one.

        With a name, a call costs 1 request, and those of the batches, which are tasks of a Pool.

        Source: joblib, "Custom backend API".

    Example:
        >>> import joblib                                               # doctest: +SKIP
        >>> distsync.joblib.register()                                  # doctest: +SKIP
        >>> with joblib.parallel_config("distsync", name="jobs"):       # doctest: +SKIP
        ...     GridSearchCV(SVC(), grid, n_jobs=-1).fit(X, y)
    """
    try:
        with importing():
            from joblib import register_parallel_backend  # deferred: few programs use it

            from distsync._joblib_backend import JoblibBackend
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "joblib":
            raise
        text = "distsync.joblib needs joblib: pip install distsync[joblib]"
        raise ModuleNotFoundError(text, name="joblib") from error
    register_parallel_backend("distsync", JoblibBackend)
