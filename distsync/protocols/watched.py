"""A copy of what some reads tell, kept current by a watch: while the watch stands, looking costs no request.

Source: recipes.txt, "Out of the Box Applications: Name Service, Configuration, Group Membership"; the caches are ours.

Rules for this file: pure; it knows no recipe. A wake is a hint: what counts is what the next look says.

A copy is current as long as its watch has not fired; it fires with a change, a disconnect, the end of the session, and
whenever this process has written itself (``forget``), so that who writes sees what he wrote. One look is under way at a
time: copies do not get older. What asks to be told of changes (``follow``) is one protocol in the background, whoever
asks for it how often.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from distsync.errors import ClientClosedError, DeadlineError
from distsync.protocols.guard import read
from distsync.session.steps import Background, Call, Signal, Sync, Wait, Watch, Woke

Value = TypeVar("Value")

Look = Callable[[Watch], Awaitable[Value]]
"""Reads the state anew, and arms the watch in each of its reads."""

Listener = Callable[[Any, Any], object]
"""Called with the state before and the state now."""


class Watched(Generic[Value]):
    """What the threads of one process know together about a state that others change too."""

    def __init__(self, path: str, look: Look[Value]) -> None:
        self.path = path
        self._look = look
        self._copy: list[Value] = []
        self._watch = Watch()
        self._watch.fire()
        self._looking: Signal | None = None
        self._listeners: list[Listener] = []
        self._following = False
        self._told: list[Value] = []
        self._asked = Signal()

    @property
    def current(self) -> bool:
        """Whether the copy needs no look. No request."""
        return bool(self._copy) and not self._watch.fired

    @property
    def idle(self) -> bool:
        """Nobody asked to be told."""
        return not self._listeners

    def forget(self) -> None:
        """This process has written: the copy is old, and whoever waits for a change looks."""
        self._watch.fire()

    async def get(self, fresh: bool = False) -> Value:
        """The state; ``fresh``: as the leader of the ensemble knows it, also where our server lags behind."""
        if fresh:
            await read(Sync(self.path))
            self.forget()
        while not self.current:
            looking = self._looking
            if looking is None:
                return await self._look_again()
            if await Wait(looking) is Woke.DEADLINE:
                raise DeadlineError(f"a look at {self.path}")
        return self._copy[0]

    async def _look_again(self) -> Value:
        watch, looking = Watch(), Signal()
        self._watch, self._looking = watch, looking
        try:
            value = await self._look(watch)
            self._copy = [value]
            return value
        except BaseException:
            watch.fire()
            raise
        finally:
            self._looking = None
            looking.fire()

    async def changed(self, seen: Value) -> bool:
        """Whether the state is another one than ``seen``; False at the deadline."""
        try:
            while await self.get() == seen:
                if await Wait(self._watch) is Woke.DEADLINE:
                    return False
            return True
        except DeadlineError:
            return False

    async def until(self, true: Callable[[Value], object]) -> Value | None:
        """The first state seen of which ``true`` holds; None at the deadline."""
        try:
            while not true(value := await self.get()):
                if await Wait(self._watch) is Woke.DEADLINE:
                    return None
            return value
        except DeadlineError:
            return None

    # ---- telling

    async def tell(self, listener: Listener) -> Value:
        """``listener(before, now)`` is called with each change from the returned state on, until it is silenced."""
        value = await self.get()
        if not self._told:
            self._told = [value]
        self._listeners = [*self._listeners, listener]
        if not self._following:
            self._following, self._asked = True, Signal()
            await Background(self._follow())
        return self._told[0]

    def silence(self, listener: Listener) -> None:
        """``listener`` is called no more."""
        self._listeners = [one for one in self._listeners if one != listener]
        if not self._listeners:
            self._asked.fire()

    async def _follow(self) -> None:
        """Tells who asked, one change after the other, until nobody asks any more."""
        try:
            while self._listeners:
                value = await self.get()
                before, self._told = self._told[0], [value]
                if value != before:
                    for listener in self._listeners:
                        await Call(partial(listener, before, value))
                elif self.current:
                    await Wait(self._watch, self._asked)
        except ClientClosedError:
            pass
        finally:
            self._following, self._told = False, []
