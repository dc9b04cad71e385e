"""asyncio driver: run a protocol as a coroutine of the running loop.

It performs steps as blocking_driver.py does. Nothing blocks the loop except the client's mutex,
which is never held during a wait. Loops in several threads may use one client.

Concurrent calls on one object start in the order in which they were made (task_order.py), and
continue in the order of their replies.

A protocol runs in the loop's thread only, between two awaits. Once it has ended, its result is
returned without another await, so that no cancellation can intervene. The first cancellation is
thrown into the protocol. Further ones, during its clean-up, are ignored. If the loop stops first,
the background thread drives the protocol to its end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from distsync._client import deadlines
from distsync._client.clocks import wait_clock
from distsync._client.driver.blocking_driver import ProtocolRun, seconds_to_sleep
from distsync._client.driver.driver_context import ProtocolCoroutine
from distsync._client.driver.task_order import ObjectQueue, QueueTurn, orders
from distsync._client.runtime import ClientRuntime, wait_until_connected
from distsync._client.wait_log import Loggable, WaitProgress
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ClientClosedError, DeadlineError


class AsyncWakeup:
    """A flag that wakes one coroutine of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the coroutine. Callable from any thread."""
        if not self._is_set:
            self._is_set = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def clear(self) -> None:
        """Clear pending wake-ups."""
        self._is_set = False

    async def wait(self, seconds: float) -> None:
        """Wait until a wake-up is pending, at most ``seconds``."""
        self._future = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None


async def run(
    runtime: ClientRuntime,
    protocol: ProtocolCoroutine,
    timeout: float | None,
    subject: Loggable | None = None,
    in_order: bool = False,
) -> Any:
    """Drive ``protocol``, a call on the object ``subject``, as ClientRuntime.run does.

    A call with a timeout does not queue behind other calls on the same object, unless ``in_order``.
    """
    deadline = deadlines.deadline_of(timeout, wait_clock())
    queues = subject is not None and (timeout is None or in_order)
    turn = QueueTurn(_object_queue(subject) if queues and subject is not None else ObjectQueue())
    try:
        await _enter(turn, timeout)
    except BaseException:
        protocol.close()
        raise
    wakeup = AsyncWakeup()
    run = ProtocolRun(protocol, runtime, None, wakeup.set)
    run.progress = None if subject is None else WaitProgress(subject, protocol)
    run.yield_between_steps = True
    try:
        runtime._calls.add(run)
        run.grace = deadlines.grace_of(timeout)
        run.deadline = await _begin(runtime, deadline)
        if runtime.closing:
            run.interrupt(ClientClosedError("a call"))
        result = await drive(run, wakeup, turn)
        runtime._calls.discard(run)
        return result
    finally:
        turn.leave()
        runtime._finish_call(run)


async def _enter(turn: QueueTurn, timeout: float | None) -> None:
    """Wait for the turn. Raises DeadlineError."""
    try:
        await turn.enter(None if timeout is None else timeout + deadlines.grace_of(timeout))
    except asyncio.TimeoutError as error:
        raise_if_from_handler(error)
        raise DeadlineError("earlier calls of this event loop on the same object") from None


def _object_queue(subject: Loggable) -> ObjectQueue:
    queues, known = orders().queues, subject._state_entry
    return queues.setdefault(known, ObjectQueue()) if known is not None else ObjectQueue()


async def _begin(runtime: ClientRuntime, deadline: float | None) -> float | None:
    """Wait for the client's first connection.

    Return the deadline, postponed to now if it passed during the wait.
    """
    if runtime.zk_session.was_connected:
        return deadline
    began, wakeup = wait_clock(), AsyncWakeup()
    run = ProtocolRun(wait_until_connected(), runtime, runtime.first_connection_limit(deadline), wakeup.set)
    runtime._calls.add(run)
    try:
        await drive(run, wakeup)
    except DeadlineError:
        raise runtime.unreachable(wait_clock() - began) from None
    finally:
        runtime._calls.discard(run)
    return None if deadline is None else max(deadline, wait_clock())


async def drive(run: ProtocolRun, wakeup: AsyncWakeup, turn: QueueTurn | None = None) -> Any:
    """Drive the protocol to its end, and return its result. ``run.wake`` must set ``wakeup``."""
    cancelled = False
    wakeup.clear()
    while True:
        has_ended = run.resume()
        if turn is not None:
            turn.leave_if_ready(run.is_settled)
        if has_ended:
            return run.result()
        try:
            run.context.read_replies((), 0.0)
            await wakeup.wait(seconds_to_sleep(run))
        except asyncio.CancelledError as error:
            if not cancelled:
                cancelled = True
                run.interrupt(error)
        wakeup.clear()
