"""Counter and Value shared by threads, clients and processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import barriers as remote_barriers
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls
from kazoo.recipe.counter import Counter as KazooCounter

from distsync import CorruptNodeError, Counter, NameInUseError, PayloadPickleError, PayloadRefusedError, Value
from distsync._client.client import Client
from distsync._protocols.state.versioned_value import setting
from distsync._protocols.steps import SetData
from distsync._wire.codes import OpCode
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]


@pytest.fixture
def counter(client: Client) -> Counter:
    return Counter(name="c")


@pytest.fixture
def value(client: Client) -> Value[list[int]]:
    return Value([], name="v")


# ---- Counter


def test_counter_is_shared_by_processes(counter: Counter, peer: Peer) -> None:
    assert counter.value == 0
    counter += 5
    counter -= 2
    assert counter.add(10) == 13
    assert counter.add() == 14
    assert peer.do(counter.get) == 14
    peer.do(counter.set, -(10**30))
    assert counter.get(sync=True) == -(10**30)
    assert counter.add(1) == 1 - 10**30


def test_compare_and_set_of_a_counter_requires_the_expected_number(counter: Counter, peer: Peer) -> None:
    assert counter.compare_and_set(0, 3)
    assert not counter.compare_and_set(0, 4)
    assert peer.do(counter.compare_and_set, 3, 7)
    assert not counter.compare_and_set(3, 4)
    assert counter.compare_and_set(7, 8)
    assert counter.value == 8


def test_concurrent_additions_of_processes_and_threads_are_counted_once_each(
    counter: Counter, peers: list[Peer]
) -> None:
    amounts = [*range(1, 11)]
    for peer in peers:
        peer.start(remote_barriers.add_all, counter, amounts, 2)
    remote_barriers.plus(counter, 10)
    numbers = [number for peer in peers for number in peer.result(2 * PATIENCE)]
    assert counter.value == 10 + 6 * sum(amounts)
    assert len(set(numbers)) == 60


@pytest.mark.parametrize("drop", ["drop_next_reply", "drop_next_request"])
def test_add_whose_reply_or_request_is_lost_takes_effect_once(
    far: Client, proxy: Proxy, client: Client, drop: str
) -> None:
    theirs = Counter(name="c", client=far)
    theirs.add(1)
    for total in range(2, 6):
        dropped = getattr(proxy, drop)(OpCode.MULTI)
        assert theirs.add(1) == total
        assert dropped.is_set()
    assert Counter(name="c").get(sync=True) == 5


def test_retry_of_a_set_whose_reply_was_lost_does_not_overwrite_later_additions(
    far: Client, proxy: Proxy, client: Client
) -> None:
    theirs, ours = Counter(name="c", client=far), Counter(name="c")
    theirs.add(1)
    dropped = proxy.drop_next_reply(OpCode.MULTI)
    being_set = Running(theirs.set, 10)
    assert dropped.wait(PATIENCE)
    proxy.refuse()
    assert ours.add(5) == 15
    proxy.heal()
    being_set.result()
    assert theirs.add(1) == 16


def test_counter_keeps_its_number_when_a_session_expires(counter: Counter, client: Client) -> None:
    counter += 1
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    assert counter.add(1) == 2


def test_write_that_would_make_the_version_minus_1_is_sent_twice() -> None:
    """In a request, version -1 means any version."""
    assert setting("/c", b"x", 7) == (SetData("/c", b"x", 7),)
    assert setting("/c", b"x", -2) == (SetData("/c", b"x", -2), SetData("/c", b"x", -1))


def test_kazoo_counter_of_the_same_path_shares_the_number(counter: Counter, observer: Observer) -> None:
    counter += 3
    theirs = KazooCounter(observer.kazoo, counter.path)
    theirs += 4
    assert counter.get(sync=True) == 7
    assert counter.add(1) == 8
    assert theirs.value == 8


def test_counter_costs(counter: Counter, client: Client, make_client: MakeClient) -> None:
    counter += 1
    for operation in (lambda: counter.add(2), lambda: counter.get(), lambda: counter.set(3)):
        with counted(client) as cost:
            operation()
        assert cost == Cost(1, 1)
    with counted(client) as known:
        assert counter.compare_and_set(3, 4)
    with counted(client) as unknown:
        assert not counter.compare_and_set(3, 4)
    assert (known, unknown) == (Cost(1, 1), Cost(2, 1))
    Counter(name="c", client=make_client()).add(1)
    with counted(client) as contended:
        assert counter.add(1) == 6
    assert contended == Cost(3, 3)


def test_counter_raises_on_invalid_arguments_and_malformed_data(counter: Counter, observer: Observer) -> None:
    for wrong in (1.5, "1", None):
        for call in (counter.add, counter.set, Counter):
            with pytest.raises(TypeError, match="must be a whole number, not"):
                call(wrong)  # type: ignore[operator]
    with pytest.raises(TypeError, match="whole number"):
        counter -= "1"  # type: ignore[operator]
    assert counter.value == 0
    with pytest.raises(NameInUseError):
        Value(path=counter.path).get()
    observer.kazoo.set(counter.path, b"many")
    with pytest.raises(CorruptNodeError, match="did not write"):
        counter.add(1)


def test_initial_number_of_a_counter_is_used_once(client: Client, make_client: MakeClient) -> None:
    assert Counter(10, name="c").add(1) == 11
    assert Counter(20, name="c", client=make_client()).value == 11
    assert "11" in repr(Counter(name="c"))
    assert pickle.loads(pickle.dumps(Counter(10, name="c"))).value == 11


# ---- Value


@pytest.mark.parametrize("version", [-1, 2**31, -(2**31) - 1])
def test_value_is_not_set_with_a_version_that_no_value_has(client: Client, version: int) -> None:
    """In a request, version -1 means any version, so that the value was set; beyond 32 bits, it could not be sent."""
    value = Value(1, name="kept")
    with pytest.raises(ValueError, match=f"version must be one that read\\(\\) has returned, .*not {version}"):
        value.set(2, version=version)
    assert value.get() == 1


def test_value_is_shared_by_processes_and_set_only_with_a_current_version(value: Value[list[int]], peer: Peer) -> None:
    assert value.get() == []
    assert value.set([1])
    assert peer.do(value.get) == [1]
    seen = value.read()
    assert peer.do(value.set, [2])
    assert not value.set([3], version=seen.version)
    assert value.set([4], version=value.read(sync=True).version)
    assert value.get() == [4]


def test_compare_and_set_of_a_value_compares_by_equality(value: Value[list[int]]) -> None:
    assert value.compare_and_set([], [1])
    assert not value.compare_and_set([], [2])
    assert value.get() == [1]


def test_concurrent_updates_of_several_processes_are_all_applied(value: Value[list[int]], peers: list[Peer]) -> None:
    for number, peer in enumerate(peers):
        peer.start(remote_barriers.append_all, value, [10 * number + each for each in range(5)])
    for peer in peers:
        peer.result(2 * PATIENCE)
    assert sorted(value.get()) == [10 * number + each for number in range(3) for each in range(5)]


def test_update_whose_function_raises_changes_nothing(value: Value[list[int]]) -> None:
    with pytest.raises(ZeroDivisionError):
        value.update(lambda old: [1 // 0])
    assert value.get() == []
    assert value.update(lambda old: [*old, 1]) == [1]


@pytest.mark.parametrize("drop", ["drop_next_reply", "drop_next_request"])
def test_update_whose_reply_or_request_is_lost_takes_effect_once(
    far: Client, proxy: Proxy, client: Client, drop: str
) -> None:
    theirs = Value[list[int]]([], name="v", client=far)
    theirs.set([0])
    for each in range(1, 4):
        dropped = getattr(proxy, drop)(OpCode.MULTI)
        theirs.update(lambda old: [*old, each])  # noqa: B023
        assert dropped.is_set()
    assert Value(name="v").get(sync=True) == [0, 1, 2, 3]


def test_wait_for_change_returns_changes_since_the_given_version(
    value: Value[list[int]], client: Client, peer: Peer
) -> None:
    seen = value.read()
    assert value.wait_for_change(UNIT) is None
    waiting = Running(value.wait_for_change)
    eventually(lambda: waiting_calls(client))
    peer.do(value.set, [1])
    assert waiting.result().value == [1]
    assert value.wait_for_change(0, version=seen.version) == value.read()
    assert value.wait_for_change(UNIT, version=value.read().version) is None


def test_wait_for_change_returns_after_a_change_that_was_undone(value: Value[list[int]], client: Client) -> None:
    waiting = Running(value.wait_for_change)
    eventually(lambda: waiting_calls(client))
    for items in ([1], []):
        Value(name="v").set(items)
    assert waiting.result().value in ([1], [])


def test_value_costs(value: Value[list[int]], client: Client, make_client: MakeClient) -> None:
    value.update(lambda old: [1])
    for operation, requests in (
        (lambda: value.get(), 1),
        (lambda: value.set([2]), 1),
        (lambda: value.update(lambda old: [3]), 2),
    ):
        with counted(client) as cost:
            operation()
        assert cost == Cost(requests, requests)
    with counted(client) as cost:
        assert value.compare_and_set([3], [4])
    assert cost == Cost(3, 2)
    other = make_client()
    with counted(client) as cost:
        waiting = Running(value.wait_for_change)
        eventually(lambda: waiting_calls(client))
        Value(name="v", client=other).set([5])
        assert waiting.result().value == [5]
    assert cost == Cost(2, 2, 1)


def test_value_raises_on_invalid_arguments_and_malformed_data(
    value: Value[object], client: Client, observer: Observer
) -> None:
    with pytest.raises(PayloadPickleError):
        value.set(lambda: None)
    with pytest.raises(TypeError, match="version must be a whole number"):
        value.set(1, version="1")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        value.wait_for_change(1e20)
    assert value.get() == []
    observer.kazoo.set(value.path, b"x")
    with pytest.raises(PayloadRefusedError):
        value.get()


def test_unnamed_value_can_be_pickled_to_another_process(client: Client, peer: Peer) -> None:
    value = Value({"a": 1})
    value.set({"a": 2})
    assert peer.do(value.get) == {"a": 2}
    assert value.name in repr(value)
