"""Drop-in replacement for ``concurrent.futures``: an Executor on the workers of a distributed pool."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures as _stdlib
from contextlib import suppress
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._import_gate import importing
from distsync.errors import TaskLostError as PoolTaskLostError
from distsync.errors import WorkerStartError as PoolWorkerStartError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.outage_limit import OutageLimit

__all__ = ["Executor", "PoolFuture", "TaskLostError", "WorkerStartError"]

Result = TypeVar("Result")


class TaskLostError(PoolTaskLostError, _stdlib.BrokenExecutor):
    """A call of an Executor has no result.

    Submit it again if it may run twice. As other calls are not affected, the Executor remains usable.

    Its ``args`` are the call, the path of the pool, and the reason.
    """


class WorkerStartError(PoolWorkerStartError, _stdlib.BrokenExecutor):
    """The local workers of an Executor exit before they are ready.

    Fix what makes them exit: the initializer, for example.

    Its ``args`` are the path of the pool, the number of workers that exited in a row, and how the
    last one exited.
    """


#: The exceptions of a pool, and those of an Executor.
_BROKEN: dict[type[BaseException], type[BaseException]] = {
    PoolTaskLostError: TaskLostError,
    PoolWorkerStartError: WorkerStartError,
}


#: Held for a moment by the thread that cancels a call.
_notifying = threading.Lock()


class PoolFuture(_stdlib.Future[Result]):
    """A call that was submitted to an Executor, like ``concurrent.futures.Future``.

    `Executor.submit` creates it.

    Args:
        withdraw: Called with this future and a limit by `cancel`. It removes the call from the queue
            of the pool, and returns whether no worker had started it. It waits for a server until
            the limit; None is the client's default timeout.
        is_running: Called with this future by `running`. It returns whether a worker has started
            the call, and has not finished it.
        interrupt: Called with this future by `cancel`. It kills the worker that runs the call, and
            returns whether there was one.
    """

    __module__ = "distsync.futures"

    def __init__(
        self,
        withdraw: Callable[[PoolFuture[Any], OutageLimit | None], bool],
        is_running: Callable[[PoolFuture[Any]], bool],
        interrupt: Callable[[PoolFuture[Any]], bool],
    ) -> None:
        super().__init__()
        self._withdraw, self._is_running, self._interrupt = withdraw, is_running, interrupt
        #: Whether the waiters of a cancelled call are notified.
        self._is_notified = False

    def running(self) -> bool:
        """Return whether a worker has started the call, and has not finished it.

        Returns:
            True if a worker anywhere has it. False if it waits, is done, or is cancelled, or if no
            server replies within 5 seconds.

        Note:
            Costs no request if the executor has no name, or if the call was not sent yet or is done,
            and otherwise 1.

            Source: ``concurrent.futures.Future.running``.
        """
        return not self.done() and self._is_running(self)

    def cancel(self, running: bool = False) -> bool:
        """Cancel the call if no worker has started it.

        Args:
            running: Whether to cancel a call that a worker has started, too. The worker process is
                killed, and replaced.

        Returns:
            True if the call was cancelled, now or before. False if it is done, or if a worker has
            started it and ``running`` is False.

        Raises:
            ValueError: The call runs, and the executor has a name.
            DeadlineError: No server answered within the client's default timeout. It is open whether
                the call runs; cancel it again. If it runs, the future gets its result. If it was
                cancelled all the same, so is the future as soon as a server answers. Only with a
                name. Subclass of TimeoutError.
            OutcomeUnknownError: The session ended before the reply. Only with a name.

        Note:
            Costs no request if the executor has no name, or if the call was not sent yet. Otherwise
            it costs 1 request for each segment of waiting tasks, and 1 more to remove the call.

            Source: ``concurrent.futures.Future.cancel``.
        """
        return self._cancel(None, running)

    def _cancel(self, limit: OutageLimit | None, running: bool = False) -> bool:
        """Do as `cancel`, and wait for a server until ``limit``."""
        if self.cancelled():
            return True
        if self.done() or not (self._withdraw(self, limit) or (running and self._interrupt(self))):
            return self.cancelled()
        return self._end_cancelled()

    def _end_cancelled(self) -> bool:
        """Become cancelled, and return whether this is. Idempotent."""
        if not super().cancel():
            return False
        with _notifying:
            is_first, self._is_notified = not self._is_notified, True
        if is_first:
            self.set_running_or_notify_cancel()
        return True


class Executor(_stdlib.Executor):
    """A ``concurrent.futures.Executor`` on the workers of a distributed pool.

    Without a name, an executor has a pool of its own, wherever it is assigned, and needs no server. An
    executor with a name also uses the workers of this name on other machines. If a worker exits
    before it has finished a call, another worker runs the call again.

    Only the ensemble knows which calls of an executor with a name were started, so
    `PoolFuture.running` and `PoolFuture.cancel` ask it. At its end, a program waits until all calls
    are done, as with the executors of the standard library.

    Args:
        max_workers: Number of local workers. None starts one for each CPU. 0 starts none, so that
            workers elsewhere run the calls; it requires a name.
        mp_context: Context of ``distsync.multiprocessing`` that starts the workers; None uses the
            default one.
        initializer: Called in each local worker before its first call; None calls nothing. All
            executors and pools of one name must have the same initializer.
        initargs: Arguments of ``initializer``.
        max_tasks_per_child: Number of tasks after which a local worker is replaced; None never
            replaces it.
        name: Name of the pool, shared by its workers and by all processes that submit calls.
            Without a name, no other process finds the pool, and its workers run no other calls.
        client: The client to use; None uses the default client.
        max_deliveries: Number of workers that may exit while they run the same call, before its
            result is a TaskLostError; 0 means no limit, None means 5.
        max_payload: Maximum size of one encoded task or one encoded result, in bytes; None means
            64,000,000.
        progress: Whether to show how many items are done, the rate, errors, the time left, and the
            workers. If stderr is a terminal, this is a bar drawn by rich. Otherwise, the logger
            ``distsync.multiprocessing`` gets a line after 10 s, then after longer pauses of up to a
            minute, and one at the end. Its level is INFO: ``logging.basicConfig(level="INFO")``
            shows it.
        task_timeout: Seconds that a call may run, in an executor without a name. Then its worker is
            killed and replaced, and its future raises TaskTimeoutError. None means no limit.

    Raises:
        ValueError: A number is out of range, ``max_workers`` is 0 without a name, or ``task_timeout``
            is given with a name.
        TypeError: ``initializer`` is not callable.
        MismatchError: A pool of this name is in use with another initializer.
        UnreachableError: The executor has a name, and no server could be reached for the client's
            first connection.
        ConfigurationError: The codec of the client is JSON.
        ModuleNotFoundError: ``progress`` is set, stderr is a terminal, and rich is not installed.

    Note:
        A future raises what its function raised, or one of the errors of a Pool's results. Among
        these, TaskLostError and WorkerStartError are ``concurrent.futures.BrokenExecutor`` here.

        Costs, fairness, losses and znodes are those of Pool.

        Source: ``concurrent.futures.ProcessPoolExecutor``.

    Example:
        >>> with Executor(2, name="squares") as executor:
        ...     list(executor.map(abs, [-1, 2, -3])), executor.submit(pow, 2, 5).result()
        ([1, 2, 3], 32)
    """

    __module__ = "distsync.futures"

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        *,
        max_tasks_per_child: int | None = None,
        name: str | None = None,
        client: Client | None = None,
        max_deliveries: int | None = None,
        max_payload: int | None = None,
        progress: bool = False,
        task_timeout: float | None = None,
    ) -> None:
        with importing():
            import concurrent.futures.process  # noqa: F401  # it cannot be imported at the end of the program
            from multiprocessing import util

            from distsync.multiprocessing.pool import MAX_DELIVERIES, ExecutorPool  # multiprocessing comes with it

        if isinstance(max_workers, int) and (max_workers < 0 or (max_workers == 0 and name is None)):
            raise ValueError("max_workers must be greater than 0")
        max_deliveries = MAX_DELIVERIES if max_deliveries is None else max_deliveries
        self._pool = ExecutorPool(
            max_workers, initializer, initargs, max_tasks_per_child, mp_context,
            name=name, client=client, max_deliveries=max_deliveries, max_payload=max_payload, progress=progress,
            task_timeout=task_timeout,
        )  # fmt: skip
        util.Finalize(self, _at_end, (self._pool,), exitpriority=20)  # before the pool is terminated
        self._max_workers, self._mp_context = self._pool._processes, self._pool._ctx
        self._lock = threading.Lock()
        self._jobs: dict[PoolFuture[Any], int] = {}
        self._is_shut = False

    @property
    def name(self) -> str:
        """Name by which workers elsewhere find the pool."""
        return self._pool.name

    @property
    def _processes(self) -> dict[int, Any]:
        """The local workers, by process id, as some programs look them up in the stdlib's executor."""
        found = {}
        for process in list(self._pool._pool):
            with suppress(ValueError):  # it has just ended
                found[process.pid] = process
        return found

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> _stdlib.Future[Result]:
        """Submit the call ``fn(*args, **kwargs)`` to the workers.

        Args:
            fn: The function to call. It is sent by its name, so a worker must be able to import it.
            *args: Its positional arguments. They must pickle.
            **kwargs: Its keyword arguments. They must pickle.

        Returns:
            A future of the result.

        Raises:
            RuntimeError: The executor was shut down, or the program ends.

        Note:
            Costs no request if the executor has no name, and otherwise 1, sent in the background,
            together with those of other calls.

            Source: ``concurrent.futures.Executor.submit``.
        """
        future: PoolFuture[Result] = PoolFuture(self._take_out, self._is_running, self._interrupt)
        try:
            self._submit(future, fn, args, kwargs)
        except RuntimeError:
            _end_daemon_thread()
            raise
        future.add_done_callback(self._forget)
        return future

    def _submit(self, future: PoolFuture[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            try:
                result = self._pool.apply_async(
                    fn,
                    args,
                    kwargs,
                    lambda value: self._end(future, value, None),
                    lambda error: self._end(future, None, error),
                )
            except ValueError:  # closed by _at_end
                raise RuntimeError("cannot schedule new futures after interpreter shutdown") from None
            self._jobs[future] = result._job  # type: ignore[attr-defined]

    def _end(self, future: PoolFuture[Any], value: Any, error: BaseException | None) -> None:
        from distsync.multiprocessing._pool.pool_caller import WithdrawnError  # it was imported with the pool

        if isinstance(error, WithdrawnError):
            future._end_cancelled()
            return
        if future.cancelled() or not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(value)
        else:
            broken = _BROKEN.get(type(error))
            future.set_exception(_as_in_stdlib(error) if broken is None else broken(*error.args))

    def _forget(self, future: _stdlib.Future[Any]) -> None:
        self._jobs.pop(future, None)  # type: ignore[call-overload]

    def _take_out(self, future: PoolFuture[Any], limit: OutageLimit | None) -> bool:
        job = self._jobs.get(future)
        return job is not None and self._pool._withdraw(job, limit)

    def _interrupt(self, future: PoolFuture[Any]) -> bool:
        job = self._jobs.get(future)
        return job is not None and self._pool._interrupt(job)

    def _is_running(self, future: PoolFuture[Any]) -> bool:
        job = self._jobs.get(future)
        return job is not None and self._pool._is_running(job)

    def map(
        self, fn: Callable[..., Result], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Result]:  # fmt: skip
        """Call a function with the items of the iterables, and return an iterator over the results.

        The iterator yields the results in the order of the items. If a call raised an exception,
        the iterator raises it in place of the result. It raises TimeoutError if a result is not
        available in time.

        Args:
            fn: The function to call. It is sent by its name, so a worker must be able to import it.
            *iterables: One iterable for each parameter of ``fn``; the shortest one ends the calls.
            timeout: Maximum wait in seconds, from this call; None waits forever.
            chunksize: Number of items that are sent to a worker as one task.
            buffersize: Maximum number of tasks whose results were not yielded yet. The iterables are
                read no further. None reads them to their ends at once. Python 3.14 has this
                parameter, too.

        Returns:
            An iterator over the results.

        Raises:
            ValueError: ``chunksize`` or ``buffersize`` is less than 1.
            TypeError: ``buffersize`` is not an integer.
            RuntimeError: The executor was shut down.

        Note:
            Source: ``concurrent.futures.ProcessPoolExecutor.map``.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        chunks = _chunks(zip(*iterables), chunksize)  # noqa: B905  # of different lengths, as the stdlib's
        if buffersize is None:
            return _each(super().map(_call_all, repeat(fn), chunks, timeout=timeout))
        until = None if timeout is None else time.monotonic() + timeout
        pending = deque(self.submit(_call_all, fn, chunk) for chunk in islice(chunks, buffersize))
        return _each(_buffered(weakref.ref(self), fn, chunks, pending, until))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls, and stop the local workers once all calls are done.

        Args:
            wait: Whether to wait until all calls are done and the local workers have exited.
            cancel_futures: Whether to cancel the calls that no worker has started.

        Note:
            If ``wait`` is True and no server has answered for the session timeout, the calls that workers
            elsewhere may have are given up. Their futures raise TaskLostError. Those of local workers are
            completed. If ``wait`` is False, so it is at the end of the program.

            Source: ``concurrent.futures.Executor.shutdown``.
        """
        with self._lock:
            self._is_shut = True
        if cancel_futures:
            self._cancel_waiting(list(self._jobs))
        self._pool.close()
        if wait:
            self._pool.join()

    def _cancel_waiting(self, futures: Iterable[PoolFuture[Any]]) -> None:
        """Cancel calls that no worker has started. Give up if no server answers for the session timeout."""
        limit = self._pool._submitting.outage_limit()
        for future in futures:
            future._cancel(limit)

    def _may_wait(self) -> bool:
        """Return whether the current thread may wait for a server, if the executor has one."""
        return self._pool._submitting._may_wait()

    def terminate_workers(self) -> None:
        """Refuse further calls, cancel those that no worker has started, and stop the local workers at once.

        A worker that does not exit is killed after 2 seconds. The futures of calls that have no
        result raise TaskLostError. Python 3.14 has this method, too.

        Note:
            Costs as many requests as ``shutdown(cancel_futures=True)``.

            Source: ``concurrent.futures.ProcessPoolExecutor.terminate_workers``.
        """
        self._stop_workers("terminate")

    def kill_workers(self) -> None:
        """Kill the local workers, and do otherwise what `terminate_workers` does.

        Note:
            Costs as many requests as ``shutdown(cancel_futures=True)``.

            Source: ``concurrent.futures.ProcessPoolExecutor.kill_workers``.
        """
        self._stop_workers("kill")

    def _stop_workers(self, method: str) -> None:
        processes = list(self._pool._pool)
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes if method == "kill" else ():
            with suppress(ValueError):  # it has exited
                process.kill()
        self._pool.terminate()
        for future in list(self._jobs):
            if not future.done():
                self._end(future, None, PoolTaskLostError("a call", self._pool.path, "its worker was stopped"))

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the pool of this executor, with all calls and results, for all processes.

        Call `shutdown` first, here and in the other processes that submit calls. Stop workers
        elsewhere, too, because they would create it again.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            ValueError: The executor was not shut down.
            StillUsedError: Calls are not done, or another process submits calls.
            TypeError: ``timeout`` is not a number.
            DeadlineError: The pool was not deleted in time. Subclass of TimeoutError.
            AccessDeniedError: An ACL denies the access.

        Note:
            Costs as many requests as ``Pool.destroy``.
        """
        if not self._is_shut:
            raise ValueError("Executor is still running: call shutdown() before destroy()")
        self._pool.destroy(timeout)


def _end_daemon_thread() -> None:
    """Do not return at the end of the program, if this is a daemon thread."""
    from multiprocessing import util  # these were imported with the pool

    from distsync._client import lifecycle

    if util.is_exiting():
        lifecycle.end_daemon_thread()


def _at_end(pool: Any) -> None:
    """Close the pool of a deleted executor; at the end of the program, wait for its calls."""
    from multiprocessing import util  # it was imported with the pool

    pool.close()
    if util.is_exiting():
        pool.join()


def _chunks(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    iterator = iter(items)
    while chunk := tuple(islice(iterator, size)):
        yield chunk


def _buffered(
    executor: weakref.ref[Executor],
    fn: Callable[..., Result],
    chunks: Iterator[tuple[Any, ...]],
    pending: deque[_stdlib.Future[list[Result]]],
    until: float | None,
) -> Iterator[list[Result]]:
    """Yield the results of the pending calls, and submit another one before each."""
    try:
        while pending:
            submitter = executor()
            if submitter is not None and (chunk := next(chunks, None)) is not None:
                pending.append(submitter.submit(_call_all, fn, chunk))
            submitter = chunk = None
            yield _result_or_cancel(pending.popleft(), until)
    finally:
        for future in pending:
            future.cancel()


def _result_or_cancel(future: _stdlib.Future[Result], until: float | None) -> Result:
    try:
        return future.result(None if until is None else until - time.monotonic())
    finally:
        future.cancel()
        del future  # an exception references this frame


def _each(chunks: Iterable[list[Result]]) -> Iterator[Result]:
    """Yield the results of all chunks. None that was yielded is referenced any more."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


def _as_in_stdlib(error: BaseException) -> BaseException:
    """Return the error that ``concurrent.futures`` would have: the cause has the worker's traceback.

    If a result could not be sent, it is what the attempt to send it raised.
    """
    from concurrent.futures.process import _RemoteTraceback  # multiprocessing is imported already
    from multiprocessing.pool import MaybeEncodingError, RemoteTraceback  # type: ignore[attr-defined]

    if type(error) is MaybeEncodingError:
        error = getattr(error, "error", error)
    if isinstance(error.__cause__, RemoteTraceback):
        error.__cause__ = _RemoteTraceback(error.__cause__.tb)
    return error


def _call_all(fn: Callable[..., Result], several: tuple[tuple[Any, ...], ...]) -> list[Result]:
    return [fn(*args) for args in several]


def __getattr__(name: str) -> Any:
    """Return a name of ``concurrent.futures`` that distsync does not replace."""
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
