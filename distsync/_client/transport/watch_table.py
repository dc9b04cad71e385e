"""The watch table: who waits for a change of which znode.

Rules for this file: pure; it knows paths and signals, and kazoo only as the one who calls ``WatchCallback``.

kazoo keeps a set of callables per path and drops them all at a disconnect. So each (kind, path) has one callable,
equal to every other one made for it: 10,000 waits leave one watch. And the table fires its signals by itself at a
disconnect and when the session ends. A watch that nobody refers to any more is forgotten.
"""

from __future__ import annotations

import weakref
from typing import Any

from distsync._protocols.steps import Children, Request, Watch

Key = tuple[str, str]

#: Signals that nobody refers to any more are swept out whenever this many keys were added since the last sweep.
SWEEP_EVERY = 256


class WatchCallback:
    """What kazoo is to call. Equal for equal keys, so that kazoo's sets and the server hold it once."""

    __slots__ = ("table", "key")

    def __init__(self, table: WatchTable, key: Key) -> None:
        self.table = table
        self.key = key

    def __call__(self, event: Any) -> None:
        self.table.fire(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchCallback) and self.table is other.table and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class WatchTable:
    """(kind, path) -> the signals that wait for it."""

    def __init__(self) -> None:
        self._signals: dict[Key, list[weakref.ref[Watch]]] = {}
        self._sweep_at = SWEEP_EVERY
        self.events = 0

    def arm(self, request: Request[Any]) -> WatchCallback | None:
        """Before the read is sent: its watch, if it has one, fires with the next event of its path."""
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
                self._signals.pop(key, None)  # unless it fires in this moment, in another thread
        self._sweep_at = len(self._signals) + SWEEP_EVERY

    def fire(self, key: Key) -> None:
        """An event came."""
        self.events += 1
        self._fire(key)

    def _fire(self, key: Key) -> None:
        for one in self._signals.pop(key, ()):
            watch = one()
            if watch is not None:
                watch.fire()

    def fire_all(self) -> None:
        """The connection or the session went, and every watch with it."""
        for key in list(self._signals):
            self._fire(key)

    def __len__(self) -> int:
        """How many watches are waited for."""
        return sum(_waiting(one) for signals in list(self._signals.values()) for one in signals)


def _waiting(one: weakref.ref[Watch]) -> bool:
    watch = one()
    return watch is not None and not watch.fired
