"""The caller's side of a pool: it sends tasks, receives results, and replaces worker processes.

Four threads run one loop each. None of them references the pool object, so that a pool can be
deleted.
"""

from __future__ import annotations

import math
import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from multiprocessing import connection, util
from multiprocessing.pool import ApplyResult
from typing import Any, Protocol

from distsync._client import lifecycle
from distsync._client.client import Client
from distsync._client.clocks import wait_clock
from distsync._client.deadlines import CLEAN_UP_S
from distsync._client.outage_limit import CHECK_S, OutageLimit
from distsync._log import OwnLogger
from distsync._protocols.pool.callers import Caller, Initializer, TaskReply, sweep_all
from distsync._protocols.pool.tasks import DONE, REFUSED, PoolCore, Task
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.queues.segments import BATCH
from distsync._protocols.retries import REFUSED_S, parent_of
from distsync.errors import (
    ClientClosedError,
    DeadlineError,
    DistsyncError,
    NoNodeError,
    OutcomeUnknownError,
    PayloadPickleError,
    PayloadRefusedError,
    PayloadTooLargeError,
    TaskLostError,
    WorkerStartError,
)
from distsync.multiprocessing._local_workers import LocalWorkers
from distsync.multiprocessing._pool_codec import Call, Label, PoolCodec

#: Maximum number of unfinished tasks. At this number, iterables are not read further.
UNDER_WAY = 4000
#: Maximum bytes of the tasks that are put with one call, and of the tasks that wait for it.
AT_ONCE_BYTES, OUTGOING_BYTES = 4_000_000, 64_000_000
#: Maximum wait in seconds for threads and servers when the pool ends.
LAST_S = 5.0

ASSUMED_DEAD = "this process was disconnected, and other processes assumed that it had exited"

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"

logger = OwnLogger("distsync.multiprocessing")


class ProgressListener(Protocol):
    """An object that is notified of the progress of a pool."""

    def begun(self, items: int) -> None: ...

    def done(self, items: int) -> None: ...

    def close(self) -> None: ...


class Notifier:
    """A pipe that wakes the thread that waits for processes."""

    def __init__(self) -> None:
        self.reader, self._writer = connection.Pipe(duplex=False)
        self._lock = threading.Lock()
        self._is_set = self._closed = False

    def put(self, _: object = None) -> None:
        """Wake the thread. The name is the one that ``multiprocessing.pool`` calls."""
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


