"""Who reads: the connection thread, or the thread that waits for an answer.

Rules for this file: half of the fast wire, and used with it only (fast_io.py).

kazoo's connection thread reads all answers, and wakes who waits: two switches of threads for each round trip, which
cost more than the server does. Here a thread that waits for an answer reads it itself, if nothing else is under way,
and the connection thread stays away from the socket meanwhile, and for a moment after. What is no answer to that thread
(events, pings, other threads' answers) it leaves where it is, and tells the connection thread. A round trip that takes
longer than a moment, and TLS, are the connection thread's in any case.

A signal may interrupt a thread that reads between any two lines, which nothing does to the connection thread. So each
line may be done again, by whoever reads next: bytes go from the socket to the input in one operation of C; an answer is
given first, which counts once; then it is written down as given; then it is taken from what is pending and from the
input, if it is still there. An answer on which more depends (what lapsed must be told) is left to the connection
thread.
"""

from __future__ import annotations

import select
import struct
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError, UnimplementedError
from kazoo.protocol import connection as kazoo
from kazoo.protocol.serialization import Close, Exists, GetChildren, GetChildren2, Transaction, int_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distsync._client.transport.pending_replies import PendingReply

#: For so long (seconds) after a caller has read, the connection thread leaves it to callers; events wait so long too.
CALLER_READ_WINDOW_S = 0.001

#: So long (seconds) a caller waits for what he reads himself.
PATIENCE_S = 0.02

#: What a caller reads at once (bytes).
READ_BYTES = 64 * 1024

#: The head of an answer: xid, zxid, error.
HEADER = struct.Struct("!iqi")

CHILDREN = (GetChildren, GetChildren2)

#: Errors that the connection thread sees to: UNIMPLEMENTED, THROTTLED_OP.
NOT_HERE = (UnimplementedError.code, -127)


