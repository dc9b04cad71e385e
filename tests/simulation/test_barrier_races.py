"""A barrier in corners that its scenario seldom reaches: each interleaving of a few moments, seed by seed."""

from __future__ import annotations

from distsync.errors import BrokenBarrierError
from distsync.protocols.barrier import BarrierCore
from distsync.protocols.commit import Receipts
from distsync.session.steps import Connected, Delete, Wait
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.world import World

PATH = "/distsync/barrier/b"


async def connect() -> None:
    await Connected()


class Corner:
    """A barrier for two: its first party's znode is deleted while the second one is opening it; then a third comes."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.told: dict[str, int | None] = {}

    def core(self, process: SimProcess) -> BarrierCore:
        return BarrierCore(PATH, 2, Receipts("/distsync/receipts"))

    async def party(self, process: SimProcess, name: str, seconds: float, acts: bool = False) -> None:
        await Wait(limit=seconds)
        try:
            self.told[name] = await Run(self.core(process).wait(b"", self.act if acts else None), 60.0)
        except BrokenBarrierError:
            self.told[name] = None

    def act(self) -> None:
        first = next(path for path in self.world.leftovers() if path.endswith("-lock-0000000000"))
        self.world.foreign(Delete(first))
        third = self.world.processes["third"]
        third.spawn(self.party(third, "third", self.world.rng.randint(0, 6) / 1000))

    def play(self) -> dict[str, int | None]:
        with self.world as world:
            for name, seconds in (("first", 0.0), ("second", 1.0)):
                process = world.process(name)
                process.spawn(self.party(process, name, seconds, acts=name == "second"))
            third = world.process("third")
            third.spawn(connect())
            world.run()
        return self.told


def test_two_who_both_open_after_a_deletion_pass_both_or_not_at_all() -> None:
    together = 0
    for seed in range(400):
        told = Corner(seed).play()
        assert told["first"] is None
        assert {told["second"], told["third"]} in ({0, 1}, {None}), (seed, told)
        together += told["second"] is not None
    assert 0 < together < 400
