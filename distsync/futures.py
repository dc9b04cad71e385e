"""The face of ``concurrent.futures``: an Executor whose calls run on the workers of a pool, here and elsewhere.

Rules for this file: a pool does the work; here is what a Future can do beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures as _stdlib
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Executor", "PoolFuture"]

Result = TypeVar("Result")


class PoolFuture(_stdlib.Future[Result]):
    """A call that was put into a pool. `cancel` takes it out again, as long as no worker has begun it."""

    __module__ = "distsync.futures"

    def __init__(self, withdraw: Callable[[PoolFuture[Any]], bool]) -> None:
        super().__init__()
        self._withdraw = withdraw

    def cancel(self) -> bool:
        """No worker will begin it. False: one has, or it is done.

        Cost: 1 request for each segment of waiting tasks, 1 more to take it out.
        Source: ``concurrent.futures.Future.cancel``.
        """
        if self.cancelled():
            return True
        if self.done() or not self._withdraw(self):
            return False
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()
        return True


class Executor(_stdlib.Executor):
    """A ``concurrent.futures.Executor`` on the workers of a pool, with a name also on those of other machines.

    A call whose worker dies is done by another one. ``running()`` stays False until it is done: who has begun it is
    known to the ensemble only, which `Future.cancel` asks. At its end a program waits until all calls are done, as with
    the stdlib's executors.

    Units: ``max_workers``: local workers; None: one for each CPU; 0, with a name: none, others do the work.
    Raises: as Pool. A Future raises what the function raised, or as Pool's results.
    On loss: as Pool.
    Cost: as Pool.
    Fair: as Pool.
    Source: ``concurrent.futures.ProcessPoolExecutor``.

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
    ) -> None:
        from multiprocessing import util

        from distsync.multiprocessing.pool import MAX_DELIVERIES, Pool  # multiprocessing comes with it

        max_deliveries = MAX_DELIVERIES if max_deliveries is None else max_deliveries
        self._pool = Pool(
            max_workers, initializer, initargs, max_tasks_per_child, mp_context,
            name=name, client=client, max_deliveries=max_deliveries, max_payload=max_payload, progress=progress,
        )  # fmt: skip
        util.Finalize(self, _at_end, (self._pool,), exitpriority=20)  # before the pool is terminated
        self._lock = threading.Lock()
        self._jobs: dict[PoolFuture[Any], int] = {}
        self._is_shut = False

    @property
    def name(self) -> str:
        """The name that workers elsewhere find the pool by."""
        return self._pool.name

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> _stdlib.Future[Result]:
        """``fn(*args, **kwargs)`` will be called by a worker.

        Returns: a Future. Raises: RuntimeError after `shutdown`.
        Cost: as Pool.
        Source: ``concurrent.futures.Executor.submit``.
        """
        future: PoolFuture[Result] = PoolFuture(self._take_out)
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            result = self._pool.apply_async(
                fn,
                args,
                kwargs,
                lambda value: self._end(future, value, None),
                lambda error: self._end(future, None, error),
            )
            self._jobs[future] = result._job  # type: ignore[attr-defined]
        future.add_done_callback(self._forget)
        return future

    def _end(self, future: PoolFuture[Any], value: Any, error: BaseException | None) -> None:
        if future.cancelled() or not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _forget(self, future: _stdlib.Future[Any]) -> None:
        self._jobs.pop(future, None)  # type: ignore[call-overload]

    def _take_out(self, future: PoolFuture[Any]) -> bool:
        job = self._jobs.get(future)
        return job is not None and self._pool._withdraw(job)

    def map(
        self, fn: Callable[..., Result], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1,
        **options: Any,
    ) -> Iterator[Result]:  # fmt: skip
        """The results of ``fn`` for the items of the iterables, in order.

        Units: seconds from this call, None: without end; items that travel together.
        Raises: TimeoutError; what a call raised, where its result would come.
        Source: ``concurrent.futures.ProcessPoolExecutor.map``.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        chunks = _chunks(zip(*iterables), chunksize)  # noqa: B905  # of different lengths, as the stdlib's
        results = super().map(_call_all, repeat(fn), chunks, timeout=timeout, **options)
        return (result for several in results for result in several)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No call is taken any more; the local workers go when all are done.

        With ``cancel_futures`` those that no worker has begun are cancelled. Without ``wait`` it returns at once.

        Source: ``concurrent.futures.Executor.shutdown``.
        """
        with self._lock:
            self._is_shut = True
        if cancel_futures:
            for future in list(self._jobs):
                future.cancel()
        self._pool.close()
        if wait:
            self._pool.join()


def _at_end(pool: Any) -> None:
    """Nobody has the executor any more, and nothing is to be done; or the program ends, when all has been done."""
    from multiprocessing import util

    pool.close()
    if util.is_exiting():
        pool.join()


def _chunks(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    iterator = iter(items)
    while chunk := tuple(islice(iterator, size)):
        yield chunk


def _call_all(fn: Callable[..., Result], several: tuple[tuple[Any, ...], ...]) -> list[Result]:
    return [fn(*args) for args in several]


def __getattr__(name: str) -> Any:
    """Whatever else ``concurrent.futures`` has."""
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