class CallerReadsReplies(kazoo.ConnectionHandler):  # type: ignore[misc]
    """Beside FastWire: who reads what it receives."""

    if TYPE_CHECKING:
        _open: bool
        _outgoing: Any
        _heard_at: float

        def wake(self) -> None: ...

        def _is_complete(self) -> bool: ...

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Had by who reads from the connection, and gives what it read. The connection thread never waits for it while
        #: there is a connection.
        self.reader = threading.RLock()
        self._input = bytearray()
        #: The xid of the last answer that a caller gave; it may be pending, and in the input, still.
        self._given: int | None = None
        #: Until when the connection thread stays away from the socket, and whether it does.
        self._away_until, self._is_away = 0.0, False

    # ---- in a thread that waits

    def read_for(self, replies: Sequence[PendingReply], seconds: float) -> None:
        """Who waits for these answers reads them, if they come in a moment and nothing else is to be read."""
        pending = self.client._pending
        if self._open and self._outgoing is None and len(pending) <= len(replies) and not self._is_reader:
            try:
                if self.reader.acquire(blocking=False):
                    self._read_own_replies(replies, min(seconds, PATIENCE_S))
            finally:
                self.stop_reading()
        if pending:
            self.listen()

    def listen(self) -> None:
        """The connection thread reads, from now on."""
        self._away_until = 0.0
        if self._is_away:
            self._call()

    def stop_reading(self) -> None:
        """The calling thread reads no more. What it has read and not given does not show at the socket any more."""
        with suppress(RuntimeError):
            self.reader.release()
        if self._input:
            self._away_until = 0.0
            self._call()

    def _call(self) -> None:
        """The connection thread looks; if it has not ended meanwhile."""
        with suppress(OSError, AttributeError):
            self.wake()

    @property
    def _is_reader(self) -> bool:
        """Whether it is the calling thread that reads, in the midst of which a signal or a finalizer came."""
        return bool(self.reader._is_owned())  # type: ignore[attr-defined]

    def _read_own_replies(self, replies: Sequence[PendingReply], seconds: float) -> None:
        if not self._open:  # it broke before we were the reader; now it cannot without us
            return
        until = monotonic() + seconds
        self._away_until = until + CALLER_READ_WINDOW_S
        wire, poller = self._socket, select.poll()
        with suppress(OSError, ValueError):  # it is being closed; the connection thread sees to that
            poller.register(wire, select.POLLIN)
            while replies[-1].outcome is None:
                if not poller.poll(max(0.0, until - monotonic()) * 1000):
                    return
                had = len(self._input)
                any(map(self._input.extend, map(wire.recv, (READ_BYTES,))))
                if len(self._input) == had:
                    return
                self._heard_at = monotonic()
                while self._has_answer():
                    if not self._discard_delivered() and not self._deliver(replies):
                        return
            self._away_until = monotonic() + CALLER_READ_WINDOW_S

    def _has_answer(self) -> bool:
        """Whether there is one, to its last byte, that makes sense."""
        return len(self._input) >= int_struct.size + HEADER.size and len(self._input) >= self._length() > HEADER.size

    def _deliver(self, replies: Sequence[PendingReply]) -> bool:
        """Whether what is next is an answer to these, and given."""
        xid, zxid, error = HEADER.unpack_from(self._input, int_struct.size)
        client = self.client
        if not client._pending:
            return False
        request, reply, expected = client._pending[0]
        if xid != expected or not any(reply is one for one in replies) or isinstance(request, Close):
            return False
        if error in NOT_HERE or (error and error not in EXCEPTIONS):
            return False
        missing = error == NoNodeError.code and request.type == Exists.type
        response = refusal = None
        if error and not missing:
            refusal = EXCEPTIONS[error]()
        elif not missing:
            try:
                response = request.deserialize(bytes(self._input[int_struct.size : self._length()]), HEADER.size)
            except Exception:
                return False
            if request.type == Transaction.type:
                response = Transaction.unchroot(client, response)
        if not client.on_own_answer(reply, response, refusal):
            return False
        if zxid > 0:
            client.last_zxid = zxid
        watcher = getattr(request, "watcher", None)
        if watcher and refusal is None and not client._stopped.is_set():
            watchers = client._child_watchers if isinstance(request, CHILDREN) else client._data_watchers
            watchers[request.path].add(watcher)
        self._given = xid
        return self._discard_delivered()

    # ---- in any thread that reads

    def _discard_delivered(self) -> bool:
        """Whether what is next has been given; it is gone then."""
        delivered = self._given
        if delivered is None or HEADER.unpack_from(self._input, int_struct.size)[0] != delivered:
            return False
        pending = self.client._pending
        if pending and pending[0][2] == delivered:
            pending.popleft()
        del self._input[: self._length()]
        return True

    def _length(self) -> int:
        """Of what is next, with what says how long it is."""
        return int(int_struct.size + int_struct.unpack_from(self._input)[0])

    # ---- in the connection thread

    def _yield_socket(self, until: float) -> float:
        """Until when nothing is read here, before ``until``; 0.0: it is."""
        self._is_away = True
        until = min(until, self._away_until)
        if self._outgoing is None and monotonic() < until:
            return until
        self._is_away = False
        return 0.0

    def _try_become_reader(self) -> bool:
        """Nobody else reads, until ``stop_reading``."""
        if self.reader.acquire(blocking=False):
            return True
        self._is_away, self._away_until = True, monotonic() + CALLER_READ_WINDOW_S
        return self.reader.acquire(blocking=False)  # who had it may have looked before whether we are away

    def _has_undelivered(self) -> bool:
        """Whether a caller has read what is to be given here."""
        if not self._input or not self.reader.acquire(blocking=False):
            return False
        try:
            return self._is_complete()
        finally:
            self.reader.release()

    def _begin_anew(self) -> None:
        """Nothing of an earlier connection is left."""
        with self.reader:
            self._input.clear()
            self._given = None
