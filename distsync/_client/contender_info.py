"""Contenders: the JSON in a contender's znode, from which any client lists holders and waiters.

The JSON may have been written by any client. It is never trusted, and values of the wrong type are
shown as unknown.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from distsync._client.json_data import fields
from distsync._client.naming.inference import call_site
from distsync._pickle import public_in
from distsync._signal_handlers import raise_if_from_handler
from distsync._version import VERSION

MAX_TEXT = 200  # maximum length of a field: every client that lists a queue reads the data
UNKNOWN = ""


@public_in("distsync")
@dataclass(frozen=True)
class Contender:
    """A holder or a waiter, as its znode describes it.

    A field is empty or None if the znode does not contain it, which is the case for clients of
    other libraries.

    Attributes:
        host: Name of the host.
        pid: Process id.
        thread: Name of the thread or task.
        since: The time at which it began to wait, by its own clock.
        place: The line of code that called distsync.
        version: Version of distsync.
        path: Path of the contender's znode.
        token: Position in the order of all contenders: the fencing token, once it holds.
    """

    host: str
    pid: int | None
    thread: str
    since: datetime | None
    place: str
    version: str
    path: str
    token: int

    def __str__(self) -> str:
        thread = f"{self.host}:{self.pid} {self.thread}" if self.host else "unknown"
        return _printable(f"{thread} at {self.place}" if self.place else thread)


def describe(linger: float = 0.0) -> bytes:
    """Return the data for a contender's znode created by the current thread or task.

    ``linger`` is how long, in seconds, the znode may stay after a release.
    """
    record: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "thread": _thread_or_task(),
        "since": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "place": call_site(),
        "version": VERSION,
        **({"keep": linger} if linger else {}),
    }
    short = {key: _encodable(value) if isinstance(value, str) else value for key, value in record.items()}
    return json.dumps(short, separators=(",", ":")).encode()


def _encodable(text: str) -> str:
    """Return the beginning of ``text``, without what UTF-8 cannot encode, such as bytes of a file name."""
    return text[:MAX_TEXT].encode(errors="replace").decode()


def read(data: bytes | None, path: str, token: int) -> Contender:
    """Return the contender that ``data`` describes; unreadable fields are unknown."""
    record = fields(data)
    return Contender(
        host=_text(record, "host"),
        pid=_pid(record.get("pid")),
        thread=_text(record, "thread"),
        since=_time(record.get("since")),
        place=_text(record, "place"),
        version=_text(record, "version"),
        path=path,
        token=token,
    )


def _printable(text: str) -> str:
    """Escape line breaks and terminal control characters."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _thread_or_task() -> str:
    """Return the name of the running asyncio task or, without one, of the thread."""
    asyncio = sys.modules.get("asyncio")
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except RuntimeError as error:  # no loop runs here
        raise_if_from_handler(error)
        task = None
    return task.get_name() if task is not None else thread_name()


def thread_name() -> str:
    """Return the name of the current thread.

    Unlike threading.current_thread(), this registers nothing for a foreign thread.
    """
    ident = threading.get_ident()
    return next((thread.name for thread in threading.enumerate() if thread.ident == ident), f"thread {ident}")


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value[:MAX_TEXT] if isinstance(value, str) else UNKNOWN


def _pid(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError as error:
        raise_if_from_handler(error)
        return None
    return time if time is not None and time.tzinfo is not None else None
