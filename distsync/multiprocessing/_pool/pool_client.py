"""A caller of a pool with a name, which puts its tasks into the queue of the server.

Besides the threads of all callers, one puts tasks into the queue, and one receives results. A caller with
local workers does more: see working_client.py.
"""

from __future__ import annotations

import math
import os
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.pool import ApplyResult
from typing import Any

from distsync._client.client import Client
from distsync._client.clocks import wait_clock
from distsync._client.deadlines import CLEAN_UP_S
from distsync._client.outage_limit import CHECK_S, OutageLimit
from distsync._log import OwnLogger
from distsync._objects.base import ask_timeout_of
from distsync._protocols.pool.callers import Caller, Initializer, TaskReply, sweep, sweep_all
from distsync._protocols.pool.tasks import DONE, REFUSED, PoolCore, Task
from distsync._protocols.pool.workers import watch_other_workers
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.queues.segments import BATCH
from distsync._protocols.retries import REFUSED_S, parent_of
from distsync._protocols.steps import KeepResults, Signal, Wait, WakeReason
from distsync._signal_handlers import raise_if_from_handler
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
)
from distsync.multiprocessing._pool import pipe_codec
from distsync.multiprocessing._pool.local_workers import LocalWorkers
from distsync.multiprocessing._pool.pipe_caller import PipeCaller
from distsync.multiprocessing._pool.pipe_codec import TASK, shared_task_prefix
from distsync.multiprocessing._pool.pipe_feed import PipeTask
from distsync.multiprocessing._pool.pool_caller import TERMINATE, ProgressListener, WithdrawnError
from distsync.multiprocessing._pool.pool_codec import Call, Label, PoolCodec
from distsync.multiprocessing._pool.task_claims import TaskClaims
from distsync.multiprocessing._pool.worker_base import WorkerSpec

#: Maximum bytes of the tasks that are put with one call.
AT_ONCE_BYTES = 4_000_000
#: Seconds between looks at the callers of the pool, of which some may have exited.
SWEEP_S = 5.0
#: Maximum wait in seconds for threads and servers when the pool ends.
LAST_S = 5.0

ASSUMED_DEAD = "this process was disconnected, and other processes assumed that it had exited"

logger = OwnLogger("distsync.multiprocessing")


