"""Pool: worker processes, of this machine and of others, that share tasks.

Rules for this file: multiprocessing's own Pool, whose threads and queues are replaced; what they do stands in
_pool_client.py (the caller), _local_workers.py (local processes) and _pool_worker.py (a worker process).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from multiprocessing import pool as _stdlib
from multiprocessing import util
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject

if TYPE_CHECKING:
    from distsync._client.client import Client

#: A task is given up after so many workers that did not live to its end.
MAX_DELIVERIES = 5


class Pool(_stdlib.Pool, SharedObject):
    """Worker processes that share tasks, and their results back; with a name also those of other callers and machines.

    All methods, results and exceptions are those of ``multiprocessing.pool.Pool``. Workers of the same name elsewhere
    (``Pool(name="thumbs")``, or ``python -m distsync worker thumbs``) take tasks from here, and those from here theirs.
    A task whose worker dies is done by another one: once or more often, though its result comes once.

    Units: ``processes``: local workers; None: one for each CPU; 0, with a name: none, others do the work.
        ``maxtasksperchild`` in tasks (chunks). ``max_deliveries``: after so many deaths of workers with the same task
        its result is a TaskLostError; 0: never. ``max_payload`` in bytes, of one task or one result (chunks).
        ``progress``: show on stderr how far it is.
    Raises: ValueError, TypeError as the stdlib's; UnreachableError; ConfigurationError if the client's codec is JSON.
        Results raise what the function raised; PayloadRefusedError if a worker cannot read the task (import errors,
        another authkey), TaskLostError, WorkerStartError if the local workers end before they begin;
        MaybeEncodingError, PayloadTooLargeError for a result that cannot be sent.
    On loss: of the session: it goes on. Of this process: what it put, and its results, are removed after twice the
        session time-out.
    Cost: a task 1 request; a worker 8 and 1 for each task, of up to 25 at once if they are short; a result 1, and 1 for
        all that are there.
    Fair: tasks in the order in which they were put, whoever put them; short ones about so.
    Source: recipes.txt, Queues; ``multiprocessing.pool.Pool``.

    Znodes: as JoinableQueue; ``callers/<GUID>/answers/...``, results; ``callers/<GUID>/parts/...``, of long ones.

    >>> with Pool(2, name="squares") as pool:
    ...     pool.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    __module__ = "distsync.multiprocessing.pool"
    _kind = "pool"
    _serves_alone = True

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        max_deliveries: int = MAX_DELIVERIES,
        max_payload: int | None = None,
        progress: bool = False,
    ) -> None:
        self._pool: list[Any] = []
        self._state = _stdlib.INIT
        self._change_notifier: Any = None
        self._processes = _checked(processes, name, maxtasksperchild, initializer)
        SharedObject.__init__(self, name, client, None)
        if context is None:
            from distsync.multiprocessing.context import default_context

            context = default_context.get_context()
        self._ctx = context
        self._prepare(max_deliveries, max_payload, progress, initializer, initargs, maxtasksperchild)
        self._state = _stdlib.RUN

    def _prepare(
        self,
        max_deliveries: int,
        max_payload: int | None,
        progress: bool,
        initializer: Any,
        initargs: Iterable[Any],
        maxtasks: int | None,
    ) -> None:
        """Workers and threads run."""
        from distsync.multiprocessing._local_workers import LocalWorkers
        from distsync.multiprocessing._pool_client import PoolClient
        from distsync.multiprocessing._pool_worker import WorkerSpec
        from distsync.multiprocessing._task_codec import Encoder

        client, limit, most = self.client, _checked_limit(max_payload), _checked_deliveries(max_deliveries)
        encoder = Encoder(client.settings, limit)
        watcher = self._bar() if progress else None
        self._submitting = PoolClient(client, self._shared_state(self._make_core), self._fresh, encoder, watcher)
        spec = WorkerSpec(
            client.settings, self.path, limit, most, initializer, tuple(initargs), maxtasks,
            self._submitting.caller, self._fresh, self._explicit_client is None,
        )  # fmt: skip
        self._crew = LocalWorkers(self._ctx, self._processes, spec, self._pool)
        try:
            self._repopulate_pool()
        except BaseException:
            for process in self._pool:
                if process.exitcode is None:
                    process.terminate()
            for process in self._pool:
                process.join()
            self._submitting.abandon()
            raise
        self._submitting.start(self._crew)
        self._taskqueue, self._cache = self._submitting.tasks, self._submitting.cache
        self._change_notifier = self._submitting.notifier
        self._terminate = util.Finalize(self, self._submitting.finalize, exitpriority=15)

    def _bar(self) -> Any:
        from distsync.multiprocessing._progress_bar import Bar

        return Bar(self.name if not self._fresh else "tasks")

    def _make_core(self, path: str) -> Any:
        from distsync._protocols.pool.tasks import PoolCore

        return PoolCore(path, self._receipts)

    def _repopulate_pool(self) -> None:
        self._crew.start_missing()

    def _map_async(
        self, func: Any, iterable: Any, mapper: Any, chunksize: int | None = None, callback: Any = None,
        error_callback: Any = None,
    ) -> Any:  # fmt: skip
        """As multiprocessing's, whose chunks follow from the workers that it has at the moment: it may be none."""
        if chunksize is None:
            iterable = iterable if hasattr(iterable, "__len__") else list(iterable)
            chunksize = -(-len(iterable) // (4 * (self._processes or _cpus()))) or 1
        return super()._map_async(func, iterable, mapper, chunksize, callback, error_callback)  # type: ignore[misc]

    def _withdraw(self, job: int) -> bool:
        """Whether a job of one task was taken out of the queue before anybody had it."""
        return self._submitting.withdraw(job)

    def __del__(self, _warn: Any = warnings.warn, RUN: str = "RUN") -> None:
        if getattr(self, "_state", None) == RUN:
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)

    def __reduce__(self) -> Any:
        """Not possible, as with the stdlib: workers and callers elsewhere find the pool by its name."""
        return _stdlib.Pool.__reduce__(self)

    def close(self) -> None:
        """No task is taken any more; the workers go when all are done."""
        if self._state == _stdlib.RUN:
            self._state = _stdlib.CLOSE
            self._submitting.close()

    def terminate(self) -> None:
        """The local workers are gone, and all tasks of this caller that nobody has begun.

        Whoever waits for a result, which with the stdlib would be for ever, gets a TaskLostError.
        """
        self._state = _stdlib.TERMINATE
        self._terminate()

    def join(self) -> None:
        """After `close` or `terminate`: the local workers have ended, and nothing of this caller is left.

        Raises: ValueError if the pool is still running.
        """
        if self._state == _stdlib.RUN:
            raise ValueError("Pool is still running")
        self._submitting.join()
        for process in self._pool:
            process.join()


