"""What the threads of one process know together about each path, for as long as somebody needs it.

Rules for this file: it knows paths and opaque objects. An object may say by ``idle`` whether nothing would be lost
with it; one that does not say so is idle.

A program that makes a lock for each of its keys makes millions in its life. So who uses an entry is counted, and one
that nobody uses any more goes, once it is idle: a lock whose object was dropped while it was held can still be
released under its name. A user's end is noted by a finalizer, which may run in any line and so only appends; entries
go when others come.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distsync.errors import NameInUseError

#: So many entries whose users have gone are looked at for each user that comes.
SWEEP = 4


@dataclass(eq=False)
class _StateEntry:
    path: str
    kind: str
    value: Any
    users: int = 0


class SharedStateTable:
    """path -> what is known about it."""

    def __init__(self) -> None:
        self._entries: dict[str, _StateEntry] = {}
        self._lock = threading.RLock()
        self._left: deque[tuple[_StateEntry, int]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, path: str, kind: str, factory: Callable[[], Any], user: Any = None) -> Any:
        """What is known about ``path``; ``factory`` makes it. ``user`` is an object that needs it to stay, and that
        notes so in its ``_entry``; without one it stays for ever. Raises NameInUseError if it is of another kind."""
        entry = self._entries.get(path)
        if entry is None or (user is not None and user._entry is not entry):
            entry = self._register(path, kind, factory, user)
        return entry.value

    def _register(self, path: str, kind: str, factory: Callable[[], Any], user: Any) -> _StateEntry:
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                entry = self._entries.setdefault(path, _StateEntry(path, kind, factory()))
            if entry.kind != kind:
                raise NameInUseError(path, entry.kind, kind)
            entry.users += 1
            if user is not None:
                user._entry = entry
                weakref.finalize(user, self._left.append, (entry, 1)).atexit = False
                self._sweep()
        return entry

    def _sweep(self) -> None:
        """What nobody uses any more goes; what is not idle yet is looked at again."""
        for _ in range(min(SWEEP, len(self._left))):
            entry, users = self._left.popleft()
            entry.users -= users
            if entry.users or self._entries.get(entry.path) is not entry:
                continue
            if getattr(entry.value, "idle", True):
                del self._entries[entry.path]
            else:
                self._left.append((entry, 0))

    def drop(self, path: str) -> bool:
        """Nobody uses it any more. False: it was not there."""
        return self._entries.pop(path, None) is not None
