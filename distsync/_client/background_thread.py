"""The background thread of a client.

It drives background protocols, requests proofs while anything is held, releases it when the lease expires, watches
held znodes, and replaces a dead connection.

No user code runs in this thread (the dispatcher executes Calls of background protocols), and it
waits in one place only, so that a lost hold is reported on time whatever else is running.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from distsync._client.callback_thread import Dispatcher
from distsync._client.clocks import lease_clock, wait_clock
from distsync._client.deadlines import earliest, seconds_until
from distsync._client.driver.blocking_driver import ProtocolRun
from distsync._client.driver.driver_context import DriverContext, ProtocolCoroutine
from distsync._client.driver.pending_steps import UserCall
from distsync._client.lease.cleanup import watch_held_node
from distsync._client.lease.holds import GUARD_AFTER_S, HeldNode, HoldTable
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.own_threads import join
from distsync._client.transport.reply_futures import Batch
from distsync._client.transport.session import ZooKeeperSession
from distsync._log import OwnLogger
from distsync.errors import ClientClosedError

#: Interval in seconds between checks of a lost connection, in addition to kazoo's own attempts.
CONNECTION_CHECK_INTERVAL_S = 0.5

#: Longest sleep while anything is held: a sixth of the session timeout, at most TICK_S seconds.
TICKS_PER_TIMEOUT, TICK_S = 6, 0.5

#: How many protocols are resumed at a time, until each has got a reply. A lost connection wakes all
#: that watch a znode, and each reads it again. Thousands of requests at once would delay the proof of
#: the session that follows a reconnect.
BATCH = 50

logger = OwnLogger("distsync.client")

HandedOverCall = tuple[ProtocolRun, "BaseException | None"]
"""A call and the error that ended it; with None, the call continues in the background."""


class BackgroundContext(DriverContext, Protocol):
    """What the background thread needs from the client."""

    dispatcher: Dispatcher
    holds: HoldTable
    lease: LeaseClock
    zk_session: ZooKeeperSession

    def background_failed(self, run: ProtocolRun, error: BaseException) -> None: ...

    def restore_connection(self) -> None: ...


class BackgroundThread:
    """The thread, and the protocols that it drives."""

    def __init__(self, runtime: BackgroundContext) -> None:
        self._runtime = runtime
        self._mailbox: SimpleQueue[
            ProtocolRun | ProtocolCoroutine | Callable[[], ProtocolCoroutine] | HandedOverCall | None
        ] = SimpleQueue()
        self.hand_over: Callable[[HandedOverCall], None] = self._mailbox.put
        """Take over a call. This is the queue's own method, which no signal can interrupt."""
        self._runs: set[ProtocolRun] = set()
        #: The current batch: runs that wait for their first reply since they were woken. And those to resume after it.
        self._batch: set[ProtocolRun] = set()
        self._postponed: deque[ProtocolRun] = deque()
        #: When the runs that wait with a limit are due, and the same as a heap. An entry of the heap is
        #: out of date if the run has ended since, or waits for something else.
        self._due: dict[ProtocolRun, float] = {}
        self._due_heap: list[tuple[float, int, ProtocolRun]] = []
        self._entries = itertools.count()
        self._heartbeat: Batch | None = None
        #: Until when the thread sleeps at most, on the lease clock.
        self._wakes_at = 0.0
        self._holds_added_before = 0
        self._interrupt_idle_at = 0.0
        self._drain_until: float | None = None
        self._close_hooks: list[Callable[[], ProtocolCoroutine]] = []
        self._connection_checked_at = 0.0
        self.thread = threading.Thread(target=self._run, name="distsync-background", daemon=True)

    # ---- from any thread

    def post(self, protocol: ProtocolCoroutine | Callable[[], ProtocolCoroutine]) -> None:
        """Drive ``protocol``, or the coroutine that it returns.

        This only puts it into a queue, so it is safe in a finalizer, and while any lock is held.
        """
        self._mailbox.put(protocol)

    def wake(self) -> None:
        """Let the thread check what is due."""
        self._mailbox.put(None)

    def on_hold_added(self) -> None:
        """Wake the thread if it would sleep for too long to watch the znode of a new hold in time."""
        if self._wakes_at > lease_clock() + 2 * GUARD_AFTER_S:
            self._wakes_at = 0.0
            self.wake()

    def stop(
        self, seconds: float, close_hooks: Iterable[Callable[[], ProtocolCoroutine]] = (), busy_seconds: float = 0.0
    ) -> None:
        """Finish the work, run the ``close_hooks``, and end the thread, within ``seconds``.

        Busy protocols may end during the first ``busy_seconds``. Then those that still wait for a
        signal or a connection are interrupted, and the hooks run.
        """
        if self._drain_until is None:
            self._close_hooks = [*close_hooks]
            self._interrupt_idle_at = wait_clock() + busy_seconds
            self._drain_until = wait_clock() + seconds
        self.wake()
        if threading.get_ident() != self.thread.ident:
            join(self.thread, seconds + 0.2)

    # ---- in the background thread

    def _run(self) -> None:
        while not self._is_done():
            self._runtime.read_replies((), 0.0)
            try:
                item = self._mailbox.get(timeout=self._sleep_for())
            except Empty:
                item = None
            self._wakes_at = 0.0
            if isinstance(item, ProtocolRun):
                self._continue(item)
            elif isinstance(item, tuple):
                self._finish_call(*item)
            elif item is not None:
                self._begin(item() if callable(item) else item)
            item = None  # frees it while this thread sleeps
            self._tick()
            self._resume_postponed()
        self._abort_unfinished()

    def _abort_unfinished(self) -> None:
        """End the protocols that there was no time to start or to finish."""
        while not self._mailbox.empty():
            item = self._mailbox.get()
            if isinstance(item, Coroutine):
                item.close()
            elif isinstance(item, tuple):
                self._runs.add(item[0])
        for run in self._runs:
            run.abort(ClientClosedError("background work"))

    def _is_done(self) -> bool:
        until = self._drain_until
        idle = not self._runs and not self._close_hooks and self._mailbox.empty()
        return until is not None and (idle or wait_clock() >= until)

    def _begin(self, protocol: ProtocolCoroutine) -> None:
        """Start a run of ``protocol``."""
        run: ProtocolRun = ProtocolRun(
            protocol, self._runtime, None, lambda: self._mailbox.put(run), self.call_elsewhere
        )
        self._runs.add(run)
        self._continue(run)

    def waker(self, run: ProtocolRun) -> Callable[[], object]:
        """Return a function that resumes ``run`` in this thread."""
        return lambda: self._mailbox.put(run)

    def _finish_call(self, run: ProtocolRun, error: BaseException | None) -> None:
        """Clean up after a call, or continue it if its protocol has not ended."""
        if error is None:
            self._runs.add(run)
            self._resume(run)
        elif run.outcome is not None:
            run.abandon_results(error)
            run.break_traceback_cycles()
        elif not run.is_started:
            run.protocol.close()
        else:
            run.hand_over(self.waker(run), self.call_elsewhere)
            self._runs.add(run)
            run.interrupt(error)

    def call_elsewhere(self, called: UserCall, run: ProtocolRun) -> None:
        def call() -> None:
            called.execute()
            run.wake()

        def skip() -> None:
            called.skip()
            run.wake()

        self._runtime.dispatcher.prepare()
        self._runtime.dispatcher.call(call, skip if called.is_notice else None)

    def _continue(self, run: ProtocolRun) -> None:
        """Resume ``run``, later if it may send its first request and the current batch is full."""
        if run.waits_for_replies:
            self._resume(run)
        elif self._postponed or len(self._batch) >= BATCH:
            self._postponed.append(run)
        else:
            self._resume_in_batch(run)

    def _resume_postponed(self) -> None:
        """Resume the next batch, once the previous one has got its replies."""
        while self._postponed and not self._batch:
            for _ in range(min(BATCH, len(self._postponed))):
                self._resume_in_batch(self._postponed.popleft())

    def _resume_in_batch(self, run: ProtocolRun) -> None:
        self._resume(run)
        if run.waits_for_replies and run in self._runs:
            self._batch.add(run)

    def _resume(self, run: ProtocolRun) -> None:
        if run not in self._runs:
            return
        self._batch.discard(run)
        try:
            has_ended = run.resume()
        except Exception as error:  # this thread must not end: holds depend on it
            self._runs.discard(run)
            self._due.pop(run, None)
            self._runtime.background_failed(run, error)
            return
        if has_ended:
            self._runs.discard(run)
            if run.outcome is not None and run.outcome.error is not None:
                self._runtime.background_failed(run, run.outcome.error)
            self._due.pop(run, None)
        else:
            self._schedule(run, run.wait_until)

    def _schedule(self, run: ProtocolRun, due: float | None) -> None:
        if due is None:
            self._due.pop(run, None)
        elif self._due.get(run) != due:
            self._due[run] = due
            heapq.heappush(self._due_heap, (due, next(self._entries), run))

    def _next_due(self) -> float | None:
        """Return when a run is due next, if one waits with a limit."""
        while self._due_heap:
            due, _, run = self._due_heap[0]
            if self._due.get(run) == due:
                return due
            heapq.heappop(self._due_heap)
        return None

    def _take_due(self, now: float) -> list[ProtocolRun]:
        """Return the runs that are due."""
        runs = []
        while (due := self._next_due()) is not None and due <= now:
            run = heapq.heappop(self._due_heap)[2]
            del self._due[run]
            runs.append(run)
        return runs

    def _tick(self) -> None:
        """Do what is due."""
        now = wait_clock()
        if self._drain_until is not None:
            self._run_close_hooks(now)
        for run in self._take_due(now):
            self._resume(run)
        if len(self._runtime.holds):
            self._maintain_holds()
        zk_session = self._runtime.zk_session
        is_due = now - self._connection_checked_at >= CONNECTION_CHECK_INTERVAL_S
        if zk_session.older_data or (zk_session.info is None and is_due):
            self._connection_checked_at = now
            try:
                self._runtime.restore_connection()
            except Exception as error:  # no thread or socket is available; holds depend on this thread
                logger.warning("cannot reconnect yet, retrying: %s", error)

    def _run_close_hooks(self, now: float) -> None:
        """Finish running work before close hooks: hooks may delete znodes that it creates."""
        if now < self._interrupt_idle_at and not (self._mailbox.empty() and all(run.is_idle for run in self._runs)):
            return
        for run in [run for run in self._runs if run.is_idle]:
            run.interrupt(ClientClosedError("background work"))
            self._resume(run)
        while self._close_hooks:
            self._begin(self._close_hooks.pop(0)())

    def _maintain_holds(self) -> None:
        """Prove the session alive, watch held znodes, and end holds if the lease has expired."""
        now = lease_clock()
        self._runtime.holds.expire(now)
        if self._heartbeat is not None and self._heartbeat.outcomes is not None:
            self._heartbeat = None
        if (
            self._heartbeat is None
            and now >= self._runtime.lease.next_heartbeat
            and self._runtime.zk_session.info is not None
        ):
            self._heartbeat = self._runtime.zk_session.send_heartbeat(self.wake)
        for held in self._runtime.holds.to_guard(now):
            self._guard(held)

    def _guard(self, held: HeldNode) -> None:
        self._begin(watch_held_node(held, partial(self._runtime.holds.lose_path, held.path)))

    def _sleep_for(self) -> float | None:
        """Return how long to sleep; None until the next wake-up."""
        added = self._runtime.holds.added
        seconds = self._seconds_until_due(added)
        self._wakes_at = lease_clock() + (math.inf if seconds is None else seconds)
        return seconds if self._runtime.holds.added == added else 0.0

    def _seconds_until_due(self, holds_added: int) -> float | None:
        now = wait_clock()
        due_times = [self._next_due()]
        due_times.append(self._interrupt_idle_at if now < self._interrupt_idle_at else self._drain_until)
        if self._runtime.zk_session.info is None:
            due_times.append(self._connection_checked_at + CONNECTION_CHECK_INTERVAL_S)
        seconds = seconds_until(earliest(*due_times), now)
        if len(self._runtime.holds):
            return earliest(seconds, self._seconds_until_hold_due())
        if self._holds_added_before != holds_added:
            # More holds may follow. Checking now and then saves a wake-up for each of them.
            self._holds_added_before = holds_added
            return earliest(seconds, GUARD_AFTER_S)
        return seconds

    def _seconds_until_hold_due(self) -> float:
        lease, now = self._runtime.lease, lease_clock()
        due = lease.valid_until - now if self._heartbeat else min(lease.next_heartbeat, lease.valid_until) - now
        if self._runtime.zk_session.info is None:
            due = lease.valid_until - now
        return max(0.0, min(due, self._runtime.holds.guard_due() - now, self._tick_s))

    @property
    def _tick_s(self) -> float:
        return min(TICK_S, self._runtime.lease.timeout / TICKS_PER_TIMEOUT or TICK_S)
