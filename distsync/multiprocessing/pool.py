"""Pool: worker processes of this machine and of others that share tasks.

The class is multiprocessing's own Pool with other threads and queues. What the callers of all pools
have in common is in _pool/pool_caller.py, and what all workers have in common in worker_base.py there. The
tasks of local workers travel by pipes: pipe_caller.py, pipe_worker.py. A pool with a name shares a
queue of the server with workers and callers elsewhere: pool_client.py and pool_worker.py; with local
workers too, working_client.py and shared_pipe_worker.py.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Iterable
from multiprocessing import pool as _stdlib
from multiprocessing import util
from typing import TYPE_CHECKING, Any

from distsync._import_gate import importing
from distsync._objects.base import SharedObject
from distsync._objects.validation import validate_int, validate_positive
from distsync.errors import StillUsedError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.outage_limit import OutageLimit
    from distsync.multiprocessing._pool.pipe_caller import PipeCaller

#: Default number of workers that may exit while they run a task, before the task is abandoned.
MAX_DELIVERIES = 5
#: Number of files that this process has open for each local worker: three of its pipes of tasks and results, one of
#: the pipe of messages, and four of any process. Number of files besides, some of which are closed after the start.
FILES_PER_WORKER, OTHER_FILES = 8, 14


class Pool(_stdlib.Pool, SharedObject):
    """A pool of worker processes on several hosts, like ``multiprocessing.pool.Pool``.

    All methods, results and exceptions are those of ``multiprocessing.pool.Pool``. Without a name,
    a pool belongs to its creator alone, wherever it is assigned, and needs no server. A pool with a
    name shares its tasks with the workers of the same name elsewhere, which are started by ``Pool(name="thumbs")``
    or ``python -m distsync worker thumbs``. These workers run the tasks of this pool for which its
    local workers have no room, and these run tasks of others while they have nothing else to do.

    Therefore all pools of one name must have the same initializer, with the same arguments; one
    without local workers may leave it out.

    If a worker exits before it has finished a task, another worker runs the task again. A task may
    therefore run several times, but it has one result.

    Args:
        processes: Number of local workers. None starts one for each CPU. 0 starts none, so that
            workers elsewhere run the tasks; it requires a name.
        initializer: Called in each local worker before its first task, and in each worker of
            ``python -m distsync worker``; None calls nothing.
        initargs: Arguments of ``initializer``. Those that do not pickle are not compared with those
            of other pools of this name.
        maxtasksperchild: Number of tasks (chunks) after which a local worker is replaced; None
            never replaces it.
        context: Context of ``distsync.multiprocessing`` that starts the workers; None uses the
            default one.
        name: Name of the pool, shared by all processes that use it. Without a name, no other
            process finds the pool, and its workers run no other caller's tasks.
        client: The client to use; None uses the default client.
        max_deliveries: Number of workers that may exit while they run the same task, before its
            result is a TaskLostError; 0 means no limit.
        max_payload: Maximum size of one encoded task (chunk) or one encoded result, in bytes; None
            means 64,000,000.
        progress: Whether to show how many items are done, the rate, errors, the time left, and the
            workers. If stderr is a terminal, this is a bar drawn by rich. Otherwise, or if another pool of
            this process has a bar, the logger ``distsync.multiprocessing`` gets a line after 10 s, then
            after longer pauses of up to a minute, and one at the end. Its level is INFO:
            ``logging.basicConfig(level="INFO")`` shows it.
        task_timeout: Seconds that a task (chunk) may run, in a pool without a name. Then its worker is
            killed and replaced, and its result is a TaskTimeoutError. None means no limit.

    Raises:
        ValueError: A number is out of range, ``processes`` is 0 without a name, or ``task_timeout``
            is given with a name.
        TypeError: A number is not whole, or ``initializer`` is not callable.
        MismatchError: A pool of this name is in use with another initializer.
        UnreachableError: The pool has a name, and no server could be reached for the client's first
            connection.
        ConfigurationError: The codec of the client is JSON.
        OSError: This process may not open as many files as the pool needs, for example: 8 for each local
            worker, and up to 14 more.
        ModuleNotFoundError: ``progress`` is set, stderr is a terminal, and rich is not installed.

    Note:
        A result raises what its function raised. It raises PayloadRefusedError if a worker cannot
        read the task, for example because an import fails or because the worker has another
        authkey, or if ``initializer`` fails in a worker of ``python -m distsync worker``. It raises
        TaskLostError if the task has no result, and WorkerStartError if the local workers exit
        before they are ready. It raises MaybeEncodingError or PayloadTooLargeError if the result
        cannot be sent.

        A task that a local worker runs costs no request. Short tasks, of less than 0.02 s, are sent to a
        worker several at once; those that it has not begun are taken back if another worker is idle.

        With a name, this process looks for waiting workers elsewhere if the local ones have had no room
        for 0.02 s: 1 request, and 1 more for each change of the waiting workers. Tasks for these cost 1
        request for up to 100, and 2 more for every 100. Their worker sends 8 requests for each batch of up
        to 25 short tasks, 1 more for each task, and at least 1 more for the first task of each other caller.
        The caller sends 1 request for each result, and 3 more for all results that are available. In all,
        many short tasks cost about 2.5 requests each, and a task longer than 0.1 s costs 13, or twice as many if
        its worker had to wait for it. If local workers have nothing to do for 0.05 s, this process claims
        tasks of others for them, at the cost of such a worker. Without local workers, putting a task costs
        1 request, and up to 100 are put together.

        A worker of the command line sends 2 requests at its start, by which it is counted, and so does a pool with
        local workers. With ``progress``, the caller sends 1 request each time that a worker has begun
        or ended, and at most 1 in 5 seconds. A worker that was killed counts until its session times out.

        Tasks are started in the order in which they were put, those of others after those of this
        pool. The order of short tasks, and of tasks that go elsewhere, is approximate.

        If the session ends, or no server answers, the local workers continue. If this process exits, its
        workers finish their current tasks and exit. With a name, its other tasks and their results are
        removed after twice the session timeout.

        Znodes, with a name: those of JoinableQueue; ``callers/<guid>/answers/...``, results;
        ``callers/<guid>/initializer``; ``callers/<guid>/parts/...``, the parts of long tasks and
        results; ``workers/...``, ephemeral, with the numbers of workers.

        Source: ZooKeeper recipes, "Queues"; ``multiprocessing.pool.Pool``.

    Example:
        >>> with Pool(2, name="squares") as pool:
        ...     pool.map(abs, [-1, 2, -3])
        [1, 2, 3]
    """

    __module__ = "distsync.multiprocessing.pool"
    _kind = "pool"
    _needs_name = False
    _is_private_if_unnamed = True
    #: Path of the pool of a manager; None for any other pool.
    _place: str | None = None
    #: Whether the local workers are daemonic processes, as those of multiprocessing's pool.
    _has_daemons = True
    #: Whether a pool without a name must have local workers, because it has no others.
    _needs_workers = True

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
        task_timeout: float | None = None,
    ) -> None:
        self._pool: list[Any] = []
        self._state = _stdlib.INIT
        self._change_notifier: Any = None
        needs_workers = name is None and self._needs_workers
        self._processes = _checked(processes, needs_workers, maxtasksperchild, initializer)
        self._task_timeout = _checked_task_timeout(task_timeout, name)
        SharedObject.__init__(self, name, client, self._place)
        if context is None:
            with importing():
                from distsync.multiprocessing.context import default_context

            context = default_context.get_context()
        self._ctx = context
        try:
            self._prepare(max_deliveries, max_payload, progress, initializer, initargs, maxtasksperchild)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise _too_many_files(error, self._processes) from error
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
        """Start the caller."""
        with importing():
            from distsync.multiprocessing._pool.pipe_caller import PipeCaller
            from distsync.multiprocessing._pool.pipe_feed import FedWorkers
            from distsync.multiprocessing._pool.pipe_worker import run_pipe_worker
            from distsync.multiprocessing._pool.pool_client import PoolClient
            from distsync.multiprocessing._pool.pool_codec import describe_initializer
            from distsync.multiprocessing._pool.shared_pipe_worker import run_shared_pipe_worker
            from distsync.multiprocessing._pool.worker_base import WorkerSpec
            from distsync.multiprocessing._pool.working_client import WorkingPoolClient

        initargs = tuple(initargs)
        client, limit, most = self.client, _checked_limit(max_payload), _checked_deliveries(max_deliveries)
        watcher = self._new_display() if progress else None
        is_default = self._explicit_client is None
        spec = WorkerSpec(client.settings, self.path, limit, most, initializer, initargs, maxtasks, "", is_default)
        self._submitting: PipeCaller
        if self._is_unnamed:
            self._submitting, run = PipeCaller(spec, watcher, self._task_timeout), run_pipe_worker
        else:
            call: Any = None if initializer is None else (initializer, initargs, {})
            has_opinion = self._processes > 0 or initializer is not None
            text = describe_initializer(initializer, initargs) if has_opinion else None
            core = self._shared_state(self._make_core)
            kind = WorkingPoolClient if self._processes else PoolClient
            calling = kind(client, core, spec, watcher, text, call, self._joining(False))
            self._submitting, spec, run = calling, calling.worker_spec, run_shared_pipe_worker
        self._crew = FedWorkers(
            self._ctx, self._processes, spec, self._pool, self._has_daemons, self._submitting.note, run
        )
        self._start()

    def _start(self) -> None:
        """Start the workers and threads."""
        try:
            self._repopulate_pool()
            self._submitting.start(self._crew)
            self._taskqueue, self._cache = self._submitting.tasks, self._submitting.cache
            self._change_notifier = self._submitting.notifier
            self._terminate = util.Finalize(self, self._submitting.finalize, exitpriority=15)
        except BaseException:  # a process cannot be started, or an interrupt
            if self._submitting.threads:
                self._submitting.terminate()
            else:
                self._crew.abandon()
                self._submitting.abandon()
            raise

    def _new_display(self) -> Any:
        with importing():
            from distsync.multiprocessing._pool.progress_display import ProgressDisplay

        return ProgressDisplay(None if self._is_unnamed else self.name)

    def _make_core(self, path: str) -> Any:
        with importing():
            from distsync._protocols.pool.tasks import PoolCore

        return PoolCore(path, self._receipts)

    def _repopulate_pool(self) -> None:
        self._crew.start_missing()

    def _map_async(
        self, func: Any, iterable: Any, mapper: Any, chunksize: int | None = None, callback: Any = None,
        error_callback: Any = None,
    ) -> Any:  # fmt: skip
        """Choose the chunk size as the stdlib does, also if the pool has no local workers."""
        self._check_running()  # type: ignore[attr-defined]
        iterable = iterable if hasattr(iterable, "__len__") else list(iterable)
        if chunksize is None:
            chunksize = -(-len(iterable) // (4 * (self._processes or _cpus()))) or 1
        with self._submitting.tasks.sized(iterable):
            return super()._map_async(  # type: ignore[misc]
                func, iterable, mapper, chunksize, callback, error_callback
            )

    def imap(self, func: Any, iterable: Any, chunksize: int | None = 1) -> Any:
        """Return an iterator over the results of a function, in the order of the items.

        Args:
            func: The function.
            iterable: Its arguments, which are read while earlier ones are processed.
            chunksize: Number of items that are sent to a worker together.

        Returns:
            The iterator, as that of ``multiprocessing.pool.Pool.imap``.
        """
        with self._submitting.tasks.sized(iterable):
            return super().imap(func, iterable, chunksize)

    def imap_unordered(self, func: Any, iterable: Any, chunksize: int | None = 1) -> Any:
        """Return an iterator over the results of a function, each as soon as it is available.

        Args:
            func: The function.
            iterable: Its arguments, which are read while earlier ones are processed.
            chunksize: Number of items that are sent to a worker together.

        Returns:
            The iterator, as that of ``multiprocessing.pool.Pool.imap_unordered``.
        """
        with self._submitting.tasks.sized(iterable):
            return super().imap_unordered(func, iterable, chunksize)

    def _count_workers(self, timeout: float) -> int:
        """Return how many workers the pool has, wherever they run. It must have a name."""
        with importing():
            from distsync._protocols.pool.workers import count_other_workers

        caller: str = self._submitting.first_caller  # type: ignore[attr-defined]  # of PoolClient
        core = self._shared_state(self._make_core)
        count: int = self.client.run(count_other_workers(core, caller), timeout)
        return count + self._processes

    def _withdraw(self, job: int, limit: OutageLimit | None) -> bool:
        """Remove a job of one task from the queue, and return whether no worker had it."""
        return self._submitting.withdraw(job, limit)

    def _interrupt(self, job: int) -> bool:
        """Kill the worker that runs a job of one task, and return whether there was one."""
        return self._submitting.interrupt(job)

    def _is_running(self, job: int) -> bool:
        """Return whether a worker has started a job of one task, and has not finished it."""
        return self._submitting.is_running(job)

    def __del__(self, _warn: Any = warnings.warn, RUN: str = "RUN") -> None:
        if getattr(self, "_state", None) == RUN:
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)

    def __reduce__(self) -> Any:
        """Raise NotImplementedError, like the stdlib. Elsewhere, a pool is found by its name."""
        return _stdlib.Pool.__reduce__(self)

    def close(self) -> None:
        """Refuse further tasks, and stop the local workers once all tasks are done."""
        if self._state == _stdlib.RUN:
            self._state = _stdlib.CLOSE
            self._submitting.close()

    def terminate(self) -> None:
        """Stop the local workers at once, and remove this caller's tasks that no worker has started.

        Waiters for results get a TaskLostError. In the standard library, they would wait forever.

        Note:
            If interrupted, call it again: it completes what the first call has left.

            If no server answers, this waits for the session timeout, and for 5 seconds at most. The logger
            ``distsync.multiprocessing`` then warns of the cancelled jobs.
        """
        self._state = _stdlib.TERMINATE
        self._terminate()
        if not self._submitting.is_clean and self._submitting.is_mine():  # an earlier call was interrupted
            self._submitting.finalize()

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the pool, with all tasks and results, for all processes.

        Call `close` and `join` first, here and in the other processes that call the pool. Stop
        workers elsewhere, too, because they would create it again.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            ValueError: The pool is still running.
            StillUsedError: The pool was not joined, or another process calls it.
            TypeError: ``timeout`` is not a number.
            DeadlineError: The pool was not deleted in time. Subclass of TimeoutError.
            AccessDeniedError: An ACL denies the access.

        Note:
            Costs 1 request to list the callers, and as many more as ``Queue.destroy``.
        """
        if self._state == _stdlib.RUN:
            raise ValueError("Pool is still running: call close() and join() before destroy()")
        if self._is_unnamed:  # it has no znode
            if not self._submitting.is_away:
                raise StillUsedError(self.path)
            return
        super().destroy(timeout)

    async def _destruction(self) -> None:
        with importing():
            from distsync._protocols.pool.callers import read_callers

        if await read_callers(self._shared_state(self._make_core)):
            raise StillUsedError(self.path)
        await super()._destruction()

    def join(self) -> None:
        """Wait until the local workers have exited and this caller's znodes are deleted.

        Call `close` or `terminate` first.

        Raises:
            ValueError: The pool is still running.

        Note:
            If no server has answered for the session timeout, the tasks that workers elsewhere may have
            are given up. Their results raise TaskLostError, and the logger
            ``distsync.multiprocessing`` warns of them. Those of local workers are completed.
        """
        if self._state == _stdlib.RUN:
            raise ValueError("Pool is still running")
        self._submitting.join()
        for process in self._pool:
            if process._parent_pid == os.getpid():  # otherwise this is a forked child, and they are its siblings
                process.join()


