"""LifoQueue and PriorityQueue shared by threads, clients and processes."""

from __future__ import annotations

import heapq
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions.pool import ExitsWhenUnpickled
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsync._client.client import Client
from distsync.queue import Empty, Full, LifoQueue, PriorityQueue, ShutDown

MakeClient = Callable[..., Client]

KINDS = [LifoQueue, PriorityQueue]


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest, client: Client) -> Any:
    return request.param(name="q")


def test_item_whose_unpickling_calls_sys_exit_is_removed_by_its_get(queue: Any) -> None:
    queue.put(ExitsWhenUnpickled())
    queue.put("b")
    got = []
    for _ in range(2):
        try:
            got.append(queue.get(timeout=PATIENCE))
        except SystemExit:
            got.append("exit")
    assert sorted(got) == ["b", "exit"]


def test_lifo_queue_returns_the_last_item_first_across_processes(client: Client, peers: list[Peer]) -> None:
    stack = LifoQueue[int](name="q")
    for number, peer in enumerate(peers):
        peer.do(stack.put, number)
    assert stack.get() == 2
    stack.put(9)
    assert [peer.do(stack.get) for peer in peers] == [9, 1, 0]
    assert stack.empty()


def test_priority_queue_returns_the_smallest_item_first_across_processes(client: Client, peers: list[Peer]) -> None:
    tasks = PriorityQueue[tuple[int, str]](name="q")
    for number, peer in zip((2, 3, 1), peers, strict=True):
        peer.do(tasks.put, (number, "peer"))
    tasks.put((0, "us"))
    assert [peer.do(tasks.get)[0] for peer in peers] == [0, 1, 2]
    tasks.put((-1, "late"))
    assert [tasks.get(), tasks.get()] == [(-1, "late"), (3, "peer")]


def test_equal_items_of_a_priority_queue_are_returned_in_fifo_order(client: Client) -> None:
    tasks = PriorityQueue[int](name="q")
    for item in (True, 1, 1.0, 0, False, 0.0):
        tasks.put(item)
    assert [repr(tasks.get()) for _ in range(6)] == ["0", "False", "0.0", "True", "1", "1.0"]


numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
)
items = st.one_of(
    st.lists(numbers, max_size=8),
    st.lists(st.tuples(numbers, st.text(max_size=2)), max_size=8),
    st.lists(st.text(max_size=3), max_size=8),
    st.lists(st.lists(numbers, max_size=2), max_size=8),
    st.lists(st.tuples(st.text(max_size=1), numbers), max_size=8),
)


@pytest.mark.slow_on("zookeeper")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(items=items, gets=st.lists(st.booleans(), max_size=16))
def test_priority_queue_returns_items_in_the_order_of_heapq(client: Client, items: list[Any], gets: list[bool]) -> None:
    tasks, heap = PriorityQueue[Any](name=uuid.uuid4().hex), []
    for item in items:
        tasks.put(item)
        heapq.heappush(heap, item)
        if gets and gets.pop():
            assert tasks.get_nowait() == heapq.heappop(heap)
    while heap:
        assert tasks.get_nowait() == heapq.heappop(heap)
    assert tasks.empty()


def test_get_of_incomparable_items_raises_and_removes_none(client: Client) -> None:
    tasks = PriorityQueue[Any](name="q")
    tasks.put((1, "a"))
    tasks.put((1, 2))
    with pytest.raises(TypeError):
        tasks.get()
    assert tasks.qsize() == 2


def test_threads_and_processes_get_each_item_once(queue: Any, peers: list[Peer]) -> None:
    ours = [Running(remote.get_until, queue, 999_999) for _ in range(2)]
    for peer in peers[:2]:
        peer.start(remote.get_until, queue, 999_999)
    for number in range(60):
        queue.put(number)
    eventually(lambda: queue.qsize() == 0)
    for _ in range(4):
        queue.put(999_999)
    got = [*results(ours), *(peer.result() for peer in peers[:2])]
    assert Counter(item for items in got for item in items) == dict.fromkeys(range(60), 1)


def test_waiting_getters_are_served_in_fifo_order(queue: Any, peers: list[Peer], observer: Observer) -> None:
    for count, peer in enumerate(peers, 1):
        peer.start(queue.get)
        eventually(lambda: len(observer.tree(f"{queue.path}/getters")) == count)  # noqa: B023
    for number, peer in enumerate(peers):
        queue.put(number)
        assert peer.result() == number


def test_get_ignores_the_item_of_a_put_that_the_bound_blocks(client: Client, make_client: MakeClient) -> None:
    """A blocked put has not taken effect: its item is neither the last nor the smallest one yet."""
    for kind, name in ((LifoQueue, "l"), (PriorityQueue, "p")):
        ours, theirs = kind(2, name=name), kind(2, name=name, client=make_client())
        ours.put(5)
        ours.put(6)
        with pytest.raises(Full):
            theirs.put(0, timeout=UNIT)
        blocked = Running(theirs.put, 0)
        eventually(lambda: ours._run(ours._core.znodes.size()) == 3)  # noqa: B023
        assert ours.get() == (6 if kind is LifoQueue else 5)
        blocked.result()
        assert sorted([ours.get(), ours.get()]) in ([0, 5], [0, 6])


@pytest.mark.parametrize("immediate", [False, True])
def test_shutdown_raises_in_a_waiting_getter(queue: Any, peer: Peer, observer: Observer, immediate: bool) -> None:
    peer.start(remote.catch, queue.get)
    eventually(lambda: observer.tree(f"{queue.path}/getters"))
    queue.shutdown(immediate)
    assert peer.result() == "ShutDown"
    with pytest.raises(ShutDown):
        queue.put(1)


def test_join_waits_for_the_task_done_of_another_process(queue: Any, peer: Peer) -> None:
    queue.put(1)
    joining = Running(queue.join)
    assert peer.do(queue.get) == 1
    assert joining.is_alive()
    peer.do(queue.task_done)
    joining.result()


def test_get_from_an_empty_queue_raises_empty_at_once_or_on_timeout(queue: Any) -> None:
    for block, timeout in [(False, None), (True, 0), (True, 1e-5), (True, UNIT)]:
        with pytest.raises(Empty):
            queue.get(block, timeout)


def test_concurrent_puts_and_gets_of_threads_lose_no_item(queue: Any) -> None:
    start = threading.Barrier(4)

    def work(worker: int) -> list[int]:
        start.wait()
        got = []
        for number in range(15):
            queue.put(100 * worker + number)
            got.append(queue.get(timeout=PATIENCE))
        return got

    got = results([Running(work, worker) for worker in range(4)], 3 * PATIENCE)
    assert sorted(item for items in got for item in items) == [
        100 * worker + n for worker in range(4) for n in range(15)
    ]
