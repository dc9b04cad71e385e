"""Replies are read by the thread that waits for them, instead of the connection thread.

In kazoo the connection thread reads all replies and wakes the waiting threads. That takes two
thread switches for each round trip, which cost more than the server does. Here a thread that waits
for a reply reads it itself, if nothing else is outstanding. While it reads, and for a moment after,
the connection thread leaves the socket alone. Data that is not a reply to the calling thread
(events, pings, other threads' replies) is left in the input buffer, and the connection thread is
woken. The connection thread always reads replies that take longer than a moment, and all replies
over TLS.

A signal may interrupt a calling thread between any two lines, unlike the connection thread.
Invariant: each line may be executed again by the next reader without harm.

* Bytes move from the socket to the input buffer in one operation of C.
* A reply is first delivered (only the first delivery counts), then recorded as delivered, then
  removed from the pending requests and from the input, if it is still there.
* A reply that reveals an expired lease is left to the connection thread.

This is the reading half of fast_io.py, and is used only with it.
"""

from __future__ import annotations

import select
import struct
import threading
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError, UnimplementedError
from kazoo.protocol import connection as kazoo_connection
from kazoo.protocol.serialization import Close, Exists, GetChildren, GetChildren2, Transaction, int_struct

from distsync._client.clocks import wait_clock
from distsync._signal_handlers import raise_if_from_handler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distsync._client.transport.reply_futures import ReplyFuture

#: How long, in seconds, the connection thread leaves the socket to callers after one has read from
#: it. Events may be delayed by as much.
CALLER_READ_WINDOW_S = 0.001

#: Maximum wait in seconds of a caller that reads its replies itself.
MAX_CALLER_READ_S = 0.02

#: Maximum number of bytes that a caller reads at once.
READ_BYTES = 64 * 1024

#: Header of a reply: xid, zxid, error.
HEADER = struct.Struct("!iqi")

CHILDREN = (GetChildren, GetChildren2)

#: Errors that only the connection thread handles: UNIMPLEMENTED, THROTTLED_OP.
CONNECTION_THREAD_ERRORS = (UnimplementedError.code, -127)


