"""PriorityQueue: an item that a thread decodes, without the mutex, while another thread begins to
choose is still compared.
"""

from __future__ import annotations

import json
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.ordered import PriorityCore

PATH = "/distsync/priority_queue/q"
ITEMS = ["a", "b", "c"]


def test_get_returns_the_least_item_although_another_thread_begins_to_choose() -> None:
    decoded: list[str] = []

    def decode(path: str, data: bytes) -> Any:
        decoded.append(path)
        # another thread does not see the first item, which a third thread is just taking
        if len(decoded) == len(ITEMS):
            choice = core.choose(decoded[1:])
            choice.send(None)
            choice.close()
        return json.loads(data)

    async def put_and_get() -> None:
        for item in ITEMS:
            await Run(core.put(json.dumps(item).encode(), key="o_"))
        data = await Run(core.get(b"", False))
        got.append(json.loads(data))

    got: list[str] = []
    with Simulation(1) as world:
        one = world.process("one")
        core = PriorityCore(PATH, receipts(one), decode)
        one.spawn(put_and_get())
        world.run()
    assert got == ["a"]
