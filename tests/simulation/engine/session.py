"""A process's session: one connection at a time, requests and answers in order, watches, reconnects,
expiry.

It behaves as kazoo does. Requests in progress when the connection breaks fail with
DisconnectedError; those made while there is no connection wait for the next one. A client learns of
an expired session only when it reconnects. A disconnect removes all watches and wakes their
waiters. Each connection begins with a sync, as the client's does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulation.engine import step_codec
from simulation.engine.network import BROKEN, Connection

from distsync._protocols import steps
from distsync._server import effects
from distsync._wire import records
from distsync._wire.codes import PING_XID, EventType
from distsync.errors import ClientClosedError, DisconnectedError, SessionLostError

if TYPE_CHECKING:
    from simulation.engine.process import SimProcess

#: Maximum delay of a reconnect, when nothing else delays it.
RECONNECT_MS = 60


class Submission:
    """A request in transit: its step, the callback for its answer, and when and in which session it
    was sent.
    """

    __slots__ = ("step", "done", "sent_ms", "session_id")

    def __init__(self, step: steps.Request[Any], done: Callable[[Submission, Any], object]) -> None:
        self.step = step
        self.done = done
        self.sent_ms = -1
        self.session_id = 0


class SimSession:
    """See the module."""

    syncs = True
    """Whether each connection begins with a sync."""

    def __init__(self, process: SimProcess, timeout_ms: int) -> None:
        self.process = process
        self.world = process.world
        self.asked_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        self.session_id = 0
        self.password: bytes | None = bytes(16)
        self.zxid = 0
        self.connection: Connection | None = None
        self.connected = False
        self.ever_connected = False
        self.connections = 0
        self.closed = False
        self.ended = 0
        """How many sessions have ended involuntarily."""
        self.disowned = False
        """Whether the next connection reports that the session has ended, although it has not."""
        self.away_until_ms = 0
        self.queue: deque[Submission] = deque()
        self.pending: deque[Submission] = deque()
        self.watches: dict[tuple[str, str], list[steps.Watch]] = {}
        self.waiting: list[Callable[[steps.SessionInfo | Exception], object]] = []
        self._xid = 0
        self._connect_ms = 0

    # --- connecting

    def start(self) -> None:
        """Connect, unless there is a connection."""
        if self.connection is None and not self.closed:
            self._connect()

    def _connect(self) -> None:
        if self.closed or self.connection is not None:
            return
        if self.world.now_ms < self.away_until_ms:
            self.process.clockwork.after(self.away_until_ms - self.world.now_ms, self._connect)
            return
        back_ms = self.world.server.back_ms
        if back_ms is not None:
            wait_ms = max(0, back_ms - self.world.now_ms) + self.world.rng.randint(1, RECONNECT_MS)
            self.process.clockwork.after(wait_ms, self._connect)
            return
        self.connection = self.world.server.open(self.process, self._read)
        self._connect_ms = self.world.now_ms
        session_id, password = (0, bytes(16)) if self.disowned else (self.session_id, self.password)
        request = records.ConnectRequest(0, self.zxid, self.asked_timeout_ms, session_id, password)
        self.connection.up.put(request)

    def _accepted(self, response: records.ConnectResponse) -> None:
        if self.closed:  # closed while connecting: nothing keeps the session alive
            self._leave()
            return
        if self.session_id and response.session_id != self.session_id:
            self._session_ended()
        if response.session_id == 0:
            self._leave()
            self._connect()
            return
        self._attached(response)
        self.connected = self.ever_connected = True
        self.connections += 1
        self.world.note(self.process.name, "connected", f"session {self.session_id:#x}")
        self._ping(self.connection)
        if self.syncs:
            self._send(Submission(steps.Sync("/"), lambda submission, answer: None), spared=True)
        self._flush()

    def _attached(self, response: records.ConnectResponse) -> None:
        self.disowned = False
        self.timeout_ms = response.timeout_ms
        if self.session_id == 0:
            self.session_id, self.password = response.session_id, response.password
            self.process.keeper.lease.begin(self.session_id, self.timeout_ms / 1000, self._connect_ms / 1000)
        else:
            self.process.keeper.look()
            self.process.keeper.lease.renegotiate(self.timeout_ms / 1000)

    def _flush(self) -> None:
        while self.queue:
            self._send(self.queue.popleft())
        self._resume_waiting(self.info)

    def _resume_waiting(self, answer: steps.SessionInfo | Exception) -> None:
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume(answer)

    @property
    def info(self) -> steps.SessionInfo:
        return steps.SessionInfo(self.session_id, self.timeout_ms, self.connections)

    # --- asking

    def submit(self, step: steps.Request[Any], done: Callable[[Submission, Any], object]) -> Submission:
        """Send a request. ``done(submission, answer)`` is called once, with the answer or the error."""
        submission = Submission(step, done)
        if self.closed:
            done(submission, ClientClosedError(type(step).__name__))
        elif self.connected:
            self._send(submission)
        else:
            self.queue.append(submission)
            self.start()
        return submission

    def withdraw(self, submissions: list[Submission]) -> None:
        """Remove those that were not sent yet."""
        if self.queue:
            self.queue = deque(each for each in self.queue if each not in submissions)

    def _send(self, submission: Submission, spared: bool = False) -> None:
        """Send a request; if ``spared``, no fault hits it."""
        assert self.connection is not None
        submission.sent_ms = self.world.now_ms
        submission.session_id = self.session_id
        self.pending.append(submission)
        self._xid += 1
        self.connection.up.put((self._xid, step_codec.request_of(submission.step), None if spared else submission.step))

    def _ping(self, connection: Connection | None) -> None:
        if connection is not None and connection is self.connection:
            connection.up.put((PING_XID, records.PingRequest(), None))
            self.process.clockwork.after(self.timeout_ms // 3, lambda: self._ping(connection), idle=True)

    # --- reading

    def _read(self, connection: Connection, message: Any) -> None:
        if connection is not self.connection:
            return
        if message is BROKEN:
            self._disconnected()
        elif type(message) is effects.Reply:
            self._replied(message)
        elif type(message) is effects.Notify:
            self._notified(message.event)
        else:
            self._accepted(message.response)

    def _replied(self, reply: effects.Reply) -> None:
        if reply.xid == PING_XID or self.closed:
            return
        submission = self.pending.popleft()
        step = submission.step
        if reply.zxid > self.zxid:
            self.zxid = reply.zxid
        if type(step) in step_codec.PROOFS and step_codec.by_the_leader(reply.err):
            self.process.keeper.look()
            self.process.keeper.lease.prove(self.session_id, submission.sent_ms / 1000)
        armed = step_codec.watch_of(step)
        if armed and step_codec.arms(step, reply.err):
            self.watches.setdefault(armed[0], []).append(armed[1])
        submission.done(submission, step_codec.answer_of(step, reply.err, reply.body, self.world.rng))

    def _notified(self, event: records.WatcherEvent) -> None:
        self.world.faults.at_event(self.process)
        for kind in step_codec.FIRES.get(event.type, ()):
            for watch in self.watches.pop((kind, event.path), ()):
                watch.is_deleted = event.type == EventType.NODE_DELETED
                self.process.dispatch(watch.fire)

    # --- losing

    def _leave(self) -> None:
        """Drop the connection."""
        connection, self.connection, self.connected = self.connection, None, False
        if connection is not None:
            connection.client_leaves()

    def _disconnected(self) -> None:
        self.world.note(self.process.name, "disconnected", "")
        self._leave()
        self._fire_watches()
        self._fail(self.pending, lambda step: DisconnectedError(step.path))
        self._fail(self.queue, lambda step: DisconnectedError(step.path))
        self.process.clockwork.after(self.world.rng.randint(0, RECONNECT_MS), self._connect)

    def _session_ended(self) -> None:
        ended, self.session_id, self.password = self.session_id, 0, bytes(16)
        self.zxid = 0
        self.ended += 1
        self.world.note(self.process.name, "session ended", f"{ended:#x}")
        self._fire_watches()
        self._fail(self.queue, lambda step: SessionLostError(type(step).__name__.lower()))
        self.process.keeper.session_ended()

    def _fire_watches(self) -> None:
        watches, self.watches = self.watches, {}
        for group in watches.values():
            for watch in group:
                self.process.dispatch(watch.fire)

    def _fail(self, submissions: deque[Submission], error: Callable[[steps.Request[Any]], Exception]) -> None:
        failed = list(submissions)
        submissions.clear()
        for submission in failed:
            submission.done(submission, error(submission.step))

    def is_proven(self, session_id: int, fresh: bool = False) -> bool:
        """Return whether the lease clock proves that this session is alive now."""
        return self.process.keeper.lease.is_valid_at(session_id, self.world.now, fresh)

    def close(self) -> None:
        """End the session in good order if there is a connection, otherwise by its timeout."""
        if self.closed:
            return
        self.closed = True
        self._fail(self.queue, lambda step: ClientClosedError(type(step).__name__))
        self._fail(self.pending, lambda step: ClientClosedError(type(step).__name__))
        self._resume_waiting(ClientClosedError("a connection"))
        if self.connection is not None and self.connected:
            self.connection.up.put((self._xid + 1, records.CloseSessionRequest(), None))

    def discard(self) -> None:
        """Stop, because the process was killed: nothing more is sent or answered."""
        self.closed = True
        self.queue.clear()
        self.pending.clear()
        self.watches.clear()
        self._leave()
