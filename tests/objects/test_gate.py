"""Gate shared by threads, clients and processes.

Source: ZooKeeper recipes, Barriers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.request_counts import Cost, counted, settle
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results, waiting_calls
from kazoo.recipe.barrier import Barrier as KazooBarrier

from distsync import Event, Gate, NameInUseError
from distsync._client.client import Client

MakeClient = Callable[..., Client]


@pytest.fixture
def gate(client: Client) -> Gate:
    return Gate(name="g")


def test_gate_is_open_until_it_is_closed(gate: Gate, peers: list[Peer]) -> None:
    assert gate.is_open
    assert peers[0].do(gate.wait, 0.0)
    assert peers[0].do(gate.close)
    assert not gate.is_open
    assert not gate.close()
    assert not peers[1].do(gate.wait, UNIT)
    assert peers[1].do(gate.open)
    assert not gate.open()
    assert peers[2].do(gate.wait, 0.0)


def test_open_wakes_the_waiters_of_all_processes(gate: Gate, peers: list[Peer]) -> None:
    """Barriers, steps 3 and 4."""
    gate.close()
    for peer in peers:
        peer.start(gate.wait, PATIENCE)
    ours = Running(gate.wait)
    gate.open()
    assert [peer.result() for peer in peers] == [True] * 3
    assert ours.result()


@pytest.mark.slow_on("zookeeper")
def test_gate_stays_closed_after_the_process_that_closed_it_was_killed(
    gate: Gate, make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    mortal.do(gate.close)
    mortal.kill()
    assert not gate.wait(2 * UNIT)


def test_open_followed_by_close_wakes_present_waiters_and_no_later_ones(
    gate: Gate, client: Client, make_client: MakeClient
) -> None:
    others = [make_client() for _ in range(3)]
    gate.close()
    for _ in range(5):
        waiting = [Running(Gate(name="g", client=one).wait) for one in others]
        eventually(lambda: all(map(waiting_calls, others)))
        gate.open()
        gate.close()
        assert results(waiting) == [True] * 3
        assert not Gate(name="g", client=others[0]).wait(0)


def test_gate_whose_znode_data_change_stays_closed(gate: Gate, client: Client, observer: Observer) -> None:
    gate.close()
    waiting = Running(gate.wait)
    eventually(lambda: waiting_calls(client))
    observer.kazoo.set(gate.path, b"touched")
    observer.kazoo.set(gate.path, b"touched again")
    assert waiting.is_alive()
    gate.open()
    assert waiting.result()


def test_wait_continues_after_its_session_expired(gate: Gate, make_client: MakeClient) -> None:
    other = make_client()
    gate.close()
    waiting = Running(Gate(name="g", client=other).wait)
    eventually(lambda: waiting_calls(other))
    before = other.session_id
    expire(other)
    eventually(lambda: other.session_id not in (None, before))
    assert waiting.is_alive()
    gate.open()
    assert waiting.result()


def test_100_waiters_of_one_client_share_one_watch_and_are_all_woken(gate: Gate, client: Client) -> None:
    gate.close()
    waiting = [Running(gate.wait) for _ in range(100)]
    eventually(lambda: waiting_calls(client) == 100)
    with counted(client) as cost:
        Gate(name="g").open()
        assert all(results(waiting))
    assert cost.events == 1


def test_kazoo_barrier_of_the_same_path_is_the_same_gate(gate: Gate, observer: Observer) -> None:
    theirs = KazooBarrier(observer.kazoo, gate.path)
    theirs.create()
    assert not gate.is_open
    waiting = Running(gate.wait)
    assert theirs.remove()
    assert waiting.result()
    gate.close()
    assert not theirs.wait(UNIT)
    gate.open()
    assert theirs.wait(UNIT)


def test_costs_of_a_gate(gate: Gate, client: Client) -> None:
    gate.close()
    gate.open()
    for operation in (gate.close, lambda: gate.is_open, gate.open):
        with counted(client) as cost:
            operation()
        assert cost == Cost(1, 1)
    with counted(client) as cost:
        assert gate.wait()
    assert cost == Cost(1, 1)
    assert not waiting_calls(client)


def test_wait_at_a_closed_gate_costs_2_requests_and_1_event(
    gate: Gate, client: Client, make_client: MakeClient
) -> None:
    other = make_client()
    theirs = Gate(name="g", client=other)
    theirs.close()
    theirs.open()
    theirs.close()
    assert gate.is_open is False
    with counted(client) as cost:
        waiting = Running(gate.wait)
        eventually(lambda: waiting_calls(client))
        theirs.open()
        assert waiting.result()
    assert cost == Cost(2, 2, 1)
    settle([other])


def test_invalid_arguments_and_another_kind_on_the_path_are_refused(gate: Gate) -> None:
    with pytest.raises(TypeError):
        gate.wait("soon")  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="too large"):
        gate.wait(1e20)
    with pytest.raises(TypeError, match="name or path, not both"):
        Gate(name="g", path="/g")
    assert gate.is_open
    with pytest.raises(NameInUseError, match=r"is already a gate and cannot be used as a event"):
        Event(path=gate.path).is_set()


def test_pickled_gate_has_the_same_path(gate: Gate, peer: Peer) -> None:
    assert pickle.loads(pickle.dumps(gate)).path == gate.path
    fresh = Gate()
    fresh.close()
    assert not peer.do(fresh.wait, 0.0)
    assert "closed" in repr(fresh)
    assert peer.do(remote.catch, repr, fresh).count("closed") == 1
    fresh.open()
