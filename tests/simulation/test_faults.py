"""Each fault has its documented effect, where it was placed, and is injected no more often than
allowed.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from simulation.engine import Exactly, Faults, Run, SimProcess, Simulation, SimulationFailure
from simulation.engine.session import SimSession
from simulation.toy_protocols import Lock, contend

from distsync import errors
from distsync._protocols import steps


def world_with(*placed: Exactly, seed: int = 1) -> Simulation:
    return Simulation(seed, faults=Faults(exactly=placed))


def run(world: Simulation, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
    """Return the result of a task of process p."""
    task = world.process("p").spawn(work, **options)
    world.run()
    return task.error or task.result


async def create() -> tuple[Any, bool]:
    """Return the result of a create, and whether it was executed."""
    await steps.Connected()
    (answer,) = await steps.Together(steps.Create("/a"))
    await steps.Connected()
    return answer, await steps.Exists("/a") is not None


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections begin without a sync, so that clients see lagging servers."""
    monkeypatch.setattr(SimSession, "syncs", False)


@pytest.mark.usefixtures("unsynced")
def test_a_lagging_server_does_not_show_an_executed_write_before_a_sync() -> None:
    async def look() -> list[bool]:
        await create()
        seen = [await steps.Exists("/a") is not None]
        await steps.Sync("/")
        return [*seen, await steps.Exists("/a") is not None]

    found = [run(world_with(Exactly("lag", "p", 1), seed=seed), look()) for seed in range(20)]
    assert [False, True] in found
    assert found.count([False, True]) + found.count([False, False]) == 20  # the request itself may be lost too


@pytest.mark.usefixtures("unsynced")
def test_a_watch_armed_by_a_lagging_server_fires_when_the_server_has_caught_up() -> None:
    async def wait() -> bool:
        _, executed = await create()
        assert not executed
        watch = steps.Watch()
        if await steps.Exists("/a", watch) is not None:
            return True
        return await steps.Wait(watch, limit=60.0) is not steps.WakeReason.LIMIT

    found = [run(world_with(Exactly("lag", "p", 1), seed=seed), wait()) for seed in range(20)]
    assert found.count(True) > 10


def test_clients_whose_connections_begin_with_a_sync_never_see_a_lagging_server() -> None:
    for seed in range(20):
        world = world_with(Exactly("lag", "p", 1), seed=seed)
        answer, seen = run(world, create())
        assert isinstance(answer, errors.DisconnectedError)
        assert seen == (world.server.engine.tree.node("/a") is not None)


def test_a_lost_reply_was_executed() -> None:
    answer, executed = run(world_with(Exactly("lost_reply", "p", 1)), create())
    assert isinstance(answer, errors.DisconnectedError)
    assert executed


def test_a_lost_request_was_not_executed() -> None:
    answer, executed = run(world_with(Exactly("lost_request", "p", 1)), create())
    assert isinstance(answer, errors.DisconnectedError)
    assert not executed


async def hold(process: SimProcess) -> tuple[int, int, steps.Loss, steps.Watch]:
    """Return the session before and after a fault at the third request, and the signals that should
    report it.
    """
    before = (await steps.Connected()).session_id
    watch, loss = steps.Watch(), steps.Loss()
    await steps.Create("/e", ephemeral=True)
    await steps.Exists("/e", watch)
    await steps.Hold("/e", before, loss)
    await steps.Together(steps.Sync())
    await steps.Wait(watch, limit=60)
    await steps.Wait(limit=20)
    return before, (await steps.Connected()).session_id, loss, watch


@pytest.mark.parametrize("seed", range(5))
def test_a_short_cut_preserves_the_session_and_fires_the_watches(seed: int) -> None:
    world = Simulation(seed, faults=Faults(exactly=(Exactly("cut", "p", 3, 100),)))
    process = world.process("p")
    task = process.spawn(hold(process))
    world.run()
    before, after, loss, watch = task.result
    assert before == after
    assert watch.fired
    assert not loss.fired


def test_a_long_cut_ends_the_lease_but_not_the_session() -> None:
    world = Simulation(1, faults=Faults(exactly=(Exactly("cut", "p", 3, 8_000),)))
    process = world.process("p")
    task = process.spawn(hold(process))
    world.run()
    before, after, loss, _ = task.result
    assert before == after
    assert loss.reason == "lease expired"
    assert "/e" not in world.leftovers()


@pytest.mark.parametrize(("kind", "reason"), [("expire_away", "lease expired"), ("expire_live", "session expired")])
def test_an_expiry_ends_session_watch_and_hold(kind: str, reason: str) -> None:
    world = Simulation(1, faults=Faults(exactly=(Exactly(kind, "p", 3),)))
    process = world.process("p")
    task = process.spawn(hold(process))
    world.run()
    before, after, loss, watch = task.result
    assert before != after
    assert watch.fired
    assert loss.reason == reason
    assert "/e" not in world.leftovers()


