"""The caller's side of any pool: pending results, the encoding of tasks, and the end.

The threads do not reference the pool object, so that a pool can be deleted.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, util
from typing import TYPE_CHECKING, Any, Protocol

from distsync._client import lifecycle
from distsync._client.clocks import wait_clock
from distsync._client.outage_limit import OutageLimit
from distsync._client.payload_codec import reason_of
from distsync._log import OwnLogger
from distsync.errors import TaskLostError
from distsync.multiprocessing._pool.local_workers import LocalWorkers
from distsync.multiprocessing._pool.pool_codec import Label

if TYPE_CHECKING:
    from distsync.multiprocessing._pool.progress_display import ProgressSource

#: Maximum number of unfinished tasks. At this number, iterables are not read further.
UNDER_WAY = 4000

#: Seconds after which a worker is started again, after failures.
RETRY_S = 0.5

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"

logger = OwnLogger("distsync.multiprocessing")


class ProgressListener(Protocol):
    """An object that is notified of the progress of a pool."""

    def watch(self, source: ProgressSource) -> None: ...

    def begun(self, items: int) -> None: ...

    def done(self, items: int) -> None: ...

    def failed(self) -> None: ...

    def close(self) -> None: ...


class Notifier:
    """A pipe that wakes the thread that waits for processes."""

    def __init__(self) -> None:
        self.reader, self._writer = connection.Pipe(duplex=False)
        self._lock = threading.Lock()
        self._is_set = self._closed = False
        self._pid = os.getpid()

    def put(self, _: object = None) -> None:
        """Wake the thread. The name is the one that ``multiprocessing.pool`` calls."""
        if self._pid != os.getpid():  # a forked child: the thread is its parent's
            return
        with self._lock:
            if not (self._is_set or self._closed):
                self._is_set = True
                self._writer.send_bytes(b".")

    def heard(self) -> None:
        """Clear a wakeup."""
        with self._lock:
            if self._is_set:
                self._is_set = False
                self.reader.recv_bytes()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.reader.close()
            self._writer.close()


#: Maximum wait in seconds for a thread whose start was interrupted.
START_S = 0.2


class WithdrawnError(Exception):
    """A job was withdrawn, as its caller learned after it had waited too long for the reply."""


class _FailedAtEnd:
    """The success of a result that the end of the process has failed: False.

    A daemon thread that was waiting for the result ends in silence. In the standard library, it
    would wait until the process is gone.
    """

    def __bool__(self) -> bool:
        lifecycle.end_daemon_thread()
        return False


class Cache(dict[int, Any]):
    """The pending results, by job.

    Args:
        notifier: Woken when the last result is removed.
    """

    def __init__(self, notifier: Notifier) -> None:
        super().__init__()
        self._notifier = notifier

    def __delitem__(self, job: int) -> None:
        super().__delitem__(job)
        if not self:
            self._notifier.put()


#: Types of iterables of which each item can be read without waiting for anything.
QUICK_ITERABLES = frozenset({list, range, tuple})


class JobQueue:
    """The jobs to encode, and the numbers of their items.

    A job that is put has one item, unless it is put in a block of `sized`.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        #: For each job in the queue its number of items; None if it is not known. The order is approximate.
        self._waiting: deque[int | None] = deque()
        self._putting = threading.local()

    @contextmanager
    def sized(self, iterable: Any) -> Iterator[None]:
        """Put jobs of as many items as an iterable has, in this thread.

        Args:
            iterable: The iterable, whose length may be unknown.
        """
        items = None
        with suppress(Exception):  # it has no length, or its method raises anything
            items = len(iterable)
        self._putting.items, self._putting.is_quick = items, type(iterable) in QUICK_ITERABLES
        try:
            yield
        finally:
            self._putting.items, self._putting.is_quick = 1, False

    def put(self, job: Any) -> None:
        """Put a job, or None for the end."""
        items = getattr(self._putting, "items", 1)
        if job is not None:
            self._waiting.append(items)
        self._jobs.put(job and (*job, items, getattr(self._putting, "is_quick", False)))

    def get(self) -> Any:
        """Return the next job, its number of items, and whether all can be read at once; None at the end.

        Call `leave` when these are counted elsewhere.
        """
        return self._jobs.get()

    def leave(self, items: int | None) -> None:
        """Count the items of a job no longer.

        Args:
            items: Their number; None if it is not known.
        """
        self._waiting.remove(items)

    def unsent_items(self) -> tuple[int, bool]:
        """Return how many items are in the queue, as far as is known, and whether there may be more."""
        waiting = tuple(self._waiting)
        return sum(items or 0 for items in waiting), None in waiting


