"""A waiting getter is in the queue of getters, at whatever moment its session ended.

A getter that is not in the queue is not passed over, and wakes no other one when it leaves.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Wait

PATH = "/distsync/queue/q"

#: The getter sends fewer requests before it waits.
REQUESTS = 34

#: Time after which the effects of any fault have ended.
QUIET_S = 60.0


async def get(core: QueueCore, got: list[object]) -> None:
    got.append(await Run(core.claim(b"{}") if isinstance(core, JoinableCore) else core.get(b"{}")))


async def put(core: QueueCore) -> None:
    await Run(core.add(b"item") if isinstance(core, JoinableCore) else core.put(b"item"))


async def quiet(passed: list[bool]) -> None:
    await Wait(limit=QUIET_S)
    passed.append(True)


@pytest.mark.parametrize("how", ["expire_live", "expire_away"])
@pytest.mark.parametrize("kind", [QueueCore, JoinableCore])
@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_getter_whose_session_ends_is_queued_again(request_number: int, kind: type[QueueCore], how: str) -> None:
    for seed in range(4):
        got: list[object] = []
        passed: list[bool] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly(how, "getter", request_number),))) as world:
            getter, other = world.process("getter"), world.process("other")
            getter.spawn(get(kind(PATH, receipts(getter)), got))
            other.spawn(quiet(passed))
            world.run(lambda done=passed: bool(done))
            queue = world.server.engine.tree.node(f"{PATH}/getters")
            assert queue is not None
            nodes = [world.server.engine.tree.node(f"{PATH}/getters/{name}") for name in queue.children]
            owners = [node.owner for node in nodes if node is not None]
            assert (owners, got) == ([getter.session.session_id], []), (request_number, seed)
            other.spawn(put(kind(PATH, receipts(other))))
            world.run()
        assert len(got) == 1, (request_number, seed)
