"""Runtime of a client: the state that a forked child must discard, and the context of drivers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from os import getpid
from queue import SimpleQueue
from typing import Any

from distsync._client import deadlines, session_handover
from distsync._client.acls import Access
from distsync._client.background_thread import BackgroundThread
from distsync._client.callback_thread import Dispatcher
from distsync._client.clocks import lease_clock, wait_clock
from distsync._client.connection_state import ConnectionState
from distsync._client.driver.blocking_driver import ProtocolRun, drive
from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.driver.driver_context import ProtocolCoroutine
from distsync._client.embedded_locator import EmbeddedServerLocator
from distsync._client.guids import Guids
from distsync._client.lease.cleanup import delete_leftover
from distsync._client.lease.holds import CLIENT_CLOSED, INTERRUPTED, HeldNode, HoldTable
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.settings import Settings
from distsync._client.shared_state import SharedStateTable
from distsync._client.transport.kazoo_client import kazoo_options
from distsync._client.transport.kazoo_requests import Translator
from distsync._client.transport.reply_futures import Batch, ReplyFuture
from distsync._client.transport.session import ZooKeeperSession
from distsync._client.wait_log import Loggable, LogThrottle, WaitProgress, log_owner, log_state, log_wait
from distsync._log import OwnLogger
from distsync._protocols.steps import Connected, Hold, Loss, Request, SessionInfo, Signal
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    AccessDeniedError,
    ClientClosedError,
    DeadlineError,
    DistsyncError,
    RequestError,
    UnavailableError,
    UnreachableError,
    UsageError,
)

#: Minimum wait in seconds for the first connection, even if the timeout of the call is shorter, so
#: that acquire(blocking=False) can be the first call of a process. The second is for an embedded
#: server, which may have to be started first.
FIRST_CONNECTION_S, FIRST_START_S = 1.0, 5.0

#: Limits in seconds for the phases of a close: clean-up of calls, background work, the session, and
#: callbacks. Less than 2 s in total. Background work may use what the first phase leaves.
CLOSE_CALLS_S, CLOSE_BACKGROUND_S, CLOSE_SESSION_S, CLOSE_CALLBACKS_S = 0.5, 0.4, 0.6, 0.2

BLOCKING_CALL_REFUSED = (
    "blocking calls are not allowed in distsync's own threads, nor in a finalizer or signal handler that interrupts "
    "another call: set a threading.Event, or put into a queue.SimpleQueue"
)

logger = OwnLogger("distsync.client")


class ClientRuntime:
    """The part of a client that belongs to one process."""

    def __init__(
        self,
        settings: Settings,
        hosts: str | None,
        access: Access,
        on_state: Callable[[ConnectionState], object],
    ) -> None:
        self.mutex = threading.RLock()
        self._pid = getpid()
        self.closing = False
        self._starting_thread: int | None = None
        self.hosts = hosts
        self.lease = LeaseClock()
        self.holds = HoldTable(self.lease, self._on_lease_expired)
        self.dispatcher = Dispatcher("distsync-callbacks")
        self.shared_states = SharedStateTable(self._on_state_removed)
        translator = Translator(access)
        options = kazoo_options(settings)
        self._session_options = {name: value for name, value in options.items() if name != "sasl_options"}
        self.zk_session = ZooKeeperSession(
            options, translator, self.lease, self.holds, self._on_session_change, self._compare_own_nodes
        )
        self.background_thread = BackgroundThread(self)
        self._auth = settings.auth
        self._connect_timeout = settings.connect_timeout
        self._on_state = on_state
        self._reported_state = ConnectionState.CONNECTING
        self._report_lock = threading.RLock()
        self._embedded = (
            EmbeddedServerLocator(self.zk_session.move, self._on_embedded_server_failed, settings.auth)
            if hosts is None
            else None
        )
        if self._embedded:
            self.zk_session.is_genuine = self._embedded.is_genuine
        #: Why the embedded server could not be started again in the present outage.
        self._restart_failure: DistsyncError | None = None
        self._calls: set[ProtocolRun] = set()
        self._wait_log_throttle = LogThrottle()
        self._guids = Guids()
        self._close_hooks: dict[object, Callable[[], ProtocolCoroutine]] = {}
        #: Protocols that are run in each new session.
        self.session_hooks: list[Callable[[], ProtocolCoroutine]] = []
        self._hooked_session: int | None = 0

    # ---- life cycle

    def start(self) -> None:
        """Start to connect."""
        self._starting_thread = threading.get_ident()
        try:
            self.background_thread.thread.start()
            if self._embedded:
                self._embedded.search()
            else:
                self.zk_session.start(str(self.hosts), self._auth)
        finally:
            self._starting_thread = None

    def _on_state_removed(self, state: Any) -> None:
        """End the registration of an unused object as a user of its parameters, if there is one."""
        user = getattr(state, "user", None)
        if user is not None:
            self.background(user.end())

    def _on_session_change(self) -> None:
        if self.zk_session.state is ConnectionState.CONNECTED:
            session_handover.record(id(self), self.hosts, self.zk_session.client_id, self._session_options)
            if self.zk_session.own_nodes.is_due:
                self._compare_own_nodes()
            if self.lease.session_id != self._hooked_session:
                self._hooked_session = self.lease.session_id
                for hook in self.session_hooks:
                    self.background_thread.post(hook)
        self.background_thread.wake()
        with self._report_lock:  # of two concurrent changes, the one reported last must be the current one
            before, self._reported_state = self._reported_state, self.zk_session.state
            if self._reported_state is not before:
                if self._reported_state is not ConnectionState.LOST:
                    self._restart_failure = None  # the outage has ended, or another one begins
                session, where = self.lease.session_id, self.zk_session.hosts or "the embedded server"
                log_state(self._reported_state, where, session, self.zk_session.failure)
                self._on_state(self._reported_state)

    def _compare_own_nodes(self) -> None:
        """Compare the session's znodes with those that this process knows, in the background."""
        zk_session = self.zk_session
        self.background_thread.post(partial(zk_session.own_nodes.compare, zk_session.on_older_data))

    def _on_embedded_server_failed(self, error: Exception) -> None:
        """Handle a failed start of the embedded server, of which the first calls are notified."""
        if not self.zk_session.was_connected:
            self.zk_session.fail(error)
        elif self.zk_session.info is None:
            if str(error) != str(self._restart_failure):
                logger.warning("cannot restart the embedded server: %s", error)
            self._restart_failure = _copy(error)

    def restore_connection(self) -> None:
        """Replace a lost session, or look for the embedded server. Called while not connected."""
        if self.closing:
            return
        self.zk_session.end_if_older_data()
        self.zk_session.give_up_session(lease_clock())
        if self.zk_session.is_stuck(lease_clock()):
            self.zk_session.restart()
        elif self._embedded and (self.zk_session.was_connected or self._found_dead_server()):
            self._embedded.search_again()

    def _found_dead_server(self) -> bool:
        """Return whether the embedded server ended before the first connection. A failed start is left to the calls."""
        return self.zk_session.failure is None and bool(self.zk_session.problem)

    def close(self) -> None:
        """End all calls, threads and the session. Can be repeated if interrupted."""
        self.closing = True
        self.zk_session.begin_close()
        until = wait_clock() + CLOSE_CALLS_S
        self._end_calls(until)
        hooks = self._close_hooks.values() if self.zk_session.info is not None else ()
        unused = max(0.0, until - wait_clock())  # a slow server may need it to delete the znodes of this process
        self.background_thread.stop(CLOSE_BACKGROUND_S + unused, hooks, CLOSE_BACKGROUND_S / 2)
        self._close_hooks = {}
        self.zk_session.close(CLOSE_SESSION_S)
        self.holds.lose_all(CLIENT_CLOSED)
        if self._embedded:
            self._embedded.join(CLOSE_CALLBACKS_S)
        self.dispatcher.stop(CLOSE_CALLBACKS_S)

    def _end_calls(self, until: float) -> None:
        """Wake all waiting calls with ClientClosedError, and wait for those of other threads."""
        for run in tuple(self._calls):
            run.interrupt(ClientClosedError("a waiting call"))
        here = threading.get_ident()
        while any(run.thread != here for run in tuple(self._calls)) and wait_clock() < until:
            time.sleep(0.005)

    def interrupt(self, thread: int, error: BaseException) -> None:
        """Throw ``error`` into the call that waits in ``thread``, unless it is cleaning up."""
        for run in tuple(self._calls):
            if run.thread == thread and not run.cleaning:
                run.interrupt(error)

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's runtime, which it must not use."""
        return self._pid != getpid()

    def after_fork_in_child(self) -> None:
        """Discard the parent's session and holds in a forked child."""
        self.holds.lose_all("forked")
        self.zk_session.after_fork_in_child()

    # ---- calls

    def run(self, protocol: ProtocolCoroutine, timeout: float | None, subject: Loggable | None = None) -> Any:
        """Drive ``protocol``, a call on the object ``subject``, in this thread.

        A failed call is passed to the background thread for its clean-up, by one SimpleQueue.put,
        which no signal handler can interrupt.
        """
        if not self.may_wait_here():
            protocol.close()
            raise UsageError(BLOCKING_CALL_REFUSED)
        wakeup_queue: SimpleQueue[Any] = SimpleQueue()
        run = ProtocolRun(protocol, self, None, lambda: wakeup_queue.put(None))
        run.progress = None if subject is None else WaitProgress(subject, protocol)
        try:
            self._calls.add(run)
            run.grace = deadlines.grace_of(timeout)
            run.deadline = self._await_first_connection(run, deadlines.deadline_of(timeout, wait_clock()))
            result = drive(run, wakeup_queue)
            self._calls.discard(run)
            return result
        finally:
            try:  # repeated in case it is interrupted: see driver/blocking_driver.py about Python 3.10
                self._finish_call(run)
            finally:
                try:
                    self._finish_call(run)
                finally:
                    self._finish_call(run)

    def tell(self, protocol: ProtocolCoroutine) -> Any:
        """Start ``protocol`` in this thread, and let the background thread continue it if it waits.

        Return its result, or None if it has not ended. Raise its error if it has failed so far.
        """
        if not self.may_wait_here():
            self.background(protocol)
            return None
        run: ProtocolRun = ProtocolRun(
            protocol, self, None, lambda: self.background_thread.waker(run)(), self.background_thread.call_elsewhere
        )
        try:
            self._calls.add(run)
            if self.closing:
                run.interrupt(ClientClosedError("a call"))
            has_ended = run.resume()
            self._calls.discard(run)
            if has_ended:
                return run.result()
            self.background_thread.hand_over((run, None))
            return None
        finally:
            self._finish_call(run)

    def _finish_call(self, run: ProtocolRun) -> None:
        """End a call, and clean up if it failed. Idempotent."""
        if run in self._calls:
            self.unlock()
            nodes = run.created_nodes
            if run.outcome is None or nodes.created_paths or nodes.requested or nodes.holds:
                self.background_thread.hand_over((run, sys.exc_info()[1] or KeyboardInterrupt()))
            else:
                run.break_traceback_cycles()
            self._calls.discard(run)

    def unlock(self) -> None:
        """Release the locks that this thread may hold, because it was interrupted."""
        for lock in (self.mutex, self.zk_session.lock):
            try:
                lock.release()
            except RuntimeError as error:  # it is not held
                raise_if_from_handler(error)
        self.zk_session.stop_reading()

    def _await_first_connection(self, run: ProtocolRun, deadline: float | None) -> float | None:
        """Wait for the client's first connection.

        Return the deadline, postponed to now if it passed during the wait.
        """
        if not self.zk_session.was_connected:
            self._connect_first(deadline)
            deadline = None if deadline is None else max(deadline, wait_clock())
        if self.closing:
            run.interrupt(ClientClosedError("a call"))
        return deadline

    def may_wait_here(self) -> bool:
        """Return False in our own threads, and in a finalizer that interrupts another call."""
        me = threading.get_ident()
        is_own_thread = (
            me in (self.background_thread.thread.ident, self._starting_thread) or self.zk_session.is_current_thread()
        )
        is_own_thread = is_own_thread or (self._embedded is not None and self._embedded.is_current_thread())
        if is_own_thread:
            return False
        for run in tuple(self._calls):
            if run.driving and run.thread == me:
                return False
        return True

    def is_in_call(self) -> bool:
        """Return whether the calling thread is already in a call, which it interrupts or in which its event loop is."""
        me = threading.get_ident()
        return any(run.thread == me for run in tuple(self._calls))

    def _connect_first(self, deadline: float | None) -> None:
        """Wait for the first connection, and raise UnreachableError if there is none in time."""
        limit = self.first_connection_limit(deadline)
        began = wait_clock()
        try:
            self._wait_for_connection(limit)
        except DeadlineError:
            raise self.unreachable(wait_clock() - began) from None

    def unreachable(self, seconds: float) -> UnreachableError:
        """Return the error for a first connection that failed for ``seconds``."""
        where = self.hosts or "the embedded server's address"
        return UnreachableError(where, seconds, "DISTSYNC_HOSTS, or connect(hosts=...)", self.zk_session.problem)

    def outage(self) -> DistsyncError | None:
        """Return why the embedded server could not be started again, if it does not run."""
        failure = self._restart_failure
        return None if failure is None or self.zk_session.info is not None else _copy(failure)

    def first_connection_limit(self, deadline: float | None) -> float:
        """Return until when a call waits for the first connection. Retry a start that failed."""
        if self._embedded and self.zk_session.failure is not None:
            failure, self.zk_session.failure = self.zk_session.failure, None
            try:
                self._embedded.search()
            except BaseException:
                self.zk_session.failure = failure  # the next call searches again
                raise
        began = wait_clock()
        least = began + (FIRST_CONNECTION_S if self._embedded is None else FIRST_START_S)
        limit = began + self._connect_timeout
        return limit if deadline is None else min(limit, max(deadline, least))

    def _wait_for_connection(self, limit: float) -> None:
        wakeup_queue: SimpleQueue[Any] = SimpleQueue()
        run = ProtocolRun(wait_until_connected(), self, limit, lambda: wakeup_queue.put(None))
        self._calls.add(run)
        try:
            drive(run, wakeup_queue)
        finally:
            self._calls.discard(run)

    # ---- DriverContext

    def now(self) -> float:
        return wait_clock()

    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch:
        return self.zk_session.submit(requests, wake)

    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        self.zk_session.read_replies(replies, seconds)

    def withdraw(self, batch: Batch) -> None:
        self.zk_session.withdraw(batch)

    def session(self) -> SessionInfo | None:
        return self.zk_session.session()

    def session_changes(self) -> Signal:
        return self.zk_session.changes

    def is_proven(self, session_id: int, fresh: bool = False) -> bool:
        return not self.inherited and self.lease.is_valid_at(session_id, lease_clock(), fresh)

    def hold(self, step: Hold) -> None:
        self.holds.add(step, lease_clock())
        self.background_thread.on_hold_added()

    def unhold(self, loss: Loss) -> None:
        self.holds.remove(loss)

    def mark_lost(self, path: str) -> None:
        self.holds.lose_path(path)

    def lose_below(self, path: str) -> None:
        """End all holds on znodes below ``path``, which were deleted."""
        for held in self.holds.active():
            if held.path.startswith(f"{path}/"):
                self.holds.lose_path(held.path)

    def watch_hold(self, loss: Loss, on_data: Callable[[bytes], object]) -> None:
        self.holds.watch(loss, on_data)
        self.background_thread.wake()

    def is_active(self, loss: Loss) -> bool:
        return self.holds.is_active(loss)

    def background(self, protocol: ProtocolCoroutine | Callable[[], ProtocolCoroutine]) -> None:
        if self.closing or self.inherited:
            if not callable(protocol):
                protocol.close()
        else:
            self.background_thread.post(protocol)

    def at_close(self, protocol: Callable[[], ProtocolCoroutine], key: object = None) -> None:
        """Run ``protocol`` when the client closes, unless `discard` gets ``key`` before."""
        self._close_hooks[object() if key is None else key] = protocol

    def discard(self, key: object, protocol: Callable[[], ProtocolCoroutine]) -> None:
        """Drive ``protocol`` in the background now, instead of the close hook ``key``.

        Safe in finalizers, and while the client closes.
        """
        # First: a client that closes in between then does both, and never neither.
        if not self.inherited:
            self.background_thread.post(protocol)
        self._close_hooks.pop(key, None)

    def on_long_wait(self, progress: WaitProgress) -> None:
        """Log a long wait and the holder, unless this was logged recently."""
        now = wait_clock()
        if not self._wait_log_throttle.should_log(progress.subject.path, now):
            return
        owner = progress.owner()
        if owner is not None and self.zk_session.info is not None:
            self.background(log_owner(progress.text(now), owner))
        else:
            problem = str(self.outage() or self.zk_session.problem)
            log_wait(progress.text(now), self.zk_session.info is not None, problem)

    def guid(self) -> str:
        return self._guids.take()

    def abandon_results(self, leftovers: list[LeftoverNode], losses: list[Loss]) -> None:
        """Clean up after a failed call: delete its znodes, and end its holds as lost."""
        for loss in losses:
            self.holds.mark_lost(loss, INTERRUPTED)
        session_id = self.lease.session_id
        if session_id is not None:
            for leftover in leftovers:
                self.background(delete_leftover(leftover, session_id))

    def _on_lease_expired(self, lost: list[HeldNode]) -> None:
        """Delete the znodes of holds that an expired lease ended, as the session may live on."""
        for held in lost:
            self.background(delete_leftover(LeftoverNode(held.path, True), held.session_id))

    def background_failed(self, run: ProtocolRun, error: BaseException) -> None:
        """Clean up after a failed background protocol, and log an unexpected error."""
        run.abandon_results(error)
        if isinstance(error, Exception) and not isinstance(error, DistsyncError) and not run.abandoned:
            logger.error("background work failed", exc_info=error)
        elif isinstance(error, (AccessDeniedError, RequestError)) and not run.abandoned:
            logger.warning("background work was refused by the server: %s", error)


async def wait_until_connected() -> None:
    await Connected()


def _copy(error: Exception) -> DistsyncError:
    """Return the error without its traceback, which would keep frames and their objects alive."""
    return type(error)(*error.args) if isinstance(error, DistsyncError) else UnavailableError(str(error))
