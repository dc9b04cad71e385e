"""Watches are shared, forgotten and fired; on the server one is left, however many waited."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.servers import ServerProcess
from helpers.timing import UNIT, eventually
from helpers.worker_processes import waiting_calls
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from distsync._client.client import Client
from distsync._client.transport import watch_table
from distsync._client.transport.watch_table import SWEEP_EVERY, WatchTable
from distsync._protocols.steps import Children, Create, Exists, GetData, Wait, WakeReason, Watch

WAITS = 200


def armed(table: WatchTable, step: Any) -> Any:
    callback = table.arm(step)
    assert callback is not None
    return callback


def test_read_without_a_watch_arms_none() -> None:
    assert WatchTable().arm(GetData("/a")) is None


def test_watches_of_one_path_and_kind_share_one_callable() -> None:
    table = WatchTable()
    one, other = Watch(), Watch()
    assert len({armed(table, GetData("/a", one)), armed(table, Exists("/a", other))}) == 1


def test_watches_of_children_are_of_another_kind() -> None:
    table, one, other = WatchTable(), Watch(), Watch()
    assert armed(table, GetData("/a", one)) != armed(table, Children("/a", other))


def test_event_fires_every_watch_of_its_path_and_no_other() -> None:
    table, one, other, child = WatchTable(), Watch(), Watch(), Watch()
    callback = armed(table, GetData("/a", one))
    armed(table, Exists("/b", other))
    armed(table, Children("/a", child))
    callback(WatchedEvent(EventType.DELETED, KeeperState.CONNECTED, "/a"))
    assert (one.fired, other.fired, child.fired) == (True, False, False)
    table.fire_all()
    assert other.fired
    assert child.fired
    assert [each.is_deleted for each in (one, other, child)] == [True, False, False]
    assert table.events == 1


def test_watch_that_nobody_refers_to_is_forgotten() -> None:
    table, kept = WatchTable(), Watch()
    table.arm(GetData("/a", kept))
    for _ in range(WAITS):
        table.arm(GetData("/a", Watch()))
    gc.collect()
    assert len(table) == 1


def test_paths_that_nobody_waits_for_are_swept_out() -> None:
    table = WatchTable()
    for number in range(10 * SWEEP_EVERY):
        table.arm(GetData(f"/{number}", Watch()))
    assert len(table._signals) <= SWEEP_EVERY + 1


def test_sweep_continues_after_a_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """All fire, in another thread, while this one looks who is still waited for."""
    table, waiting = WatchTable(), watch_table._waiting
    kept = [Watch() for _ in range(3)]
    for number, watch in enumerate(kept):
        table.arm(GetData(f"/{number}", watch))

    def meanwhile(one: Any) -> bool:
        table.fire_all()
        return waiting(one)

    monkeypatch.setattr(watch_table, "_waiting", meanwhile)
    table._sweep()
    assert all(watch.fired for watch in kept)
    assert len(table) == 0


def test_many_timed_waits_leave_one_watch_on_the_server(near: Client, namespace: str, server: ServerProcess) -> None:
    async def wait() -> WakeReason:
        watch = Watch()
        await GetData(namespace, watch)
        return await Wait(watch, limit=0.0)

    before = int(server.figures()["zk_watch_count"])
    for _ in range(WAITS):
        assert near.run(wait()) is WakeReason.LIMIT
    assert int(server.figures()["zk_watch_count"]) == before + 1
    assert near._runtime is not None
    assert len(near._runtime.zk_session.watches) == 0


def test_change_wakes_all_waiters_in_all_threads(
    near: Client, namespace: str, observer: Observer, in_thread: Callable[..., Any]
) -> None:
    async def wait() -> WakeReason:
        watch = Watch()
        await Children(namespace, watch)
        return await Wait(watch)

    waiting = [in_thread(near.run, wait()) for _ in range(5)]
    assert near._runtime is not None
    eventually(lambda: waiting_calls(near) == 5)
    observer.kazoo.create(f"{namespace}/new")
    assert [one.result() for one in waiting] == [WakeReason.SIGNAL] * 5


def test_exists_watch_on_a_missing_node_fires_when_it_comes(near: Client, namespace: str) -> None:
    watch = Watch()

    async def work() -> WakeReason:
        assert await Exists(f"{namespace}/new", watch) is None
        await Create(f"{namespace}/new")
        return await Wait(watch, limit=100 * UNIT)

    assert near.run(work()) is WakeReason.SIGNAL
