"""A worker process of a pool.

The main thread only runs tasks, so that signals and interrupts hit the tasks. Two protocols, driven
by the client's background thread, claim tasks and put results. One thread listens to the parent.

The number of tasks that are claimed at once depends on their duration: as many as are done in
`BATCH_WINDOW_S`. If the current task takes longer, the tasks that wait behind it are given back to
other workers.

The next task starts while earlier results are in transit. A task that was delivered before starts
alone, and its result is put before the next task starts: it may be the task that makes workers
exit, or a victim of that task. While a worker has such a task, it claims no other one.

A worker that was started by a command has no initializer of its own. It calls that of the first
caller whose task it gets. For a caller with another one, a new process replaces it. So it does for a
caller whose program was changed since this process loaded it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from distsync._client.client import Client
from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._client.outage_limit import OutageLimit
from distsync._client.payload_codec import reason_of
from distsync._log import OwnLogger
from distsync._protocols.pool.callers import find_initializer, remove_caller, sweep
from distsync._protocols.pool.tasks import DONE, MAX_CLAIMED, REFUSED, PoolCore, task_of
from distsync._protocols.pool.workers import announce_workers
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import KeepResults, Signal, Wait
from distsync.errors import (
    ClientClosedError,
    CorruptNodeError,
    DistsyncError,
    NoNodeError,
    OutcomeUnknownError,
    PayloadRefusedError,
    ShutDown,
)
from distsync.multiprocessing._pool.pool_codec import NO_INITIALIZER, PoolCodec, StaleProgramError
from distsync.multiprocessing._pool.worker_base import (
    EXIT_TIMEOUT_S,
    FAILED,
    POLL_S,
    BaseWorker,
    WorkerInterrupt,
    WorkerSpec,
    encode_outcome,
    outcome,
    run_with_client,
)

logger = OwnLogger("distsync.multiprocessing")

#: Duration in seconds of the work that a worker claims at once.
BATCH_WINDOW_S = 0.1
#: Maximum number of callers that a worker remembers, so that it need not compare their initializers again.
MAX_ACCEPTED = 1000


class ClaimedTask(NamedTuple):
    """A claimed task.

    Attributes:
        delivery: The item of the queue.
        payload: The encoded task.
    """

    delivery: ClaimedItem
    payload: bytes


class EncodedInitializer(NamedTuple):
    """The initializer of a caller.

    Attributes:
        place: Path of its znode.
        payload: Its encoded call.
    """

    place: str
    payload: bytes


class FinishedTask(NamedTuple):
    """A finished task.

    Attributes:
        delivery: The item of the queue.
        kind: Kind of the reply.
        payload: The encoded result.
    """

    delivery: ClaimedItem
    kind: str
    payload: bytes


def new_core(client: Client, path: str) -> PoolCore:
    """Return a new in-process state of a pool.

    Args:
        client: The client to use.
        path: Path of the pool.

    Returns:
        The state.
    """
    directory = f"{client.namespace.rstrip('/')}/receipts"
    return PoolCore(path, client.local(directory, partial(Receipts, directory)))


async def put_results(core: PoolCore, finished: Iterable[FinishedTask]) -> None:
    """Put the results of finished tasks, again if the session has ended.

    Args:
        core: State of the pool.
        finished: The tasks.
    """
    answers = [await core.answer(*each) for each in finished]
    while answers:
        try:
            await core.finish(answers)
            return
        except OutcomeUnknownError:  # finishing a task twice is refused
            continue


def run_worker(spec: WorkerSpec, control: Any) -> None:
    """Run a worker process until it is asked to stop, or its parent has exited.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
    """
    run_with_client(spec, control, lambda client: Worker(spec, client, control))


class Worker(BaseWorker):
    """A process that runs the tasks of one pool, which it claims.

    Args:
        spec: Configuration of the worker.
        client: The client to use.
        control: Pipe to the parent.
    """

    def __init__(self, spec: WorkerSpec, client: Client, control: Any) -> None:
        super().__init__(spec, control)
        self._client = client
        self._codec = PoolCodec(spec.settings, spec.limit_bytes)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[ClaimedTask] = deque()
        self._finished: deque[FinishedTask] = deque()
        self._results_in_flight = 0
        self._last_was_redelivered = False
        self._busy_since: float | None = None
        self._task_seconds = BATCH_WINDOW_S * 2  # approximate duration of a task
        self._tasks_left = spec.maxtasks
        self._draining = self._is_stopping = False
        self._send_signal = Signal()  # wakes the protocol that sends results
        self._claim_signal = Signal()  # wakes the protocol that claims tasks
        #: Description of the initializer that this process has called, or is about to call.
        self._initializer = spec.initializer_text
        self._next_initializer: EncodedInitializer | None = None
        self._accepted = {spec.caller}  # callers with the same initializer, or that accept any
        self._failure: BaseException | None = None

    def _prepare(self) -> None:
        """Call the initializer, and connect."""
        if self._spec.initializer is not None:
            self._spec.initializer(*self._spec.initargs)
        self._core = new_core(self._client, self._spec.path)
        self._client.run(self._core.look())

    def _run_tasks(self) -> None:
        self._client.background(announce_workers(self._core, self._spec.caller, describe()))
        self._client.background(self._run_or_fail(self._claim_tasks()))
        self._client.background(self._run_or_fail(self._send_results()))
        while (task := self._next()) is not None:
            self._execute(task)

    def drain(self) -> None:
        """Stop after the current task. Safe in a signal handler."""
        with self._lock:
            self._draining = True
            self._changed.notify_all()
        self._wake_protocols()

    # ---- in the main thread

    def _next(self) -> ClaimedTask | None:
        """Wait for the next task; return None if the worker must stop."""
        with self._lock:
            while not (self._may_begin() or self._draining or self._failure):
                self._changed.wait()
            if self._failure is not None:
                self._send_message(FAILED, f"{type(self._failure).__name__}: {self._failure}")
                raise self._failure
            if self._draining or self._tasks_left == 0:
                return None
            self._busy_since = wait_clock()
            task = self._waiting.popleft()
            self._last_was_redelivered = task.delivery.label.deliveries > 1
            return task

    def _may_begin(self) -> bool:
        """Return whether the next task may start.

        A task that was delivered before may make this process exit, which would lose results that
        are not put yet. So this task, and the next one after it, wait until all results are put.
        """
        if not self._waiting:
            return False
        needs_all_put = self._last_was_redelivered or self._is_redelivered(0)
        return not (needs_all_put and (self._finished or self._results_in_flight))

    def _is_redelivered(self, index: int) -> bool:
        """Return whether the waiting task at this index was delivered before."""
        try:
            return self._waiting[index].delivery.label.deliveries > 1
        except IndexError:  # it was started, or given back
            return False

    def _execute(self, task: ClaimedTask) -> None:
        began = wait_clock()
        try:
            kind, payload = self._run_task(task)
        except StaleProgramError:
            self._waiting.appendleft(task)  # to be given back
            self.drain()
            return
        finally:
            took = wait_clock() - began
            self._task_seconds = (self._task_seconds + 3 * took) / 4
            self._busy_since = None
        if self._is_terminating:  # the task may have failed because the clients were closed: another worker runs it
            self._wait_for_end()
        if self._tasks_left is not None:
            self._tasks_left -= 1
            self._draining = self._draining or self._tasks_left == 0
        self._finished.append(FinishedTask(task.delivery, kind, payload))
        self._wake_protocols()

    def _run_task(self, claimed: ClaimedTask) -> tuple[str, bytes]:
        """Run a task, and return the kind of its reply and the encoded result."""
        task = task_of(claimed.delivery.path)
        place = f"{self._core.znodes.caller_path(task.caller)}/{task.job}.{task.part}"
        try:
            self._call_next_initializer()
            with self._codec.decode_call(place, claimed.payload, task.caller == self._spec.caller) as (
                function,
                args,
                kwds,
            ):
                return DONE, encode_outcome(self._codec, place, *outcome(function, args, kwds))
        except PayloadRefusedError as error:
            return REFUSED, str(error.args[1]).encode(errors="replace")[:1000]
        except (StaleProgramError, WorkerInterrupt):
            raise
        except BaseException as error:  # the task calls sys.exit() when it is unpickled, for example
            return DONE, encode_outcome(self._codec, place, False, error)

    def _call_next_initializer(self) -> None:
        """Call the initializer of a caller before its first task.

        Raises PayloadRefusedError if the initializer fails. This process then runs no other task.
        """
        encoded, self._next_initializer = self._next_initializer, None
        if encoded is None:
            return
        try:
            with self._codec.decode_call(encoded.place, encoded.payload, False) as (function, args, kwds):
                function(*args, **kwds)
        except (StaleProgramError, WorkerInterrupt):
            raise
        except BaseException as error:
            self.drain()
            said = error.args[1] if isinstance(error, PayloadRefusedError) else reason_of(error)
            reason = f"the initializer {self._initializer} failed in this worker, {said}"
            raise PayloadRefusedError(encoded.place, reason) from error

    def _stop(self) -> None:
        """Put the remaining results, and give back the tasks that were not started."""
        self._draining = self._is_stopping = True
        self._wake_protocols()
        limit = OutageLimit(self._client)
        while not self._has_ended.wait(POLL_S):
            if self._must_end and limit.has_passed():
                text = "worker %d of the pool %s exits, and its results are lost: %s"
                logger.warning(text, os.getpid(), self._spec.path, limit.reason)
                return
            if self._is_orphan or self._failure is not None:
                self._has_ended.wait(EXIT_TIMEOUT_S)
                break
        if self._is_orphan and self._spec.caller is not None:
            with suppress(DistsyncError):
                self._client.run(remove_caller(self._core, self._spec.caller), EXIT_TIMEOUT_S)

    # ---- in the client's background thread

    async def _run_or_fail(self, protocol: Any) -> None:
        """Run ``protocol``. If it fails, the worker fails."""
        try:
            await protocol
        except ClientClosedError:  # this process is stopping
            pass
        except (ShutDown, NoNodeError):  # the pool was deleted
            self.drain()
        except Exception as error:
            with self._lock:
                self._failure = error
                self._changed.notify_all()

    def _claim_batch_size(self) -> int:
        """Return the number of tasks to claim at once."""
        most = max(1, min(MAX_CLAIMED, int(BATCH_WINDOW_S / max(self._task_seconds, 1e-6))))
        return most if self._tasks_left is None else max(1, min(most, self._tasks_left))

    def _needs_tasks(self) -> bool:
        share, have, since = self._claim_batch_size(), len(self._waiting), self._busy_since
        if self._tasks_left is not None and have + (since is not None) >= self._tasks_left:
            return False
        if since is not None and (self._last_was_redelivered or wait_clock() - since > BATCH_WINDOW_S):
            return False
        if self._is_redelivered(-1):
            return False
        return have < share / 2 if share > 1 else not have and since is None

    async def _claim_tasks(self) -> None:
        """Claim tasks whenever too few are waiting."""
        contender_data = describe()
        while not self._draining:
            await KeepResults()
            claim_signal = self._claim_signal
            if not self._needs_tasks():
                await Wait(claim_signal)
                continue
            try:
                claimed = await self._core.claim(
                    contender_data, True, self._claim_batch_size(), self._spec.max_deliveries
                )
            except OutcomeUnknownError:  # the session ended, and the claim with it
                continue
            await self._enqueue_tasks(claimed)

    async def _enqueue_tasks(self, deliveries: list[ClaimedItem]) -> None:
        """Pass claimed tasks to the main thread."""
        caller_exists: dict[str, bool] = {}
        for number, delivery in enumerate(deliveries):
            try:
                caller = task_of(delivery.path).caller
            except CorruptNodeError:  # no pool has put this item, so there is no caller to reply to
                await self._core.done(delivery)
                continue
            if caller not in caller_exists:
                caller_exists[caller] = await self._core.is_there(caller)
            if caller_exists[caller] and caller not in self._accepted:
                refusal = await self._adopt_initializer(caller)
                if refusal is not None and self._spec.caller is None and self._initializer is not None:
                    await self._make_way(deliveries[number:])
                    break
                if refusal is not None:
                    self._finished.append(FinishedTask(delivery, REFUSED, refusal.encode()))
                    continue
                if len(self._accepted) >= MAX_ACCEPTED:
                    self._accepted = {self._spec.caller}
                self._accepted.add(caller)
            task = await self._read_task(delivery, caller_exists[caller])
            if task is not None:
                self._waiting.append(task)
        with self._lock:
            self._changed.notify_all()
        self._wake_protocols()

    async def _adopt_initializer(self, caller: str) -> str | None:
        """Use the initializer of ``caller`` if this process has none yet.

        Return None if the tasks of ``caller`` may run here, and otherwise the reason.
        """
        found = await find_initializer(self._core, caller)
        if found is None or found[0] == self._initializer:
            return None
        text, owner = found
        if self._initializer is not None:
            return f"its pool's initializer is {text}, but this worker has called {self._initializer}"
        if text != NO_INITIALIZER:
            payload = await self._core.initializer_call(owner)
            if payload is None and await find_initializer(self._core, caller) != found:  # its owner has just ended
                return await self._adopt_initializer(caller)
            if payload is None:
                return f"its pool's initializer {text} cannot be sent to this worker"
            self._next_initializer = EncodedInitializer(self._core.znodes.initializer(owner), payload)
        self._initializer = text
        return None

    async def _make_way(self, deliveries: list[ClaimedItem]) -> None:
        """Give back tasks and stop, so that a new process with another initializer can run them."""
        for each in deliveries:
            await self._core.give_back(each)
        self.drain()

    async def _read_task(self, delivery: ClaimedItem, is_wanted: bool) -> ClaimedTask | None:
        """Return the task, or finish it if no caller waits for its result."""
        try:
            if is_wanted:
                return ClaimedTask(delivery, await self._core.payload(delivery))
        except NoNodeError:  # the task is finished, or its caller was removed
            pass
        except CorruptNodeError as error:
            self._finished.append(FinishedTask(delivery, REFUSED, str(error).encode()))
            return None
        self._finished.append(FinishedTask(delivery, DONE, b""))
        return None

    async def _send_results(self) -> None:
        """Put results as soon as there are any, together."""
        try:
            while True:
                await KeepResults()
                send_signal = self._send_signal
                if self._finished:
                    await self._put_results()
                elif self._is_stopping and not self._waiting:
                    break
                elif self._draining or self._is_late():
                    await self._give_back()
                else:
                    await Wait(send_signal, limit=BATCH_WINDOW_S if self._waiting else None)
        finally:
            self._has_ended.set()

    async def _put_results(self) -> None:
        self._results_in_flight = len(self._finished)
        some = [self._finished.popleft() for _ in range(self._results_in_flight)]
        await put_results(self._core, some)
        with self._lock:
            self._results_in_flight = 0
            self._changed.notify_all()

    def _is_late(self) -> bool:
        """Return whether the current task takes so long that the waiting ones should be given back."""
        since = self._busy_since
        return bool(self._waiting) and since is not None and wait_clock() - since > BATCH_WINDOW_S

    async def _give_back(self) -> None:
        send_signal = self._send_signal
        try:
            delivery = self._waiting.pop().delivery
        except IndexError:
            await Wait(send_signal)
            return
        await self._core.give_back(delivery)

    def _wake_protocols(self) -> None:
        """Wake the protocol that sends results, and the one that claims tasks if it should claim."""
        with self._lock:
            woken = [self._send_signal]
            self._send_signal = Signal()
            if self._draining or self._needs_tasks():
                woken.append(self._claim_signal)
                self._claim_signal = Signal()
        for each in woken:
            each.fire()

    # ---- in the listening thread

    def _on_orphaned(self) -> None:
        if hasattr(self, "_core"):  # other callers may wait for its removal
            self._client.background(remove_caller(self._core, str(self._spec.caller)))

    def _look_around(self) -> None:
        if hasattr(self, "_core"):
            self._client.background(sweep(self._core))
