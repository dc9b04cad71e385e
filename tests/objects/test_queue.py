"""Queue and SimpleQueue shared by threads, clients and processes: no item is lost or duplicated."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions import pool as remote_pool
from helpers.remote_functions.pool import ExitsWhenUnpickled, RaisesInterruptWhenUnpickled
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results, waiting_calls

import distsync
import distsync.asyncio as tasks
from distsync import JoinableQueue
from distsync._client import deadlines
from distsync._client.client import Client
from distsync._protocols.queues import acknowledgement, claim_layout, segments
from distsync._protocols.queues import fifo as queue_protocol
from distsync._protocols.steps import Multi, Pipeline, Wait
from distsync._wire import message_codec
from distsync._wire.codes import OpCode
from distsync.errors import CorruptNodeError, OutcomeUnknownError, PayloadError, PayloadTooLargeError
from distsync.queue import Empty, Full, LifoQueue, PriorityQueue, Queue, ShutDown, SimpleQueue
from distsync.testing import EmbeddedServer
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]


@pytest.fixture(params=[Queue, SimpleQueue])
def queue(request: pytest.FixtureRequest, client: Client) -> Any:
    return request.param(name="q")


def waiting_getters(queue: Any, observer: Observer) -> int:
    return len(observer.tree(f"{queue.path}/getters"))


# ---- first in, first out


def test_items_of_one_process_reach_another_in_fifo_order(queue: Any, peer: Peer) -> None:
    remote.put_all(queue, "us", 20)
    assert peer.do(queue.qsize) == 20
    assert peer.do(remote.get_many, queue, 20) == [("us", number) for number in range(20)]
    assert queue.empty()


def test_queue_works_with_a_server_that_has_no_multi_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ZooKeeper before 3.6, which closes the connection on this request. It is sent only once."""
    states: list[str] = []
    with EmbeddedServer() as server, distsync.connect(server.hosts, default=False) as client:
        monkeypatch.delitem(message_codec._REQUEST_READERS, OpCode.MULTI_READ)
        client.on_state(states.append)
        queue = Queue[int](name="q", client=client)
        queue.put_many(range(50))
        got: list[int] = []
        while len(got) < 50:
            got += queue.get_many(10)
        eventually(lambda: states == ["connected", "suspended", "connected"])
    assert got == list(range(50))