def _cpus() -> int:
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1


def _checked(processes: int | None, name: str | None, maxtasks: Any, initializer: Any) -> int:
    """How many local workers. Raises ValueError and TypeError as the stdlib."""
    if processes is None:
        processes = _cpus()
    if processes < 0 or (processes == 0 and name is None):
        raise ValueError("Number of processes must be at least 1")
    if maxtasks is not None and (not isinstance(maxtasks, int) or maxtasks <= 0):
        raise ValueError("maxtasksperchild must be a positive int or None")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    return processes


def _checked_limit(max_payload: Any) -> int:
    """The longest payload, in bytes."""
    from distsync.multiprocessing._task_codec import LIMIT_BYTES, MAX_BYTES

    if max_payload is None:
        return LIMIT_BYTES
    if isinstance(max_payload, bool) or not isinstance(max_payload, int) or not 0 < max_payload <= MAX_BYTES:
        raise ValueError(f"max_payload must be a number of bytes, 1 to {MAX_BYTES}, not {max_payload!r}")
    return max_payload


def _checked_deliveries(max_deliveries: Any) -> int:
    if isinstance(max_deliveries, bool) or not isinstance(max_deliveries, int) or max_deliveries < 0:
        raise ValueError(f"max_deliveries must be 0 (no limit) or more, not {max_deliveries!r}")
    return max_deliveries


def __getattr__(name: str) -> Any:
    """Whatever else ``multiprocessing.pool`` has."""
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
