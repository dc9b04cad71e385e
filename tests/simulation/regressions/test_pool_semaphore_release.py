"""Several leases in the layouts of kazoo or Curator that are released at once: each is deleted once,
even if other threads release at the same time, or the release is interrupted.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.simulation import Simulation

from distsync._protocols.semaphores.foreign_layouts import CuratorSemaphoreCore, KazooSemaphoreCore, PoolSemaphoreCore
from distsync._protocols.steps import Delete

PATH = "/distsync/semaphore/s"
LEASES = 3


async def acquire(core: PoolSemaphoreCore) -> None:
    for _ in range(LEASES):
        assert await Run(core.acquire(b""))


async def release(core: PoolSemaphoreCore, count: int) -> None:
    await Run(core.release(count))


def left(world: Simulation, core: PoolSemaphoreCore) -> int:
    node = world.server.engine.tree.node(core.pool)
    return len(node.children) if node is not None else 0


@pytest.mark.parametrize("kind", [KazooSemaphoreCore, CuratorSemaphoreCore])
def test_concurrent_releases_of_several_threads_delete_different_leases(kind: type[PoolSemaphoreCore]) -> None:
    for seed in range(20):
        with Simulation(seed) as world:
            one, core = world.process("one"), kind(PATH, LEASES)
            one.spawn(acquire(core))
            world.run()
            assert left(world, core) == LEASES
            for count in (2, 1):
                one.spawn(release(core, count))
            world.run()
            assert left(world, core) == 0, seed


@pytest.mark.parametrize("kind", [KazooSemaphoreCore, CuratorSemaphoreCore])
@pytest.mark.parametrize("deleted", range(LEASES))
def test_interrupted_release_deletes_all_leases(kind: type[PoolSemaphoreCore], deleted: int) -> None:
    for seed in range(5):
        with Simulation(seed) as world:
            one, core = world.process("one"), kind(PATH, LEASES)
            one.spawn(acquire(core))
            world.run()
            task = one.spawn(release(core, LEASES), expected=(KeyboardInterrupt,))
            deletes: list[str] = []

            def is_at() -> bool:
                if isinstance(task.at, Delete) and task.at.path not in deletes:  # noqa: B023
                    deletes.append(task.at.path)  # noqa: B023
                return len(deletes) > deleted  # noqa: B023

            world.run(is_at)
            task.interrupted = True
            task.throw(KeyboardInterrupt())
            world.run()
            assert (left(world, core), len(core.grants)) == (0, 0), seed
