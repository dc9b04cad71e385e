"""Wills: what a parent needs to end the sessions of a child that died, so that what it held is free at once.

Rules for this file: it knows sessions and files, and neither processes nor who dies; kazoo is loaded when a will is
executed. A will goes through a pipe from a child to its parent, and nowhere else: it holds the session's password.

A session ends by itself when its time is over, so a will that is lost does no harm, and one that is out of date ends
nothing. A session of a process that still lives must never be ended: whoever executes a will has seen the death.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

#: What ending one session may take (seconds), when no server answers. Else it is 2 round trips.
SECONDS = 2.0

#: The last word of a process that has closed its clients.
ALL_CLOSED = b"null\n"


@dataclass(frozen=True)
class SessionHandover:
    """One session of one client of one process. ``hosts`` None: this user's embedded server."""

    pid: int
    client: int
    hosts: str | None
    session_id: int
    password: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)


class _HandoverPipe:
    """Whom this process tells its sessions, if anybody."""

    def __init__(self) -> None:
        self.pipe: int | None = None

    def after_fork_in_child(self) -> None:
        """In a forked child: that was for the parent's parent."""
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            os.close(pipe)


_handover_pipe = _HandoverPipe()
os.register_at_fork(after_in_child=_handover_pipe.after_fork_in_child)


def attach(pipe: int) -> None:
    """From now on each session of this process is told to whoever reads from ``pipe``, which is ours now."""
    os.set_blocking(pipe, False)
    _handover_pipe.pipe = pipe


def record(client: int, hosts: str | None, session: tuple[int, bytes] | None, options: dict[str, Any]) -> None:
    """This client has this session now, and no other one. Never waits."""
    if session is not None and _handover_pipe.pipe is not None:
        will = SessionHandover(os.getpid(), client, hosts, session[0], session[1].hex(), options)
        _send(json.dumps(asdict(will)).encode() + b"\n")


def finish() -> None:
    """All clients of this process are closed: nothing is left to anybody."""
    _send(ALL_CLOSED)


def _send(text: bytes) -> None:
    if _handover_pipe.pipe is not None:
        with suppress(OSError):  # the parent has gone, or does not read
            os.write(_handover_pipe.pipe, text)


def parse(text: bytes) -> Iterator[SessionHandover | None]:
    """The wills in these lines; None for the last word."""
    for line in text.splitlines():
        fields = json.loads(line)
        yield None if fields is None else SessionHandover(**fields)


def close_session(will: SessionHandover) -> None:
    """The session is over, unless no server answers; one that was over before stays so."""
    from distsync._client.transport.kazoo_client import Kazoo

    address = _address(will)
    if address is None:
        return
    hosts, auth = address
    attached = threading.Event()
    kazoo = Kazoo(
        lambda host, port: None,
        lambda session_id, timeout_ms: attached.set(),
        hosts=hosts,
        auth_data=auth,
        client_id=(will.session_id, bytes.fromhex(will.password)),
        **will.options,
    )
    kazoo.start_async()
    attached.wait(SECONDS / 2)
    kazoo.end(SECONDS / 2)


def _address(will: SessionHandover) -> tuple[str, list[tuple[str, str]]] | None:
    if will.hosts is not None:
        return will.hosts, []
    from distsync._server.autostart.find_or_start import find

    address = find()
    return None if address is None else (address.hosts, [address.credential])