class ExecutorPool(Pool):
    """The pool of an Executor. Its workers may have children, as those of ProcessPoolExecutor.

    Args:
        *args: Positional arguments of Pool.
        **keywords: Keyword arguments of Pool.
    """

    _has_daemons = False


def _cpus() -> int:
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1


def _checked(processes: int | None, needs_workers: bool, maxtasks: Any, initializer: Any) -> int:
    """Return the number of local workers.

    Args:
        processes: The argument of Pool; None means one for each CPU.
        needs_workers: Whether the pool must have a local worker.
        maxtasks: The argument ``maxtasksperchild``.
        initializer: The argument of Pool.

    Returns:
        The number of local workers.

    Raises:
        ValueError: A number is out of range, as in the standard library.
        TypeError: ``initializer`` is not callable.
    """
    if processes is None:
        processes = _cpus()
    processes = validate_int("the number of processes", processes, or_name=True)
    if processes < 0 or (processes == 0 and needs_workers):
        raise ValueError("Number of processes must be at least 1")
    if maxtasks is not None and (not isinstance(maxtasks, int) or maxtasks <= 0):
        raise ValueError("maxtasksperchild must be a positive int or None")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    return processes


def _checked_task_timeout(seconds: Any, name: str | None) -> float | None:
    if seconds is None:
        return None
    if name is not None:
        raise ValueError(
            f"task_timeout is for pools without a name: a task of {name} may run in a worker of another program, which"
            " does not know the limit. Use a pool without a name, or let the task limit itself, with signal.alarm"
        )
    return validate_positive("task_timeout", seconds)


def _too_many_files(error: OSError, workers: int) -> OSError:
    """Return the error of a pool that cannot open all its files."""
    import resource  # deferred: it is for this error only

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = (
        f"{error.strerror}: a pool with {workers} local workers needs {FILES_PER_WORKER * workers + OTHER_FILES} of the"
        f" {limit} files that this process may open. Raise the limit (ulimit -n), or use fewer workers"
    )
    return OSError(error.errno, text)


def _checked_limit(max_payload: Any) -> int:
    """Return the maximum size of a payload in bytes."""
    with importing():
        from distsync.multiprocessing._pool.pool_codec import LIMIT_BYTES, MAX_BYTES

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
    """Return a name of ``multiprocessing.pool`` that distsync does not replace."""
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
