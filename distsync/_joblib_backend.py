"""The backend of joblib: each batch of calls is a call of an executor. It imports joblib.

joblib makes one object of the backend for each ``with`` block, or for each ``Parallel`` that names the
backend, and calls `JoblibBackend.configure` before and `JoblibBackend.terminate` after each use. The executor
is kept in between, and closed with the last reference to the backend.

Nothing of this module is sent to the workers: a batch and the backend for calls inside of it are objects of joblib.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures.process import _RemoteTraceback
from typing import TYPE_CHECKING, Any

from joblib import cpu_count
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from distsync._client import default_client
from distsync._client.clocks import wait_clock
from distsync.errors import DeadlineError, DistsyncError, PayloadTooLargeError
from distsync.futures import Executor, PoolFuture
from distsync.multiprocessing import get_context
from distsync.multiprocessing._pool.worker_base import BaseWorker

if TYPE_CHECKING:
    from distsync._client.client import Client

#: Seconds between looks for the first worker of a pool with a name.
LOOK_S = 0.1

#: What an attempt to pickle a function or an argument raises.
PICKLE_ERRORS = (pickle.PicklingError, AttributeError, TypeError)

#: Parameters that belong to the backend. joblib passes those of ``Parallel``, too, to `JoblibBackend.configure`.
OWN = {"name", "processes", "client", "wait_for_workers", *inspect.signature(Executor).parameters} - {"max_workers"}


class JoblibBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of joblib on the workers of a pool.

    Args:
        name: Name of the pool; None for a pool of this object alone.
        processes: Number of workers that are started here for a pool with a name.
        client: The client to use; None uses the default client.
        wait_for_workers: Seconds to wait until a pool with a name has a worker.
        nesting_level: How many calls of joblib surround this one; None if joblib sets it later.
        **options: Further parameters of the executor.

    Raises:
        ValueError: ``processes`` is given without a name.
        TypeError: The executor has no such parameter.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        name: str | None = None,
        *,
        processes: int = 0,
        client: Client | None = None,
        wait_for_workers: float = 10.0,
        nesting_level: int | None = None,
        **options: Any,
    ) -> None:
        if name is None and processes:
            raise ValueError("processes is for pools with a name: without one, n_jobs is the number of processes")
        super().__init__(nesting_level=nesting_level)
        self._name, self._processes, self._client, self._wait_s = name, processes, client, wait_for_workers
        self._options = {"name": name, "client": client, **options}
        inspect.signature(Executor).bind_partial(**self._options)
        self._executor: Executor | None = None
        #: The process and the number of local workers of the executor.
        self._used_for = (0, 0)
        #: The batches that are not done, each with the callback by which joblib knows the call it belongs to.
        self._pending: dict[PoolFuture[Any], Any] = {}

    # ---- before and after each call of Parallel

    def configure(
        self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **options: Any
    ) -> int:
        """Prepare the executor for a call, and return the number of its workers."""
        misplaced = sorted(OWN & options.keys())
        if misplaced:
            names = ", ".join(f"{name}=" for name in misplaced)
            raise TypeError(f'give {names} to joblib.parallel_config("distsync", ...), and not to joblib.Parallel')
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self._prepare(n_jobs)
        self.parallel = weakref.proxy(parallel)  # it references this object, which ends with its last reference
        return n_jobs

    def terminate(self) -> None:
        """Forget how long the batches of the last call took. The executor is kept for the next one."""
        self.reset_batch_stats()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many batches may run at a time; 1 if the calls are to run here, one after the other."""
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs == 1 or self._is_nested():
            return 1
        if self._name is not None:
            workers = self._count_workers()
            return n_jobs if n_jobs > 0 else max(workers + 1 + n_jobs, 2)  # not 1: the only worker is elsewhere
        if multiprocessing.current_process().daemon:
            warnings.warn("n_jobs=1 is used, because a daemonic process may start no others", stacklevel=3)
            return 1
        return n_jobs if n_jobs > 0 else max(int(cpu_count()) + 1 + n_jobs, 1)

    def _is_nested(self) -> bool:
        """Return whether the call is made by a task, and so would wait for a worker while it keeps one."""
        if self.nesting_level:
            return True
        if self._name is None or BaseWorker.served_path is None:
            return False
        client = self._client or default_client.default_client()
        return BaseWorker.served_path == client.path("pool", self._name)

    def _prepare(self, n_jobs: int) -> Executor:
        """Return the executor, which is a new one in a forked child, or if the number of its workers changes.

        The former one is closed with its last reference, when its calls are done.
        """
        used_for = os.getpid(), n_jobs if self._name is None else self._processes
        if self._used_for[0] != used_for[0]:
            self._pending = {}
        if self._executor is None or self._used_for != used_for:
            options = {"mp_context": get_context("spawn"), **self._options}
            self._executor, self._used_for = Executor(used_for[1], **options), used_for
        return self._executor

    def _count_workers(self) -> int:
        """Wait until the pool has a worker, and return how many it has.

        Raises DeadlineError if it has none in time.
        """
        pool, until = self._prepare(0)._pool, wait_clock() + self._wait_s
        while not (count := pool._count_workers(max(self._wait_s, 1.0))):
            if wait_clock() >= until:
                advice = f"start some: python -m distsync worker {self._name}"
                raise DeadlineError(f"the pool {self._name} has no worker after {self._wait_s:g} s; {advice}")
            time.sleep(LOOK_S)
        return count

    # ---- batches of calls

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None) -> Any:
        """Submit a batch, and return its future."""
        assert self._executor is not None, "joblib has called configure()"
        future: Any = self._executor.submit(func)
        self._pending[future] = callback
        future.add_done_callback(self._on_done)
        return future

    apply_async = submit  # what joblib 1.4 calls

    def _on_done(self, future: Any) -> None:
        callback = self._pending.pop(future, None)  # the future must not reference it, because it references the future
        if callback is not None:
            callback(future)

    def retrieve_result_callback(self, out: Any) -> Any:
        """Return the results of a batch that is done, or raise its error."""
        error = out.exception()
        if error is not None:
            raise self._explained(error)
        return out.result()

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error of a batch, with what to do if it could not be sent."""
        if isinstance(error, PayloadTooLargeError):
            what, *sizes = error.args
            return PayloadTooLargeError(f"{what} (of joblib; max_payload= of the backend is its limit)", *sizes)
        if not isinstance(error, PICKLE_ERRORS) or isinstance(error, DistsyncError):
            return error
        if isinstance(error.__cause__, _RemoteTraceback):  # a worker raised it
            return error
        text = f"a call cannot be sent to the workers, {type(error).__name__}: {error}"
        if (self._client or default_client.default_client()).settings.codec == "pickle":
            text += '; lambdas and closures require distsync.connect(codec="cloudpickle") or DISTSYNC_CODEC=cloudpickle'
        refused = pickle.PicklingError(text)
        refused.__cause__ = error
        return refused

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches of the calls that have failed or were interrupted. The executor remains usable."""
        executor = self._executor
        futures = [future for future, callback in list(self._pending.items()) if _is_aborted(callback)]
        if executor is None or not futures:
            return
        if executor._may_wait():
            self._cancel(executor, futures)
        else:  # a finalizer
            threading.Thread(target=self._cancel, args=(executor, futures), name="distsync-joblib", daemon=True).start()

    def _cancel(self, executor: Executor, futures: Sequence[PoolFuture[Any]]) -> None:
        executor._cancel_waiting(futures)
        for future in futures if self._name is None else ():
            future.cancel(running=True)


def _is_aborted(callback: Any) -> bool:
    """Return whether the call to which a batch belongs ends; several generators may share one backend."""
    return bool(getattr(getattr(callback, "parallel", None), "_aborting", True))