def test_2_producers_and_4_consumers_lose_and_duplicate_no_item(
    queue: Any, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    """And each consumer gets the items of each producer in their order."""
    count, consumers = 100, [*peers[1:], make_mortal(4.0), make_mortal(4.0)]
    for consumer in consumers:
        consumer.start(remote.get_until, queue, "end")
    peers[0].start(remote.put_all, queue, "peer", count)
    remote.put_all(queue, "us", count)
    peers[0].result(3 * PATIENCE)
    for _ in consumers:
        queue.put("end")
    got = [consumer.result(3 * PATIENCE) for consumer in consumers]
    assert Counter(item for items in got for item in items) == {
        (producer, number): 1 for producer in ("us", "peer") for number in range(count)
    }
    for items in got:
        for producer in ("us", "peer"):
            numbers = [number for name, number in items if name == producer]
            assert numbers == sorted(numbers)
    assert queue.qsize() == 0


def test_waiting_getters_are_served_in_fifo_order(queue: Any, peers: list[Peer], observer: Observer) -> None:
    for count, peer in enumerate(peers, 1):
        peer.start(queue.get)
        eventually(lambda: waiting_getters(queue, observer) == count)  # noqa: B023
    for number, peer in enumerate(peers):
        queue.put(number)
        assert peer.result() == number
    eventually(lambda: waiting_getters(queue, observer) == 0)


@pytest.mark.slow_on("zookeeper")
def test_threads_of_one_object_get_each_item_once(queue: Any) -> None:
    for number in range(100):
        queue.put(number)

    def work() -> list[int]:
        got = []
        while True:
            try:
                got.append(queue.get(timeout=UNIT))
            except Empty:
                return got

    got = results([Running(work) for _ in range(8)], 3 * PATIENCE)
    assert sorted(item for items in got for item in items) == [*range(100)]


def test_get_of_an_empty_queue_raises_empty_at_once_or_on_timeout(queue: Any, observer: Observer) -> None:
    for ask in (
        queue.get_nowait,
        lambda: queue.get(False),
        lambda: queue.get(True, 1e-5),
        lambda: queue.get(True, UNIT),
    ):
        with pytest.raises(Empty):
            ask()
    queue.put(1)
    assert queue.get(timeout=1e-5) == 1
    queue.put(2)
    assert queue.get_nowait() == 2
    eventually(lambda: waiting_getters(queue, observer) == 0)


@pytest.mark.slow_on("zookeeper")
def test_item_reaches_the_next_getter_after_others_were_killed_or_timed_out(
    queue: Any, peer: Peer, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.start(queue.get)
    eventually(lambda: waiting_getters(queue, observer) == 1)
    short = Running(remote.catch, queue.get, True, 4 * UNIT)
    peer.start(queue.get)
    assert short.result() == "Empty"
    eventually(lambda: waiting_getters(queue, observer) == 2)
    mortal.kill()
    eventually(lambda: waiting_getters(queue, observer) == 1)
    queue.put("late")
    assert peer.result() == "late"


@pytest.mark.slow_on("zookeeper")
def test_item_remains_after_its_producer_was_killed(queue: Any, make_mortal: Callable[..., Peer]) -> None:
    mortal = make_mortal()
    mortal.do(queue.put, "will")
    mortal.kill()
    assert queue.get() == "will"


def test_getter_whose_session_expires_enqueues_again(queue: Any, make_client: MakeClient, observer: Observer) -> None:
    other = make_client()
    waiting = Running(type(queue)(name="q", client=other).get)
    eventually(lambda: waiting_getters(queue, observer) == 1)
    before = list(observer.tree(f"{queue.path}/getters"))
    expire(other)
    eventually(lambda: list(observer.tree(f"{queue.path}/getters")) not in ([], before))
    third = make_client(session_timeout=400 * UNIT)  # no backup that overtakes on a busy machine
    behind = Running(type(queue)(name="q", client=third).get)
    eventually(lambda: waiting_getters(queue, observer) == 2)
    queue.put("still")
    assert waiting.result() == "still"
    assert behind.is_alive()
    queue.put("next")
    assert behind.result() == "next"


def test_put_of_an_item_that_cannot_be_sent_raises_and_adds_nothing(queue: Any) -> None:
    with pytest.raises(PayloadError):
        queue.put(threading.Lock())
    with pytest.raises(PayloadTooLargeError):
        queue.put(b"x" * 1_100_000)
    assert queue.qsize() == 0
    largest = b"x" * 900_000
    queue.put(largest)
    assert queue.get() == largest


def test_queue_can_be_sent_through_a_queue(queue: Any, client: Client, peer: Peer) -> None:
    """The answer is sent through a queue that was received with the question."""
    answers = Queue[str]()
    queue.put((answers, "question"))
    asked, item = peer.do(queue.get)
    assert (asked.path, item) == (answers.path, "question")
    peer.do(asked.put, "answer")
    assert answers.get() == "answer"


def test_item_behind_an_empty_segment_that_was_not_sealed_is_found(
    client: Client, make_client: MakeClient, observer: Observer
) -> None:
    """Another program may delete an empty segment, which is created again after its successor."""
    ours, theirs = Queue[int](name="q"), Queue[int](name="q", client=make_client())
    ours.put(1)
    assert ours.get() == 1
    observer.kazoo.create(f"{ours.path}/items/0000000001")
    theirs.put(2)
    assert ours.get_nowait() == 2


def test_queue_whose_znode_was_deleted_is_empty_and_usable(queue: Any, observer: Observer) -> None:
    queue.put(1)
    observer.wipe(queue.path)
    with pytest.raises(Empty):
        queue.get_nowait()
    queue.put(2)
    assert queue.get() == 2


# ---- bounded


def test_bound_applies_to_all_processes(client: Client, peers: list[Peer]) -> None:
    queue = Queue[int](2, name="q")
    peers[0].do(queue.put, 0)
    queue.put(1)
    assert peers[1].do(queue.full)
    assert peers[1].do(remote.catch, queue.put, 2, False) == "Full"
    with pytest.raises(Full):
        queue.put(2, timeout=UNIT)
    assert queue.qsize() == 2
    peers[2].start(queue.put, 3)
    eventually(lambda: sizes(queue) == 3)
    assert queue.qsize() == 2
    assert queue.get() == 0
    peers[2].result()
    assert [queue.get(), queue.get()] == [1, 3]
    assert queue.empty()


def sizes(queue: Any) -> int:
    """Return the number of items, including those of blocked puts."""
    return int(queue._run(queue._core.znodes.size()))


def test_number_of_returned_puts_never_exceeds_the_bound(client: Client, peers: list[Peer]) -> None:
    """A put returns only when its item is among the first ``maxsize`` ones."""
    queue = Queue[int](3, name="q")
    returned, got = 0, 0
    lock = threading.Lock()

    def put_some() -> None:
        nonlocal returned
        for number in range(20):
            queue.put(number)
            with lock:
                returned += 1
                assert returned - got <= 3 + 1  # one item may have been removed and not counted yet

    def get_some() -> list[int]:
        nonlocal got
        items = []
        for _ in range(60):
            items.append(queue.get())
            with lock:
                got += 1
        return items

    putting = [Running(put_some) for _ in range(3)]
    items = Running(get_some).result(3 * PATIENCE)
    results(putting)
    assert Counter(items) == dict.fromkeys(range(20), 3)


def test_blocked_puts_of_processes_complete_in_fifo_order(client: Client, peers: list[Peer]) -> None:
    queue = Queue[int](1, name="q")
    queue.put(0)
    for number, peer in enumerate(peers, 1):
        peer.start(queue.put, number)
        eventually(lambda: sizes(queue) == number + 1)  # noqa: B023
    for number, peer in enumerate(peers):
        assert queue.get() == number
        peer.result()
    assert queue.get() == 3


def test_put_that_times_out_while_a_place_becomes_free_raises_full_or_adds_its_item(
    client: Client, make_client: MakeClient
) -> None:
    """Whatever the moment: either Full and no item, or no error and the item."""
    full, other = Queue[int](1, name="q"), Queue[int](1, name="q", client=make_client())
    outcomes = set()
    for each in range(12):
        full.put(-1)
        getting = Running(other.get)
        try:
            full.put(each, timeout=each * 0.001)
        except Full:
            outcomes.add("full")
            assert getting.result() == -1
            assert full.qsize() == 0
        else:
            outcomes.add("put")
            assert getting.result() == -1
            assert full.get(timeout=PATIENCE) == each
    assert outcomes


def test_maxsize_can_be_changed_during_use(client: Client, peer: Peer) -> None:
    queue = Queue[int](1, name="q")
    queue.put(1)
    with pytest.raises(Full):
        queue.put_nowait(2)
    queue.maxsize = 2
    queue.put_nowait(2)
    assert queue.full()
    queue.maxsize = 0
    queue.put_nowait(3)
    assert [queue.get() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_bound_of_an_object_applies_to_its_own_puts_only(client: Client, kind: Any) -> None:
    bounded, unbounded = kind(2, name="q"), kind(name="q")
    putting = Running(bounded.put_many, range(6))
    eventually(lambda: waiting_calls(client))
    unbounded.put("theirs")
    assert unbounded.qsize() == 4
    assert unbounded.get() == 0
    eventually(lambda: sizes(unbounded) == 4 and waiting_calls(client))
    assert [unbounded.get() for _ in range(6)] == [1, 2, "theirs", 3, 4, 5]
    putting.result()
    for _ in range(7):
        unbounded.task_done()


# ---- changes by other programs


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_queue_is_usable_after_its_items_were_deleted(kind: Any, client: Client, observer: Observer) -> None:
    for deleted in ("items", "items/0000000000"):
        queue = kind(name=f"q-{len(deleted)}")
        queue.put("deleted")
        observer.kazoo.delete(f"{queue.path}/{deleted}", recursive=True)
        getting = Running(queue.get)
        assert getting.is_alive()
        queue.put("it")
        assert getting.result() == "it"
        queue.task_done()


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_partly_deleted_queue_is_recreated(kind: Any, client: Client, observer: Observer) -> None:
    queue = kind(name="q")
    queue.put("deleted")
    for part in observer.kazoo.get_children(queue.path):
        if part != "items":
            observer.kazoo.delete(f"{queue.path}/{part}", recursive=True)
    observer.kazoo.delete(f"{queue.path}/items/0000000000", recursive=True)
    queue.put("it", timeout=PATIENCE)
    assert queue.get(timeout=PATIENCE) == "it"
    queue.task_done()
    queue.join()


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_deleted_last_segment_is_recreated(
    kind: Any, client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_protocol, "SEGMENT", 2)
    monkeypatch.setattr(claim_layout, "SEGMENT", 2)
    monkeypatch.setattr(acknowledgement, "SEGMENT", 2)
    queue = kind(name="q")
    for item in "ab":
        queue.put(item)
    last = f"{queue.path}/items/0000000001"
    eventually(lambda: observer.kazoo.exists(last))
    observer.kazoo.delete(last)
    queue.put("c", timeout=PATIENCE)
    assert [queue.get(timeout=PATIENCE) for _ in "abc"] == ["a", "b", "c"]
    for _ in "abc":
        queue.task_done()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_put_that_cannot_withdraw_its_item_after_a_shutdown_raises_outcome_unknown(
    kind: Any, client: Client, make_client: MakeClient, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the put has read the shutdown, and before it withdraws its item."""
    queue, theirs = kind(1, name="q", client=make_client(hosts=proxy.hosts)), kind(1, name="q")
    queue.put("first")
    name = "retract" if kind is Queue else "retract_unclaimed"
    withdraw = getattr(queue._core, name)

    async def late(*args: Any) -> bool:
        proxy.refuse()
        await Wait(limit=UNIT)
        return bool(await withdraw(*args))

    monkeypatch.setattr(queue._core, name, late)
    putting = Running(queue.put, "second", True, 20 * UNIT)
    eventually(lambda: waiting_calls(queue.client))
    theirs.shutdown()
    with pytest.raises(OutcomeUnknownError):
        putting.result()
    monkeypatch.undo()
    proxy.heal()
    eventually(lambda: theirs.qsize() == 1)
    assert theirs.get(timeout=PATIENCE) == "first"
    theirs.task_done()
    theirs.join()
    queue.client.close()  # before the proxy


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
@pytest.mark.parametrize("counter", ["state", "puts"])
def test_put_with_a_deleted_counter_raises_corrupt_node_error(
    kind: Any, client: Client, observer: Observer, counter: str
) -> None:
    """The number of items is unknown then, and no call retries forever."""
    queue = kind(name="q")
    queue.put("a")
    observer.kazoo.delete(f"{queue.path}/{counter}")
    with pytest.raises(CorruptNodeError, match=counter):
        queue.put("b", timeout=PATIENCE)


@pytest.mark.parametrize(("kind", "counter"), [(Queue, "gets"), (JoinableQueue, "dones")])
def test_get_or_task_done_with_a_deleted_counter_raises_corrupt_node_error(
    kind: Any, client: Client, observer: Observer, counter: str
) -> None:
    queue = kind(name="q")
    queue.put("a")
    observer.kazoo.delete(f"{queue.path}/{counter}")

    def end() -> None:
        queue.get(timeout=PATIENCE)
        queue.task_done()

    with pytest.raises(CorruptNodeError, match=counter):
        end()


def test_get_many_with_a_deleted_counter_raises_corrupt_node_error(client: Client, observer: Observer) -> None:
    queue = Queue[str](name="q")
    queue.put_many("abc")
    observer.kazoo.delete(f"{queue.path}/gets")
    with pytest.raises(CorruptNodeError, match="gets"):
        queue.get_many(2, timeout=PATIENCE)
    assert len(observer.kazoo.get_children(f"{queue.path}/items/0000000000")) == 3


# ---- task_done and join


def test_join_waits_for_the_task_done_of_other_processes(client: Client, peers: list[Peer]) -> None:
    queue = Queue[Any](name="q")
    for number in range(10):
        queue.put(number)
    joining = Running(queue.join)
    peers[2].start(queue.join)
    for peer in peers[:2]:
        peer.start(remote.get_until, queue, "end", True)
    eventually(lambda: queue.unfinished_tasks == 0)
    joining.result()
    peers[2].result()
    for _ in peers[:2]:
        queue.put("end")
    got = [peer.result() for peer in peers[:2]]
    assert sorted(got[0] + got[1]) == [*range(10)]
    assert queue.unfinished_tasks == 2
    queue.task_done()
    queue.task_done()  # for the items of the peers, whose own calls are now excessive
    assert [peer.do(remote.catch, queue.task_done) for peer in peers[:2]] == ["ValueError"] * 2
    assert queue.unfinished_tasks == 0
    queue.join()
    with pytest.raises(ValueError, match="too many times"):
        queue.task_done()
    assert peers[0].do(remote.catch, queue.task_done) == "ValueError"
    queue.put(1)
    assert queue.unfinished_tasks == 1
    assert queue.get() == 1
    assert queue.qsize() == 0
    queue.task_done()
    queue.join()


def test_join_returns_when_the_last_item_is_done(client: Client, peer: Peer) -> None:
    queue = Queue[int](name="q")
    queue.put(1)
    queue.put(2)
    joining = Running(queue.join)
    for left in (2, 1):
        peer.do(queue.get)
        assert queue.unfinished_tasks == left
        assert joining.is_alive()
        peer.do(queue.task_done)
    joining.result()


# ---- shutdown


def test_shutdown_raises_in_puts_at_once_and_in_gets_of_the_empty_queue(client: Client, peers: list[Peer]) -> None:
    queue = Queue[int](name="q")
    queue.put(1)
    peers[0].do(queue.shutdown)
    assert queue.is_shutdown
    assert peers[1].do(remote.catch, queue.put, 2) == "ShutDown"
    with pytest.raises(ShutDown):
        queue.put(2, timeout=UNIT)
    assert queue.get() == 1
    with pytest.raises(ShutDown):
        queue.get()
    assert peers[2].do(remote.catch, queue.get_nowait) == "ShutDown"


@pytest.mark.parametrize("immediate", [False, True])
def test_shutdown_raises_in_waiting_getters(
    client: Client, peers: list[Peer], observer: Observer, immediate: bool
) -> None:
    queue = Queue[int](name="q")
    for peer in peers:
        peer.start(remote.catch, queue.get)
    ours = Running(remote.catch, queue.get, True, PATIENCE)
    eventually(lambda: waiting_getters(queue, observer) == 4)
    queue.shutdown(immediate)
    assert [peer.result() for peer in peers] == ["ShutDown"] * 3
    assert ours.result() == "ShutDown"
    eventually(lambda: waiting_getters(queue, observer) == 0)


@pytest.mark.parametrize("immediate", [False, True])
def test_shutdown_raises_in_blocked_puts(client: Client, peers: list[Peer], immediate: bool) -> None:
    queue = Queue[int](1, name="q")
    queue.put(0)
    for count, peer in enumerate(peers, 1):
        peer.start(remote.catch, queue.put, count)
        eventually(lambda: sizes(queue) == count + 1)  # noqa: B023
    queue.shutdown(immediate)
    assert [peer.result() for peer in peers] == ["ShutDown"] * 3
    if not immediate:
        assert queue.get() == 0
    with pytest.raises(ShutDown):
        queue.get()
    assert queue.qsize() == 0


@pytest.mark.slow_on("zookeeper")
def test_immediate_shutdown_discards_the_item_of_a_killed_blocked_put(
    make_client: MakeClient, make_mortal: Callable[..., Peer]
) -> None:
    client = make_client(session_timeout=2.0)  # shutdown waits for the killed put, up to half of that
    queue, mortal = Queue[int](1, name="q", client=client), make_mortal()
    queue.put(0)
    mortal.start(queue.put, 1)
    eventually(lambda: sizes(queue) == 2)
    mortal.kill()
    queue.shutdown(immediate=True)
    assert sizes(queue) == 0
    with pytest.raises(ShutDown):
        queue.get()


def test_immediate_shutdown_discards_items_and_lets_join_return(client: Client, peer: Peer) -> None:
    queue = Queue[int](name="q")
    for number in range(5):
        queue.put(number)
    assert peer.do(queue.get) == 0
    joining = Running(queue.join)
    queue.shutdown(immediate=True)
    assert queue.qsize() == 0
    assert peer.do(remote.catch, queue.get) == "ShutDown"
    assert joining.is_alive()
    peer.do(queue.task_done)
    joining.result()


# ---- segments


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(segments, "SEGMENT", 5)
    monkeypatch.setattr(queue_protocol, "SEGMENT", 5)
    return 5


def test_segments_keep_fifo_order_and_are_deleted_when_empty(
    queue: Any, small_segments: int, observer: Observer
) -> None:
    for number in range(23):
        queue.put(number)
        full = (number + 1) // small_segments  # a full segment gets a successor, in the background
        eventually(lambda: len(observer.kazoo.get_children(f"{queue.path}/items")) > full)  # noqa: B023
    assert [queue.get() for _ in range(20)] == [*range(20)]
    assert len(observer.kazoo.get_children(f"{queue.path}/items")) <= 2
    assert [queue.get() for _ in range(3)] == [20, 21, 22]
    for number in range(50):
        queue.put(number)
        assert queue.get() == number

    def only_the_last_segment_is_left() -> bool:
        with pytest.raises(Empty):  # a getter deletes an empty sealed segment; it may be sealed only now
            queue.get_nowait()
        return len(observer.kazoo.get_children(f"{queue.path}/items")) == 1

    eventually(only_the_last_segment_is_left)


def test_segments_filled_concurrently_lose_no_item(queue: Any, small_segments: int, make_client: MakeClient) -> None:
    others = [type(queue)(name="q", client=make_client()) for _ in range(4)]
    putting = [Running(remote.put_all, other, f"{place}", 25) for place, other in enumerate(others[:2])]
    getting = [Running(remote.get_until, other, "end") for other in others[2:]]
    results(putting)
    for _ in getting:
        queue.put("end")
    got = results(getting)
    assert Counter(got[0] + got[1]) == {(producer, number): 1 for producer in "01" for number in range(25)}
    for items in got:
        for producer in "01":
            numbers = [number for name, number in items if name == producer]
            assert numbers == sorted(numbers)


def test_bound_applies_across_segments(client: Client, small_segments: int, make_client: MakeClient) -> None:
    ours, theirs = Queue[int](3, name="q"), Queue[int](3, name="q", client=make_client())
    putting = Running(remote.put_and_watch, theirs, 30)
    assert [ours.get() for _ in range(30)] == [*range(30)]
    assert putting.result() <= 3


def test_getters_can_wait_across_sealed_segments(
    queue: Any, small_segments: int, observer: Observer, make_client: MakeClient
) -> None:
    other = type(queue)(name="q", client=make_client())
    for number in range(5):
        queue.put(number)
    eventually(lambda: len(observer.kazoo.get_children(f"{queue.path}/items")) == 2)
    assert [queue.get() for _ in range(5)] == [*range(5)]
    for number in range(12):
        waiting = Running(other.get)
        eventually(lambda: waiting_getters(queue, observer) == 1)
        queue.put(number)
        assert waiting.result() == number
        eventually(lambda: waiting_getters(queue, observer) == 0)


@pytest.mark.slow
def test_3000_items_are_returned_in_order_from_segments_of_full_size(client: Client, observer: Observer) -> None:
    queue = Queue[int](name="q")
    putting = [Running(remote.put_all, queue, f"{thread}", 750) for thread in range(4)]
    results(putting, 6 * PATIENCE)
    assert len(observer.kazoo.get_children(f"{queue.path}/items")) >= 3
    assert queue.qsize() == 3000
    got = remote.get_many(queue, 3000)
    for thread in range(4):
        assert [number for producer, number in got if producer == f"{thread}"] == [*range(750)]
    with pytest.raises(Empty):
        queue.get_nowait()
    assert len(observer.kazoo.get_children(f"{queue.path}/items")) == 1


def test_bound_of_a_put_applies_despite_an_unbounded_put_during_its_pickling(client: Client) -> None:
    free = Queue[Any](name="q")

    class Meddler:
        def __reduce__(self) -> Any:
            free.put("more")
            return int, ()

    with pytest.raises(Full):
        Queue[Any](1, name="q").put(Meddler(), block=False)
    assert free.qsize() == 1


# ---- put_many and get_many


@pytest.mark.slow_on("zookeeper")
def test_items_of_put_many_are_returned_in_order(client: Client, peers: list[Peer]) -> None:
    queue = Queue[int](name="q")
    queue.put_many([])
    queue.put_many(range(250))
    queue.put(250)
    assert queue.qsize() == 251
    got: list[int] = []
    while len(got) < 251:
        got += peers[len(got) % 3].do(queue.get_many, 70)
    assert got == [*range(251)]
    with pytest.raises(Empty):
        queue.get_many(1, block=False)
    for _ in range(251):
        queue.task_done()
    queue.join()


def test_batches_span_several_segments(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_protocol, "SEGMENT", 30)
    queue = Queue[int](name="q")
    for start in range(0, 200, 20):
        queue.put_many(range(start, start + 20))
    got: list[int] = []
    while len(got) < 200:
        got += queue.get_many(70)
    assert got == [*range(200)]
    assert len(client.run(queue._core.znodes.present())) <= 2


def test_large_items_are_put_in_several_requests(client: Client) -> None:
    queue = Queue[bytes](name="q")
    queue.put_many([b"x" * 400_000] * 5)
    assert sum(len(queue.get_many(2)) for _ in range(3)) == 5
    with pytest.raises(PayloadTooLargeError):
        queue.put_many([b"y", b"x" * 1_100_000])
    assert queue.empty()


def test_concurrent_get_many_calls_return_different_items(client: Client, peers: list[Peer]) -> None:
    queue = Queue[int](name="q")
    queue.put_many(range(300))
    for peer in peers:
        peer.start(remote.get_batches, queue, 13)
    got = [item for peer in peers for item in peer.result()]
    assert sorted(got) == [*range(300)]


def test_put_many_after_a_shutdown_puts_no_item(client: Client) -> None:
    queue = Queue[int](name="q")
    queue.shutdown()
    with pytest.raises(ShutDown) as caught:
        queue.put_many(range(5))
    assert caught.value.put == 0  # type: ignore[attr-defined]
    with pytest.raises(ShutDown):
        queue.get_many(5)


def test_put_many_without_blocking_puts_as_many_items_as_fit(client: Client) -> None:
    queue = Queue[int](2, name="q")
    with pytest.raises(Full) as caught:
        queue.put_many(range(5), block=False)
    assert caught.value.put == 2  # type: ignore[attr-defined]
    assert queue.get_many(5) == [0, 1]


def test_get_many_loses_no_item_beside_one_whose_unpickling_calls_sys_exit(client: Client) -> None:
    queue = Queue[Any](name="q")
    queue.put_many(["a", ExitsWhenUnpickled(), "b"])
    with pytest.raises(SystemExit) as raised:
        queue.get_many(3)
    assert raised.value.got == ["a", "b"]  # type: ignore[attr-defined]
    assert queue.empty()


# ---- items whose unpickling raises what is no Exception


def get_and_mark(queue: Any) -> Any:
    """Get an item of any queue; in a JoinableQueue, mark it as done."""
    if isinstance(queue, tasks.Queue):
        return asyncio.run(asyncio.wait_for(queue.get(), PATIENCE))
    item = queue.get(timeout=PATIENCE)
    if isinstance(queue, JoinableQueue):
        queue.task_done()
    return item


@pytest.mark.parametrize("kind", [Queue, LifoQueue, PriorityQueue, SimpleQueue, JoinableQueue, tasks.Queue])
def test_item_whose_unpickling_raises_keyboard_interrupt_is_removed_by_its_get(client: Client, kind: Any) -> None:
    """It was put back, as if Ctrl-C had interrupted the call, and all later gets raised it."""
    queue = kind(name="q")
    twin = getattr(queue, "twin", queue)
    twin.put(RaisesInterruptWhenUnpickled())
    twin.put("b")
    got = []
    for _ in range(2):
        try:
            got.append(get_and_mark(queue))
        except KeyboardInterrupt:
            got.append("interrupt")
    assert sorted(got) == ["b", "interrupt"]
    assert twin.empty()
    if kind is JoinableQueue:
        assert twin.dead_letters.qsize() == 1


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_get_many_loses_no_item_beside_one_that_raises_keyboard_interrupt(client: Client, kind: Any) -> None:
    queue = kind(name="q")
    queue.put_many(["a", RaisesInterruptWhenUnpickled(), "b"])
    if kind is Queue:
        with pytest.raises(KeyboardInterrupt) as raised:
            queue.get_many(3)
        assert raised.value.got == ["a", "b"]  # type: ignore[attr-defined]
    else:
        assert queue.get_many(3) == ["a", "b"]
        queue.task_done(), queue.task_done()
        assert queue.dead_letters.qsize() == 1
    assert queue.empty()


def test_items_whose_comparison_raises_keyboard_interrupt_stop_no_others(client: Client) -> None:
    queue = PriorityQueue[Any](name="q")
    for item in (remote_pool.RaisesInterruptWhenCompared(), "a", "b"):
        queue.put(item)
    got: list[Any] = []
    for _ in range(3):
        try:
            got.append(queue.get(timeout=PATIENCE))
        except KeyboardInterrupt as error:
            got.append(type(error.item).__name__)  # type: ignore[attr-defined]
    assert sorted(got) == ["RaisesInterruptWhenCompared", "a", "b"]


@pytest.mark.parametrize("kind", [Queue, LifoQueue, PriorityQueue, SimpleQueue, JoinableQueue])
def test_item_is_put_back_if_ctrl_c_interrupts_its_unpickling(
    client: Client, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_pool, "SENT", [])
    queue = kind(name="q")
    queue.put(remote_pool.InterruptsOnceWhenUnpickled())
    with pytest.raises(KeyboardInterrupt):
        get_and_mark(queue)
    assert get_and_mark(queue) == "unpickled"


def test_get_many_refuses_invalid_arguments(client: Client) -> None:
    queue = Queue[int](name="q")
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error):
            queue.get_many(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-negative"):
        queue.get_many(1, timeout=-1)


def test_get_that_timed_out_in_transit_lets_the_next_one_take_no_later_item(far: Client, proxy: Proxy) -> None:
    """The next get did not wait until the item that the late one had taken was back."""
    queue = Queue[int](name="q", client=far)
    queue.put_many(range(4))
    assert queue.get() == 0
    proxy.delay(deadlines.GRACE_S)
    with pytest.raises(Empty):
        queue.get(timeout=deadlines.NO_WAIT_S)
    proxy.heal()
    assert queue.qsize() == 3
    assert [queue.get(timeout=PATIENCE) for _ in range(3)] == [1, 2, 3]


def test_claim_that_timed_out_in_transit_lets_the_next_one_claim_no_later_item(
    far: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = JoinableQueue[int](name="q", client=far)
    queue.put_many(range(3))
    assert queue.get() == 0
    send = Pipeline.__init__

    def delay_claim(pipeline: Pipeline, *requests: Any) -> None:
        if isinstance(requests[0], Multi):
            proxy.delay(deadlines.GRACE_S)
        send(pipeline, *requests)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "__init__", delay_claim)
        with pytest.raises(Empty):
            queue.get(timeout=deadlines.NO_WAIT_S)
    proxy.heal()
    assert queue.qsize() == 2
    assert [queue.get(timeout=PATIENCE) for _ in range(2)] == [1, 2]
