"""A caller of a pool whose tasks are in a queue of the server. Four threads run one loop each."""

from __future__ import annotations

import math
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from multiprocessing.pool import ApplyResult
from typing import Any

from distsync._client.client import Client
from distsync._client.clocks import wait_clock
from distsync._client.deadlines import CLEAN_UP_S
from distsync._client.outage_limit import CHECK_S, OutageLimit
from distsync._log import OwnLogger
from distsync._protocols.pool.callers import Caller, Initializer, TaskReply, sweep_all
from distsync._protocols.pool.tasks import DONE, REFUSED, PoolCore, Task
from distsync._protocols.pool.workers import count_other_workers
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.queues.segments import BATCH
from distsync._protocols.retries import REFUSED_S, parent_of
from distsync._protocols.steps import Signal
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
from distsync.multiprocessing._pool_caller import TERMINATE, UNDER_WAY, PoolCaller, ProgressListener
from distsync.multiprocessing._pool_codec import Call, Label, PoolCodec

#: Maximum bytes of the tasks that are put with one call, and of the tasks that wait for it.
AT_ONCE_BYTES, OUTGOING_BYTES = 4_000_000, 64_000_000
#: Maximum wait in seconds for threads and servers when the pool ends.
LAST_S = 5.0

ASSUMED_DEAD = "this process was disconnected, and other processes assumed that it had exited"

logger = OwnLogger("distsync.multiprocessing")


class PoolClient(PoolCaller):
    """One caller of a pool whose tasks are in a queue of the server.

    Args:
        client: The client to use.
        core: State of the pool.
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
        codec: PoolCodec,
        watcher: ProgressListener | None,
        initializer: str | None,
        initializer_call: Call | None,
        joining: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        super().__init__(core.znodes.path, watcher)
        self._client, self._core, self._codec = client, core, codec
        self._joining = joining
        self._initializer, self._initializer_call = initializer, initializer_call
        self._under_way: dict[tuple[int, int], Label] = {}
        self._outgoing: deque[tuple[Task, bytes]] = deque()
        self._outgoing_bytes = 0
        #: Jobs with tasks that have left `_outgoing` but may not be in the queue yet.
        self._being_put: set[int] = set()
        self._dropped: set[int] = set()
        self._no_more = False
        #: Fires when the workers elsewhere need not be counted any more.
        self._stop_counting = Signal()
        try:
            self._begin()
        except BaseException:
            self.notifier.close()
            raise

    def _begin(self) -> None:
        """Register this caller under a new GUID, so that it can put tasks."""
        self.caller = str(uuid.uuid4())
        self._inbox = Caller(self._core, self.caller, self._encoded_initializer())
        self._client.run(self._joining(self._inbox.begin()))  # otherwise, joining later could delete it
        self._client.local(self._inbox.path, lambda: self._inbox)
        self._client.at_close(self._inbox.path, self._inbox.end)

    def _encoded_initializer(self) -> Initializer:
        """Return the initializer for workers that this process does not start."""
        if self._initializer_call is None:
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
        self._client.background(sweep_all(self._core, parent_of(self._path)))
        if self._watcher:
            self._client.background(count_other_workers(self._core, self.caller, self._set_remote, self._stop_counting))
        super().start(crew)

    def _set_remote(self, workers: int) -> None:
        self._remote_workers = workers

    def _loops(self) -> tuple[Callable[[], None], ...]:
        return self._supervise, self._encode, self._put, self._receive

    # ---- sending tasks

    def _submit(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> None:
        inbox = self._inbox
        try:
            payload = self._codec.encode_call(f"{inbox.path}/{job}.{part}", (function, args, kwds))
        except PayloadPickleError as error:
            self._refuse(job, part, function, args, error.__cause__ or error)
            return
        except BaseException as error:  # the task is too large, or calls sys.exit() when it is pickled
            self._refuse(job, part, function, args, error)
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
        self._count_put(label.items)
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
            self._end(job, 0, (False, TaskLostError(f"job {job}", self._path, limit.reason)))
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

    def interrupt(self, job: int) -> bool:
        raise ValueError(
            f"a call of the pool {self._path} cannot be cancelled while it runs, because its worker may be on another"
            " machine: use an executor without a name"
        )

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
        task, pool = f"the task {label.function} (job {reply.job}, part {reply.part})", self._path
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
            self._end(job, part, (False, error or TaskLostError(label.function, self._path, reason)))

    def _fail_hopeless(self) -> None:
        self.fail_all(WorkerStartError(self._path, self._crew.failures, self._crew.story))

    # ---- the end

    def _cleanup(self, given_up: int = 0) -> None:
        """Stop the other threads, and delete the znodes of this caller.

        Args:
            given_up: Number of cancelled jobs, of which this warns if no server answers.
        """
        if self.is_away:
            return
        self.is_away = True
        self.tasks.put(None)
        with self._changed:
            self._no_more = True
            self._changed.notify_all()
        self._stop_counting.fire()
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
            logger.warning("could not clean up pool %s: %s", self._path, reason)
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
        logger.warning("%d jobs of the pool %s were given up: %s", jobs, self._path, reason)

    def _may_wait(self) -> bool:
        return self._client.may_wait()

    def _stop(self) -> None:
        """If no server answers, wait for the session timeout at most, and warn of the cancelled jobs."""
        limit, jobs = OutageLimit(self._client, LAST_S), len(self.cache)
        for thread in self.threads[:1]:
            if not limit.join(thread):
                self._crew.kill()  # the workers wait for a server too
                thread.join()
        self._crew.terminate(limit.remaining())
        self._break_off()
        self._cleanup(jobs)

    def outage_limit(self) -> OutageLimit:
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
                self._deliver(job, 0, (False, TaskLostError(f"job {job}", self._path, reason)))


async def _nothing() -> None:
    """Do nothing."""
