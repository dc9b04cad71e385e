"""A cached copy of some state, kept current by a watch: reading it costs no request until the watch
fires.

Source: recipes.txt, "Out of the Box Applications: Name Service, Configuration, Group Membership";
the caches are ours.

A copy is current until its watch fires: on a change, on a disconnect, at the end of the session,
and after a write of this process (``forget``), so that a writer sees its own write. It does not
fire on a change made while we may not read, nor on later ones, because the server does not notify
us then. Only one read is in progress at a time, except for those of signal handlers and of calls that block an
event loop. Only the read that began last replaces the copy, so that it is never replaced by an older one.
One background protocol serves all listeners.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from distsync._protocols.retries import REFUSED_S, read
from distsync._protocols.steps import Background, Call, Children, Exists, Signal, Sync, Wait, WakeReason, Watch
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    AccessDeniedError,
    ClientClosedError,
    CorruptNodeError,
    DeadlineError,
    NoNodeError,
    PayloadError,
)

Value = TypeVar("Value")

Look = Callable[[Watch], Awaitable[Value]]
"""Reads the state, and arms the watch in each of its reads."""

Listener = Callable[[Any, Any], object]
"""Called with the previous and the current state."""

#: The previous state of a listener that is not called for the first state read.
UNKNOWN = object()


def fired() -> Watch:
    """Return a watch that has fired, because no read has set it."""
    watch = Watch()
    watch.fire()
    return watch


async def names_below(path: str, watch: Watch) -> tuple[str, ...]:
    """Return the children of ``path``. The watch fires when they change, also if the znode does not
    exist yet.
    """
    while True:
        try:
            return (await read(Children(path, watch))).names
        except NoNodeError:
            if await read(Exists(path, watch)) is None:
                return ()


class WatchCache(Generic[Value]):
    """In-process copy of state that other processes change, shared by all threads."""

    def __init__(self, path: str, read_state: Look[Value]) -> None:
        self.path = path
        self._read_state = read_state
        self._copy: list[Value] = []
        self._watch = fired()
        self._arming = self._watch
        self._looking: Signal | None = None
        self._listeners: dict[Listener, Any] = {}
        self._following = False
        self._asked = Signal()

    @property
    def current(self) -> bool:
        """Whether the copy is current. Sends no request."""
        return bool(self._copy) and not self._watch.fired

    @property
    def watch(self) -> Watch:
        """The watch of the last copy that was read."""
        return self._watch

    @property
    def idle(self) -> bool:
        """Whether there is no listener."""
        return not self._listeners

    def forget(self) -> None:
        """Drop the copy after a write of this process, and wake those that wait for a change."""
        self._watch.fire()
        self._arming.fire()

    async def get(self, sync: bool = False, alone: bool = False) -> Value:
        """Return the state; with ``sync``, as the leader of the ensemble has it, even if our server
        lags behind.

        With ``alone``, do not wait for a read in progress. It may be that of a call which the calling
        thread interrupts, and which continues only afterwards.
        """
        if sync:
            await read(Sync(self.path))
            self.forget()
        while not self.current:
            looking = None if alone else self._looking
            if looking is None:
                return await self._look_again()
            if await Wait(looking, allow_grace=True) is WakeReason.DEADLINE:
                raise DeadlineError(f"reading {self.path}")
        return self._copy[0]

    async def _look_again(self) -> Value:
        self._arming, self._looking = watch, looking = Watch(), Signal()
        try:
            value = await self._read_state(watch)
            if self._arming is watch:
                self._copy, self._watch = [value], watch
            return self._copy[0] if self.current else value  # a read that began later may have ended before
        except BaseException:
            if self._arming is watch:
                self._copy = []
            raise
        finally:
            if self._looking is looking:
                self._looking = None
            looking.fire()

    async def changed(self, known: Value, alone: bool = False) -> bool:
        """Wait until the state differs from ``known``. Return False at the deadline."""
        try:
            while await self.get(alone=alone) == known:
                if await Wait(self._watch) is WakeReason.DEADLINE:
                    return False
            return True
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False

    async def wait_for_change(self, alone: bool = False) -> bool:
        """Wait until the state differs from the current one. Return False at the deadline."""
        try:
            return await self.changed(await self.get(alone=alone), alone)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False

    async def until(self, predicate: Callable[[Value], object], alone: bool = False) -> Value | None:
        """Return the first state seen that satisfies ``predicate``; None at the deadline."""
        try:
            while not predicate(value := await self.get(alone=alone)):
                if await Wait(self._watch) is WakeReason.DEADLINE:
                    return None
            return value
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None

    # ---- telling

    async def add_listener(self, listener: Listener, before: Any = UNKNOWN) -> None:
        """Call ``listener(before, now)`` for each change, one at a time, until ``remove_listener``.

        In the first call ``before`` is what is given here; without it, the first state read counts
        as reported.
        """
        self._listeners = {**self._listeners, listener: before}
        self._asked.fire()
        if not self._following:
            self._following = True
            await Background(self._follow())

    async def remove_listener(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self._listeners = {one: told for one, told in self._listeners.items() if one != listener}
        self._asked.fire()

    async def _follow(self) -> None:
        """Call the listeners until there are none."""
        try:
            while self._listeners:
                self._asked = asked = Signal()
                try:
                    value = await self.get()
                except (AccessDeniedError, CorruptNodeError, PayloadError):
                    await Wait(self._arming, asked, limit=REFUSED_S)
                    # readers get the error; continue when the state was repaired, or access is
                    # granted
                    continue
                behind = [(one, before) for one, before in self._listeners.items() if before != value]
                for listener, before in behind:
                    if listener in self._listeners:
                        self._listeners[listener] = value
                        if before is not UNKNOWN:
                            await Call(partial(listener, before, value), is_notice=True)
                if not behind and self.current:
                    await Wait(self._watch, asked)
        except ClientClosedError:
            pass
        finally:
            self._following = False
