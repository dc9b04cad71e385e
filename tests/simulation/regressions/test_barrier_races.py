"""Races at a barrier that its scenario seldom reaches: every interleaving of a few moments, seed by
seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import remove_tree
from distsync._protocols.steps import Connected, Delete, GetData, Pipeline, SetData, Sync, Wait
from distsync.errors import BrokenBarrierError

PATH = "/distsync/barrier/b"


async def connect() -> None:
    await Connected()


class DeletionWhileOpening:
    """A barrier for two. The znode of the first party is deleted while the second one opens it; then a
    third party arrives.
    """

    def __init__(self, seed: int) -> None:
        self.world = Simulation(seed)
        self.results: dict[str, int | None] = {}

    def core(self, process: SimProcess) -> BarrierCore:
        return BarrierCore(PATH, 2, Receipts("/distsync/receipts"))

    async def party(self, process: SimProcess, name: str, seconds: float, acts: bool = False) -> None:
        await Wait(limit=seconds)
        try:
            self.results[name] = await Run(self.core(process).wait(b"", self.act if acts else None), 60.0)
        except BrokenBarrierError:
            self.results[name] = None

    def act(self) -> None:
        first = next(path for path in self.world.leftovers() if path.endswith("-lock-0000000001"))
        self.world.external_client(Delete(first))
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
        return self.results


def test_two_parties_that_both_open_after_a_deletion_both_pass_or_both_fail() -> None:
    together = 0
    for seed in range(400):
        results = DeletionWhileOpening(seed).play()
        assert results["first"] is None
        assert {results["second"], results["third"]} in ({0, 1}, {None}), (seed, results)
        together += results["second"] is not None
    assert 0 < together < 400


class DeathUnseen:
    """A barrier for three. A party waits, perhaps after a break and a reset; a second one arrives, and
    its process is killed. Its session ends at once, so that the first party has not seen it unless it
    looked just then.
    """

    LOOK_S, TIMEOUT_S = 6.0, 30.0

    def __init__(self, seed: int, after_ms: int, was_reset: bool, faults: Faults | None = None) -> None:
        self.world = Simulation(seed, faults=faults or Faults())
        self.after_ms, self.was_reset = after_ms, was_reset
        self.arrived, self.waited_s = False, 0.0
        self.between: Callable[[], object] = lambda: None
        """Called after the death."""

    def core(self, process: SimProcess) -> BarrierCore:
        return BarrierCore(PATH, 3, receipts(process))

    async def first(self, process: SimProcess) -> None:
        core = self.core(process)
        if self.was_reset:
            await Run(core.abort())
            await Run(core.reset())
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), self.TIMEOUT_S)
        self.waited_s = self.world.now

    async def second(self, process: SimProcess) -> None:
        await Wait(limit=1.0)
        await Run(self.core(process).wait(b""), self.TIMEOUT_S)

    async def death(self, process: SimProcess) -> None:
        await Wait(limit=1.0 + self.after_ms / 1000)
        world, second = self.world, self.world.processes["second"]
        self.arrived = sum("-lock-" in path for path in world.leftovers()) == 2
        second.kill()
        world.server.carry_out(world.server.engine.expire(second.session.session_id, world.now_ms))
        self.between()

    def play(self) -> None:
        with self.world as world:
            for name, body in (("first", self.first), ("second", self.second), ("death", self.death)):
                process = world.process(name)
                process.spawn(body(process))
            world.run()


@pytest.mark.parametrize("was_reset", [False, True], ids=["new", "reset"])
def test_party_killed_unseen_breaks_the_barrier_as_soon_as_the_others_look(was_reset: bool) -> None:
    played = 0
    for seed in range(10):
        for after_ms in range(12):
            death = DeathUnseen(seed, after_ms, was_reset)
            death.play()
            assert (death.waited_s < death.LOOK_S) == death.arrived, (seed, after_ms)
            played += death.arrived
    assert 60 < played < 120


class DeathWhileAway(DeathUnseen):
    """The first party loses the reply to its create, and is cut off while the second one comes and is
    killed, unless it ``survives``.
    """

    AWAY_MS = 3000

    def __init__(self, seed: int, request: int, survives: bool = False) -> None:
        placed = Exactly("lost_reply", "first", request), Exactly("cut", "first", request + 1, self.AWAY_MS)
        super().__init__(seed, 500, False, Faults(exactly=placed))
        self.survives = survives

    async def death(self, process: SimProcess) -> None:
        if not self.survives:
            await super().death(process)

    async def second(self, process: SimProcess) -> None:
        with suppress(BrokenBarrierError):
            await super().second(process)


CREATES = range(6, 14)
"""The requests of the first party around its create."""


def test_party_killed_while_a_waiter_looked_for_its_own_znode_breaks_the_barrier() -> None:
    played = 0
    for request in CREATES:
        for seed in range(5):
            death = DeathWhileAway(seed, request)
            death.play()
            assert death.waited_s < death.LOOK_S + death.AWAY_MS / 1000 or not death.arrived, (request, seed)
            played += death.arrived
    assert played >= 10


def test_party_that_arrived_while_a_waiter_looked_for_its_own_znode_is_not_missed() -> None:
    for request in CREATES:
        for seed in range(5):
            death = DeathWhileAway(seed, request, survives=True)
            death.play()
            assert death.waited_s > death.LOOK_S + death.AWAY_MS / 1000, (request, seed)


def test_party_killed_unseen_before_a_reset_does_not_break_the_barrier_after_it() -> None:
    """The next party to wait at the barrier breaks it only when its time is over."""
    for seed in range(10):
        death = DeathUnseen(seed, 500, False)

        async def reset_and_wait(process: SimProcess, death: DeathUnseen = death) -> None:
            core = death.core(process)
            await Run(core.reset())
            await Wait(limit=death.LOOK_S)
            assert await Run(core.state()) == (0, False)
            with pytest.raises(BrokenBarrierError):
                await Run(core.wait(b""), death.TIMEOUT_S)
            assert death.world.now > death.LOOK_S + death.TIMEOUT_S

        third = death.world.process("third")
        death.between = lambda third=third, body=reset_and_wait: third.spawn(body(third))  # type: ignore[misc]
        death.play()
        assert death.arrived


def test_barrier_whose_data_an_older_program_wrote_is_not_broken_by_the_count() -> None:
    """Older programs forget which parties were cancelled. They do not count their own arrivals, either."""
    for seed in range(10):
        death = DeathUnseen(seed, 500, False)

        def write(world: Simulation = death.world) -> None:
            fields = json.loads(world.external_client(GetData(PATH)).data)
            del fields["left_all"]
            world.external_client(SetData(PATH, json.dumps(fields).encode()))

        death.between = write
        death.play()
        assert death.arrived
        assert death.waited_s >= death.TIMEOUT_S


class PartyAway:
    """A party is cut off at a request until long after its timeout; another process resets the barrier
    before it returns.
    """

    TIMEOUT_S, RESET_S, AWAY_S = 2.0, 5.0, 20.0

    def __init__(self, seed: int, request: int) -> None:
        self.world = Simulation(
            seed, faults=Faults(exactly=(Exactly("cut", "away", request, round(self.AWAY_S * 1000)),))
        )
        self.waiting, self.broken = 0, True

    def core(self, process: SimProcess) -> BarrierCore:
        return BarrierCore(PATH, 2, receipts(process))

    async def party(self, process: SimProcess) -> None:
        """Read the state of the barrier before waiting at it."""
        await Wait(limit=1.0)
        core = self.core(process)
        assert await Run(core.state()) == (0, False)
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), self.TIMEOUT_S)

    async def other(self, process: SimProcess) -> None:
        core = self.core(process)
        await Run(core.abort())
        await Run(core.reset())
        await Wait(limit=self.RESET_S)
        await Run(core.reset())
        await Wait(limit=2 * self.AWAY_S)
        self.waiting, self.broken = await Run(core.state())

    def play(self) -> tuple[int, bool]:
        with self.world as world:
            for name, body in (("away", self.party), ("other", self.other)):
                process = world.process(name)
                process.spawn(body(process))
            world.run()
        return self.waiting, self.broken


@pytest.mark.parametrize("request_number", range(3, 14))
def test_timeout_in_an_outage_does_not_break_a_barrier_that_was_reset_since(request_number: int) -> None:
    for seed in range(10):
        assert PartyAway(seed, request_number).play() == (0, False), seed


class OutageOfAllWaiters:
    """All parties that wait at a barrier are cut off until long after their timeouts, and no other
    process uses it.
    """

    CALM_S, TIMEOUT_S = 1.0, 2.0

    def __init__(self, seed: int, request: int, away_s: float, before: str) -> None:
        cuts = (Exactly("cut", name, request, round(away_s * 1000)) for name in ("one", "two"))
        self.world = Simulation(seed, faults=Faults(exactly=tuple(cuts)))
        self.parties = 2 if before == "passed" else 3
        self.before = before
        self.gave_up = 0
        self.state = (-1, False)

    async def prepare(self, core: BarrierCore, name: str) -> bool:
        """Give this process its earlier knowledge of the barrier. Return whether it will wait again,
        and give up.
        """
        if self.before == "passed":
            await Run(core.wait(b""))
            return name == "one"
        if self.before == "reset" and name == "one":
            await Run(core.reset())
        if self.before != "nothing":
            await Run(core.state())
        return True

    async def party(self, process: SimProcess) -> None:
        core = BarrierCore(PATH, self.parties, receipts(process))
        with suppress(BrokenBarrierError):  # the connection was cut too early
            if await self.prepare(core, process.name):
                await Wait(limit=self.CALM_S)
                try:
                    await Run(core.wait(b""), self.TIMEOUT_S)
                except BrokenBarrierError:
                    self.gave_up += 1
                    raise

    async def look(self, process: SimProcess) -> None:
        await Wait(limit=60.0)
        self.state = await Run(BarrierCore(PATH, self.parties, receipts(process)).state())

    def play(self) -> None:
        with self.world as world:
            for name, body in (("one", self.party), ("two", self.party), ("look", self.look)):
                process = world.process(name)
                process.spawn(body(process))
            world.run()


@pytest.mark.parametrize("before", ["nothing", "looked", "reset", "passed"])
@pytest.mark.parametrize("away_s", [6.0, 20.0], ids=["the session lives", "the session ends"])
def test_barrier_whose_waiters_all_time_out_in_an_outage_is_broken_afterwards(before: str, away_s: float) -> None:
    played = 0
    for seed in range(4):
        for request in range(1, 22):
            outage = OutageOfAllWaiters(seed, request, away_s, before)
            outage.play()
            if outage.gave_up:
                assert outage.state == (0, True), (seed, request)
                played += 1
    assert played > 40


class ReturnAfterOutage:
    """A party of two is cut off until after its timeout, and waits again as soon as the connection is
    back.
    """

    def __init__(self, seed: int, request: int) -> None:
        self.world = Simulation(seed, faults=Faults(exactly=(Exactly("cut", "one", request, 6000),)))
        self.results: list[str] = []

    async def party(self, process: SimProcess) -> None:
        core = BarrierCore(PATH, 2, receipts(process))
        await Run(core.state())
        for seconds in (2.0, 20.0):
            try:
                self.results.append(str(await Run(core.wait(b""), seconds)))
            except BrokenBarrierError:
                self.results.append("broken")
        self.results.append(str(await Run(core.state())))

    def play(self) -> list[str]:
        with self.world as world:
            process = world.process("one")
            process.spawn(self.party(process))
            world.run()
        return self.results


def test_party_that_times_out_in_an_outage_and_returns_is_not_counted_twice() -> None:
    for seed in range(5):
        for request in range(2, 22):
            assert ReturnAfterOutage(seed, request).play() == ["broken", "broken", "(0, True)"], (seed, request)


class SurplusParty:
    """A party arrives behind a full group, one of which does not get to open the barrier. It gives up
    in an outage, and is back when the group is killed.
    """

    TIMEOUT_S, AWAY_MS = 2.0, 6000

    def __init__(self, seed: int) -> None:
        placed = Exactly("outage", "clock", 1, self.AWAY_MS), Exactly("stall", "second", 6, 60_000)
        self.world = Simulation(seed, faults=Faults(exactly=placed))
        self.queued, self.state = 0, (-1, False)

    async def party(self, process: SimProcess, seconds: float, timeout: float) -> None:
        await Wait(limit=seconds)
        core = BarrierCore(PATH, 2, receipts(process))
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), timeout)

    async def clock(self, process: SimProcess) -> None:
        """When all are there, start the outage and kill the first two parties."""
        await Wait(limit=2.5)
        self.queued = sum("-lock-" in path for path in self.world.leftovers())
        await Pipeline(Sync())
        for name in ("first", "second"):
            self.world.processes[name].kill()
        await Wait(limit=60.0)
        self.state = await Run(BarrierCore(PATH, 2, receipts(process)).state())

    def play(self) -> tuple[int, tuple[int, bool]]:
        with self.world as world:
            for name, seconds, timeout in (("first", 0.0, 90.0), ("second", 1.0, 90.0), ("third", 2.0, self.TIMEOUT_S)):
                process = world.process(name)
                process.spawn(self.party(process, seconds, timeout))
            process = world.process("clock")
            process.spawn(self.clock(process))
            world.run()
        return self.queued, self.state


def test_surplus_party_that_times_out_in_an_outage_breaks_the_barrier_too() -> None:
    played = [SurplusParty(seed).play() for seed in range(20)]
    assert [state for queued, state in played if queued == 3] == [(0, True)] * sum(queued == 3 for queued, _ in played)
    assert sum(queued == 3 for queued, _ in played) > 5


class TwoOutages:
    """A party gives up in an outage and returns, and the next outage begins while it breaks the
    barrier.
    """

    def __init__(self, seed: int, request: int) -> None:
        placed = Exactly("outage", "one", 3, 6000), Exactly("outage", "one", request, 60_000)
        self.world = Simulation(seed, faults=Faults(exactly=placed))

    async def party(self, process: SimProcess) -> None:
        core = BarrierCore(PATH, 2, receipts(process))
        await Run(core.state())
        for seconds in (2.0, 20.0):
            with pytest.raises(BrokenBarrierError):
                await Run(core.wait(b""), seconds)

    def play(self) -> None:
        with self.world as world:
            process = world.process("one")
            process.spawn(self.party(process))
            world.run()


@pytest.mark.parametrize("request_number", range(18, 31))
def test_call_that_completes_the_break_of_an_earlier_one_keeps_its_own_timeout(request_number: int) -> None:
    """The simulator checks the timeouts."""
    for seed in range(10):
        TwoOutages(seed, request_number).play()


class ForgottenParty:
    """A party is cut off after it arrived, and passes. The others continue until its name has been
    forgotten, and one of them waits alone when the connection is back.
    """

    TURNS, AWAY_MS, PATIENCE_S = 20, 6000, 30.0

    def __init__(self, seed: int, request: int) -> None:
        placed = Exactly("lost_reply", "one", request), Exactly("cut", "one", request + 1, self.AWAY_MS)
        self.world = Simulation(seed, faults=Faults(exactly=placed))
        self.results: dict[str, list[int | None]] = {"one": [], "two": [], "three": []}

    async def party(self, process: SimProcess, turns: int) -> None:
        core = BarrierCore(PATH, 2, receipts(process))
        await Run(core.state())
        if turns > 1:
            await Wait(limit=1.0)
        for _ in range(turns):
            try:
                self.results[process.name].append(await Run(core.wait(b""), self.PATIENCE_S))
            except BrokenBarrierError:
                self.results[process.name].append(None)

    def play(self) -> dict[str, list[int | None]]:
        with self.world as world:
            for name in self.results:
                process = world.process(name)
                process.spawn(self.party(process, 1 if name == "one" else self.TURNS))
            world.run()
        return self.results


def test_party_whose_passing_was_forgotten_in_an_outage_does_not_pass_again() -> None:
    """A party passes together with another one. The other parties make an even number of calls, so
    that not all of these can pass as well.
    """
    left = 0
    for request in range(8, 17):
        for seed in range(5):
            results = ForgottenParty(seed, request).play()
            is_left = None in results["two"] + results["three"]
            assert results["one"] == [None] or is_left, (request, seed, results)
            left += is_left
    assert left > 5


class DelayedParty:
    """A party of a process that knows only an old generation learns too late that it is queued in the
    current one.
    """

    def __init__(self, seed: int, request: int) -> None:
        placed = (Exactly("slow", "one", request, 20_000),)
        self.world = Simulation(seed, faults=Faults(exactly=placed))
        self.queued, self.state = 0, (-1, False)

    async def party(self, process: SimProcess) -> None:
        await Wait(limit=0.5)
        core = BarrierCore(PATH, 3, receipts(process))
        await Run(core.state())
        await Wait(limit=1.5)
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), 1.0)

    async def other(self, process: SimProcess) -> None:
        """Reset the barrier, and wait in the new generation."""
        core = BarrierCore(PATH, 3, receipts(process))
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), 0.1)
        await Wait(limit=1.0)
        await Run(core.reset())
        with pytest.raises(BrokenBarrierError):
            await Run(core.wait(b""), 30.0)

    async def clock(self, process: SimProcess) -> None:
        await Wait(limit=2.5)
        self.queued = sum("-lock-" in path for path in self.world.leftovers())
        await Wait(limit=21.0)
        self.state = await Run(BarrierCore(PATH, 3, receipts(process)).state())

    def play(self) -> tuple[int, tuple[int, bool]]:
        with self.world as world:
            for name, work in (("one", self.party), ("other", self.other), ("clock", self.clock)):
                process = world.process(name)
                process.spawn(work(process))
            world.run()
        return self.queued, self.state


def test_party_that_learns_too_late_that_it_is_queued_breaks_its_generation() -> None:
    played = [DelayedParty(seed, request).play() for seed in range(5) for request in range(2, 12)]
    assert [state for queued, state in played if queued == 2] == [(0, True)] * sum(queued == 2 for queued, _ in played)
    assert sum(queued == 2 for queued, _ in played) > 3


class DeletedBarrier:
    """The parties leave a broken barrier while it is deleted, as that of an unnamed object is."""

    def __init__(self, seed: int) -> None:
        self.world = Simulation(seed)
        self.left = 0

    async def party(self, process: SimProcess) -> None:
        with suppress(BrokenBarrierError):
            await Run(BarrierCore(PATH, 9, receipts(process)).wait(b""), 60.0)
        self.left += 1

    async def breaker(self, process: SimProcess) -> None:
        await Wait(limit=1.0)
        await Run(BarrierCore(PATH, 9, receipts(process)).abort())
        while self.left < 6:
            await Wait(limit=self.world.rng.randint(1, 5) / 1000)
        await Run(remove_tree(PATH))

    def play(self) -> set[str]:
        with self.world as world:
            for name in ("breaker", *"abcdef"):
                process = world.process(name)
                process.spawn(self.breaker(process) if name == "breaker" else self.party(process))
            world.run()
            return {path for path in world.leftovers() if path.startswith(PATH)}


def test_parties_that_leave_a_deleted_barrier_do_not_recreate_it() -> None:
    assert {seed: left for seed in range(200) if (left := DeletedBarrier(seed).play())} == {}
