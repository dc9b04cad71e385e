"""Session handover: lets a parent end the sessions of an exited child, which releases its locks.

A child sends each of its sessions, with the password, to its parent through a pipe, and nowhere
else. The parent must have seen the child exit before it ends the sessions. If a record is lost, the
session ends by its timeout; an outdated record does nothing.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from distsync._client import lifecycle
from distsync._client.clocks import wait_clock
from distsync._import_gate import importing

#: Time limit in seconds for ending a session. If a server answers, it takes 2 round trips.
SECONDS = 2.0

#: The same for the sessions of other processes that exit soon after no server was found. Many may exit at once.
SOON_S = 0.2

#: By hosts, when no server was found last, on the wait clock.
_missed_at: dict[str | None, float] = {}

#: The last message of a process that has closed its clients.
ALL_CLOSED = b"null\n"


@dataclass(frozen=True)
class SessionHandover:
    """A session of a client of a process. ``hosts`` is None for this user's embedded server."""

    pid: int
    client: int
    hosts: str | None
    session_id: int
    password: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)


class _HandoverPipe:
    """The pipe to which this process reports its sessions, or None."""

    def __init__(self) -> None:
        self.pipe: int | None = None

    def after_fork_in_child(self) -> None:
        """Close the pipe in a forked child: it belongs to the parent."""
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            with suppress(OSError):  # a process that becomes a daemon closes every file
                os.close(pipe)


_handover_pipe = _HandoverPipe()
lifecycle.on_fork_in_child(_handover_pipe.after_fork_in_child)


def attach(pipe: int) -> None:
    """Report this process's sessions through ``pipe``, and take ownership of it."""
    os.set_blocking(pipe, False)
    _handover_pipe.pipe = pipe


def record(client: int, hosts: str | None, session: tuple[int, bytes] | None, options: dict[str, Any]) -> None:
    """Report the current session of a client. Does not block."""
    if session is not None and _handover_pipe.pipe is not None:
        handover = SessionHandover(os.getpid(), client, hosts, session[0], session[1].hex(), options)
        _send(json.dumps(asdict(handover)).encode() + b"\n")


def finish() -> None:
    """Report that all clients of this process are closed."""
    _send(ALL_CLOSED)


def _send(text: bytes) -> None:
    if _handover_pipe.pipe is not None:
        with suppress(OSError):  # the parent has exited, or does not read
            os.write(_handover_pipe.pipe, text)


def parse(text: bytes) -> Iterator[SessionHandover | None]:
    """Yield the sessions in these lines, and None for the last message."""
    for line in text.splitlines():
        fields = json.loads(line)
        yield None if fields is None else SessionHandover(**fields)


def close_session(handover: SessionHandover) -> None:
    """End the session, if a server answers and it has not ended."""
    with importing():
        from distsync._client.transport.kazoo_client import RawKazooClient

    address = _server_address(handover)
    if address is None:
        return
    hosts, auth = address
    attached = threading.Event()
    kazoo = RawKazooClient(
        lambda host, port: None,
        lambda session_id, timeout_ms: attached.set(),
        hosts=hosts,
        auth_data=auth,
        client_id=(handover.session_id, bytes.fromhex(handover.password)),
        **handover.options,
    )
    seconds = SOON_S if wait_clock() - _missed_at.get(handover.hosts, -math.inf) < SECONDS else SECONDS
    kazoo.start_async()
    if not attached.wait(seconds / 2):
        _missed_at[handover.hosts] = wait_clock()
    kazoo.end(seconds / 2)


def _server_address(handover: SessionHandover) -> tuple[str, list[tuple[str, str]]] | None:
    if handover.hosts is not None:
        return handover.hosts, []
    with importing():
        from distsync._server.autostart.find_or_start import find

    address = find()
    return None if address is None else (address.hosts, [address.credential])
