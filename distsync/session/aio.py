"""The asyncio driver: awaits a protocol on the running loop, with the steps, and the stepping, of driver.py.

Rules for this file: nothing blocks the loop, but for the client's mutex, which nobody holds while he waits. Loops in
several threads may use one client.

Calls about one object begin in the order in which they come (order.py), and go on in that of their answers.

A protocol is stepped in the loop's thread only, between two awaits: once it is over its result is returned without
another await, so that no cancellation comes between. The first cancellation is thrown into it; those that come while
it cleans up are not, and it goes on to its end. Should the loop itself end first, the keeper sees to the rest.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from distsync.errors import ClientClosedError, DeadlineError
from distsync.session import deadline as deadlines
from distsync.session.clock import wait_clock
from distsync.session.core import Core, first_connection
from distsync.session.driver import Task, seconds_to_sleep
from distsync.session.order import Door, Turn, orders
from distsync.session.telling import About, Seen
from distsync.session.world import Work


class Bell:
    """Wakes one coroutine of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._heard: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """From any thread; a loop that is closed has nobody to wake."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(None)

    def silence(self) -> None:
        """What rang so far is being looked after."""
        self._rung = False

    async def heard(self, seconds: float) -> None:
        """It rang since it was silent, or so long ago."""
        self._heard = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._heard
        finally:
            timer.cancel()
            self._heard = None


async def run(core: Core, work: Work, timeout: float | None, about: About | None = None) -> Any:
    """Drive ``work``, which is ``about`` an object, as Core.run does. What has a time-out waits for no other's turn."""
    turn = Turn(Door() if about is None or timeout is not None else _door(about))
    try:
        await turn.come()
    except BaseException:
        work.close()
        raise
    bell = Bell()
    task = Task(work, core, None, bell.ring)
    task.seen = None if about is None else Seen(about, work)
    task.in_turn = True
    try:
        core._calls.add(task)
        task.grace = deadlines.grace_of(timeout)
        task.deadline = await _begin(core, deadlines.deadline_of(timeout, wait_clock()))
        if core.closing:
            task.interrupt(ClientClosedError("a call"))
        result = await drive(task, bell, turn)
        core._calls.discard(task)
        return result
    finally:
        turn.leave()
        core._clear_away(task)


def _door(about: About) -> Door:
    doors, known = orders().doors, about._entry
    return doors.setdefault(known, Door()) if known is not None else Door()


async def _begin(core: Core, deadline: float | None) -> float | None:
    """There was a connection at least once. The deadline from then on."""
    if core.link.was_connected:
        return deadline
    began, bell = wait_clock(), Bell()
    task = Task(first_connection(), core, core.first_limit(deadline), bell.ring)
    core._calls.add(task)
    try:
        await drive(task, bell)
    except DeadlineError:
        raise core.unreachable(wait_clock() - began) from None
    finally:
        core._calls.discard(task)
    return None if deadline is None else max(deadline, wait_clock())


async def drive(task: Task, bell: Bell, turn: Turn | None = None) -> Any:
    """The protocol's result. ``task.wake`` rings the bell."""
    cancelled = False
    bell.silence()
    while True:
        over = task.resume()
        if turn is not None:
            turn.go(task.is_through)
        if over:
            return task.result()
        try:
            task.world.attend((), 0.0)
            await bell.heard(seconds_to_sleep(task))
        except asyncio.CancelledError as error:
            if not cancelled:
                cancelled = True
                task.interrupt(error)
        bell.silence()
