"""A non-blocking get finds an item if there always is one, even while segments are filled and emptied."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import receipts

from distsync._protocols.queues import fifo
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Children, Pipeline, SetData

PATH = "/distsync/queue/q"
ITEMS = f"{PATH}/items"
SEGMENT = 4

KINDS = (QueueCore, JoinableCore)


class Scene:
    """Two processes: one puts and gets, the other one tries to get."""

    def __init__(self, world: Simulation, kind: type[QueueCore]) -> None:
        self.world = world
        self.kind = kind
        self.busy, self.trying = world.process("busy"), world.process("trying")
        self.results: list[bool] = []

    def core(self, process: SimProcess) -> Any:
        return process.local(PATH, lambda: self.kind(PATH, receipts(process)))

    def item_count(self, number: int) -> int | None:
        """Return the number of items in a segment; None if it does not exist."""
        node = self.world.server.engine.tree.node(f"{ITEMS}/{number:010d}")
        return len(node.children) if node is not None else None

    async def put(self) -> None:
        await Run(self.core(self.busy).put(b"item"))

    async def get(self, process: SimProcess) -> bool:
        core = self.core(process)
        if self.kind is QueueCore:
            return await Run(core.get(b"", False)) is not None
        claimed = await Run(core.claim(b"", False))
        for each in claimed or ():
            await Run(core.done(each))
        return bool(claimed)

    async def begin(self) -> None:
        """Leave one item in the second segment, which is then the only one."""
        while not self.item_count(1):
            await self.put()
        while self.item_count(0):
            assert await self.get(self.busy)
        await self.put()
        assert await self.get(self.busy)
        assert (self.item_count(0), self.item_count(1)) == (None, 1)

    async def continue_to_third_segment(self) -> None:
        """Put into the third segment and empty the second; there always is at least one item."""
        while not self.item_count(2):
            await self.put()
        while self.item_count(1):
            assert await self.get(self.busy)

    async def attempt(self) -> None:
        self.results.append(await self.get(self.trying))

    def play(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.busy.spawn(work)
        self.world.run(lambda: task.done)


def is_listing_segments(task: Task) -> bool:
    """Return whether the task is about to receive the list of segments."""
    asked = task.at.requests if isinstance(task.at, Pipeline) else (task.at,)
    return task.has_work() and any(isinstance(request, Children) and request.path == ITEMS for request in asked)


@pytest.mark.parametrize("kind", KINDS)
def test_non_blocking_get_looks_into_a_segment_begun_during_the_call(
    kind: type[QueueCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo, "SEGMENT", SEGMENT)
    for seed in range(10):
        with Simulation(seed) as world:
            scene = Scene(world, kind)
            scene.play(scene.begin())
            tries = scene.trying.spawn(scene.attempt())
            world.run(lambda: is_listing_segments(tries))  # noqa: B023
            tries.stall()  # the thread gets no CPU time for a while
            scene.play(scene.continue_to_third_segment())
            tries.unstall()
            world.run()
            assert scene.results == [True], seed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("emptied", [True, False])
def test_get_ends_if_the_segment_after_a_sealed_one_was_deleted(
    kind: type[QueueCore], emptied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo, "SEGMENT", SEGMENT)
    with Simulation(1) as world:
        scene = Scene(world, kind)
        scene.play(scene.put())
        world.external_client(SetData(f"{ITEMS}/{0:010d}", b"sealed"))
        if emptied:
            scene.play(scene.attempt())
        scene.play(scene.attempt())
        scene.play(scene.put())
        scene.play(scene.attempt())
    assert scene.results == ([True, False, True] if emptied else [True, True])
