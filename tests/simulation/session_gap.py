"""A thread that does not run between two steps of its protocol, while its session ends and the next
one begins.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from itertools import count
from types import coroutine
from typing import Any

from simulation.engine.process import SimProcess

from distsync._protocols.steps import Wait


async def with_new_session(work: Coroutine[Any, Any, Any], process: SimProcess, nth: int) -> Any:
    """Return the result of ``work`` when the session changes right before its ``nth`` step."""
    return await _with_gap(work, process, nth)


@coroutine
def _with_gap(work: Coroutine[Any, Any, Any], process: SimProcess, nth: int) -> Generator[Any, Any, Any]:
    try:
        step = work.send(None)
        for number in count(1):
            if number == nth:
                yield from change_session(process).__await__()
            try:
                answer = yield step
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                step = work.throw(error)
            else:
                step = work.send(answer)
    except StopIteration as stop:
        return stop.value


async def change_session(process: SimProcess) -> None:
    """Let an administrator end the session, and wait for the next one."""
    ended = process.session.session_id
    world = process.world
    if ended and not process.session.closed:
        world.tampered.add(ended)
        world.server.carry_out(world.server.engine.expire(ended, world.now_ms))
        while process.session.session_id in (0, ended) or not process.session.connected:
            await Wait(limit=0.01)
