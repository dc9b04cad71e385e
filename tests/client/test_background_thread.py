"""When the background thread has to be woken: its sleeps, without its thread."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from distsync._client.acls import Access
from distsync._client.background_thread import TICK_S
from distsync._client.clocks import lease_clock
from distsync._client.lease.holds import GUARD_AFTER_S
from distsync._client.runtime import ClientRuntime
from distsync._client.settings import read_settings
from distsync._protocols.steps import Hold, Loss, SessionInfo, Signal, Wait

SESSION = 7


@pytest.fixture
def runtime() -> ClientRuntime:
    """It was never started; its lease clock says that a session has just been proven."""
    made = ClientRuntime(
        read_settings(hosts="zk.invalid:2181"), "zk.invalid:2181", Access("/n", None, ()), lambda _: None
    )
    made.lease.begin(SESSION, 10.0, lease_clock())
    made.zk_session.info = SessionInfo(SESSION, 10_000)
    return made


def held(runtime: ClientRuntime) -> Callable[[], None]:
    """Lets go again."""
    loss = Loss()
    runtime.hold(Hold("/n/mine", SESSION, loss))
    return lambda: runtime.unhold(loss)


def pokes(runtime: ClientRuntime) -> int:
    return runtime.background_thread._mailbox.qsize()


def test_first_hold_wakes_it_and_the_next_ones_are_noticed_at_its_next_check(runtime: ClientRuntime) -> None:
    assert runtime.background_thread._sleep_for() is None
    for _ in range(10):
        held(runtime)()
    assert pokes(runtime) == 1
    assert runtime.background_thread._sleep_for() == GUARD_AFTER_S
    for _ in range(10):
        held(runtime)()
    assert pokes(runtime) == 1


def test_it_sleeps_on_when_nothing_was_held_since_its_last_check(runtime: ClientRuntime) -> None:
    held(runtime)()
    assert runtime.background_thread._sleep_for() == GUARD_AFTER_S
    assert runtime.background_thread._sleep_for() is None
    held(runtime)()
    assert pokes(runtime) == 1


def test_it_wakes_when_the_znode_of_a_hold_is_to_be_watched_and_then_at_each_tick(runtime: ClientRuntime) -> None:
    let_go = held(runtime)
    assert runtime.background_thread._sleep_for() == pytest.approx(GUARD_AFTER_S, rel=0.5)
    assert [each.path for each in runtime.holds.to_guard(lease_clock() + GUARD_AFTER_S)] == ["/n/mine"]
    assert all(runtime.background_thread._sleep_for() == TICK_S for _ in range(3))
    let_go()


def test_second_hold_wakes_it_from_a_long_sleep(runtime: ClientRuntime) -> None:
    held(runtime)
    assert [*runtime.holds.to_guard(lease_clock() + GUARD_AFTER_S)]
    assert runtime.background_thread._sleep_for() == TICK_S
    pokes_before = pokes(runtime)
    held(runtime)
    assert pokes(runtime) == pokes_before + 1


def test_background_thread_continues_if_the_connection_cannot_be_restored(
    runtime: ClientRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []

    def look() -> None:
        looks.append(None)
        raise OSError("too many open files")

    monkeypatch.setattr(runtime, "restore_connection", look)
    monkeypatch.setattr("distsync._client.background_thread.CONNECTION_CHECK_INTERVAL_S", 0.0)
    runtime.zk_session.info = None
    runtime.background_thread._tick()
    runtime.background_thread._tick()
    assert len(looks) == 2


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls, those of C included."""
    count = 0

    def count_call(frame: object, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_wakeup_costs_the_same_however_much_is_held_and_awaited(runtime: ClientRuntime) -> None:
    thread = runtime.background_thread

    async def wait(limit: float | None) -> None:
        await Wait(Signal(), limit=limit)

    def wake_up() -> None:
        thread._tick()
        thread._sleep_for()

    def hold_and_wait(number: int) -> None:
        for _ in range(number):
            runtime.holds.add(Hold("/n/mine", SESSION, Loss()), lease_clock())
            thread._begin(wait(None))
            thread._begin(wait(1000.0))
        assert len([*runtime.holds.to_guard(lease_clock() + GUARD_AFTER_S)]) == number
        thread._sleep_for()

    hold_and_wait(10)
    few = calls_of(wake_up)
    hold_and_wait(1000)
    assert calls_of(wake_up) == few
