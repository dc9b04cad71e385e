"""CountDownLatch shared by threads, clients and processes.

Source: ZooKeeper recipes, Barriers; the latches of Java and Redisson.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results, waiting_calls

from distsync import CorruptNodeError, CountDownLatch, MismatchError
from distsync._client.client import Client

MakeClient = Callable[..., Client]


@pytest.fixture
def latch(client: Client) -> CountDownLatch:
    return CountDownLatch(3, name="l")


def test_waiters_return_when_the_count_reaches_zero_and_not_before(latch: CountDownLatch, peers: list[Peer]) -> None:
    for peer in peers[:2]:
        peer.start(latch.wait)
    assert [peers[2].do(latch.count_down), latch.count_down()] == [2, 1]
    assert not latch.wait(UNIT)
    assert not any(peer._pipe.poll(UNIT) for peer in peers[:2])
    assert peers[2].do(latch.count_down) == 0
    assert [peer.result() for peer in peers[:2]] == [True] * 2
    assert latch.wait(0)
    assert latch.count_down() == 0
    assert (latch.count, peers[0].do(latch.wait, 0.0)) == (0, True)


def test_latch_of_zero_is_open_and_count_down_by_n_stops_at_zero(client: Client) -> None:
    assert CountDownLatch(0, name="open").wait(0)
    latch = CountDownLatch(5, name="l")
    assert latch.count_down(3) == 2
    assert latch.count_down(3) == 0
    assert latch.wait(0)


def test_concurrent_count_downs_of_several_processes_are_counted_once_each(client: Client, peers: list[Peer]) -> None:
    latch = CountDownLatch(40, name="l")
    for peer in peers:
        peer.start(remote.repeat, 10, latch.count_down)
    for _ in range(9):
        latch.count_down()
    left = [each for peer in peers for each in peer.result()]
    assert latch.count == 1
    assert len(set(left)) == 30
    assert latch.count_down() == 0


@pytest.mark.slow_on("zookeeper")
def test_count_downs_of_a_killed_process_remain_counted(
    latch: CountDownLatch, make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    assert mortal.do(latch.count_down) == 2
    mortal.kill()
    assert latch.count == 2


def test_try_set_count_closes_only_an_open_latch(latch: CountDownLatch, client: Client) -> None:
    """As in Redisson. A waiter of the previous round returns even if the latch is closed again at
    once.
    """
    assert not latch.try_set_count(2)
    waiting = Running(latch.wait)
    eventually(lambda: waiting_calls(client))
    assert latch.count_down(3) == 0
    assert latch.try_set_count(2)
    assert waiting.result()
    assert latch.count == 2
    assert not latch.wait(UNIT)
    assert latch.count_down(2) == 0
    assert latch.wait(0)


def test_wait_continues_after_its_session_expired(latch: CountDownLatch, make_client: MakeClient) -> None:
    other = make_client()
    waiting = Running(CountDownLatch(3, name="l", client=other).wait)
    eventually(lambda: waiting_calls(other))
    before = other.session_id
    expire(other)
    eventually(lambda: other.session_id not in (None, before))
    latch.count_down(3)
    assert waiting.result()


def test_latch_with_another_count_raises_mismatch_error_with_both_counts(
    latch: CountDownLatch, make_client: MakeClient
) -> None:
    latch.count_down()
    other = CountDownLatch(4, name="l", client=make_client())
    for call in (other.count_down, other.wait, lambda: other.count):
        with pytest.raises(MismatchError, match=r"is 3, not 4"):
            call()
    with pytest.raises(MismatchError, match=r"is 3, not 2"):
        CountDownLatch(2, name="l").wait(0)
    assert latch.count == 2


def test_invalid_arguments_and_malformed_data_raise(latch: CountDownLatch, observer: Observer) -> None:
    for wrong, error in ((-1, ValueError), (1.5, TypeError), ("3", TypeError)):
        with pytest.raises(error, match="count must be"):
            CountDownLatch(wrong)  # type: ignore[arg-type]
        with pytest.raises(error, match="n must be"):
            latch.count_down(wrong)  # type: ignore[arg-type]
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=">= 1"):
            latch.try_set_count(wrong)
    latch.count_down()
    observer.kazoo.delete(f"{latch.path}/closed")
    with pytest.raises(CorruptNodeError):
        latch.wait(PATIENCE)
    with pytest.raises(CorruptNodeError):
        latch.count_down(2)
    observer.kazoo.set(latch.path, b"3")
    with pytest.raises(CorruptNodeError, match="did not write"):
        latch.wait(0)


def test_pickled_latch_has_the_same_path_and_count(latch: CountDownLatch) -> None:
    copy = pickle.loads(pickle.dumps(latch))
    assert (copy.path, copy.count) == (latch.path, 3)
    assert "count=3" in repr(copy)


def test_costs_of_a_latch_whose_last_count_down_alone_wakes_the_waiters(
    latch: CountDownLatch, client: Client, make_client: MakeClient
) -> None:
    others = [make_client() for _ in range(5)]
    latch.count_down()
    CountDownLatch(1, name="other").count_down()
    with counted(*others) as before:
        waiting = [Running(CountDownLatch(3, name="l", client=one).wait) for one in others]
        eventually(lambda: all(map(waiting_calls, others)))
    with counted(client) as step, counted(*others) as idle:
        latch.count_down()
    with counted(client) as last, counted(*others) as woken:
        latch.count_down()
        assert results(waiting) == [True] * 5
    with counted(client) as look:
        assert latch.count == 0
    assert before == Cost(20, 10)  # registration, and the wait
    assert (step, idle) == (Cost(2, 2), Cost())
    assert (last, woken) == (Cost(2, 2), Cost(10, 5, 5))
    assert look == Cost(1, 1)