class PoolCaller(ABC):
    """One caller of a pool.

    Args:
        path: Path of the pool, for messages.
        watcher: Notified of the progress; None notifies nothing.
    """

    def __init__(self, path: str, watcher: ProgressListener | None) -> None:
        self._path, self._watcher = path, watcher
        self.state = RUN
        self.notifier = Notifier()
        self.cache = Cache(self.notifier)
        self.tasks = JobQueue()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._crew: LocalWorkers
        self.threads: list[threading.Thread] = []
        #: When a worker may be started again, after failures.
        self._fill_at = 0.0
        #: Number of items of the job that is being encoded that were not put yet, as far as is known.
        self._unread_items = 0
        #: Whether a job is being encoded whose number of items is not known.
        self._is_reading = False
        #: Number of workers elsewhere; None if it is not known.
        self._remote_workers: int | None = None
        #: Whether the next task of the job follows at once.
        self._is_quick = False
        #: Held by the thread that terminates, of several.
        self._terminating = threading.RLock()
        #: Whether the caller has ended, and whether it has freed all that it had: an interrupt may come between.
        self.is_away = self.is_clean = False

    def start(self, crew: LocalWorkers) -> None:
        """Start the threads. If one cannot be started, terminate.

        Args:
            crew: The local workers.
        """
        self._crew = crew
        if self._watcher:
            self._watcher.watch(self)
        try:
            for target in self._loops():
                name = f"distsync-pool-{target.__name__.strip('_')}"
                self.threads.append(threading.Thread(target=target, name=name, daemon=True))
                self.threads[-1].start()
        except BaseException:  # there are too many threads, the program ends, or an interrupt
            self._forget_unstarted()
            self.terminate()
            raise

    def _forget_unstarted(self) -> None:
        """Remove the last thread if it was not started. It may be starting."""
        until = wait_clock() + START_S
        while self.threads and self.threads[-1].ident is None:
            if wait_clock() > until:
                self.threads.pop()
            else:
                time.sleep(START_S / 10)

    @abstractmethod
    def _loops(self) -> tuple[Any, ...]:
        """Return the functions that run in a thread each. The first one is `_supervise`."""

    # ---- sending tasks

    def _encode(self) -> None:
        """Encode tasks, like ``multiprocessing.pool.Pool._handle_tasks``."""
        for sequence, set_length, items, is_quick in iter(self.tasks.get, None):
            task, self._is_quick = None, is_quick
            self._unread_items, self._is_reading = items or 0, items is None
            self.tasks.leave(items)
            try:
                for task in sequence:
                    if self.state == TERMINATE:
                        return
                    self._submit(*task)
                self._submit_rest()
                if set_length is not None:
                    set_length((task[1] if task else -1) + 1)
            except BaseException as error:  # the iterable of imap() calls sys.exit(), for example
                self._submit_rest()
                if set_length is None:
                    raise
                part = task[1] + 1 if task else 0
                self._deliver(set_length.__self__._job, part, (False, error))
                set_length(part + 1)
            finally:
                self._unread_items, self._is_reading = 0, False
                task = sequence = set_length = None

    def _count_put(self, items: int) -> None:
        """Count items as put."""
        if self._watcher:
            self._unread_items = max(0, self._unread_items - items)  # first, so that no item is counted twice
            self._watcher.begun(items)

    def _refuse(self, job: int, part: int, function: Any, args: Any, error: BaseException) -> None:
        """Fail a task that cannot be sent."""
        if self._watcher:
            items = Label.of(function, args).items
            self._count_put(items)
            self._watcher.done(items)
        self._deliver(job, part, (False, error))

    @abstractmethod
    def _submit(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> None:
        """Encode a task, and send it as soon as it may be sent, or with those that follow at once."""

    @abstractmethod
    def _submit_rest(self) -> None:
        """Send the tasks that `_submit` has encoded and not sent."""

    @abstractmethod
    def withdraw(self, job: int, limit: OutageLimit | None = None) -> bool:
        """Remove a job of one task before any worker has started it.

        Args:
            job: Number of the job.
            limit: How long to wait for a server; None waits for the client's default timeout.

        Returns:
            True if it was removed. Its result is then never set.

        Raises:
            DeadlineError: No server replied in time. If the job is found to be removed later, its result is a
                WithdrawnError.
        """

    @abstractmethod
    def is_running(self, job: int) -> bool:
        """Return whether a worker has started a job of one task that is not done."""

    @abstractmethod
    def interrupt(self, job: int) -> bool:
        """Kill the worker that runs a job of one task.

        Args:
            job: Number of the job.

        Returns:
            Whether a worker ran it. Its result is then a TaskLostError.

        Raises:
            ValueError: The pool has a name.
        """

    # ---- receiving results

    def _deliver(self, job: int, part: int, outcome: tuple[bool, Any]) -> None:
        result = self.cache.get(job)
        if result is None:
            return
        if self._watcher and not outcome[0]:
            self._watcher.failed()
        try:
            result._set(part, outcome)
        except BaseException:  # of a callback, also that of sys.exit(): waiters for the result must not wait forever
            logger.exception("a callback of a pool result raised an exception")
            result._event.set()
            if job in self.cache:
                del self.cache[job]

    # ---- workers

    def _supervise(self) -> None:
        """Replace workers, like ``multiprocessing.pool.Pool._handle_workers``. Clean up at the end."""
        while self.state == RUN or (self.cache and self.state != TERMINATE):
            self._crew.poll()
            pause = None
            if self._crew.is_hopeless:
                self._fail_hopeless()
            else:
                pause = self._fill()
            connection.wait([*self._crew.waitables(), self.notifier.reader], pause)
            self.notifier.heard()
        if self.state != TERMINATE:
            self._end_workers()
            try:
                self._cleanup()
            finally:
                self._end_progress()

    def _end_workers(self) -> None:
        """Stop the local workers after their current tasks."""
        self._crew.stop_when_idle()
        self._crew.join()

    @abstractmethod
    def _fail_hopeless(self) -> None:
        """Fail all unfinished tasks, because the local workers exit before they are ready."""

    def _fill(self) -> float | None:
        """Start missing workers. Return the seconds after which to try again; None if all have been started."""
        now, crew = wait_clock(), self._crew
        if now < self._fill_at:
            return self._fill_at - now
        try:
            crew.start_missing()
        except Exception as error:  # there are too many processes, for example
            crew.failures += 1
            crew.story = reason_of(error)
            self._fill_at = now + RETRY_S
            return RETRY_S
        if crew.is_failing:  # others run tasks; the new ones may exit like those before
            self._fill_at = now + RETRY_S
        return None

    # ---- progress

    @property
    def has_stopped(self) -> bool:
        """Whether the pool was terminated, or has ended."""
        return self.is_away or self.state == TERMINATE

    def unsent_items(self) -> tuple[int, bool]:
        """Return how many items wait to be encoded, as far as is known, and whether there may be more."""
        waiting, may_be_more = self.tasks.unsent_items()
        return waiting + self._unread_items, may_be_more or self._is_reading

    def worker_counts(self) -> tuple[int, int | None]:
        """Return the number of local workers, and of workers elsewhere; None if there can be none."""
        return len(self._crew.processes), self._remote_workers

    def _end_progress(self) -> None:
        """Show the last numbers. Nothing is shown after this."""
        if self._watcher:
            self._watcher.close()

    # ---- the end

    @abstractmethod
    def _cleanup(self) -> None:
        """Stop the other threads, and free all that this caller has."""

    def abandon(self) -> None:
        """Clean up a caller whose threads were never started."""
        self._cleanup()
        self._end_progress()

    @abstractmethod
    def outage_limit(self) -> OutageLimit | None:
        """Return the limit of the waits at the end of the pool; None if it waits for no server."""

    def close(self) -> None:
        """Accept no more tasks, and clean up when all are done."""
        if self.state == RUN:
            self.state = CLOSE
            self.notifier.put()

    def finalize(self) -> None:
        """Terminate a pool that was deleted or is to end, in a thread if this one must not wait."""
        if self._may_wait():
            self.terminate()
        else:
            threading.Thread(target=self.terminate, name="distsync-pool-terminate", daemon=True).start()

    def _may_wait(self) -> bool:
        """Return whether the current thread may wait for those of this caller."""
        return threading.current_thread() not in self.threads

    def terminate(self) -> None:
        """Cancel all tasks, and clean up."""
        self.state = TERMINATE
        self.notifier.put()
        with self._lock:
            self._changed.notify_all()
        try:
            with self._terminating:
                self._stop()
        finally:
            self._end_progress()

    @abstractmethod
    def _stop(self) -> None:
        """End the workers at once, fail all pending results, and clean up."""

    def _break_off(self) -> None:
        """Fail all pending results."""
        success: Any = _FailedAtEnd() if util.is_exiting() else False
        for job in list(self.cache):
            result: Any = self.cache.pop(job, None)
            error = TaskLostError(f"job {job}", self._path, "the pool was terminated")
            if hasattr(result, "_items"):  # a result of imap
                with result._cond:
                    result._items.append((success, error))
                    result._cond.notify_all()
            elif result is not None:
                result._success, result._value = success, error
                result._event.set()

    def join(self) -> None:
        """Wait until all threads have ended, after `close` or `terminate`."""
        for thread in self.threads:
            thread.join()