class PoolClient(PipeCaller):
    """One caller of a pool with a name, without workers of its own.

    Args:
        client: The client to use.
        core: State of the pool.
        spec: Configuration of the workers, without a caller.
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
        spec: WorkerSpec,
        watcher: ProgressListener | None,
        initializer: str | None,
        initializer_call: Call | None,
        joining: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        super().__init__(spec, watcher)
        self._client, self._core = client, core
        self._pool_codec = PoolCodec(spec.settings, spec.limit_bytes)
        self._joining = joining
        self._initializer, self._initializer_call = initializer, initializer_call
        #: The tasks that are in the queue, or about to be, and how many may be.
        self._exported: set[tuple[int, int]] = set()
        self._window = math.inf
        #: Jobs with tasks that have left `_waiting` but may not be in the queue yet.
        self._being_put: set[int] = set()
        self._to_put = threading.Condition(self._lock)
        #: Jobs whose withdrawal took effect after its deadline, until their futures are cancelled.
        self._withdrawn_late: set[int] = set()
        self._claims = TaskClaims(core, initializer)
        #: Fires at the end.
        self._ends = Signal()
        try:
            self._inbox = self._registered()
        except BaseException:
            self._close_files()
            raise
        #: The first GUID, under which the local workers are announced. It stays if this caller registers again.
        self.first_caller = self.caller
        self.worker_spec = replace(spec, caller=self.caller)

    @property
    def caller(self) -> str:
        """The GUID under which this caller is registered."""
        return self._inbox.caller

    def _registered(self) -> Caller:
        """Register this caller under a new GUID, so that it can put tasks."""
        caller = str(uuid.uuid4())
        inbox = Caller(self._core, caller, self._encoded_initializer(caller))
        self._client.run(self._joining(inbox.begin()))  # otherwise, joining later could delete it
        self._client.local(inbox.path, lambda: inbox)
        self._client.at_close(inbox.path, inbox.end)
        return inbox

    def _encoded_initializer(self, caller: str) -> Initializer:
        """Return the initializer for workers that this process does not start."""
        if self._initializer_call is None:
            return Initializer(self._initializer)
        try:
            place = self._core.znodes.initializer(caller)
            return Initializer(self._initializer, self._pool_codec.encode_call(place, self._initializer_call))
        except (PayloadPickleError, PayloadTooLargeError):
            return Initializer(self._initializer)

    def start(self, crew: LocalWorkers) -> None:
        """Start the threads. If one cannot be started, terminate.

        Args:
            crew: The local workers.
        """
        self._client.background(sweep_all(self._core, parent_of(self._path)))
        self._client.background(self._sweep_regularly())
        if self._watcher:
            self._client.background(watch_other_workers(self._core, self.first_caller, self._set_remote, self._ends))
        super().start(crew)

    def _set_remote(self, workers: int) -> None:
        self._remote_workers = workers

    def _loops(self) -> tuple[Callable[[], None], ...]:
        return self._supervise, self._encode, self._put, self._receive_replies

    async def _sweep_regularly(self) -> None:
        while await Wait(self._ends, limit=SWEEP_S) is WakeReason.LIMIT:
            await KeepResults()
            await sweep(self._core)

    # ---- sending tasks

    def _encoded(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> PipeTask:
        inbox = self._inbox
        place = f"{inbox.path}/{job}.{part}"
        payload = self._pool_codec.encode_call(place, (function, args, kwds))
        prefix = shared_task_prefix(place, own=True)
        header = TASK.pack(job, part, len(prefix) + len(payload))
        label = Label.of(function, args)
        begin = len(header) + len(prefix)
        return PipeTask(
            job, part, b"".join((header, prefix, payload)), label.function, label.items, begin, inbox.caller
        )

    def _is_valid(self, task: PipeTask) -> bool:
        return task.caller == self.caller  # otherwise replies to the former GUID are not received

    def _send_or_keep(self, tasks: Sequence[PipeTask]) -> None:
        super()._send_or_keep(tasks)
        if self._may_export():
            self._to_put.notify()

    def _exportable(self) -> Iterable[PipeTask]:
        return (task for task in self._waiting if task.delivery is None and task.caller == self.caller)

    def _may_export(self) -> bool:
        has_window = self.state != TERMINATE and len(self._exported) < self._window
        return has_window and any(True for _ in self._exportable())

    def _put(self) -> None:
        """Put tasks and results into the queue."""
        while True:
            with self._lock:
                while not (self._may_export() or self._claims.has_ended_some or self._is_over()):
                    self._to_put.wait()
                ended, some = self._claims.taken(), self._next_exports()
            if any(ended):
                with suppress(DistsyncError):
                    self._client.run(self._claims.end(*ended))
            elif not some:
                return
            if some:
                self._export(some)
            ended = some = None  # type: ignore[assignment]

    def _is_over(self) -> bool:
        """Return whether there will be nothing to put any more."""
        return self._no_more

    def _next_exports(self) -> list[PipeTask]:
        """Take tasks to put with one call from those that wait."""
        some: list[PipeTask] = []
        size = 0
        if self._may_export():
            for task in self._exportable():
                if len(some) >= BATCH or size >= AT_ONCE_BYTES or len(self._exported) >= self._window:
                    break
                task.is_exported = True
                self._exported.add((task.job, task.part))
                some.append(task)
                size += len(task.frame)
        if some:
            is_first = self._waiting[0] is some[0] and self._waiting[len(some) - 1] is some[-1]
            if is_first:
                for _ in some:
                    self._waiting.popleft()
            else:
                for task in some:
                    self._waiting.remove(task)
            self._waiting_bytes -= size
            self._being_put.update(task.job for task in some)
            self._changed.notify_all()
        return some

    def _export(self, some: list[PipeTask]) -> None:
        """Put tasks into the queue."""
        progress, failure = Progress(), None
        tasks = [(Task(task.caller, task.job, task.part), task.frame[task.payload_at :]) for task in some]
        try:
            self._client.run(self._core.put_tasks(tasks, progress))
        except NoNodeError:
            pass  # the thread that receives replies gets the same error, and handles it
        except Exception as error:
            failure = error
        finally:
            with self._lock:
                self._being_put.clear()
                self._changed.notify_all()
                for task in some:  # this process does not need it any more
                    task.frame = b""
        if failure is not None:
            self._fail(some[progress.put :], failure)

    def withdraw(self, job: int, limit: OutageLimit | None = None) -> bool:
        return self._withdraw(job, limit) or job in self._withdrawn_late

    def _withdraw(self, job: int, limit: OutageLimit | None) -> bool:
        until = None
        if limit is None and (seconds := ask_timeout_of(self._client, None)) is not None:
            until = wait_clock() + seconds
        while not self._is_sent(job, limit, until):
            if super().withdraw(job, limit):
                return True
            with self._lock:
                if (job, 0) not in self._exported:  # otherwise it has just left
                    return False
        if self._pid != os.getpid() or job in self._being_put:
            return False
        tasks = self._withdraw_sent(job, limit, until)
        for each in tasks:
            task = self._remove(each.job, each.part)
            if task is not None and self._watcher:
                self._watcher.done(task.items)
        if tasks and job in self.cache:
            del self.cache[job]
        return bool(tasks)

    def _is_sent(self, job: int, limit: OutageLimit | None, until: float | None) -> bool:
        """Return whether a job of one task is in the queue. Wait until it is if it is being put."""
        if self._pid != os.getpid():
            return True
        with self._lock:
            while job in self._being_put:  # otherwise the queue could be read before the put
                if limit is not None and limit.has_passed():
                    return True
                if until is not None and wait_clock() >= until:
                    raise self._late_withdrawal(job)
                self._changed.wait(None if limit is None and until is None else CHECK_S)
            return (job, 0) in self._exported

    def _withdraw_sent(self, job: int, limit: OutageLimit | None, until: float | None) -> list[Task]:
        """Remove the tasks of a job from the queue, and return those that no worker had claimed."""
        seconds = None if until is None else max(0.0, until - wait_clock())
        if limit is not None:
            seconds = min(limit.remaining(), limit.seconds)
        if seconds == 0:
            if limit is None:
                raise self._late_withdrawal(job)
            return []
        withdrawing = self._core.withdraw_tasks(self.caller, job, self._end_withdrawn)
        try:
            tasks: list[Task] = self._client.run(withdrawing, seconds)
            return tasks
        except (DeadlineError, OutcomeUnknownError) as error:
            raise_if_from_handler(error)
            if limit is None:
                if isinstance(error, OutcomeUnknownError) and error.args[2] != "deadline":
                    raise
                raise self._late_withdrawal(job) from error
            # The task may have been removed, and then no result arrives.
            self._log_given_up(1, limit.reason)
            self._end(job, 0, (False, TaskLostError(f"job {job}", self._path, limit.reason)))
            return []

    def _late_withdrawal(self, job: int) -> DeadlineError:
        """Return the error of a withdrawal to which no server has replied in time."""
        outage = self._client._outage()
        text = f"the cancellation of job {job} of the pool {self._path}: it may still run or be cancelled, try again"
        return DeadlineError(text, *(() if outage is None else (str(outage),)))

    def _end_withdrawn(self, withdrawn: Task) -> None:
        """End a job of one task that was withdrawn after its caller had given up to wait for that."""
        self._withdrawn_late.add(withdrawn.job)
        threading.Thread(target=self._set_withdrawn, args=(withdrawn,), name="distsync-pool-end", daemon=True).start()

    def _set_withdrawn(self, withdrawn: Task) -> None:
        with self._lock:
            task = self._remove(withdrawn.job, withdrawn.part)
            result: Any = self.cache.get(withdrawn.job) if task is not None else None
            if result is not None:
                del self.cache[withdrawn.job]
        if task is not None and self._watcher:
            self._watcher.done(task.items)
        if result is not None:
            result._success, result._value = False, WithdrawnError()
            if result._error_callback:
                result._error_callback(result._value)
            result._event.set()
        self._withdrawn_late.discard(withdrawn.job)

    def is_running(self, job: int) -> bool:
        """Return whether a worker has begun a job of one task that is not done; False if no server replies."""
        with self._lock:
            if (job, 0) not in self._exported:
                return super().is_running(job)
        try:
            is_claimed: bool = self._client.run(self._core.is_claimed(self.caller, job), LAST_S)
        except DistsyncError:
            return False
        with self._lock:
            return is_claimed and (job, 0) in self._under_way

    def interrupt(self, job: int) -> bool:
        raise ValueError(
            f"a call of the pool {self._path} cannot be cancelled while it runs, because its worker may be one of"
            " another program: use an executor without a name, or let the call look at an Event"
        )

    # ---- receiving results from elsewhere

    def _outcome(self, task: PipeTask, kind: int, payload: bytes) -> tuple[bool, Any]:
        return self._decoded(task, kind == pipe_codec.REFUSED, payload)

    def _decoded(self, task: PipeTask, is_refused: bool, payload: bytes) -> tuple[bool, Any]:
        """Return whether the function returned, and the value or the exception."""
        if is_refused:
            return False, PayloadRefusedError(f"{task} of {self._path}", payload.decode(errors="replace"))
        try:
            place = f"{self._core.znodes.caller_path(task.caller)}/{task.job}.{task.part}"
            return self._pool_codec.decode_result(place, payload)
        except PayloadRefusedError as error:
            return False, PayloadRefusedError(f"{task} of {self._path}, as it came back", error.args[1])
        except BaseException as error:  # the result calls sys.exit() when it is unpickled, for example
            return False, error

    def _receive_replies(self) -> None:
        while True:
            try:
                replies = self._next_replies()
            except ClientClosedError as error:
                self._fail_exported(error)
                return
            except Exception as error:  # such as an exceeded quota: later requests may succeed
                self._fail_exported(error)
                with self._lock:
                    if self._changed.wait_for(lambda: self._no_more, REFUSED_S):
                        return
            else:
                if replies is None:
                    return
                for each in replies:
                    self._accept_reply(each)
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
        inbox = self._registered()  # without the lock, for which the client's background thread may wait
        with self._lock:
            lost = self._lost_elsewhere()
            self._inbox = inbox
            self._changed.notify_all()
        self._fail(lost, None)

    def _lost_elsewhere(self) -> list[PipeTask]:
        """Return the tasks that only workers elsewhere can run."""
        self._waiting.clear()
        self._waiting_bytes = 0
        return [*self._under_way.values()]

    def wait_for_registration(self, former: str) -> bool:
        """Wait until this caller has another GUID than ``former``. Return False if it ends before."""
        with self._lock:
            self._changed.wait_for(lambda: self.caller != former or self._no_more)
            return self.caller != former

    def _accept_reply(self, reply: TaskReply) -> None:
        with self._lock:
            task = self._under_way.get((reply.job, reply.part))
        if task is not None and task.is_exported:
            self._end(reply.job, reply.part, self._reply_outcome(reply, task))

    def _reply_outcome(self, reply: TaskReply, task: PipeTask) -> tuple[bool, Any]:
        if reply.kind in (DONE, REFUSED):
            return self._decoded(task, reply.kind == REFUSED, reply.data)
        times = reply.data.decode(errors="replace")
        reason = f"it was delivered {times} times, and no worker lived to its end"
        return False, TaskLostError(str(task), self._path, reason)

    def _remove(self, job: int, part: int) -> PipeTask | None:
        """Return a task that has ended, unless another thread has removed it."""
        with self._lock:
            task = self._under_way.pop((job, part), None)
            self._exported.discard((job, part))
            self._changed.notify_all()
            if self._may_export():
                self._to_put.notify()
            return task

    def _end(self, job: int, part: int, outcome: tuple[bool, Any]) -> None:
        """Finish a task that is not in a pipe, and set its result."""
        task = self._remove(job, part)
        if task is not None:
            if self._watcher:
                self._watcher.done(task.items)
            self._deliver(job, part, outcome)

    def _fail_exported(self, error: Exception | None, reason: str = ASSUMED_DEAD) -> None:
        """Fail all tasks that workers elsewhere may have, with ``error``, or a TaskLostError for ``reason``."""
        with self._lock:
            lost = self._lost_elsewhere()
        self._fail(lost, error, reason)

    def _fail(self, tasks: Iterable[PipeTask], error: Exception | None, reason: str = ASSUMED_DEAD) -> None:
        """Fail tasks with ``error``, or with a TaskLostError for ``reason`` if it is None."""
        for task in tasks:
            self._end(task.job, task.part, (False, error or TaskLostError(task.function, self._path, reason)))

    # ---- the end

    def _cleanup(self, given_up: int = 0) -> None:
        """Stop the other threads, and delete the znodes of this caller.

        Args:
            given_up: Number of cancelled jobs, of which this warns if no server answers.
        """
        if self.is_clean:
            return
        self._ends.fire()
        with self._lock:
            self._end_claims()
            self._no_more = True
            self._changed.notify_all()
            self._to_put.notify_all()
        self.tasks.put(None)
        self.note()
        self.is_away = True
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
        self._close_files()

    def _interrupt_claim(self) -> None:
        """Stop to wait for the tasks of others: nothing does."""

    def _end_claims(self) -> None:
        """Wait for the results of local workers, and give back what they have not begun: there are none."""

    def _end_threads(self, limit: OutageLimit) -> None:
        """Wait for the other threads. Interrupt those that wait for a server in an outage."""
        until, others = wait_clock() + min(LAST_S, limit.remaining() + CLEAN_UP_S), self.threads[1:]
        while wait_clock() < until:
            others = [each for each in others if each.is_alive() and each is not threading.current_thread()]
            self._interrupt_claim()  # again, because the call may have begun just now
            for thread in others if limit.remaining() < math.inf else ():
                self._client.interrupt(thread.ident or 0, ClientClosedError("a pool that ended in an outage"))
            if not others:
                break
            others[-1].join(CHECK_S)

    def _log_given_up(self, jobs: int, reason: object) -> None:
        logger.warning("%d jobs of the pool %s were given up: %s", jobs, self._path, reason)

    def _may_wait(self) -> bool:
        return super()._may_wait() and self._client.may_wait()

    def _stop(self) -> None:
        """If no server answers, wait for the session timeout at most, and warn of the cancelled jobs."""
        limit, jobs = OutageLimit(self._client, LAST_S), len(self.cache)
        for thread in self.threads[:1]:
            if not limit.join(thread):
                self._crew.kill()
                thread.join()
        self._crew.terminate(limit.remaining())
        self._break_off()
        self._cleanup(jobs)

    def outage_limit(self) -> OutageLimit:
        return OutageLimit(self._client)

    def join(self) -> None:
        """Wait until all threads have ended, after `close` or `terminate`.

        If no server has answered for the session timeout, give up the tasks that only workers elsewhere can run.
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
        with self._lock:
            is_first, self.state = self.state != TERMINATE, TERMINATE
            lost = self._lost_elsewhere()
        if is_first:  # otherwise another thread terminates the pool
            if self.cache:
                self._log_given_up(len(self.cache), reason)
            self._fail(lost, None, reason)
            self._fail_unsent(reason)
        self.terminate()

    def _fail_unsent(self, reason: str) -> None:
        for job, result in list(self.cache.items()):
            if type(result) is ApplyResult:
                self._deliver(job, 0, (False, TaskLostError(f"job {job}", self._path, reason)))


async def _nothing() -> None:
    """Do nothing."""
