"""JoinableQueue between processes: items that an exited consumer has not done are redelivered."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions.pool import ExitsWhenUnpickled
from helpers.request_counts import counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls

from distsync import (
    Delivery,
    Empty,
    Full,
    JoinableQueue,
    LockLostError,
    PayloadError,
    PayloadRefusedError,
    ShutDown,
    UsageError,
)
from distsync._client.client import Client
from distsync._protocols.queues import claim_queue as joinable_protocol

MakeClient = Callable[..., Client]


@pytest.fixture
def queue(client: Client) -> JoinableQueue[Any]:
    return JoinableQueue(name="q")


def claims(queue: Any, observer: Observer) -> int:
    return len(observer.tree(f"{queue.path}/claims"))


def item_znodes(queue: Any, observer: Observer) -> list[str]:
    """Return the znodes of items, claims, keys and delayed items."""
    parts = ("/claims/", "/keys/", "/delayed/", "/i_")
    return [path for path in observer.tree(queue.path) if any(part in path for part in parts)]


# ---- claims


def test_join_returns_when_task_done_was_called_for_all_items(
    queue: Any, peers: list[Peer], observer: Observer
) -> None:
    queue.put_many(range(4))
    joining = Running(queue.join)
    assert [peer.do(queue.get) for peer in peers] == [0, 1, 2]
    assert (queue.qsize(), queue.unfinished_tasks) == (1, 4)
    for peer in peers:
        assert joining.is_alive()
        peer.do(queue.task_done)
    assert queue.get() == 3
    assert (queue.qsize(), queue.unfinished_tasks) == (0, 1)
    queue.task_done()
    joining.result()
    eventually(lambda: not item_znodes(queue, observer))
    assert peers[0].do(remote.catch, queue.task_done) == "ValueError"


def test_item_of_a_killed_worker_is_redelivered_before_all_others(
    queue: Any, peer: Peer, make_mortal: Callable[..., Peer]
) -> None:
    queue.put_many(["first", "second", "third"])
    mortal = make_mortal()
    assert mortal.do(queue.get) == "first"
    assert queue.get() == "second"
    mortal.kill()
    eventually(lambda: queue.qsize() == 2)
    again = queue.claim()
    assert (again.item, again.deliveries, again.held) == ("first", 2, True)
    assert peer.do(queue.get) == "third"
    queue.task_done("first")
    queue.task_done()
    peer.do(queue.task_done)
    queue.join()


@pytest.mark.slow_on("zookeeper")
def test_waiting_worker_gets_the_item_of_a_killed_one(queue: Any, peer: Peer, make_mortal: Callable[..., Peer]) -> None:
    mortal = make_mortal()
    queue.put("it")
    mortal.do(queue.get)
    peer.start(queue.get)
    mortal.kill()
    assert peer.result() == "it"
    peer.do(queue.task_done)
    queue.join()


def test_task_done_for_an_item_redelivered_to_another_worker_raises_and_changes_nothing(
    queue: Any, make_client: MakeClient, observer: Observer
) -> None:
    other = JoinableQueue[str](name="q", client=make_client())
    queue.put("it")
    delivery = queue.claim()
    expire(queue.client)
    assert other.get(timeout=PATIENCE) == "it"
    eventually(lambda: not delivery.held)
    with pytest.raises(LockLostError):
        queue.task_done()
    assert claims(other, observer) == 1
    assert other.unfinished_tasks == 1
    other.task_done()
    queue.join()
    eventually(lambda: not item_znodes(queue, observer))


def test_delivery_whose_claim_expired_can_be_done_while_no_other_worker_has_the_item(
    queue: Any, observer: Observer
) -> None:
    queue.put("it")
    delivery = queue.claim()
    expire(queue.client)
    eventually(lambda: not delivery.held)
    eventually(lambda: claims(queue, observer) == 0)
    delivery.done()
    queue.join()
    assert not item_znodes(queue, observer)


def test_task_done_ends_the_named_item_or_one_of_the_calling_thread_first(queue: Any) -> None:
    queue.put_many("abcd")
    assert queue.get() == "a"
    assert Running(queue.get).result() == "b"
    assert queue.get_many(5) == ["c", "d"]
    queue.task_done("d")
    queue.task_done()
    queue.task_done()
    assert [each.item for each in queue._open()] == ["b"]
    queue.task_done()
    with pytest.raises(ValueError, match="too many times"):
        queue.task_done()
    with pytest.raises(ValueError, match="has not got 'x'"):
        queue.task_done("x")


class HookedDelivery(Delivery[Any]):
    """A delivery that runs a function when one of its attributes is first read."""

    _hooks: list[Callable[[], Any]]

    def _read(self, attribute: str) -> Any:
        while self._hooks:
            self._hooks.pop()()
        return vars(self)[attribute]

    _owner = property(lambda self: self._read("_owner"))  # type: ignore[assignment]
    item = property(lambda self: self._read("item"))  # type: ignore[assignment]
    _claimed = property(lambda self: self._read("_claimed"))  # type: ignore[assignment]


def hooked(delivery: Any, hook: Callable[[], Any]) -> Any:
    """Make ``delivery`` run a function in another thread when one of its attributes is first read."""
    vars(delivery)["_hooks"] = [lambda: Running(hook).result()]
    delivery.__class__ = HookedDelivery
    return delivery


def test_get_that_finds_no_item_is_unaffected_by_a_done_in_another_thread(queue: Any) -> None:
    queue.put_many("abc")
    first, second, third = (Running(queue.claim).result() for _ in "abc")
    hooked(second, first.done)
    with pytest.raises(Empty):
        queue.get(block=False)
    assert (first.held, second.held, third.held) == (False, True, True)
    assert queue._open() == [second, third]
    second.done()
    third.done()
    queue.join()


def test_task_done_ends_the_threads_own_item_despite_a_concurrent_done(queue: Any) -> None:
    queue.put_many("abc")
    first, second = (Running(queue.claim).result() for _ in "ab")
    third = queue.claim()
    hooked(second, first.done)
    queue.task_done()
    assert (first.held, second.held, third.held) == (False, True, False)
    second.done()
    queue.join()


@pytest.mark.parametrize("named", [(), ("a",)])
def test_concurrent_task_done_or_nack_of_two_threads_end_two_deliveries(queue: Any, named: tuple[str, ...]) -> None:
    queue.put_many("aaaa")
    first, second, third, fourth = (queue.claim() for _ in range(4))
    hooked(second, first.done)
    queue.task_done(*named)
    assert queue._open() == [third, fourth]
    hooked(fourth, third.done)
    queue.nack(*named)
    assert not queue._open()
    assert (queue.qsize(), queue.unfinished_tasks) == (1, 1)
    with pytest.raises(ValueError, match="ended before"):
        second.done()


def test_with_block_ends_a_delivery_or_requeues_it_if_the_block_raises(queue: Any) -> None:
    queue.put("it")
    with pytest.raises(LookupError), queue.claim():
        raise LookupError
    with queue.claim() as delivery:
        assert (delivery.item, delivery.deliveries) == ("it", 2)
    with pytest.raises(ValueError, match="ended before"):
        delivery.done()
    queue.join()


@pytest.mark.slow_on("zookeeper")
def test_each_item_is_done_once_although_a_worker_is_killed(
    queue: Any, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    queue.put_many(range(60))
    mortal = make_mortal()
    for _ in range(3):
        mortal.do(queue.get)
    for peer in peers:
        peer.start(remote.work_off, queue)
    mortal.kill()
    queue.join()
    queue.shutdown()
    assert sorted(item for peer in peers for item in peer.result()) == [*range(60)]


# ---- changes by other programs


def test_items_written_by_other_programs_block_no_others(queue: Any, observer: Observer) -> None:
    """An item without a label is delivered; data that are no item become a dead letter."""
    queue.put_many(["a", "b", "c", "d"])
    paths = sorted(path for path in item_znodes(queue, observer) if "/i_" in path)
    wrong = (queue.client.codec.encode("theirs", queue.path), b'["x", 5]\nabc', b"[" * 100_000)
    for path, data in zip(paths, wrong, strict=False):
        observer.kazoo.set(path, data)
    with queue.claim() as delivery:
        assert (delivery.item, delivery.deliveries) == ("theirs", 1)
    for letters in (1, 2):
        with pytest.raises(PayloadRefusedError):
            queue.get(timeout=PATIENCE)
        assert queue.dead_letters.qsize() == letters
    assert queue.get(timeout=PATIENCE) == "d"
    queue.task_done()
    queue.join()


@pytest.mark.parametrize("folder", ["claims", "delayed", "keys", "clock"])
def test_deleted_child_znode_of_the_queue_is_recreated(queue: Any, observer: Observer, folder: str) -> None:
    queue.put_many(["a", "b"])
    delivery = queue.claim()
    observer.kazoo.delete(f"{queue.path}/{folder}", recursive=True)
    delivery.done()
    assert queue.put("c", key="c", delay=UNIT)
    assert [queue.get(timeout=PATIENCE) for _ in "bc"] == ["b", "c"]
    queue.task_done()
    queue.task_done()
    queue.join()


# ---- prefetched items


@pytest.fixture
def prefetching(client: Client) -> JoinableQueue[Any]:
    return JoinableQueue(name="q", prefetch=9)


def test_prefetched_items_cost_no_request(client: Client, prefetching: Any, no_guards: None) -> None:
    prefetching.put_many(range(30))
    prefetching.get()
    with counted(client) as cost:
        assert [prefetching.get() for _ in range(9)] == list(range(1, 10))
    assert cost.requests == 0
    with counted(client) as cost:
        assert prefetching.get() == 10
    assert (cost.requests, cost.round_trips) == (4 + 10 + 1, 3)
    assert prefetching.get_many(50) == list(range(11, 20))
    for _ in range(20):
        prefetching.task_done()
    assert prefetching.qsize() == 10


@pytest.mark.slow_on("zookeeper")
def test_prefetched_items_of_a_killed_process_are_redelivered_in_order(
    prefetching: Any, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    prefetching.put_many(range(12))
    mortal = make_mortal()
    assert mortal.do(prefetching.get) == 0
    assert (prefetching.qsize(), claims(prefetching, observer)) == (2, 10)
    mortal.kill()
    plain = JoinableQueue[int](name="q")
    eventually(lambda: plain.qsize() == 12)
    assert [plain.get() for _ in range(12)] == list(range(12))
    assert [each.deliveries for each in plain._open()] == [2] * 10 + [1] * 2
    for _ in range(12):
        plain.task_done()


def test_prefetched_items_that_are_not_requested_return_to_the_queue(
    prefetching: Any, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joinable_protocol, "AHEAD_S", 4 * UNIT)
    plain = JoinableQueue[int](name="q")
    prefetching.put_many(range(4))
    assert prefetching.get() == 0
    peer.start(plain.get)
    assert peer.result() == 1
    eventually(lambda: prefetching.qsize() == 2)
    delivery = prefetching.claim()
    assert (delivery.item, delivery.deliveries) == (2, 1)
    for _ in (0, 2):
        prefetching.task_done()
    peer.do(plain.task_done)
    assert prefetching.get() == 3
    prefetching.task_done()
    prefetching.join()


def test_redelivered_item_is_claimed_without_prefetching_others(prefetching: Any, observer: Observer) -> None:
    """It may be what kills its workers, and items prefetched with it must not count as delivered."""
    plain = JoinableQueue[str](name="q")
    plain.put_many("abcd")
    plain.claim().nack()
    assert (prefetching.get(), claims(prefetching, observer)) == ("a", 1)
    assert (prefetching.get(), claims(prefetching, observer)) == ("b", 4)
    prefetching.task_done("a")
    for item in "bcd":
        assert item == "b" or prefetching.get() == item
        prefetching.task_done(item)


def test_threads_of_a_process_share_prefetched_items(client: Client, prefetching: Any) -> None:
    getters = [Running(prefetching.get) for _ in range(3)]
    eventually(lambda: waiting_calls(client))
    prefetching.put_many("abc")
    assert sorted(getter.result() for getter in getters) == ["a", "b", "c"]
    for _ in "abc":
        prefetching.task_done()


def test_invalid_prefetch_is_refused_and_a_valid_one_is_pickled(client: Client) -> None:
    for wrong, error in ((-1, ValueError), (100, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="prefetch"):
            JoinableQueue(prefetch=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefetch needs max_deliveries of 0"):
        JoinableQueue(max_deliveries=1, prefetch=1)
    assert pickle.loads(pickle.dumps(JoinableQueue(name="q", prefetch=3))).prefetch == 3


# ---- redelivery, delays, dead letters and keys


def test_max_deliveries_of_the_claiming_object_applies(client: Client, make_client: MakeClient) -> None:
    strict, lax = JoinableQueue[str](max_deliveries=1, name="q"), JoinableQueue[str](name="q")
    theirs = JoinableQueue[str](name="q", client=make_client())
    theirs.put("bad")
    delivery = theirs.claim()
    claiming = Running(strict.claim)
    eventually(lambda: waiting_calls(client))
    assert lax.qsize() == 0
    delivery.nack()
    eventually(lambda: lax.dead_letters.qsize() == 1)
    theirs.put("good")
    claimed = claiming.result()
    assert (claimed.item, claimed.deliveries) == ("good", 1)
    claimed.done()


def test_nacked_item_is_redelivered_first_with_a_higher_count(queue: Any) -> None:
    queue.put_many("ab")
    for count in (1, 2, 3):
        delivery = queue.claim()
        assert (delivery.item, delivery.deliveries) == ("a", count)
        delivery.nack()
    assert queue.get_many(2) == ["a", "b"]
    queue.task_done()
    queue.task_done()


def test_item_nacked_a_hundred_times_keeps_its_position_and_its_name(queue: Any, observer: Observer) -> None:
    queue.put_many("ab")
    before = sorted(observer.kazoo.get_children(f"{queue.path}/items/0000000000"))
    for _ in range(100):
        queue.claim().nack()
    assert sorted(observer.kazoo.get_children(f"{queue.path}/items/0000000000")) == before
    delivery = queue.claim()
    assert (delivery.item, delivery.deliveries) == ("a", 101)
    delivery.done()


def test_item_that_exceeds_max_deliveries_becomes_a_dead_letter(client: Client, peer: Peer, observer: Observer) -> None:
    queue = JoinableQueue[str](0, 2, name="q")
    queue.put("bad", key="k")
    queue.put("good")
    for _ in range(2):
        assert queue.get() == "bad"
        queue.nack()
    assert queue.get() == "good"
    queue.task_done()
    queue.join()
    letters = queue.dead_letters
    assert (letters.qsize(), queue.qsize()) == (1, 0)
    dead = letters.claim()
    assert (dead.item, dead.deliveries) == ("bad", 3)
    assert queue.put("bad", key="k")
    dead.done()
    assert queue.get() == "bad"
    queue.task_done()


@pytest.mark.slow_on("zookeeper")
def test_item_whose_worker_was_killed_at_the_last_delivery_becomes_a_dead_letter(
    client: Client, make_mortal: Callable[..., Peer]
) -> None:
    queue = JoinableQueue[str](0, 1, name="q")
    queue.put("poison")
    mortal = make_mortal()
    mortal.do(queue.get)
    waiting = Running(remote.catch, queue.get)
    mortal.kill()
    queue.join()
    assert queue.dead_letters.qsize() == 1
    queue.put("next")
    assert waiting.result() == "'next'"
    queue.task_done()


@pytest.mark.slow_on("zookeeper")
def test_delayed_items_are_delivered_first_once_they_are_due(queue: Any, peer: Peer) -> None:
    queue.put("tomorrow", delay=86_400)
    queue.put("now")
    assert queue.get() == "now"
    with pytest.raises(Empty):
        queue.get_nowait()
    assert queue.qsize() == 1
    begun = time.monotonic()
    queue.put("late", delay=6 * UNIT)
    queue.put("later", delay=12 * UNIT)
    assert peer.do(queue.get) == "late"
    assert time.monotonic() - begun > 5 * UNIT  # the servers count whole milliseconds, by another clock
    assert queue.get() == "later"
    assert time.monotonic() - begun > 11 * UNIT
    queue.task_done()
    begun = time.monotonic()
    queue.nack(delay=4 * UNIT)
    delivery = queue.claim()
    assert time.monotonic() - begun > 3 * UNIT
    assert (delivery.item, delivery.deliveries) == ("later", 2)
    delivery.nack(delay=86_400)
    with pytest.raises(Empty):
        queue.get_nowait()
    assert queue.qsize() == 2
    peer.do(queue.task_done)
    queue.shutdown(immediate=True)
    queue.join()


def test_put_with_the_key_of_an_unfinished_item_is_ignored(queue: Any, peer: Peer) -> None:
    assert queue.put(1, key="a/b")
    assert not peer.do(remote.put_keyed, queue, 2, "a/b")
    assert queue.put(3, key="other")
    assert queue.get() == 1
    assert not queue.put(4, key="a/b", delay=UNIT)
    queue.task_done()
    assert peer.do(remote.put_keyed, queue, 5, "a/b")
    assert queue.get_many(5) == [3, 5]
    queue.task_done()
    queue.task_done()
    queue.join()


# ---- bounds, shutdown and arguments


def test_maxsize_counts_only_unclaimed_items(client: Client, peer: Peer) -> None:
    queue = JoinableQueue[int](2, name="q")
    queue.put(1)
    queue.put(2)
    assert queue.full()
    for wait in (False, True):
        with pytest.raises(Full):
            queue.put(3, wait, UNIT)
    peer.start(queue.put, 3)
    assert queue.get() == 1
    assert peer.result()
    assert queue.get_many(2) == [2, 3]
    for _ in range(3):
        queue.task_done()
    queue.join()


def test_blocked_put_does_not_poll_while_a_nack_exceeds_the_bound(client: Client, other: Client) -> None:
    """After the nack the queue holds more items than its bound, and no other put waits ahead of this
    one.
    """
    ours, theirs = JoinableQueue[str](1, name="q"), JoinableQueue[str](1, name="q", client=other)
    ours.put("first")
    second = Running(theirs.put, "second")
    eventually(lambda: waiting_calls(other))
    first = ours.claim()
    second.result()
    third = Running(theirs.put, "third")
    eventually(lambda: waiting_calls(other))
    first.nack()
    with counted(other) as cost:
        for _ in range(20):
            other.sync()
    assert cost.requests <= 20 + 10  # it reads the number of items and watches it
    for item in ("first", "second", "third"):
        assert ours.get() == item
        ours.task_done()
    third.result()


def test_shutdown_ends_waiting_workers_when_all_items_are_done(queue: Any, peer: Peer) -> None:
    queue.put("it")
    peer.start(remote.catch, queue.get)
    assert peer.result() == "'it'"
    waiting = Running(remote.catch, queue.get)
    queue.shutdown()
    with pytest.raises(ShutDown):
        queue.put("more")
    with pytest.raises(Empty):
        queue.get_nowait()
    peer.do(queue.task_done)
    assert waiting.result() == "ShutDown"


def test_immediate_shutdown_discards_unclaimed_items(queue: Any) -> None:
    queue.put_many(range(5))
    queue.put("later", delay=3600, key="k")
    assert queue.get() == 0
    queue.shutdown(immediate=True)
    assert queue.unfinished_tasks == 1
    queue.task_done()
    queue.join()
    with pytest.raises(ShutDown):
        queue.get()


def test_invalid_arguments_are_refused_at_the_call(client: Client, queue: Any) -> None:
    for most, error in ((-1, ValueError), ("2", TypeError), (True, TypeError)):
        with pytest.raises(error):
            JoinableQueue(0, most, name="x")
    for delay, error in ((-1, ValueError), ("2", TypeError), (float("nan"), ValueError), (1e12, ValueError)):
        with pytest.raises(error):
            queue.put(1, delay=delay)
        with pytest.raises(error):
            queue.nack(delay=delay)
    with pytest.raises(TypeError, match="key must be a str, not int"):
        queue.put(1, key=5)
    with pytest.raises(PayloadError):
        queue.put(lambda: 0)
    with pytest.raises(ValueError, match="n must be 1 or more, not 0"):
        queue.get_many(0)
    with pytest.raises(ValueError, match="non-negative"):
        queue.get(timeout=-1)
    assert queue.empty()


def test_unsigned_item_becomes_a_dead_letter(make_client: MakeClient) -> None:
    signed, plain = make_client(authkey=b"secret"), make_client()
    JoinableQueue[str](name="q", client=plain).put("unsigned")
    queue = JoinableQueue[str](name="q", client=signed)
    queue.put("signed")
    with pytest.raises(PayloadRefusedError):
        queue.get()
    assert queue.get() == "signed"
    queue.task_done()
    queue.join()
    with JoinableQueue[str](name="q", client=plain).dead_letters.claim() as letter:
        assert letter.item == "unsigned"


def test_item_whose_unpickling_calls_sys_exit_becomes_a_dead_letter(queue: Any) -> None:
    queue.put(ExitsWhenUnpickled())
    queue.put("b")
    with pytest.raises(SystemExit):
        queue.get(timeout=PATIENCE)
    assert queue.get(timeout=PATIENCE) == "b"
    assert queue.dead_letters.qsize() == 1
    queue.task_done()
    queue.join()


def test_pickled_queue_has_the_same_name_and_limits(queue: Any) -> None:
    again = pickle.loads(pickle.dumps(JoinableQueue(5, 3, name="q")))
    assert (again.name, again.maxsize, again.max_deliveries) == ("q", 5, 3)


def test_delivery_whose_done_is_refused_stays_claimed(client: Client) -> None:
    """Blocking calls are refused in distsync's own threads, before anything is sent."""
    queue = JoinableQueue[int](name="q")
    queue.put(1)
    delivery = queue.claim()
    runtime = client._runtime
    assert runtime is not None
    refuse = pytest.MonkeyPatch()
    refuse.setattr(runtime, "may_wait_here", lambda: False)
    with pytest.raises(UsageError):
        delivery.done()
    refuse.undo()
    assert delivery.held
    delivery.done()
    assert queue.qsize() == 0


def test_item_that_is_put_after_others_is_claimed_after_them_although_they_filled_a_segment(
    client: Client, make_client: MakeClient
) -> None:
    ours = JoinableQueue[Any](name="q")
    theirs = JoinableQueue[Any](name="q", client=make_client())
    theirs.put("first")  # from now on they know a segment that the next items fill
    ours.put_many(range(100))
    ours.put("second")
    theirs.put("third")
    got = list[Any]()
    while len(got) < 103:
        got += ours.get_many(50)
    for _ in got:
        ours.task_done()
    assert got == ["first", *range(100), "second", "third"]
