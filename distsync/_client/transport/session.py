"""ZooKeeper session over kazoo: sends the requests of steps, and settles their replies.

It is used by three kinds of threads: callers, kazoo's connection thread and the client's background
thread. One lock guards the connection state together with the queue that belongs to it. It is never
held during a wait, and no reply is lost when the state changes:

* While connected, requests go into kazoo's queue. kazoo answers each of them, at the latest when
  the connection is lost.
* Otherwise requests wait here, bound to the current session. The next connection sends them in
  order. If it belongs to another session, they fail.
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
from distsync._client.transport.kazoo_client import RawKazooClient
from distsync._client.transport.kazoo_errors import LEADER_ERRORS, translate
from distsync._client.transport.kazoo_requests import Translator, result_of
from distsync._client.transport.own_nodes import OwnNodes
from distsync._client.transport.reply_futures import Batch, Outcome, ReplyFuture
from distsync._client.transport.watch_table import WatchTable
from distsync._log import OwnLogger
from distsync._protocols.steps import Create, Delete, Multi, Request, SessionInfo, SetData, Signal, Sync
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ClientClosedError, ConfigurationError, SessionLostError

logger = OwnLogger("distsync.client")

#: Requests whose replies prove that the session was alive when they were sent (see lease_clock.py).
PROVING_REQUESTS = (Create, Delete, SetData, Multi, Sync)

#: Requests that create or delete znodes.
NODE_CHANGES = (Create, Delete, Multi)

#: The session is replaced after this many refused handshakes in a row, if its timeout has passed.
#: The server then has older data than this client has seen (it was restored, or wiped), and kazoo
#: would retry forever.
MAX_REFUSED_HANDSHAKES = 3


class ZooKeeperSession:
    """The client's ZooKeeper session, and those that replace it after its end."""

    def __init__(
        self,
        options: dict[str, Any],
        translator: Translator,
        lease: LeaseClock,
        holds: HoldTable,
        on_change: Callable[[], None],
        on_many_own_nodes: Callable[[], object] = lambda: None,
    ) -> None:
        self.state = ConnectionState.CONNECTING
        self.info: SessionInfo | None = None
        self.was_connected = False
        self.failure: Exception | None = None
        self.changes = Signal()
        self.watches = WatchTable()
        self.own_nodes = OwnNodes(on_many_own_nodes)
        self.older_data: SessionInfo | None = None
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
        self._kazoo: RawKazooClient | None = None
        self._address: tuple[str, Sequence[tuple[str, str]]] = ("", ())
        self._session_id: int | None = None
        self._timeout_ms = 0
        self._connections = 0
        self._unsent: list[ReplyFuture] = []
        self._attempted_at = 0.0
        self._requests: Counter[str] = Counter()
        self._round_trips = 0

    # ---- towards the server

    def start(self, hosts: str, auth: Sequence[tuple[str, str]]) -> None:
        """Start to connect, and to reconnect whenever the connection is lost."""
        reports = (self._on_attempt, self._on_session, self.lock)
        options = {
            "hosts": hosts,
            "auth_data": _auth_data(auth),
            "on_reply_read_by_caller": self._on_reply_read_by_caller,
            **self._options,
        }
        kazoo = RawKazooClient(*reports, **options)
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            self._kazoo, self._address = kazoo, (hosts, auth)
            kazoo.add_listener(lambda state: self._on_kazoo_state(kazoo, state))
            kazoo.start_async()  # under the lock, so that a concurrent close() finds it started

    @property
    def hosts(self) -> str:
        """Addresses of the servers; empty until the embedded server is found."""
        return self._address[0]

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed; empty if it did not."""
        kazoo = self._kazoo  # another thread may close the client
        return kazoo.connection.problem if kazoo is not None else ""

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """Id and password of the session, or None."""
        kazoo = self._kazoo
        return kazoo.client_id if kazoo is not None else None

    def move(self, hosts: str, auth: Sequence[tuple[str, str]]) -> None:
        """Use other addresses, unless connected."""
        kazoo = self._kazoo
        if kazoo is not None and kazoo.is_dead and not self.was_connected:  # its thread could not be started
            kazoo.end(0.0, flush=False)
            kazoo = None
        if kazoo is None:
            self.start(hosts, auth)
        elif not self.info:
            self._address = (hosts, auth)
            kazoo.auth_data = set(_auth_data(auth))
            kazoo.set_hosts(hosts)

    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch:
        """Send the requests in this order, as soon as there is a connection."""
        batch = Batch(requests, wake)
        with self.lock:
            for request in requests:
                self._requests[type(request).__name__] += 1
            self._round_trips += 1
            self._enqueue(*batch.replies)
        return batch

    def send_heartbeat(self, wake: Callable[[], object]) -> Batch:
        """Send an empty write, whose reply is a proof. It is counted separately."""
        batch = Batch((Sync("/"),), wake)
        with self.lock:
            self.heartbeats += 1
            self._enqueue(batch.replies[0])
        return batch

    def _enqueue(self, *replies: ReplyFuture) -> None:
        for reply in replies:
            reply.on_response(self._on_response)
        if self.state is ConnectionState.CONNECTED:
            self._send(replies)
        elif self.closing:
            _fail_closed(replies)
        elif self.failure is not None:
            for reply in replies:
                reply.settle(Outcome(error=self.failure))
        else:
            for reply in replies:
                reply.session_id = self._session_id
            self._unsent += replies

    def _send(self, replies: Sequence[ReplyFuture]) -> None:
        assert self._kazoo is not None
        self._kazoo.enqueue(*[(self._prepare(reply), reply) for reply in replies])

    def _send_first(self, reply: ReplyFuture) -> None:
        """Send ``reply`` before all other requests."""
        assert self._kazoo is not None
        reply.on_response(self._on_response)
        self._kazoo.enqueue_first(self._prepare(reply), reply)

    def _prepare(self, reply: ReplyFuture) -> Any:
        """Stamp ``reply`` with the time and the session, and return the record to send."""
        reply.session_id = self._session_id
        reply.sent_at = lease_clock()
        return self._translator.record(reply.request, self.watches.arm(reply.request))

    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        """Let the calling thread, which is about to wait for ``replies``, read them itself.

        Without ``replies``, the thread waits for something else.
        """
        kazoo = self._kazoo
        if kazoo is not None:
            kazoo.connection.read_replies(replies, seconds)

    def stop_reading(self) -> None:
        """End the reading of the calling thread, which was interrupted."""
        kazoo = self._kazoo
        if kazoo is not None:
            kazoo.connection.stop_reading()

    def withdraw(self, batch: Batch) -> None:
        """Do not send the requests of ``batch`` that have not been sent yet."""
        with self.lock:
            if self._unsent:
                self._unsent = [reply for reply in self._unsent if reply not in batch.replies]

    def _on_response(self, reply: ReplyFuture, response: Any, error: BaseException | None) -> None:
        """Settle ``reply``, in kazoo's connection thread. Must not raise, as this would end the thread."""
        if not (isinstance(error, UnimplementedError) and self._retry_without_container(reply)):
            self._complete(reply, response, error, self._holds.expire)

    def _on_reply_read_by_caller(self, reply: ReplyFuture, response: Any, error: BaseException | None) -> bool:
        """Settle ``reply`` in the thread that waits for it. Repeatable if interrupted at any line.

        Return False if the lease has expired. The connection thread must then settle the reply,
        and ends the holds.
        """
        if len(self._holds) and lease_clock() >= self._lease.valid_until:
            return False
        self._complete(reply, response, error)
        return True

    def _complete(
        self,
        reply: ReplyFuture,
        response: Any,
        error: BaseException | None,
        before_proof: Callable[[float], object] = lambda now: None,
    ) -> None:
        try:
            outcome = Outcome(error=translate(error, reply.request)) if error else self._outcome_of(reply, response)
        except Exception as unexpected:
            raise_if_from_handler(unexpected)
            outcome = Outcome(error=translate(unexpected, reply.request))
        if isinstance(reply.request, PROVING_REQUESTS) and (
            outcome.error is None or isinstance(outcome.error, LEADER_ERRORS)
        ):
            before_proof(lease_clock())  # a late proof cannot revive a lease that has expired
            self._lease.prove(reply.session_id, reply.sent_at)
        if isinstance(reply.request, NODE_CHANGES):
            self.own_nodes.record(reply.request, outcome.value, outcome.error)
        reply.settle(outcome)

    def _outcome_of(self, reply: ReplyFuture, response: Any) -> Outcome:
        try:
            return Outcome(result_of(reply.request, response))
        except LEADER_ERRORS as refused:
            return Outcome(error=refused)

    def _retry_without_container(self, reply: ReplyFuture) -> bool:
        """Retry without the container flag if it was set. Return whether ``reply`` is retried."""
        if not (isinstance(reply.request, Create) and reply.request.container and self._translator.containers):
            return False
        self._translator.containers = False
        with self.lock:
            self._enqueue(reply)
        return True

    # ---- callbacks, in kazoo's connection thread

    def _on_attempt(self, host: str, port: int) -> None:
        """Check the server before the handshake, which sends credentials."""
        if not self.is_genuine(host, port):
            raise ConnectionDropped(f"no embedded server of this user listens at {host}:{port}")
        self._attempted_at = lease_clock()

    def _on_session(self, session_id: int, timeout_ms: int) -> None:
        """Begin or resume a session that is connected and authenticated."""
        is_new = session_id != self._session_id
        if is_new:
            self._end_session()
            self.own_nodes.begin_session()
            self._lease.begin(session_id, timeout_ms / 1000, self._attempted_at)
        self._holds.expire(lease_clock())  # by the old timeout, under which they were held
        self._lease.renegotiate(timeout_ms / 1000)
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            self._session_id, self._timeout_ms = session_id, timeout_ms
            self._connections += 1
            self.info = SessionInfo(session_id, timeout_ms, self._connections)
            self.was_connected, self.lost_since, self.failure = True, None, None
            self.state = ConnectionState.CONNECTED
            unsent, self._unsent = self._unsent, []
            # The new server may lag behind the previous one, even behind our own writes whose
            # replies were lost.
            self._send_first(Batch((Sync("/"),), _ignore).replies[0])
            self._send(unsent)
        self._notify_state()

    def _on_kazoo_state(self, kazoo: RawKazooClient, state: str) -> None:
        """Handle a lost connection or session. `_on_session` handles a connected one."""
        if kazoo is not self._kazoo or state == KazooState.CONNECTED:
            return
        if kazoo.client_state == KeeperState.AUTH_FAILED:
            schemes = ", ".join(scheme for scheme, _ in self._address[1])
            self.fail(ConfigurationError("auth", schemes, "the server refused these credentials, or requires others"))
        self.own_nodes.on_disconnect(kazoo.last_zxid)
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
        """End the session: its holds are lost, its watches fire, and its unsent requests fail."""
        with self.lock:
            ended, self._session_id = self._session_id, None
            failed = [reply for reply in self._unsent if reply.session_id is not None]
            self._unsent = [reply for reply in self._unsent if reply.session_id is None]
        if ended is not None:
            self._lease.end()
            self._holds.lose_all(SESSION_EXPIRED)
        for reply in failed:
            reply.settle(Outcome(error=SessionLostError(f"{type(reply.request).__name__} {reply.request.path}")))
        self.watches.fire_all()

    def _notify_state(self) -> None:
        with self.lock:  # two concurrent calls each take their own signal
            changes, self.changes = self.changes, Signal()
        changes.fire()
        self._on_change()

    def fail(self, failure: Exception) -> None:
        """Fail all requests that wait for a connection, because there will be none."""
        with self.lock:
            self.failure = failure
            unsent, self._unsent = self._unsent, []
        for reply in unsent:
            reply.settle(Outcome(error=failure))
        self._notify_state()

    # ---- for the background thread

    def session(self) -> SessionInfo | None:
        """Return the session if connected; None if not. Raise if it will never be connected."""
        if self.info is None and self.closing:
            raise ClientClosedError("a connection")
        if self.info is None and self.failure is not None:
            raise self.failure
        return self.info

    def is_stuck(self, now: float) -> bool:
        """Return whether the session must be replaced, because kazoo will never reconnect it.

        True only once it must have expired on the servers too: then reads of the next session show
        how the last requests of this one ended.
        """
        kazoo = self._kazoo
        if kazoo is None or self.info is not None or self.lost_since is None or self.failure is not None:
            return False
        timeouts = (now - self.lost_since) * 1000 / max(1, self._timeout_ms)
        return timeouts > 1.5 if kazoo.is_dead else timeouts > 1 and kazoo.connection.refusals >= MAX_REFUSED_HANDSHAKES

    def give_up_session(self, now: float) -> None:
        """Change the state to LOST if the connection has been lost for the session timeout.

        All holds have ended by then. If the servers were down as well, the session may still be
        resumed, without holds.
        """
        with self.lock:
            since = self.lost_since
            if self.state is not ConnectionState.SUSPENDED or since is None or (now - since) * 1000 <= self._timeout_ms:
                return
            self.state = ConnectionState.LOST
        self._notify_state()

    def restart(self) -> None:
        """Replace the session by a new one."""
        kazoo, self._kazoo = self._kazoo, None
        assert kazoo is not None
        kazoo.end(0.2, flush=False)
        self._disconnected(ConnectionState.LOST)
        self.start(*self._address)

    def on_older_data(self, session: SessionInfo) -> None:
        """Let the background thread end the session: the servers were restored from a backup that contains it."""
        self.older_data = session

    def end_if_older_data(self) -> None:
        """End the session if the servers were restored from a backup that contains it, and begin a new one.

        The holds end first: the servers delete the znodes of the session at once.
        """
        session, self.older_data = self.older_data, None
        with self.lock:
            kazoo = self._kazoo
            if kazoo is None or session is None or session != self.info or self.closing:
                return
            self._kazoo = None
        logger.warning("the servers have older data than before, with this session: beginning a new one")
        self._disconnected(ConnectionState.LOST)
        kazoo.end(1.0)
        self.start(*self._address)

    def statistics(self) -> ClientStatistics:
        with self.lock:
            return ClientStatistics(dict(self._requests), self._round_trips, self.heartbeats, self.watches.events)

    def begin_close(self) -> None:
        """Fail all requests that wait for a connection. Those on the current one can still end."""
        with self.lock:
            self.closing = True
            unsent, self._unsent = self._unsent, []
        _fail_closed(unsent)
        self._notify_state()

    def close(self, seconds: float) -> None:
        """Close the session, within ``seconds``."""
        with self.lock:
            self.state = ConnectionState.CLOSED
            self.info = None
        kazoo = self._kazoo
        if kazoo is not None:
            kazoo.end(seconds)
            self._kazoo = None  # last, so that a close that is interrupted can be repeated
        self._lease.end()
        self.watches.fire_all()
        self._notify_state()

    def is_current_thread(self) -> bool:
        """Return whether this is kazoo's connection thread, in which nothing may block."""
        kazoo = self._kazoo
        return kazoo is not None and kazoo.is_current_thread()

    def after_fork_in_child(self) -> None:
        """Close the inherited sockets in a forked child."""
        kazoo = self._kazoo
        if kazoo is not None:
            kazoo.after_fork_in_child()


def _auth_data(auth: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the credentials for ZooKeeper's auth packet. SASL is configured in kazoo instead."""
    return [(scheme, credential) for scheme, credential in auth if scheme != "sasl"]


def _fail_closed(replies: Sequence[ReplyFuture]) -> None:
    """Fail the requests because the client is closed."""
    for reply in replies:
        reply.settle(Outcome(error=ClientClosedError(f"{type(reply.request).__name__} {reply.request.path}")))


def _ignore() -> None:
    """Ignore the result."""
