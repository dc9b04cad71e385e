"""A client of a server that lags behind does what it is asked to: a stale read leaves nothing undone,
and raises nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.lagging_server import LaggingServer
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.barriers.generation import BarrierGeneration
from distsync._protocols.locks.cache_revocation import is_occupied
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.locks.revocation import request_revocation
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import read
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.state.count_down_latch import LatchCore
from distsync._protocols.state.event import EventCore
from distsync._protocols.steps import GetData, Node, Stat, Sync, Wait
from distsync._wire import records
from distsync.errors import BrokenBarrierError, NoNodeError

PATH = "/distsync/kind/name"

#: Enough for a call that does not wait.
CALL_S = 0.5

Play = Callable[["Two"], Awaitable[Any]]


class Two:
    """Two processes. After ``fall_behind``, the server of ``ours`` lags until it is asked for more
    than a read.
    """

    def __init__(self, make: Callable[[SimProcess], Any]) -> None:
        self.world = Simulation(1)
        self.ours, self.theirs = self.world.process("ours"), self.world.process("theirs")
        self.mine, self.far = make(self.ours), make(self.theirs)

    def fall_behind(self) -> None:
        server, session = self.world.server, self.ours.session
        request = records.ConnectRequest(
            timeout_ms=session.timeout_ms, session_id=session.session_id, password=session.password
        )
        peer = next(each for each in server.connections if server.owners[each] is self.ours)
        laggard = LaggingServer(server.engine)
        assert laggard.accepts(peer, request, self.world.now_ms)
        server.laggards[peer] = laggard

    async def elsewhere(self, work: Callable[[], Any], expected: tuple[type[BaseException], ...] = ()) -> None:
        """Let the other process call ``work``, until the call is done or waits."""

        async def call() -> None:
            await Run(work())

        self.theirs.spawn(call(), expected=expected)
        await Wait(limit=CALL_S)

    async def truth(self, look: Callable[[], Any]) -> Any:
        """Return what ``look`` returns on an up-to-date server."""
        await Run(read(Sync(PATH)))
        return await Run(look())

    def play(self, play: Play) -> Any:
        answers: list[Any] = []

        async def body() -> None:
            answers.append(await play(self))

        with self.world as world:
            self.ours.spawn(body())
            world.run()
        return answers[0]


def event(process: SimProcess) -> EventCore:
    return EventCore(PATH, receipts(process))


def latch(process: SimProcess) -> LatchCore:
    return LatchCore(PATH, 1, receipts(process))


def semaphore(process: SimProcess) -> SemaphoreCore:
    return SemaphoreCore(PATH, 1, receipts(process))


def barrier(process: SimProcess) -> BarrierCore:
    return BarrierCore(PATH, 2, receipts(process))


def lock(process: SimProcess) -> LockCore:
    return LockCore(PATH)


async def clear(two: Two) -> bool:
    await Run(two.mine.clear())
    two.fall_behind()
    await two.elsewhere(two.far.set)
    await Run(two.mine.clear())
    return await two.truth(two.mine.is_set)


async def count_down(two: Two) -> int:
    await Run(two.mine.count_down())
    two.fall_behind()
    await two.elsewhere(lambda: two.far.try_set_count(2))
    return await Run(two.mine.count_down())


async def try_set_count(two: Two) -> bool:
    await Run(two.mine.tally())
    two.fall_behind()
    await two.elsewhere(two.far.count_down)
    return await Run(two.mine.try_set_count(3))


async def release_after_an_unseen_acquire(two: Two) -> int:
    await Run(two.mine.acquire(b""))
    await Run(two.mine.release())
    two.fall_behind()
    await two.elsewhere(lambda: two.far.acquire(b""))
    await Run(two.mine.release(1, 1))
    return await two.truth(two.mine.value)


async def release_after_an_added_permit_was_acquired(two: Two) -> int:
    await Run(two.mine.acquire(b""))
    await two.elsewhere(lambda: two.far.release(1, 1))
    await Run(two.mine.value())
    two.fall_behind()
    await two.elsewhere(lambda: two.far.acquire(b""))
    await Run(two.mine.release(1, 1))
    return await two.truth(two.mine.value)


async def reset_with_an_unseen_waiter(two: Two) -> tuple[int, bool]:
    await Run(two.mine.state())
    two.fall_behind()
    await two.elsewhere(lambda: two.far.wait(b""), (BrokenBarrierError,))
    await Run(two.mine.reset())
    return await two.truth(two.mine.state)


async def abort_after_an_unseen_reset(two: Two) -> tuple[int, bool]:
    await Run(two.mine.abort())
    two.fall_behind()
    await two.elsewhere(two.far.reset)
    await Run(two.mine.abort())
    return await two.truth(two.mine.state)


async def revoke(two: Two) -> int:
    assert await Run(is_occupied(PATH)) is False
    two.fall_behind()
    await two.elsewhere(lambda: two.far.acquire(two, b"{}"))
    return len(await Run(request_revocation(PATH)))


@pytest.mark.parametrize(
    ("make", "play", "right"),
    [
        (event, clear, False),
        (latch, count_down, 1),
        (latch, try_set_count, True),
        (semaphore, release_after_an_unseen_acquire, 1),
        (semaphore, release_after_an_added_permit_was_acquired, 1),
        (barrier, reset_with_an_unseen_waiter, (0, False)),
        (barrier, abort_after_an_unseen_reset, (0, True)),
        (lock, revoke, 1),
    ],
)
def test_call_on_a_lagging_server_has_its_full_effect(
    make: Callable[[SimProcess], Any], play: Play, right: Any
) -> None:
    assert Two(make).play(play) == right


def test_broken_barrier_that_is_removed_between_two_reads_is_not_recreated() -> None:
    core = BarrierCore(PATH, 2, Receipts("/distsync/receipts"))
    work: Any = core.abort()
    assert work.send(None).requests == (GetData(PATH),)
    stat = Stat(*[0] * len(Stat._fields))
    assert work.send((Node(BarrierGeneration(2, broken=True).data(), stat),)).requests == (Sync(PATH), GetData(PATH))
    with pytest.raises(StopIteration):
        work.send((None, NoNodeError(PATH)))