class CallerReadsReplies(kazoo_connection.ConnectionHandler):  # type: ignore[misc]
    """Mixin for FastIO that lets callers read their own replies."""

    if TYPE_CHECKING:
        _caller_io_enabled: bool
        _outgoing: Any
        _received_at: float

        def wake(self) -> None: ...

        def _is_complete(self) -> bool: ...

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Held by the thread that reads from the connection and delivers what it reads. While
        #: connected, the connection thread never blocks on it.
        self.reader_lock = threading.RLock()
        self._input = bytearray()
        #: Xid of the last reply that a caller delivered. It may still be in the pending requests
        #: and in the input.
        self._delivered_xid: int | None = None
        #: Until when the connection thread defers its reading to let callers read, and whether it is deferring now.
        self._deferred_until, self._is_deferring = 0.0, False

    # ---- in a thread that waits

    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        """Read ``replies`` in this thread, if they arrive soon and no others are pending.

        Without ``replies``, let the connection thread read.
        """
        if not replies:
            self.stop_deferring()
            return
        pending = self.client._pending
        if self._caller_io_enabled and self._outgoing is None and len(pending) <= len(replies) and not self._is_reader:
            try:
                if self.reader_lock.acquire(blocking=False):
                    self._read_own_replies(replies, min(seconds, MAX_CALLER_READ_S))
            finally:
                self.stop_reading()
        if pending:
            self.stop_deferring()

    def stop_deferring(self) -> None:
        """Let the connection thread read from now on."""
        self._deferred_until = 0.0
        if self._is_deferring:
            self._wake_if_alive()

    def stop_reading(self) -> None:
        """End the reading of the calling thread.

        The connection thread is woken if input is left, because ``poll()`` does not report bytes
        that are in our buffer already.
        """
        try:
            self.reader_lock.release()
        except RuntimeError as error:  # it is not held
            raise_if_from_handler(error)
        if self._input:
            self._deferred_until = 0.0
            self._wake_if_alive()

    def _wake_if_alive(self) -> None:
        """Wake the connection thread, if it has not ended."""
        try:
            self.wake()
        except (OSError, AttributeError) as error:
            raise_if_from_handler(error)

    @property
    def _is_reader(self) -> bool:
        """Whether the calling thread is already reading, under a signal handler or a finalizer."""
        return bool(self.reader_lock._is_owned())  # type: ignore[attr-defined]

    def _read_own_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        if not self._caller_io_enabled:  # it broke before this thread became the reader; from now on it cannot
            return
        until = wait_clock() + seconds
        self._deferred_until = until + CALLER_READ_WINDOW_S
        sock, poller = self._socket, select.poll()
        try:
            poller.register(sock, select.POLLIN)
            while replies[-1].outcome is None:
                if not poller.poll(max(0.0, until - wait_clock()) * 1000):
                    return
                had = len(self._input)
                any(map(self._input.extend, map(sock.recv, (READ_BYTES,))))  # one operation of C: see the top
                if len(self._input) == had:
                    return
                self._received_at = wait_clock()
                while self._has_reply():
                    if not self._discard_delivered() and not self._deliver(replies):
                        return
            self._deferred_until = wait_clock() + CALLER_READ_WINDOW_S
        except (OSError, ValueError) as error:  # the socket is being closed, which the connection thread handles
            raise_if_from_handler(error)

    def _has_reply(self) -> bool:
        """Whether the input begins with a complete and plausible reply."""
        return len(self._input) >= int_struct.size + HEADER.size and len(self._input) >= self._length() > HEADER.size

    def _deliver(self, replies: Sequence[ReplyFuture]) -> bool:
        """Deliver the next reply if it is one of ``replies``. Return whether it was delivered."""
        xid, zxid, code = HEADER.unpack_from(self._input, int_struct.size)
        client = self.client
        if not client._pending:
            return False
        request, reply, expected_xid = client._pending[0]
        if xid != expected_xid or not any(reply is one for one in replies) or isinstance(request, Close):
            return False
        if code in CONNECTION_THREAD_ERRORS or (code and code not in EXCEPTIONS):
            return False
        missing = code == NoNodeError.code and request.type == Exists.type
        response = error = None
        if code and not missing:
            error = EXCEPTIONS[code]()
        elif not missing:
            try:
                response = request.deserialize(bytes(self._input[int_struct.size : self._length()]), HEADER.size)
            except Exception as error:
                raise_if_from_handler(error)
                return False
            if request.type == Transaction.type:
                response = Transaction.unchroot(client, response)
        if not client.on_reply_read_by_caller(reply, response, error):
            return False
        if zxid > 0:
            client.last_zxid = zxid
        watcher = getattr(request, "watcher", None)
        if watcher and error is None and not client._stopped.is_set():
            watchers = client._child_watchers if isinstance(request, CHILDREN) else client._data_watchers
            watchers[request.path].add(watcher)
        self._delivered_xid = xid
        return self._discard_delivered()

    # ---- in any thread that reads

    def _discard_delivered(self) -> bool:
        """Remove the next reply from the input if it was delivered. Return whether it was."""
        delivered = self._delivered_xid
        if delivered is None or HEADER.unpack_from(self._input, int_struct.size)[0] != delivered:
            return False
        pending = self.client._pending
        if pending and pending[0][2] == delivered:
            pending.popleft()
        del self._input[: self._length()]
        return True

    def _length(self) -> int:
        """Return the size in bytes of the next reply, with its length field."""
        return int(int_struct.size + int_struct.unpack_from(self._input)[0])

    # ---- in the connection thread

    def _defer_reading(self, until: float) -> float:
        """Return when to read from the socket, at most ``until``; 0.0 for now."""
        self._is_deferring = True
        until = min(until, self._deferred_until)
        if self._outgoing is None and wait_clock() < until:
            return until
        self._is_deferring = False
        return 0.0

    def _try_become_reader(self) -> bool:
        """Become the only reader, until `reader_lock` is released. Return False if a caller is reading."""
        if self.reader_lock.acquire(blocking=False):
            return True
        self._is_deferring, self._deferred_until = True, wait_clock() + CALLER_READ_WINDOW_S
        # The last reader may have checked _is_deferring before it was set, and then does not wake this thread.
        return self.reader_lock.acquire(blocking=False)

    def _has_undelivered(self) -> bool:
        """Return whether a caller has read input that this thread must deliver."""
        if not self._input or not self.reader_lock.acquire(blocking=False):
            return False
        try:
            return self._is_complete()
        finally:
            self.reader_lock.release()

    def _reset_input(self) -> None:
        """Discard the state of an earlier connection."""
        with self.reader_lock:
            self._input.clear()
            self._delivered_xid = None
