"""State that the threads of a process share, by path, for as long as it is used.

A program that creates a lock for each of its keys creates millions. The users of an entry are
therefore counted, and an unused entry is removed once its value is idle. A lock whose object was
deleted while held can thus still be released by another object of that name. A value is idle
unless its attribute ``idle`` is false.

A finalizer notes that a user was deleted. It may run at any line, so it only appends to a queue.
Entries are removed when other users are added.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distsync.errors import NameInUseError

#: Maximum number of queued entries that are checked for each new user.
SWEEP = 4


@dataclass(eq=False)
class _StateEntry:
    path: str
    kind: str
    value: Any
    users: int = 0
    is_destroyed: bool = False


class SharedStateTable:
    """Shared state by path.

    Args:
        on_removal: Called with a value that is removed because it is unused.
    """

    def __init__(self, on_removal: Callable[[Any], object] = lambda value: None) -> None:
        self._on_removal = on_removal
        self._entries: dict[str, _StateEntry] = {}
        self._lock = threading.RLock()
        self._deleted_users: deque[tuple[_StateEntry, int]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, path: str, kind: str, factory: Callable[[], Any], user: Any = None) -> Any:
        """Return the state of ``path``, creating it with ``factory`` if there is none.

        It stays at least as long as ``user``, whose attribute ``_state_entry`` refers to it; without a
        user it stays forever. Raise NameInUseError if it belongs to an object of another kind.
        """
        entry = self._entries.get(path)
        if entry is None or (user is not None and user._state_entry is not entry):
            entry = self._register(path, kind, factory, user)
        return entry.value

    def _register(self, path: str, kind: str, factory: Callable[[], Any], user: Any) -> _StateEntry:
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None and entry.is_destroyed and getattr(entry.value, "idle", True):
                del self._entries[path]
                entry = None
            if entry is None:
                entry = self._entries.setdefault(path, _StateEntry(path, kind, factory()))
            if entry.kind != kind:
                raise NameInUseError(path, entry.kind, kind)
            entry.users += 1
            if user is not None:
                user._state_entry = entry
                weakref.finalize(user, self._deleted_users.append, (entry, 1)).atexit = False
                self._sweep()
        return entry

    def _sweep(self) -> None:
        """Remove unused entries; check those that are not idle again later."""
        for _ in range(min(SWEEP, len(self._deleted_users))):
            entry, users = self._deleted_users.popleft()
            entry.users -= users
            if entry.users or self._entries.get(entry.path) is not entry:
                continue
            if getattr(entry.value, "idle", True):
                del self._entries[entry.path]
                self._on_removal(entry.value)
            else:
                self._deleted_users.append((entry, 0))

    def forget_below(self, path: str) -> None:
        """Note that the znodes of ``path`` and of all below it were deleted.

        A method ``begin_again`` of the state is called. The next new user gets fresh state, which may
        have other parameters, if this one is idle then.
        """
        for each, entry in tuple(self._entries.items()):
            if each == path or each.startswith(f"{path}/"):
                entry.is_destroyed = True
                if hasattr(entry.value, "begin_again"):
                    entry.value.begin_again()
                if getattr(entry.value, "user", None) is not None:
                    entry.value.user.session_id = None  # its registration was deleted, too

    def replace(self, path: str, user: Any) -> bool:
        """Remove the state of ``path`` if it is idle, and no other object uses it. Return whether it was removed."""
        with self._lock:
            entry = self._entries.get(path)
            for _ in range(len(self._deleted_users)):
                deleted, users = self._deleted_users.popleft()
                if deleted is entry:
                    deleted.users -= users
                else:
                    self._deleted_users.append((deleted, users))
            if entry is None or user._state_entry is not entry or entry.users > 1:
                return False
            if not getattr(entry.value, "idle", True):
                return False
            del self._entries[path]
            self._on_removal(entry.value)
            return True

    def drop(self, path: str) -> bool:
        """Remove the state of ``path``. Return False if there was none."""
        return self._entries.pop(path, None) is not None
