"""A copy of what some reads tell, kept current by a watch: while the watch stands, looking costs no request.

Source: recipes.txt, "Out of the Box Applications: Name Service, Configuration, Group Membership"; the caches are ours.

Rules for this file: pure; it knows no recipe. A wake is a hint: what counts is what the next look says.

A copy is current as long as its watch has not fired; it fires with a change, a disconnect, the end of the session, and
whenever this process has written itself (``forget``), so that who writes sees what he wrote. It does not fire with a
change that is made while we may not read (the server then tells us nothing), nor with later ones. One look is under way
at a time: copies do not get older. What asks to be told of changes (``follow``) is one protocol in the background,
whoever asks for it how often.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from distsync._protocols.retries import REFUSED_S, read
from distsync._protocols.steps import Background, Call, Children, Exists, Signal, Sync, Wait, WakeReason, Watch
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
"""Reads the state anew, and arms the watch in each of its reads."""

Listener = Callable[[Any, Any], object]
"""Called with the state before and the state now."""

#: What a listener was told before its first change, if it is not to be told of the first state.
UNKNOWN = object()


def fired() -> Watch:
    """A watch that no look has armed."""
    watch = Watch()
    watch.fire()
    return watch


async def names_below(path: str, watch: Watch) -> tuple[str, ...]:
    """The children of ``path``; the watch fires when they change, also if there is no such znode yet."""
    while True:
        try:
            return (await read(Children(path, watch))).names
        except NoNodeError:
            if await read(Exists(path, watch)) is None:
                return ()


class WatchCache(Generic[Value]):
    """What the threads of one process know together about a state that others change too."""

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
        """Whether the copy needs no look. No request."""
        return bool(self._copy) and not self._watch.fired

    @property
    def watch(self) -> Watch:
        """What fires when the copy that was got last is old."""
        return self._watch

    @property
    def idle(self) -> bool:
        """Nobody asked to be told."""
        return not self._listeners

    def forget(self) -> None:
        """This process has written: the copy is old, and whoever waits for a change looks."""
        self._watch.fire()
        self._arming.fire()

    async def get(self, sync: bool = False) -> Value:
        """The state; ``sync``: as the leader of the ensemble knows it, also where our server lags behind."""
        if sync:
            await read(Sync(self.path))
            self.forget()
        while not self.current:
            looking = self._looking
            if looking is None:
                return await self._look_again()
            if await Wait(looking) is WakeReason.DEADLINE:
                raise DeadlineError(f"a look at {self.path}")
        return self._copy[0]

    async def _look_again(self) -> Value:
        self._arming, self._looking = watch, looking = Watch(), Signal()
        try:
            value = await self._read_state(watch)
            self._copy, self._watch = [value], watch
            return value
        except BaseException:
            self._copy = []
            raise
        finally:
            self._looking = None
            looking.fire()

    async def changed(self, known: Value) -> bool:
        """Whether the state is another one than ``known``; False at the deadline."""
        try:
            while await self.get() == known:
                if await Wait(self._watch) is WakeReason.DEADLINE:
                    return False
            return True
        except DeadlineError:
            return False

    async def next(self) -> bool:
        """Whether the state became another one than it is now; False at the deadline."""
        try:
            return await self.changed(await self.get())
        except DeadlineError:
            return False

    async def until(self, predicate: Callable[[Value], object]) -> Value | None:
        """The first state seen of which ``predicate`` holds; None at the deadline."""
        try:
            while not predicate(value := await self.get()):
                if await Wait(self._watch) is WakeReason.DEADLINE:
                    return None
            return value
        except DeadlineError:
            return None

    # ---- telling

    async def add_listener(self, listener: Listener, before: Any = UNKNOWN) -> None:
        """Call ``listener(before, now)`` with each change, one after the other, until ``remove_listener``.

        In the first call ``before`` is what is given here; without it, the first state read counts as reported.
        """
        self._listeners = {**self._listeners, listener: before}
        self._asked.fire()
        if not self._following:
            self._following = True
            await Background(self._follow())

    async def remove_listener(self, listener: Listener) -> None:
        """``listener`` is called no more."""
        self._listeners = {one: told for one, told in self._listeners.items() if one != listener}
        self._asked.fire()

    async def _follow(self) -> None:
        """Tells who asked, until nobody asks any more."""
        try:
            while self._listeners:
                self._asked = asked = Signal()
                try:
                    value = await self.get()
                except (AccessDeniedError, CorruptNodeError, PayloadError):
                    await Wait(self._arming, asked, limit=REFUSED_S)
                    continue  # who looks is told; we go on when somebody has mended it, or lets us look
                behind = [(one, before) for one, before in self._listeners.items() if before != value]
                for listener, before in behind:
                    if listener in self._listeners:
                        self._listeners[listener] = value
                        if before is not UNKNOWN:
                            await Call(partial(listener, before, value))
                if not behind and self.current:
                    await Wait(self._watch, asked)
        except ClientClosedError:
            pass
        finally:
            self._following = False
