"""What all scenarios share.

Rules for this file: it knows worlds and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from distsync.session.steps import Wait
from distsync.testing.simulation.faults import KINDS
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.world import World

ROOT = "/distsync"

#: Without a fault every thread is done in this time (virtual seconds): who needs longer was woken by its own
#: impatience, after half a session time-out, and not by the one who should have.
PROMPT_SECONDS = 3.0


@dataclass(frozen=True)
class Scenario:
    """``play`` gets a fresh world, and leaves it when all is done; ``kinds`` are the faults that it stands."""

    name: str
    play: Callable[[World], None]
    kinds: tuple[str, ...] = KINDS


def processes(world: World, least: int, most: int, **options: Any) -> Iterator[SimProcess]:
    """Some processes; first connections wait for as long as it takes."""
    for name in "abcdefgh"[: world.rng.randint(least, most)]:
        yield world.process(name, connect_timeout=3600.0, **options)


async def work(world: World) -> None:
    """Something that takes a while."""
    await Wait(limit=world.rng.randint(0, 20) / 1000)


def maybe_timeout(world: World) -> float | None:
    """How long a thread is ready to wait: mostly for ever."""
    return world.rng.choice((None, None, None, 0.0, 0.05, 1.0, 30.0))


def spawn(process: SimProcess, body: Coroutine[Any, Any, Any], **options: Any) -> None:
    """A thread; Ctrl-C may end it."""
    process.spawn(body, **options)


def finish(world: World) -> None:
    """All threads come to their end, soon if nothing went wrong; then the world is closed."""
    world.run()
    expect_prompt(world)
    world.close()


def expect_prompt(world: World) -> None:
    """Nobody waited for long, unless something went wrong."""
    if not world.faults.struck and world.done_ms > PROMPT_SECONDS * 1000:
        world.fail(f"it took {world.done_ms / 1000:.1f} s although nothing went wrong: somebody was not woken")
        world.run()
