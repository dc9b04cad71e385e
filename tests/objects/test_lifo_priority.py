"""LifoQueue and PriorityQueue shared by threads, clients and processes."""

from __future__ import annotations

import heapq
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from types import ModuleType
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


@pytest.mark.parametrize(
    ("items", "odd"),
    [
        ([(1, {}), (1, {"late": 1}), (2, "b")], (1, {"late": 1})),
        (["a", 3], 3),
        (["a", 3, 4], "a"),
        ([remote.Unordered(), 1, 2], remote.Unordered()),
        ([1, 2, remote.Unordered()], remote.Unordered()),
    ],
)
def test_item_that_cannot_be_compared_is_removed_with_its_error_by_one_get(
    client: Client, peers: list[Peer], items: list[Any], odd: Any
) -> None:
    """It stopped every get of every process for good."""
    tasks = PriorityQueue[Any](name="q")
    for item in items:
        tasks.put(item)
    outcomes = [peer.do(remote.outcome, tasks) for peer in (*peers, *peers)[: len(items)]]
    assert [item for kind, item in outcomes if kind == "TypeError"] == [odd]
    assert [item for kind, item in outcomes if kind == "item"] == [item for item in items if item != odd]
    assert tasks.empty()


@pytest.mark.parametrize("error", [ValueError("no order"), SystemExit(3)])
def test_get_raises_what_the_comparison_raises_with_the_item(client: Client, error: BaseException) -> None:
    tasks = PriorityQueue[Any](name="q")
    first, second = remote.Unordered(error, "first"), remote.Unordered(error, "second")
    for item in (first, second):
        tasks.put(item)
    with pytest.raises(type(error)) as raised:
        tasks.get()
    assert str(raised.value) == str(error)
    assert raised.value.item == second  # type: ignore[attr-defined]
    assert tasks.get_many(5) == [first]
    tasks.put(first)
    tasks.put(second)
    with pytest.raises(type(error)) as raised:
        tasks.get_many(5)
    assert raised.value.item == second  # type: ignore[attr-defined]
    assert tasks.get_nowait() == first
    assert tasks.empty()


def test_items_that_cannot_be_compared_reach_concurrent_getters_once(client: Client, peers: list[Peer]) -> None:
    tasks = PriorityQueue[Any](name="q")
    items = [(number // 4, {"n": number}) for number in range(40)]
    for peer in peers:
        peer.start(remote.outcomes_until_empty, tasks)
    for item in items:
        tasks.put(item)
    got = remote.outcomes_until_empty(tasks)
    for peer in peers:
        got += peer.result()
    got += remote.outcomes_until_empty(tasks)
    assert sorted((item for _, item in got), key=lambda item: item[1]["n"]) == items
    assert {kind for kind, _ in got} <= {"item", "TypeError"}


def test_immediate_shutdown_discards_items_that_cannot_be_compared(client: Client, other: Client) -> None:
    tasks = PriorityQueue[Any](name="q")
    for item in ((1, {}), (1, {}), "a", remote.Unordered()):
        tasks.put(item)
    tasks.shutdown(immediate=True)
    assert tasks.empty()
    tasks.join()


@pytest.mark.parametrize("module", ["only_here", "helpers.timing"], ids=["module", "class"])
def test_item_of_a_class_that_one_process_cannot_import_stays_for_the_others(
    client: Client, peer: Peer, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed, before its turn, by the process that could not read it."""
    local = type("OnlyHere", (str,), {"__module__": module})
    monkeypatch.setitem(sys.modules, module, sys.modules.get(module) or ModuleType(module))
    monkeypatch.setattr(sys.modules[module], "OnlyHere", local, raising=False)
    tasks = PriorityQueue[Any](name="q")
    items = [(1, "a"), (1, local("b")), (1, "c"), (2, local("d")), (3, "e")]
    for item in items:
        tasks.put(item)
    outcomes = [peer.do(remote.outcome, tasks) for _ in range(5)]
    assert [item for kind, item in outcomes if kind == "item"] == [(1, "a"), (1, "c"), (3, "e")]
    assert [kind for kind, _ in outcomes if kind != "item"] == ["PayloadRefusedError"] * 2
    (kind, _), requests = peer.do(remote.counted_outcome, tasks, 4 * UNIT)
    assert (kind, requests < 30) == ("Empty", True)  # it waits for a change
    eventually(lambda: tasks.qsize() == 2)
    assert [tasks.get(timeout=PATIENCE) for _ in range(2)] == [(1, "b"), (2, "d")]
    assert tasks.unfinished_tasks == 5
    tasks.put((0, local("f")))
    assert peer.do(remote.outcome, tasks) == ("PayloadRefusedError", None)
    eventually(lambda: tasks.qsize() == 1)
    peer.do(tasks.shutdown, True)
    assert tasks.empty()


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