def test_requests_of_an_expired_session_are_refused() -> None:
    async def work() -> Any:
        await steps.Connected()
        await steps.Together(steps.Sync())
        (answer,) = await steps.Together(steps.Create("/a"))
        return answer

    world = world_with(Exactly("expire_away", "p", 1))
    assert isinstance(run(world, work()), errors.SessionLostError)


def outage(away_ms: int, seed: int) -> tuple[Simulation, Any]:
    """Let two processes hold a znode when all servers become unreachable, at the third request of one."""
    world = Simulation(seed, faults=Faults(exactly=(Exactly("outage", "p", 3, away_ms),)))
    tasks = [(process := world.process(name)).spawn(hold_two(process)) for name in ("p", "q")]
    world.run()
    return world, [task.result for task in tasks]


async def hold_two(process: SimProcess) -> tuple[bool, bool, str, float]:
    """Return whether the session and the znode outlived 90 s, the reason of the loss, and when the
    next reply arrived.
    """
    before, loss, path = (await steps.Connected()).session_id, steps.Loss(), f"/{process.name}"
    await steps.Create(path, ephemeral=True)
    await steps.Hold(path, before, loss)
    await steps.Wait(limit=1.0)
    await steps.Together(steps.Sync())
    await steps.Wait(limit=1.0)
    await steps.Connected()
    back = process.world.now
    await steps.Wait(limit=90)
    return (await steps.Connected()).session_id == before, await steps.Exists(path) is not None, loss.reason, back


@pytest.mark.parametrize("away_ms", [2_000, 8_000, 60_000])
def test_an_outage_ends_leases_but_not_sessions(away_ms: int) -> None:
    for seed in range(10):
        world, results = outage(away_ms, seed)
        assert world.server.back_ms is None
        for same, exists, reason, back in results:
            assert same
            assert back >= away_ms / 1000
            lost = away_ms > 6_000
            assert (exists, reason) == ((False, "lease expired") if lost else (True, "")), seed


def test_a_session_has_its_whole_timeout_again_after_an_outage() -> None:
    placed = Exactly("outage", "p", 2, 60_000), Exactly("kill", "p", 3, 1_000)
    world = Simulation(1, faults=Faults(exactly=placed))

    async def work() -> None:
        await steps.Create("/e", ephemeral=True)
        await steps.Together(steps.Sync())
        await steps.Wait(steps.Signal())

    world.process("p").spawn(work())
    world.run()
    assert world.leftovers() == []
    assert world.now_ms - 60_000 >= 10_000


def test_in_an_outage_a_call_ends_at_its_deadline() -> None:
    world = Simulation(1, faults=Faults(exactly=(Exactly("outage", "p", 1, 60_000),)))

    async def work() -> float:
        await steps.Together(steps.Sync())
        began = world.now
        with pytest.raises(errors.DeadlineError):
            await Run(exists(), 5.0)
        return world.now - began

    async def exists() -> None:
        await steps.Exists("/a")

    task = world.process("p").spawn(work())
    world.run()
    assert 5.0 <= task.result < 5.4


def test_a_call_that_continues_after_its_deadline_is_a_failure() -> None:
    async def call() -> None:
        try:
            await steps.Exists("/a")
        except errors.DeadlineError:
            await steps.Wait(limit=30.0)  # its clean-up has one second

    async def work() -> None:
        await steps.Together(steps.Sync())
        await Run(call(), 5.0)

    world = Simulation(1, faults=Faults(exactly=(Exactly("outage", "p", 1, 60_000),)))
    world.process("p").spawn(work())
    with pytest.raises(SimulationFailure, match=r"call of p/t1 ended 1\d\d\d ms after its deadline"):
        world.run()


def test_a_stalled_thread_stops_while_the_other_threads_and_the_keeper_run() -> None:
    world = Simulation(1, faults=Faults(exactly=(Exactly("stall", "p", 4, 25_000),)))
    process = world.process("p")

    async def stalled() -> tuple[float, steps.Loss]:
        session, loss = await steps.Connected(), steps.Loss()
        await steps.Create("/e", ephemeral=True)
        await steps.Hold("/e", session.session_id, loss)
        began = world.now
        await steps.Exists("/e")
        return world.now - began, loss

    async def other() -> float:
        began = world.now
        await steps.Exists("/e")
        return world.now - began

    one = process.spawn(stalled())
    world.run(lambda: isinstance(one.at, steps.Exists))
    two = process.spawn(other())
    world.run()
    waited, loss = one.result
    assert waited >= 25
    assert not loss.fired
    assert two.result < 1


