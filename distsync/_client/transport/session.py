"""The link: one ZooKeeper session over kazoo, from the requests of steps to their answers.

Rules for this file: it knows kazoo, steps and the lease; no protocol, deadline or user. Three kinds of threads come
here: callers that submit, kazoo's connection thread with answers and news, the keeper. The one lock guards the state
together with the queue that goes with it; nothing waits while it is held, and no answer is lost between two states:

* connected: requests go into kazoo's queue, and kazoo answers each, at the latest with the connection's loss.
* else: they are kept here, bound to the session they were meant for. The next connection sends them in order; if
  that is another session, they fail.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import ConnectionDropped, UnimplementedError
from kazoo.protocol.states import KazooState, KeeperState

from distsync._client.clocks import lease_clock
from distsync._client.connection_state import ClientStatistics, ConnectionState
from distsync._client.lease.holds import SESSION_EXPIRED, HoldTable
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.transport.kazoo_client import Kazoo
from distsync._client.transport.kazoo_errors import LEADER_ERRORS, translate
from distsync._client.transport.kazoo_requests import Translator, answer
from distsync._client.transport.pending_replies import Batch, Outcome, PendingReply
from distsync._client.transport.watch_table import WatchTable
from distsync._protocols.steps import Create, Delete, Multi, Request, SessionInfo, SetData, Signal, Sync
from distsync.errors import ClientClosedError, ConfigurationError, SessionLostError

#: An answer to one of these proves that the session lived when it was sent (lease/lease_clock.py).
PROOFS = (Create, Delete, SetData, Multi, Sync)

#: A server that hangs up on so many handshakes in a row, after our session's time has passed, has older data than
#: we have seen (it was restored, or wiped). kazoo would ask it for ever.
REFUSALS = 3


class ZooKeeperSession:
    """One session after another."""

    def __init__(
        self,
        options: dict[str, Any],
        translator: Translator,
        lease: LeaseClock,
        holds: HoldTable,
        on_change: Callable[[], None],
    ) -> None:
        self.state = ConnectionState.CONNECTING
        self.info: SessionInfo | None = None
        self.was_connected = False
        self.failure: Exception | None = None
        self.changes = Signal()
        self.watches = WatchTable()
        self.heartbeats = 0
        self.closing = False
        self.lost_since: float | None = None
        self.is_genuine: Callable[[str, int], bool] = lambda host, port: True
        self._options = options
        self._translator = translator
        self._lease = lease
        self._holds = holds
        self._on_change = on_change
        self.lock = threading.RLock()
        self._kazoo: Kazoo | None = None
        self._address: tuple[str, Sequence[tuple[str, str]]] = ("", ())
        self._session_id: int | None = None
        self._timeout_ms = 0
        self._waiting: list[PendingReply] = []
        self._attempt_at = 0.0
        self._requests: Counter[str] = Counter()
        self._round_trips = 0

    # ---- towards the server

    def start(self, hosts: str, auth: Sequence[tuple[str, str]]) -> None:
        """The connection is being made; from now on it is kept up."""
        reports = (self._on_attempt, self._on_session, self.lock)
        options = {"hosts": hosts, "auth_data": _auth_data(auth), "on_own_answer": self._on_own_answer, **self._options}
        kazoo = Kazoo(*reports, **options)
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            self._kazoo, self._address = kazoo, (hosts, auth)
            kazoo.add_listener(lambda state: self._on_kazoo_state(kazoo, state))
            kazoo.start_async()  # in here: who closes meanwhile finds it started

    @property
    def hosts(self) -> str:
        """Where the servers are looked for; empty while the embedded one is not found yet."""
        return self._address[0]

    @property
    def problem(self) -> str:
        """Why there is no connection, as far as the last attempt told."""
        return self._kazoo.problem if self._kazoo is not None else ""

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """Id and password of the session."""
        return self._kazoo.client_id if self._kazoo is not None else None

    def move(self, hosts: str, auth: Sequence[tuple[str, str]]) -> None:
        """The server may be found elsewhere now."""
        kazoo = self._kazoo
        if kazoo is not None and kazoo.is_dead and not self.was_connected:  # it could not be started
            kazoo.end(0.0, flush=False)
            kazoo = None
        if kazoo is None:
            self.start(hosts, auth)
        elif not self.info:
            self._address = (hosts, auth)
            kazoo.auth_data = set(_auth_data(auth))
            kazoo.set_hosts(hosts)

    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch:
        """They are sent, in this order, as soon as there is a connection."""
        batch = Batch(requests, wake)
        with self.lock:
            self._requests.update(type(request).__name__ for request in requests)
            self._round_trips += 1
            self._enqueue(*batch.replies)
        return batch

    def send_heartbeat(self, wake: Callable[[], object]) -> Batch:
        """An empty write that asks for a proof, and is counted apart."""
        batch = Batch((Sync("/"),), wake)
        with self.lock:
            self.heartbeats += 1
            self._enqueue(batch.replies[0])
        return batch

    def _enqueue(self, *replies: PendingReply) -> None:
        for reply in replies:
            reply.on_response(self._on_response)
        if self.state is ConnectionState.CONNECTED:
            self._send(replies)
        elif self.closing:
            _refuse(replies)
        elif self.failure is not None:
            for reply in replies:
                reply.settle(Outcome(error=self.failure))
        else:
            for reply in replies:
                reply.session_id = self._session_id
            self._waiting += replies

    def _send(self, replies: Sequence[PendingReply]) -> None:
        assert self._kazoo is not None
        self._kazoo.enqueue(*[(self._prepare(reply), reply) for reply in replies])

    def _send_first(self, reply: PendingReply) -> None:
        """The server behind a new connection may know less than the one before, and not even what we wrote without
        hearing of it."""
        assert self._kazoo is not None
        reply.on_response(self._on_response)
        self._kazoo.enqueue_first(self._prepare(reply), reply)

    def _prepare(self, reply: PendingReply) -> Any:
        """What is sent, now, for this reply."""
        reply.session_id = self._session_id
        reply.sent_at = lease_clock()
        return self._translator.record(reply.request, self.watches.arm(reply.request))

    def read_replies(self, replies: Sequence[PendingReply], seconds: float) -> None:
        """The calling thread is about to wait so long, for these answers, or for something else if there are none."""
        if self._kazoo is not None:
            self._kazoo.read_replies(replies, seconds)

    def stop_reading(self) -> None:
        """The calling thread was interrupted."""
        if self._kazoo is not None:
            self._kazoo.stop_reading()

    def withdraw(self, batch: Batch) -> None:
        """What of it was not sent yet will not be."""
        with self.lock:
            if self._waiting:
                self._waiting = [reply for reply in self._waiting if reply not in batch.replies]

    def _on_response(self, reply: PendingReply, response: Any, error: BaseException | None) -> None:
        """In kazoo's connection thread, in which an exception would end the connection."""
        if not (isinstance(error, UnimplementedError) and self._retry_plainly(reply)):
            self._complete(reply, response, error, self._holds.expire)

    def _on_own_answer(self, reply: PendingReply, response: Any, error: BaseException | None) -> bool:
        """In a thread that waits for it, and may be interrupted in any line, which is then done again. False: it is to
        be given in the connection thread, for something has lapsed."""
        if len(self._holds) and lease_clock() >= self._lease.valid_until:
            return False
        self._complete(reply, response, error)
        return True

    def _complete(
        self,
        reply: PendingReply,
        response: Any,
        error: BaseException | None,
        before_proof: Callable[[float], object] = lambda now: None,
    ) -> None:
        try:
            outcome = Outcome(error=translate(error, reply.request)) if error else self._answer(reply, response)
        except Exception as unexpected:
            outcome = Outcome(error=translate(unexpected, reply.request))
        if isinstance(reply.request, PROOFS) and (outcome.error is None or isinstance(outcome.error, LEADER_ERRORS)):
            before_proof(lease_clock())
            self._lease.prove(reply.session_id, reply.sent_at)
        reply.settle(outcome)

    def _answer(self, reply: PendingReply, response: Any) -> Outcome:
        try:
            return Outcome(answer(reply.request, response))
        except LEADER_ERRORS as refused:
            return Outcome(error=refused)

    def _retry_plainly(self, reply: PendingReply) -> bool:
        """A server without container nodes gets plain ones."""
        if not (isinstance(reply.request, Create) and reply.request.container and self._translator.containers):
            return False
        self._translator.containers = False
        with self.lock:
            self._enqueue(reply)
        return True

    # ---- news, in kazoo's connection thread

    def _on_attempt(self, host: str, port: int) -> None:
        """Before the handshake, and before any credential is shown."""
        if not self.is_genuine(host, port):
            raise ConnectionDropped(f"the server looked for is not, or not yet, at {host}:{port}")
        self._attempt_at = lease_clock()

    def _on_session(self, session_id: int, timeout_ms: int) -> None:
        """Connected and authenticated."""
        is_new = session_id != self._session_id
        if is_new:
            self._end_session()
            self._lease.begin(session_id, timeout_ms / 1000, self._attempt_at)
        self._holds.expire(lease_clock())  # by the time-out that it was held under
        self._lease.renegotiate(timeout_ms / 1000)
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            self._session_id, self._timeout_ms = session_id, timeout_ms
            self.info = SessionInfo(session_id, timeout_ms)
            self.was_connected, self.lost_since = True, None
            self.state = ConnectionState.CONNECTED
            waiting, self._waiting = self._waiting, []
            self._send_first(Batch((Sync("/"),), _nobody).replies[0])
            self._send(waiting)
        self._notify_state()

    def _on_kazoo_state(self, kazoo: Kazoo, state: str) -> None:
        """The connection went, or the session with it. (That it came is known only after authentication.)"""
        if kazoo is not self._kazoo or state == KazooState.CONNECTED:
            return
        if kazoo.client_state == KeeperState.AUTH_FAILED:
            schemes = ", ".join(scheme for scheme, _ in self._address[1])
            self.fail(ConfigurationError("auth", schemes, "the server refused these credentials, or wants others"))
        self._disconnected(ConnectionState.LOST if state == KazooState.LOST else ConnectionState.SUSPENDED)

    def _disconnected(self, state: ConnectionState) -> None:
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            if not (self.state is ConnectionState.LOST and state is ConnectionState.SUSPENDED):
                self.state = state
            self.info = None
            if self.lost_since is None:
                self.lost_since = lease_clock()
        if state is ConnectionState.LOST:
            self._end_session()
        else:
            self.watches.fire_all()
        self._notify_state()

    def _end_session(self) -> None:
        """The ephemerals of the session are gone, its watches too, and what was to be sent in it will not be."""
        with self.lock:
            ended, self._session_id = self._session_id, None
            orphaned = [reply for reply in self._waiting if reply.session_id is not None]
            self._waiting = [reply for reply in self._waiting if reply.session_id is None]
        if ended is not None:
            self._lease.end()
            self._holds.lose_all(SESSION_EXPIRED)
        for reply in orphaned:
            reply.settle(Outcome(error=SessionLostError(f"{type(reply.request).__name__} {reply.request.path}")))
        self.watches.fire_all()

    def _notify_state(self) -> None:
        with self.lock:  # of two threads that tell at once each has its own to fire
            changes, self.changes = self.changes, Signal()
        changes.fire()
        self._on_change()

    def fail(self, failure: Exception) -> None:
        """There will be no connection: everybody who waits for one learns why."""
        with self.lock:
            self.failure = failure
            waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply.settle(Outcome(error=failure))
        self._notify_state()

    # ---- the keeper's

    def session(self) -> SessionInfo | None:
        """The connected session; raises if there will be none."""
        if self.info is None and self.closing:
            raise ClientClosedError("a connection")
        if self.info is None and self.failure is not None:
            raise self.failure
        return self.info

    def is_stuck(self, now: float) -> bool:
        """Whether kazoo will never connect again by itself, and the session is over on the servers too: only then
        does the next one's first answer say what became of this one's last requests."""
        kazoo = self._kazoo
        if kazoo is None or self.info is not None or self.lost_since is None or self.failure is not None:
            return False
        timeouts = (now - self.lost_since) * 1000 / max(1, self._timeout_ms)
        return timeouts > 1.5 if kazoo.is_dead else timeouts > 1 and kazoo.refusals >= REFUSALS

    def give_up_session(self, now: float) -> None:
        """A connection that is away for longer than the session may live is shown as lost: nothing that was held is.
        Should the servers have been away too, the session goes on when they are back, with nothing held."""
        with self.lock:
            since = self.lost_since
            if self.state is not ConnectionState.SUSPENDED or since is None or (now - since) * 1000 <= self._timeout_ms:
                return
            self.state = ConnectionState.LOST
        self._notify_state()

    def restart(self) -> None:
        """A new session, with no memory of the earlier one."""
        kazoo, self._kazoo = self._kazoo, None
        assert kazoo is not None
        kazoo.end(0.2, flush=False)
        self._disconnected(ConnectionState.LOST)
        self.start(*self._address)

    def statistics(self) -> ClientStatistics:
        with self.lock:
            return ClientStatistics(dict(self._requests), self._round_trips, self.heartbeats, self.watches.events)

    def begin_close(self) -> None:
        """Nobody waits for a connection any more; what can still be done over the present one can."""
        with self.lock:
            self.closing = True
            waiting, self._waiting = self._waiting, []
        _refuse(waiting)
        self._notify_state()

    def close(self, seconds: float) -> None:
        """The session is closed."""
        with self.lock:
            self.state = ConnectionState.CLOSED
            self.info = None
        kazoo = self._kazoo
        if kazoo is not None:
            kazoo.end(seconds)
            self._kazoo = None  # not before: who is interrupted closes again
        self._lease.end()
        self.watches.fire_all()
        self._notify_state()

    def is_current_thread(self) -> bool:
        """Whether this is kazoo's connection thread, which nothing may wait in."""
        return self._kazoo is not None and self._kazoo.is_current_thread()

    def after_fork_in_child(self) -> None:
        """In a forked child: nothing here is ours."""
        if self._kazoo is not None:
            self._kazoo.after_fork_in_child()


def _auth_data(auth: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What is told to a server as it is; SASL is a talk of its own, which kazoo is configured for."""
    return [(scheme, credential) for scheme, credential in auth if scheme != "sasl"]


def _refuse(replies: Sequence[PendingReply]) -> None:
    """The client is closed."""
    for reply in replies:
        reply.settle(Outcome(error=ClientClosedError(f"{type(reply.request).__name__} {reply.request.path}")))


def _nobody() -> None:
    """Nobody waits for it."""
