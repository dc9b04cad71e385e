"""The simulated driver performs each step as distsync._protocols.steps defines it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from simulation.engine import Exactly, Faults, Run, Simulation, SimulationFailure
from simulation.toy_protocols import Lock, contend

from distsync import errors
from distsync._protocols import steps


def result_of(work: Coroutine[Any, Any, Any], timeout: float | None = None, seed: int = 1, **world: Any) -> Any:
    """Return the result of a single task of a single process."""
    task = Simulation(seed, **world).process("p").spawn(work, timeout)
    task.process.world.run()
    return task.result


def test_each_request_is_answered_as_its_step_says() -> None:
    async def work() -> None:
        created = await steps.Create("/a", b"1")
        assert created.path == "/a"
        assert created.stat.version == 0
        assert await steps.GetData("/a") == (b"1", created.stat)
        assert (await steps.SetData("/a", b"2", 0)).version == 1
        assert (await steps.Exists("/a")).version == 1
        assert await steps.Exists("/b") is None
        assert (await steps.Create("/a/n-", sequence=True)).path == "/a/n-0000000000"
        assert (await steps.Children("/a")).names == ("n-0000000000",)
        assert await steps.Sync() is None
        assert await steps.Delete("/a/n-0000000000") is None

    result_of(work())


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (steps.Create("/a"), errors.NodeExistsError),
        (steps.Create("/x/y"), errors.NoNodeError),
        (steps.Delete("/a"), errors.NotEmptyError),
        (steps.SetData("/a", b"", 7), errors.BadVersionError),
        (steps.Create("/a/e/c"), errors.ChildrenOfEphemeralError),
        (steps.GetData("/x"), errors.NoNodeError),
    ],
)
def test_a_refused_request_throws_the_error_named_for_it(step: Any, error: type[Exception]) -> None:
    async def work() -> None:
        await steps.Pipeline(steps.Create("/a"), steps.Create("/a/e", ephemeral=True))
        with pytest.raises(error) as caught:
            await step
        assert caught.value.args == (step.path,)

    result_of(work())


def test_together_returns_an_exception_in_place_of_the_answer() -> None:
    async def work() -> Any:
        return await steps.Pipeline(steps.Create("/a"), steps.Create("/a"), steps.Children("/a"))

    created, refused, listing = result_of(work())
    assert created.path == "/a"
    assert isinstance(refused, errors.NodeExistsError)
    assert listing.names == ()


def test_a_refused_multi_names_the_operation_that_failed_and_does_nothing() -> None:
    async def work() -> None:
        operations = (steps.Create("/a"), steps.Check("/nowhere"), steps.Create("/b"))
        with pytest.raises(errors.NoNodeError) as caught:
            await steps.Multi(operations)
        assert caught.value.index == 1  # type: ignore[attr-defined]
        assert await steps.Exists("/a") is None
        done = await steps.Multi((steps.Create("/a"), steps.SetData("/a", b"x"), steps.Check("/a"), steps.Delete("/a")))
        assert done[0] == steps.Created("/a", None)
        assert done[1].version == 1
        assert done[2:] == (None, None)

    result_of(work())


def test_a_wait_ends_by_a_signal_by_its_limit_or_by_the_deadline() -> None:
    async def work() -> None:
        fired = steps.Signal()
        fired.fire()
        assert await steps.Wait(steps.Signal(), fired) is steps.WakeReason.SIGNAL
        assert await steps.Wait(steps.Signal(), limit=1) is steps.WakeReason.LIMIT
        assert await steps.Wait(limit=0) is steps.WakeReason.LIMIT
        assert await steps.Wait(steps.Signal(), limit=100) is steps.WakeReason.DEADLINE

    result_of(work(), timeout=5)


def test_a_watch_wakes_on_a_change_by_another_process() -> None:
    world = Simulation(3)

    async def watcher() -> Any:
        watch = steps.Watch()
        assert await steps.Exists("/a", watch) is None
        return await steps.Wait(watch)

    async def maker() -> None:
        await steps.Wait(limit=1)
        await steps.Create("/a")

    watching = world.process("p").spawn(watcher())
    world.process("q").spawn(maker())
    world.run()
    assert watching.result is steps.WakeReason.SIGNAL


def test_a_request_that_is_outstanding_past_the_deadline_and_its_grace_throws() -> None:
    async def work() -> str:
        await steps.Connected()
        try:
            await steps.Create("/a")
        except errors.DeadlineError:
            return "late"
        return "in time"

    assert result_of(work(), timeout=0.1) == "in time"
    assert result_of(work(), 0.1, faults=Faults(exactly=(Exactly("slow", "p", 1, 800),))) == "late"


def test_a_clean_up_has_a_fresh_deadline() -> None:
    world = Simulation(1)

    async def work() -> None:
        try:
            await steps.Wait(steps.Signal())
        finally:
            await steps.Create("/cleaned")

    task = world.process("p").spawn(work(), expected=(KeyboardInterrupt,))
    world.clockwork.after(100, lambda: task.throw(KeyboardInterrupt()))
    world.run()
    assert isinstance(task.error, KeyboardInterrupt)
    assert world.leftovers() == ["/cleaned"]


def test_an_ephemeral_of_a_call_that_raised_is_deleted_by_the_janitor() -> None:
    world = Simulation(1)

    async def work() -> None:
        await steps.Create("/e-", ephemeral=True, sequence=True)
        raise KeyError

    world.process("p").spawn(work(), expected=(KeyError,))
    world.run()
    assert world.leftovers() == []


def test_a_proof_expires_unless_a_hold_renews_it() -> None:
    async def work() -> None:
        session = await steps.Connected()
        loss = steps.Loss()
        await steps.Create("/e", ephemeral=True)
        await steps.Hold("/e", session.session_id, loss)
        await steps.Wait(loss, limit=60)
        assert not loss.fired
        assert await steps.SessionAlive(session.session_id)
        assert not await steps.SessionAlive(session.session_id + 1)
        await steps.StopHolding(loss)
        await steps.Wait(limit=10)
        assert not await steps.SessionAlive(session.session_id)

    result_of(work())


def test_a_loss_fires_when_the_znode_is_deleted_externally() -> None:
    world = Simulation(2)

    async def work() -> str:
        session = await steps.Connected()
        await steps.Create("/e", ephemeral=True)
        loss = steps.Loss()
        await steps.Hold("/e", session.session_id, loss)
        await steps.Wait(loss, limit=20)
        return loss.reason

    task = world.process("p").spawn(work())
    world.clockwork.after(5_000, lambda: world.external_client(steps.Delete("/e")))
    world.run()
    assert task.result == "znode deleted"


def test_background_work_continues_after_its_call() -> None:
    world = Simulation(2)

    async def later() -> None:
        await steps.Wait(limit=1)
        await steps.Create("/later")

    async def work() -> None:
        await steps.Background(later())

    world.process("p").spawn(work())
    world.run()
    assert world.leftovers() == ["/later"]


def test_run_has_its_own_deadline_and_call_calls_its_function() -> None:
    async def part() -> Any:
        return await steps.Wait(limit=10)

    async def work() -> None:
        assert await Run(part(), timeout=1) is steps.WakeReason.DEADLINE
        assert await Run(part()) is steps.WakeReason.LIMIT
        assert await steps.Call(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await steps.Call(lambda: 1 // 0)

    result_of(work())


def test_tasks_of_a_process_share_local_state_and_processes_do_not() -> None:
    world = Simulation()
    p, q = world.process("p"), world.process("q")
    assert p.local("/x", list) is p.local("/x", list)
    assert p.local("/x", list) is not q.local("/x", list)


def test_a_task_that_nothing_can_wake_is_a_failure() -> None:
    async def work() -> None:
        await steps.Wait(steps.Signal())

    with pytest.raises(SimulationFailure, match="asleep while nothing can wake them: p/t1"):
        result_of(work())


def test_an_unexpected_error_of_a_task_is_a_failure_with_its_cause() -> None:
    async def work() -> None:
        raise KeyError("k")

    with pytest.raises(SimulationFailure, match="p/t1 raised KeyError") as caught:
        result_of(work())
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("faults", [Faults(), Faults(lost_reply=0.02, cut=0.02, pause=0.01, interrupt=0.01)])
def test_equal_seeds_give_equal_schedules(faults: Faults) -> None:
    def transcript(seed: int) -> list[tuple[Any, ...]]:
        world = Simulation(seed, faults=faults)
        contend(world, Lock())
        world.run()
        return [note[:3] for note in world.history.notes]

    assert transcript(5) == transcript(5)
    assert transcript(5) != transcript(6)


def test_a_correct_lock_excludes_and_leaves_nothing() -> None:
    from simulation.engine import Exclusion, NothingLeft

    for seed in range(100):
        world = Simulation(seed, checks=[Exclusion("lock"), NothingLeft("/lock/")])
        contend(world, Lock())
        world.run()
        world.close()
        assert len(world.history.events("granted")) == 6
