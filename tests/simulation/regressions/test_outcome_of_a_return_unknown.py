"""An interrupted call returns several items, and nobody can know the outcome of one request: the reply and the receipt
are lost. The other items are returned all the same.
"""

from __future__ import annotations

import json

import pytest
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import receipts

from distsync._protocols.queues.bulk import get_many
from distsync._protocols.queues.claim_layout import ClaimedItem, ItemHeader
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.queues.fifo import QueueCore, TakenItems
from distsync._protocols.steps import Delete, GetData, Multi, Pipeline, Signal

PATH = "/distsync/queue/q"
ITEMS = 3

#: For how long the connection is broken; the session lives on.
AWAY_S = 2.0


def put_items(process: SimProcess, core: QueueCore) -> None:
    for number in range(ITEMS):
        process.spawn(core.put(json.dumps(number).encode()))
        process.world.run()


def is_at(task: Task, path: str) -> bool:
    """Return whether the task has just requested to return the item ``path``."""
    multi = task.at.requests[0] if isinstance(task.at, Pipeline) else None
    return isinstance(multi, Multi) and multi.path == path


def lose_outcome(world: Simulation, process: SimProcess, task: Task, path: str) -> None:
    """Break the connection when ``task`` returns the item ``path``, and delete the receipts before the next one."""
    world.run(lambda: is_at(task, path))
    process.cut(away=AWAY_S)
    cut_ms = world.now_ms
    world.clockwork.after(round(AWAY_S * 500), lambda: None)
    world.run(lambda: world.now_ms >= cut_ms + AWAY_S * 500)
    for each in sorted((path for path in world.leftovers() if "/receipts/r_" in path), reverse=True):
        world.external_client(Delete(each))


def present(world: Simulation) -> list[bytes]:
    """Return the data of all items."""
    paths = [path for path in world.leftovers() if path.startswith(f"{PATH}/items/") and "/i_" in path]
    return [world.external_client(GetData(path)).data for path in paths]


def claims(world: Simulation) -> list[str]:
    return [path for path in world.leftovers() if path.startswith(f"{PATH}/claims/")]


@pytest.mark.parametrize("number", range(ITEMS))
def test_all_claims_are_given_back(number: int) -> None:
    done_before_the_loss = set()
    for seed in range(20):
        with Simulation(seed) as world:
            process = world.process("one")
            core = JoinableCore(PATH, receipts(process))
            put_items(process, core)
            claimed: list[ClaimedItem] = []
            process.spawn(core.claim_into(claimed, b"{}", max_items=ITEMS))
            world.run()
            assert len(claims(world)) == ITEMS
            settled = Signal()
            task = process.spawn(core.give_all_back(claimed, settled))
            lose_outcome(world, process, task, claimed[number].path)
            done_before_the_loss.add(claimed[number].claim not in claims(world))
            world.run()
            assert settled.fired
            assert claims(world) == []
            labels, payloads = zip(*map(ItemHeader.split, present(world)), strict=True)
            assert sorted(map(json.loads, payloads)) == [*range(ITEMS)]
            assert [label.deliveries for label in labels] == [0] * ITEMS
    assert done_before_the_loss == {True, False}


@pytest.mark.parametrize("number", range(ITEMS))
def test_items_taken_are_put_back_except_one_that_might_be_duplicated(number: int) -> None:
    done_before_the_loss = set()
    for seed in range(20):
        with Simulation(seed) as world:
            process = world.process("one")
            core = QueueCore(PATH, receipts(process))
            put_items(process, core)
            taken: TakenItems = []
            process.spawn(get_many(core, ITEMS, b"{}", False, taken=taken))
            world.run()
            assert len(taken) == ITEMS
            assert present(world) == []
            settled = Signal()
            task = process.spawn(core.put_back(taken, settled))
            path, data = taken[number]
            lose_outcome(world, process, task, path)
            is_back = data in present(world)
            done_before_the_loss.add(is_back)
            world.run()
            assert settled.fired
            assert sorted(present(world)) == sorted(each for _, each in taken if is_back or each != data)
    assert done_before_the_loss == {True, False}
