"""Watch table: the signals that wait for a change of a znode.

kazoo keeps a set of callables for each path, and drops them all when the connection is lost. This
table therefore has one callable for each (kind, path), equal to all others made for it, so that
10,000 waiters need one watch. It fires its signals itself when the connection is lost or the
session ends. Signals are weakly referenced, and removed when they are no longer used.
"""

from __future__ import annotations

import weakref
from typing import Any

from kazoo.protocol.states import EventType

from distsync._protocols.steps import Children, Request, Watch

Key = tuple[str, str]

#: Unused signals are removed whenever this many keys were added since the last time.
SWEEP_EVERY = 256


class WatchCallback:
    """Callback for kazoo. Equal for equal keys, so that kazoo's sets contain it once."""

    __slots__ = ("table", "key")

    def __init__(self, table: WatchTable, key: Key) -> None:
        self.table = table
        self.key = key

    def __call__(self, event: Any) -> None:
        self.table.fire(self.key, event.type == EventType.DELETED)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchCallback) and self.table is other.table and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class WatchTable:
    """Waiting signals by kind and path."""

    def __init__(self) -> None:
        self._signals: dict[Key, list[weakref.ref[Watch]]] = {}
        self._sweep_at = SWEEP_EVERY
        self.events = 0

    def arm(self, request: Request[Any]) -> WatchCallback | None:
        """Register the watch of ``request``, if any, before the request is sent."""
        watch: Watch | None = getattr(request, "watch", None)
        if watch is None:
            return None
        key = ("children" if isinstance(request, Children) else "data", request.path)
        self._add(key, watch)
        return WatchCallback(self, key)

    def _add(self, key: Key, watch: Watch) -> None:
        alive = [one for one in self._signals.get(key, ()) if _waiting(one)]
        alive.append(weakref.ref(watch))
        self._signals[key] = alive
        if len(self._signals) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        for key, signals in list(self._signals.items()):
            if not any(map(_waiting, signals)):
                self._signals.pop(key, None)  # another thread may just have fired it
        self._sweep_at = len(self._signals) + SWEEP_EVERY

    def fire(self, key: Key, is_deleted: bool = False) -> None:
        """Count an event, and fire the signals that wait for it."""
        self.events += 1
        self._fire(key, is_deleted)

    def _fire(self, key: Key, is_deleted: bool = False) -> None:
        for one in self._signals.pop(key, ()):
            watch = one()
            if watch is not None:
                watch.is_deleted = is_deleted
                watch.fire()

    def fire_all(self) -> None:
        """Fire all signals, because the connection was lost or the session has ended."""
        for key in list(self._signals):
            self._fire(key)

    def __len__(self) -> int:
        """Return the number of watches that have not fired."""
        return sum(_waiting(one) for signals in list(self._signals.values()) for one in signals)


def _waiting(one: weakref.ref[Watch]) -> bool:
    watch = one()
    return watch is not None and not watch.fired