@pytest.mark.parametrize(("answered", "woke"), [(True, steps.WakeReason.SIGNAL), (False, steps.WakeReason.DEADLINE)])
def test_a_stalled_thread_sees_a_signal_before_its_deadline(answered: bool, woke: steps.WakeReason) -> None:
    world = Simulation(1, faults=Faults(exactly=(Exactly("stall", "p", 2, 25_000),)))
    process, signal = world.process("p"), steps.Signal()

    async def stalled() -> steps.WakeReason:
        await steps.Connected()
        return await Run(wait(), 1.0)

    async def wait() -> steps.WakeReason:
        return await steps.Wait(signal)

    async def fire() -> None:
        await steps.Wait(limit=15.0)
        if answered:
            signal.fire()

    task = process.spawn(stalled())
    world.process("q").spawn(fire())
    world.run()
    assert task.result is woke


def test_a_slow_answer_comes_after_its_delay() -> None:
    world = world_with(Exactly("slow", "p", 1, 700))

    async def work() -> float:
        await steps.Connected()
        began = world.now
        await steps.Sync()
        return world.now - began

    assert 0.7 <= run(world, work()) < 0.8


def test_a_late_event_wakes_late() -> None:
    def waited(world: Simulation) -> float:
        async def work() -> float:
            watch = steps.Watch()
            await steps.Exists("/a", watch)
            await steps.Create("/a")
            created = world.now
            await steps.Wait(watch)
            return world.now - created

        return float(run(world, work()))

    assert waited(world_with()) < 0.05
    assert waited(world_with(Exactly("late_event", "p", 1))) > 0.05


def test_a_killed_process_runs_no_finally_block_and_its_session_times_out() -> None:
    world, cleaned = world_with(Exactly("kill", "p", 3)), []

    async def work() -> None:
        try:
            await steps.Connected()
            await steps.Create("/e", ephemeral=True)
            await steps.Wait(steps.Signal())
        finally:
            cleaned.append(world.muted)
            await steps.Create("/cleaned")

    process = world.process("p")
    process.spawn(work())
    world.run()
    assert not process.alive
    assert world.now >= 10
    assert world.leftovers() == []
    assert cleaned == [True]


def test_a_paused_process_finds_its_lease_expired_by_its_own_clock() -> None:
    async def work() -> tuple[bool, bool]:
        session = await steps.Connected()
        await steps.Sync()
        before = await steps.Proven(session.session_id)
        await steps.Wait(limit=0.01)
        return before, await steps.Proven(session.session_id)

    world = Simulation(1)
    process = world.process("p")
    task = process.spawn(work())
    world.run(lambda: isinstance(task.at, steps.Wait))
    process.pause(15)
    world.run()
    assert task.result == (True, False)


def test_an_interrupt_is_thrown_where_the_task_is() -> None:
    async def work() -> str:
        try:
            await steps.Wait(steps.Signal())
        except KeyboardInterrupt:
            return "interrupted"
        return "woken"

    assert run(world_with(Exactly("interrupt", "p", 1)), work()) == "interrupted"


def test_a_deadline_fault_affects_only_calls_with_a_deadline() -> None:
    async def work() -> Any:
        await steps.Connected()
        return await steps.Wait(limit=50)

    assert run(world_with(Exactly("deadline", "p", 2)), work(), timeout=1000) is steps.WakeReason.DEADLINE
    assert run(world_with(Exactly("deadline", "p", 2)), work()) is steps.WakeReason.LIMIT


def test_an_intruder_deletes_an_ephemeral_znode() -> None:
    async def work() -> None:
        await steps.Create("/e", ephemeral=True)
        await steps.Create("/p")
        await steps.Sync()

    world = world_with(Exactly("intruder", "p", 3))
    run(world, work())
    assert world.leftovers() == ["/p"]
    assert world.tampered


def test_injected_faults_are_injected_again_when_placed_exactly() -> None:
    def play(faults: Faults) -> Simulation:
        world = Simulation(7, faults=faults)
        contend(world, Lock())
        world.run()
        return world

    struck = play(Faults(lost_reply=0.05, lost_request=0.05, most=2)).faults.injected
    assert {each.kind for each in struck} == {"lost_reply", "lost_request"}
    again = play(Faults(exactly=tuple(struck[:1]))).faults.injected
    assert again == struck[:1]


def test_each_kind_is_injected_up_to_its_maximum_and_not_in_spared_processes() -> None:
    world = Simulation(3, faults=Faults(cut=0.3, most=2, spare=("b",)))
    contend(world, Lock())
    world.run()
    assert [each.kind for each in world.faults.injected] == ["cut", "cut"]
    assert all(each.process != "b" for each in world.faults.injected)