class PoolClient:
    """One caller of a pool.

    Args:
        client: The client to use.
        core: State of the pool.
        is_private: Whether the pool has no other caller.
        codec: Codec of calls and results.
        watcher: Notified of the progress; None notifies nothing.
        initializer: Description of the initializer that workers must use; None accepts any.
        initializer_call: The initializer and its arguments; None calls nothing.
        joining: Returns a protocol that first joins the generation to which the pool belongs, if
            that is necessary.
    """

    def __init__(
        self,
        client: Client,
        core: PoolCore,
        is_private: bool,
        codec: PoolCodec,
        watcher: ProgressListener | None,
        initializer: str | None,
        initializer_call: Call | None,
        joining: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        self._client, self._core, self._alone, self._codec = client, core, is_private, codec
        self._watcher, self._joining = watcher, joining
        self._initializer, self._initializer_call = initializer, initializer_call
        self.state = RUN
        self.notifier = Notifier()
        self.cache = Cache(self.notifier)
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._under_way: dict[tuple[int, int], Label] = {}
        self._outgoing: deque[tuple[Task, bytes]] = deque()
        self._outgoing_bytes = 0
        #: Jobs with tasks that have left `_outgoing` but may not be in the queue yet.
        self._being_put: set[int] = set()
        self._dropped: set[int] = set()
        self._no_more = self._is_away = False
        #: Held by the thread that terminates, of several.
        self._terminating = threading.RLock()
        self._crew: LocalWorkers
        self.threads: list[threading.Thread] = []
        try:
            self._begin()
        except BaseException:
            self.notifier.close()
            raise

    def _begin(self) -> None:
        """Register this caller under a new GUID, so that it can put tasks."""
        self.caller = str(uuid.uuid4())
        self._inbox = Caller(self._core, self.caller, self._alone, self._encoded_initializer())
        self._client.run(self._joining(self._inbox.begin()))  # otherwise, joining later could delete it
        self._client.local(self._inbox.path, lambda: self._inbox)
        self._client.at_close(self._inbox.path, self._inbox.end)

    def _encoded_initializer(self) -> Initializer:
        """Return the initializer for workers that this process does not start."""
        if self._alone or self._initializer_call is None:
            return Initializer(self._initializer)
        try:
            place = self._core.znodes.initializer(self.caller)
            return Initializer(self._initializer, self._codec.encode_call(place, self._initializer_call))
        except (PayloadPickleError, PayloadTooLargeError):
            return Initializer(self._initializer)

    def start(self, crew: LocalWorkers) -> None:
        """Start the threads. If one cannot be started, terminate.

        Args:
            crew: The local workers.
        """
        self._crew = crew
        self._client.background(sweep_all(self._core, parent_of(self._core.znodes.path)))
        try:
            for target in (self._supervise, self._encode, self._put, self._receive):
                name = f"distsync-pool-{target.__name__.strip('_')}"
                thread = threading.Thread(target=target, name=name, daemon=True)
                thread.start()
                self.threads.append(thread)
        except BaseException:  # there are too many threads, or the program ends
            self.terminate()
            raise

    def abandon(self) -> None:
        """Clean up a caller whose threads were never started."""
        self._cleanup()

    # ---- sending tasks

    def _encode(self) -> None:
        """Encode tasks, like ``multiprocessing.pool.Pool._handle_tasks``."""
        for sequence, set_length in iter(self.tasks.get, None):
            task = None
            try:
                for task in sequence:
                    if self.state == TERMINATE:
                        return
                    self._submit(*task)
                if set_length is not None:
                    set_length((task[1] if task else -1) + 1)
            except BaseException as error:  # the iterable of imap() calls sys.exit(), for example
                if set_length is None:
                    raise
                part = task[1] + 1 if task else 0
                self._deliver(set_length.__self__._job, part, (False, error))
                set_length(part + 1)
            finally:
                task = sequence = set_length = None

    def _submit(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> None:
        inbox = self._inbox
        try:
            payload = self._codec.encode_call(f"{inbox.path}/{job}.{part}", (function, args, kwds))
        except PayloadPickleError as error:
            self._deliver(job, part, (False, error.__cause__ or error))
            return
        except BaseException as error:  # the task is too large, or calls sys.exit() when it is pickled
            self._deliver(job, part, (False, error))
            return
        label = Label.of(function, args)
        with self._changed:
            while self._is_full() and self.state != TERMINATE:
                self._changed.wait()
            if job in self._dropped:
                self._dropped.remove(job)
                return
            is_ours = inbox is self._inbox
            if is_ours:
                self._under_way[job, part] = label
                self._outgoing.append((Task(inbox.caller, job, part), payload))
                self._outgoing_bytes += len(payload)
                self._changed.notify_all()
        if not is_ours:  # registered again since: replies to the former GUID are not received
            self._submit(job, part, function, args, kwds)
            return
        if self._watcher:
            self._watcher.begun(label.items)
        if self._crew.is_hopeless:
            self._crew.failures = 0
            self.notifier.put()

    def _is_full(self) -> bool:
        """Return whether the next task must wait."""
        return len(self._under_way) >= UNDER_WAY or self._outgoing_bytes > OUTGOING_BYTES

    def _put(self) -> None:
        while some := self._next_outgoing():
            progress, failure = Progress(), None
            try:
                self._client.run(self._core.put_tasks(some, progress))
            except NoNodeError:
                pass  # the receiving thread gets the same error, and handles it
            except Exception as error:
                failure = error
            finally:
                with self._changed:
                    self._being_put.clear()
                    self._changed.notify_all()
            if failure is not None:
                for task, _ in some[progress.put :]:
                    self._end(task.job, task.part, (False, failure))

    def _next_outgoing(self) -> list[tuple[Task, bytes]]:
        """Wait for tasks, and return the next batch; empty at the end."""
        with self._changed:
            while not (self._outgoing or self._no_more):
                self._changed.wait()
            some: list[tuple[Task, bytes]] = []
            size = 0
            while self._outgoing and len(some) < BATCH and size < AT_ONCE_BYTES and self.state != TERMINATE:
                some.append(self._outgoing.popleft())
                size += len(some[-1][1])
            self._outgoing_bytes -= size
            self._being_put.update(task.job for task, _ in some)
            self._changed.notify_all()
            return some

    def withdraw(self, job: int, limit: OutageLimit | None = None) -> bool:
        """Remove a job of one task before any worker has claimed it.

        Args:
            job: Number of the job.
            limit: How long to wait for a server; None waits forever.

        Returns:
            True if it was removed. Its result is then never set.
        """
        with self._changed:
            while job in self._being_put:  # otherwise the queue could be read before the put
                if limit is not None and limit.has_passed():
                    return False
                self._changed.wait(None if limit is None else CHECK_S)
            if (job, 0) not in self._under_way and job in self.cache:
                self._dropped.add(job)
                del self.cache[job]
                return True
            waiting = [each for each in self._outgoing if each[0].job == job]
            for each in waiting:
                self._outgoing.remove(each)
                self._outgoing_bytes -= len(each[1])
        tasks = [task for task, _ in waiting] or self._withdraw_sent(job, limit)
        for task in tasks:
            with self._changed:
                label = self._under_way.pop((task.job, task.part), None)
                self._changed.notify_all()
            if label is not None and self._watcher:
                self._watcher.done(label.items)
        if tasks and job in self.cache:
            del self.cache[job]
        return bool(tasks)

    def _withdraw_sent(self, job: int, limit: OutageLimit | None) -> list[Task]:
        """Remove the tasks of a job from the queue, and return those that no worker had claimed."""
        seconds = None if limit is None else min(limit.remaining(), limit.seconds)
        if seconds == 0:
            return []
        try:
            tasks: list[Task] = self._client.run(self._core.withdraw_tasks(self.caller, job), seconds)
            return tasks
        except (DeadlineError, OutcomeUnknownError):
            if limit is None:
                raise
            # The task may have been removed, and then no result arrives.
            self._log_given_up(1, limit.reason)
            self._end(job, 0, (False, TaskLostError(f"job {job}", self._core.znodes.path, limit.reason)))
            return []

    def is_running(self, job: int) -> bool:
        """Return whether a worker has claimed a job of one task that is not done; False if no server replies."""
        with self._changed:
            if (job, 0) not in self._under_way or any(each.job == job for each, _ in self._outgoing):
                return False
        try:
            is_claimed: bool = self._client.run(self._core.is_claimed(self.caller, job), LAST_S)
        except DistsyncError:
            return False
        with self._changed:
            return is_claimed and (job, 0) in self._under_way

    # ---- receiving results

    def _receive(self) -> None:
        while True:
            try:
                replies = self._next_replies()
            except ClientClosedError as error:
                self.fail_all(error)
                return
            except Exception as error:  # such as an exceeded quota: later requests may succeed
                self.fail_all(error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._no_more, REFUSED_S):
                        return
            else:
                if replies is None:
                    return
                for each in replies:
                    self._accept(each)
            replies = each = None  # type: ignore[assignment]

    def _next_replies(self) -> list[TaskReply] | None:
        """Return the next replies; None at the end."""
        try:
            replies: list[TaskReply] | None = self._client.run(self._inbox.receive())
            return replies
        except NoNodeError:
            self._begin_anew()
            return []

    def _begin_anew(self) -> None:
        """Register again, after other processes assumed this caller dead and removed its znodes."""
        self._client.discard(self._inbox.path, self._inbox.end)
        with self._changed:
            self._outgoing.clear()
            self._outgoing_bytes = 0
            lost = dict(self._under_way)  # without the tasks of the new GUID
            self._begin()
            self._changed.notify_all()
        self._fail(lost, None)

    def wait_for_registration(self, former: str) -> bool:
        """Wait until this caller has another GUID than ``former``. Return False if it ends before."""
        with self._changed:
            self._changed.wait_for(lambda: self.caller != former or self._no_more)
            return self.caller != former

    def _accept(self, reply: TaskReply) -> None:
        with self._changed:
            label = self._under_way.get((reply.job, reply.part))
        if label is not None:
            self._end(reply.job, reply.part, self._outcome(reply, label))

    def _outcome(self, reply: TaskReply, label: Label) -> tuple[bool, Any]:
        task, pool = f"the task {label.function} (job {reply.job}, part {reply.part})", self._core.znodes.path
        if reply.kind == REFUSED:
            return False, PayloadRefusedError(f"{task} of {pool}", reply.data.decode(errors="replace"))
        if reply.kind != DONE:
            times = reply.data.decode(errors="replace")
            return False, TaskLostError(task, pool, f"it was delivered {times} times, and no worker lived to its end")
        try:
            return self._codec.decode_result(f"{self._inbox.path}/{reply.job}.{reply.part}", reply.data)
        except PayloadRefusedError as error:
            return False, PayloadRefusedError(f"{task} of {pool}, as it came back", error.args[1])
        except BaseException as error:  # the result calls sys.exit() when it is unpickled, for example
            return False, error

    def _end(self, job: int, part: int, outcome: tuple[bool, Any]) -> None:
        """Finish a task, and set its result."""
        with self._changed:
            label = self._under_way.pop((job, part), None)
            self._changed.notify_all()
        if label is not None:
            if self._watcher:
                self._watcher.done(label.items)
            self._deliver(job, part, outcome)

    def _deliver(self, job: int, part: int, outcome: tuple[bool, Any]) -> None:
        result = self.cache.get(job)
        if result is None:
            return
        try:
            result._set(part, outcome)
        except BaseException:  # of a callback, also that of sys.exit(): waiters for the result must not wait forever
            logger.exception("a callback of a pool result raised an exception")
            result._event.set()
            if job in self.cache:
                del self.cache[job]

    def fail_all(self, error: Exception | None) -> None:
        """Fail all unfinished tasks.

        Args:
            error: The error; None if other processes have assumed this caller dead.
        """
        with self._changed:
            under_way = dict(self._under_way)
        self._fail(under_way, error)

    def _fail(
        self, under_way: dict[tuple[int, int], Label], error: Exception | None, reason: str = ASSUMED_DEAD
    ) -> None:
        """Fail these tasks with ``error``, or with a TaskLostError for ``reason`` if it is None."""
        for (job, part), label in under_way.items():
            self._end(job, part, (False, error or TaskLostError(label.function, self._core.znodes.path, reason)))

    # ---- replacing workers

    def _supervise(self) -> None:
        """Replace workers, like ``multiprocessing.pool.Pool._handle_workers``. Clean up at the end."""
        while self.state == RUN or (self.cache and self.state != TERMINATE):
            self._crew.poll()
            if self._crew.is_hopeless:
                failed = WorkerStartError(self._core.znodes.path, self._crew.failures, self._crew.story)
                self.fail_all(failed)
            else:
                self._fill()
            connection.wait([*self._crew.waitables(), self.notifier.reader])
            self.notifier.heard()
        if self.state != TERMINATE:
            self._crew.stop_when_idle()
            self._crew.join()
            self._cleanup()

    def _fill(self) -> None:
        try:
            self._crew.start_missing()
        except Exception as error:
            self._crew.failures += 1
            self._crew.story = f"{type(error).__name__}: {error}"
            self.notifier.put()

    def _cleanup(self, given_up: int = 0) -> None:
        """Stop the other threads, and delete the znodes of this caller.

        Args:
            given_up: Number of cancelled jobs, of which this warns if no server answers.
        """
        if self._is_away:
            return
        self._is_away = True
        self.tasks.put(None)
        with self._changed:
            self._no_more = True
            self._changed.notify_all()
        self._inbox.stop.fire()
        limit = OutageLimit(self._client, LAST_S)
        self._end_threads(limit)
        try:
            limit.run(self._inbox.end, LAST_S)
            self._client.discard(self._inbox.path, _nothing)
        except DistsyncError as error:
            reason = limit.reason if limit.has_passed() else error
            if given_up:
                self._log_given_up(given_up, reason)
            logger.warning("could not clean up pool %s: %s", self._core.znodes.path, reason)
        if self._watcher:
            self._watcher.close()
        self.notifier.close()

    def _end_threads(self, limit: OutageLimit) -> None:
        """Wait for the other threads. Interrupt those that wait for a server in an outage."""
        until, others = wait_clock() + min(LAST_S, limit.remaining() + CLEAN_UP_S), self.threads[1:]
        while wait_clock() < until:
            others = [each for each in others if each.is_alive() and each is not threading.current_thread()]
            for thread in others if limit.remaining() < math.inf else ():
                self._client.interrupt(thread.ident or 0, ClientClosedError("a pool that ended in an outage"))
            if not others:
                break
            others[-1].join(CHECK_S)

    def _log_given_up(self, jobs: int, reason: object) -> None:
        logger.warning("%d jobs of the pool %s were given up: %s", jobs, self._core.znodes.path, reason)

    def close(self) -> None:
        """Accept no more tasks, and clean up when all are done."""
        if self.state == RUN:
            self.state = CLOSE
            self.notifier.put()

    def finalize(self) -> None:
        """Terminate a pool that was deleted or is to end, in a thread if this one must not wait."""
        if self._client.may_wait():
            self.terminate()
        else:
            threading.Thread(target=self.terminate, name="distsync-pool-terminate", daemon=True).start()

    def terminate(self) -> None:
        """Cancel all tasks, and clean up.

        If no server answers, this waits for the session timeout at most, and warns of the cancelled jobs.
        """
        self.state = TERMINATE
        self.notifier.put()
        with self._changed:
            self._changed.notify_all()
        with self._terminating:
            limit, jobs = OutageLimit(self._client, LAST_S), len(self.cache)
            for thread in self.threads[:1]:
                if not limit.join(thread):
                    self._crew.kill()  # the workers wait for a server too
                    thread.join()
            self._crew.terminate(limit.remaining())
            self._break_off()
            self._cleanup(jobs)

    def _break_off(self) -> None:
        """Fail all pending results."""
        success: Any = _FailedAtEnd() if util.is_exiting() else False
        for job in list(self.cache):
            result: Any = self.cache.pop(job, None)
            error = TaskLostError(f"job {job}", self._core.znodes.path, "the pool was terminated")
            if hasattr(result, "_items"):  # a result of imap
                with result._cond:
                    result._items.append((success, error))
                    result._cond.notify_all()
            elif result is not None:
                result._success, result._value = success, error
                result._event.set()

    def outage_limit(self) -> OutageLimit:
        """Return the limit of the waits at the end of the pool."""
        return OutageLimit(self._client)

    def join(self) -> None:
        """Wait until all threads have ended, after `close` or `terminate`.

        If no server has answered for the session timeout, give up the tasks that are not done.
        """
        limit = self.outage_limit()
        for thread in self.threads:
            if not limit.join(thread):
                self._give_up(limit.reason)
                return

    def _give_up(self, reason: str) -> None:
        """Fail all tasks, and clean up.

        Args:
            reason: Why no result will arrive.
        """
        with self._changed:
            is_first, self.state = self.state != TERMINATE, TERMINATE
            under_way = dict(self._under_way)
        if is_first:  # otherwise another thread terminates the pool
            if self.cache:
                self._log_given_up(len(self.cache), reason)
            self._fail(under_way, None, reason)
            self._fail_unsent(reason)
            self._crew.kill()  # the workers wait for a server too
        self.terminate()

    def _fail_unsent(self, reason: str) -> None:
        for job, result in list(self.cache.items()):
            if type(result) is ApplyResult:
                self._deliver(job, 0, (False, TaskLostError(f"job {job}", self._core.znodes.path, reason)))


async def _nothing() -> None:
    """Do nothing."""
