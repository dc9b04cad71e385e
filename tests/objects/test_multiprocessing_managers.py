"""Objects of a Manager shared by processes, beyond what CPython's own tests check."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from functools import partial
from multiprocessing import ProcessError
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions import pool as remote_pool
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Peer, Running, waiting_calls

from distsync._client.client import Client
from distsync.errors import (
    ObjectRemovedError,
    PayloadPickleError,
    PayloadRefusedError,
    PayloadTooLargeError,
    TaskLostError,
)
from distsync.multiprocessing import Manager, get_context
from distsync.multiprocessing.managers import SyncManager

MakeClient = Callable[..., Client]


@pytest.fixture
def manager(client: Client) -> Any:
    with Manager() as made:
        yield made


# ---- values that no process can unpickle


def test_unreadable_value_of_a_dict_stops_only_what_reads_it(manager: SyncManager) -> None:
    """All methods unpickled all values: such a dict could be neither used nor cleared."""
    shared = manager.dict(good=[1], bad=remote_pool.FailsToUnpickle())
    for read in (lambda: shared["bad"], lambda: shared.pop("bad"), shared.values, shared.copy, lambda: shared == {}):
        with pytest.raises(PayloadRefusedError):
            read()
    assert (shared["good"], shared.get("none"), len(shared), "bad" in shared) == ([1], None, 2, True)
    shared["more"] = (2,)
    assert shared.keys() == list(shared) == ["good", "bad", "more"]
    assert shared.pop("good") == [1]
    assert shared.setdefault("more") == (2,)
    assert shared.popitem() == ("more", (2,))
    shared["bad"] = "good"
    assert shared == {"bad": "good"}
    shared.update(bad=remote_pool.FailsToUnpickle(), more=[3])
    del shared["bad"]
    assert shared.items() == [("more", [3])]
    shared["bad"] = remote_pool.FailsToUnpickle()
    shared.clear()
    assert shared == {}
    shared[remote_pool.FailsToUnpickle()] = "a key"
    with pytest.raises(PayloadRefusedError):
        len(shared)
    shared.clear()
    assert len(shared) == 0


def test_unreadable_item_of_a_list_stops_only_what_reads_it(manager: SyncManager) -> None:
    shared = manager.list([b"0", remote_pool.FailsToUnpickle(), [2]])
    for read in (lambda: shared[1], lambda: shared.pop(1), lambda: shared[:2], shared.sort, lambda: [3] in shared):
        with pytest.raises(PayloadRefusedError):
            read()
    assert (shared[0], shared[2], shared[2:], len(shared), b"0" in shared, shared.index(b"0")) == (
        b"0",
        [2],
        [[2]],
        3,
        True,
        0,
    )
    shared.append(3)
    shared.insert(0, None)
    shared.reverse()
    assert (shared.pop(), shared.pop(0)) == (None, 3)
    shared.remove([2])
    shared[0] = "good"
    assert shared[:] == ["good", b"0"]
    shared.extend([remote_pool.FailsToUnpickle(), b"1"])
    del shared[2]
    shared.sort(key=str)
    assert list(shared) == [b"0", b"1", "good"]
    shared += [remote_pool.FailsToUnpickle()]
    shared += [4]
    shared *= 2
    assert len(shared) == 10
    shared.clear()
    assert shared == []


def test_unreadable_attribute_and_value_can_be_replaced(manager: SyncManager) -> None:
    space, value = manager.Namespace(good=[1], bad=remote_pool.FailsToUnpickle()), manager.Value("i", 0)
    value.value = remote_pool.FailsToUnpickle()
    with pytest.raises(PayloadRefusedError):
        value.get()
    with pytest.raises(PayloadRefusedError):
        space.bad  # noqa: B018
    assert space.good == [1]
    del space.bad
    value.set([2])
    assert (str(space), value.value) == ("Namespace(good=[1])", [2])


def test_container_of_an_earlier_version_can_be_read_and_changed(manager: SyncManager) -> None:
    """It was pickled as a whole."""
    shared, items = manager.dict(), manager.list()
    for each, value in ((shared, {"a": [1], "b": b"2"}), (items, [[1], b"2"])):
        data = each._codec.encode(value, each.path)
        each.change(lambda _, data=data: data)
    assert (shared["a"], shared.pop("b"), shared) == ([1], b"2", {"a": [1]})
    assert (items[1], items.pop(0), items) == (b"2", [1], [b"2"])


# ---- concurrent changes


def test_concurrent_changes_of_different_keys_and_items_are_all_applied(
    manager: SyncManager, peers: list[Peer]
) -> None:
    keys, items = manager.dict(), manager.list()
    for number, peer in enumerate(peers[:2]):
        peer.start(remote.set_keys, keys, number, 20)
    peers[2].start(remote.append_all, items, "peer", 20)
    remote.append_all(items, "us", 20)
    remote.set_keys(keys, "us", 20)
    for peer in peers:
        peer.result()
    assert keys == {(writer, number): number for writer in (0, 1, "us") for number in range(20)}
    for writer in ("us", "peer"):
        assert [number for name, number in items if name == writer] == list(range(20))


def test_each_item_is_popped_once(manager: SyncManager, peers: list[Peer]) -> None:
    items, keys = manager.list(range(30)), manager.dict.__call__(dict.fromkeys(range(30)))
    for peer in peers:
        peer.start(remote.repeat, 10, items.pop)
    popped = [item for peer in peers for item in peer.result()]
    assert sorted(popped) == list(range(30))
    for peer in peers:
        peer.start(remote.repeat, 10, keys.popitem)
    assert sorted(key for peer in peers for key, _ in peer.result()) == list(range(30))
    assert (items == [], keys == {}) == (True, True)


def test_read_returns_what_another_process_wrote_before(manager: SyncManager, peer: Peer) -> None:
    shared = manager.dict(x=0)
    for number in range(20):
        assert shared.setdefault("x", None) == number  # reads only
        peer.do(shared.__setitem__, "x", number + 1)
        assert shared["x"] == number + 1
        if number % 2:
            with pytest.raises(KeyError):
                shared.pop("y")


# ---- dict and list

DICT: list[Callable[[Any], Any]] = [
    lambda it: it.fromkeys("ab", [1]),
    lambda d: d.update({"b": 5}, c=3),
    lambda d: d.update([("z", 1)]),
    lambda d: d.pop("a"),
    lambda d: d.pop("a", "default"),
    lambda d: d.popitem(),
    lambda d: d.setdefault("n", 4),
    lambda d: d.get("n"),
    lambda d: d.get("nope", 3),
    lambda d: d | {"q": 1},
    lambda d: {"q": 1} | d,
    lambda d: d.__ior__({"r": 1}) is d,
    lambda d: "r" in d,
    lambda d: list(d),
    lambda d: list(reversed(d)),
    lambda d: len(d),
    lambda d: bool(d),
    lambda d: list(d.items()),
    lambda d: list(d.keys()),
    lambda d: list(d.values()),
    lambda d: d == {"a": 1},
    lambda d: d != {"a": 1},
    lambda d: d.__delitem__("r"),
    lambda d: d["nope"],
    lambda d: d.__delitem__("nope"),
    lambda d: d.pop("nope"),
    lambda d: d.__setitem__([], 1),
    lambda d: d.update(1),
    lambda d: d < {},
    lambda d: hash(d),
    lambda d: dict(d),
    lambda d: {**d},
    lambda d: str(d),
    lambda d: d.copy(),
    lambda d: d.clear(),
    lambda d: d.popitem(),
    lambda d: bool(d),
]
LIST: list[Callable[[Any], Any]] = [
    lambda s: s.append(9),
    lambda s: s.extend(iter([4, 4])),
    lambda s: s.insert(0, 8),
    lambda s: s.sort(),
    lambda s: s.sort(key=lambda item: -item),
    lambda s: s.sort(reverse=True),
    lambda s: s.reverse(),
    lambda s: s[1:4],
    lambda s: s[::-1],
    lambda s: s[-1],
    lambda s: s.__setitem__(slice(0, 2), iter([7, 7, 7])),
    lambda s: s.__delitem__(slice(None, None, 2)),
    lambda s: s.index(4),
    lambda s: s.count(4),
    lambda s: s.remove(4),
    lambda s: s.pop(0),
    lambda s: s.pop(),
    lambda s: s + [1],  # noqa: RUF005
    lambda s: s * 2,
    lambda s: 2 * s,
    lambda s: s.__iadd__((1, 2)) is s,
    lambda s: s.__imul__(2) is s,
    lambda s: 1 in s,
    lambda s: list(s),
    lambda s: list(reversed(s)),
    lambda s: sum(s),
    lambda s: len(s),
    lambda s: (s == [1], s != [1], s < [99], s <= [], s > [], s >= [99]),
    lambda s: s[99],
    lambda s: s.remove(99),
    lambda s: s.index(99),
    lambda s: s["x"],
    lambda s: hash(s),
    lambda s: str(s),
    lambda s: s.copy(),
    lambda s: s.clear(),
    lambda s: s.pop(),
]


def outcome(step: Callable[[Any], Any], subject: Any) -> Any:
    try:
        return step(subject)
    except Exception as error:
        return type(error), error.args if isinstance(error, LookupError) else None


def test_managed_dict_behaves_as_a_dict(manager: SyncManager) -> None:
    ours, real = manager.dict({"a": 1}, b=2), {"a": 1, "b": 2}
    for place, step in enumerate(DICT):
        assert (place, outcome(step, ours), ours.copy()) == (place, outcome(step, real), real)


def test_managed_list_behaves_as_a_list(manager: SyncManager) -> None:
    ours, real = manager.list([3, 1, 2]), [3, 1, 2]
    for place, step in enumerate(LIST):
        assert (place, outcome(step, ours), ours[:]) == (place, outcome(step, real), real)


def test_namespace_value_and_array_are_shared_by_processes(manager: SyncManager, peer: Peer) -> None:
    space, value, array = manager.Namespace(x=1), manager.Value("i", 1), manager.Array("i", [1, 2])
    peer.do(remote.set_attribute, space, "y", [2])
    peer.do(remote.set_attribute, value, "value", "text")
    peer.do(array.__setitem__, 1, 5)
    assert (str(space), value.get(), value.value, list(array), array[1]) == (
        "Namespace(x=1, y=[2])",
        "text",
        "text",
        [1, 5],
        5,
    )
    del space.x
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        _ = space.x
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        del space.x
    with pytest.raises(TypeError):
        array[0] = "text"


def test_iteration_sees_changes_and_costs_one_round_trip(client: Client, manager: SyncManager, peer: Peer) -> None:
    items, keys = manager.list(range(100)), manager.dict(a=1, b=2)
    before = client.statistics().round_trips
    assert sum(items) == sum(range(100))
    assert client.statistics().round_trips - before == 1
    walk = iter(items)
    assert next(walk) == 0
    items[1] = "ours"
    assert next(walk) == "ours"
    walking = iter(keys)
    assert next(walking) == "a"
    keys["c"] = 3
    with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
        next(walking)


def test_nested_containers_stay_shared(manager: SyncManager, peer: Peer) -> None:
    outer = manager.dict(inner=manager.list([1]), queue=manager.Queue(), lock=manager.Lock())
    peer.do(outer["inner"].append, 2)
    peer.do(outer["queue"].put, "item")
    assert outer["inner"] == [1, 2]
    assert outer["queue"].get() == "item"
    with outer["lock"]:
        assert not peer.do(outer["lock"].acquire, False)
    assert copy.deepcopy(outer["inner"]) == [1, 2]


# ---- names and shutdown


def test_named_objects_are_found_by_name_and_outlive_their_manager(client: Client, peer: Peer) -> None:
    with Manager(name="team") as ours:
        peer.do(remote.manage, "team", "ages", "ann", 31)
        assert ours.dict({"ann": 0}, name="ages") == {"ann": 31}
        assert ours.dict(name="others") == {}
    team = Manager(name="team")
    assert team.dict(name="ages") == {"ann": 31}
    team.clear()
    assert team.dict(name="ages") == {}
    team.clear()


def test_shutdown_of_a_pickled_manager_removes_no_objects(manager: SyncManager, peer: Peer) -> None:
    there = peer.do(remote.same, manager)
    there.list([1], name="made there")
    there.shutdown()
    assert manager.list(name="made there") == [1]
    assert pickle.loads(pickle.dumps(manager)).list(name="made there") == [1]


def test_objects_are_removed_when_their_manager_shuts_down(client: Client, observer: Observer) -> None:
    manager = Manager()
    items, path = manager.list([1]), manager.path
    manager.shutdown()
    with pytest.raises(ObjectRemovedError, match="the manager that made it has shut down"):
        items.append(2)
    with pytest.raises(ObjectRemovedError):
        len(items)
    with pytest.raises(ProcessError, match="not started"):
        manager.list()
    assert not observer.tree(path)


def test_container_without_references_is_deleted(manager: SyncManager, observer: Observer) -> None:
    unreferenced, referenced = manager.list([1]), manager.list([2])
    outer, paths = manager.list([referenced]), (unreferenced.path, referenced.path)
    del unreferenced, referenced
    gc.collect()
    eventually(lambda: not observer.tree(paths[0]))
    assert outer[0] == [2]


def test_closing_a_client_removes_the_objects_of_its_managers(make_client: MakeClient, observer: Observer) -> None:
    client = make_client()
    manager = Manager(client=client)
    path = manager.list([1]).path
    client.close()
    assert not observer.tree(manager.path), path


def test_manager_refuses_what_would_need_a_server_process(client: Client) -> None:
    with pytest.raises(NotImplementedError, match="no process would host the object of 'Counter'"):
        SyncManager.register("Counter", object)
    with pytest.raises(TypeError, match=r"distsync.connect\(\)"):
        SyncManager(address=("localhost", 5000))
    with pytest.raises(NotImplementedError, match="no server"):
        SyncManager().get_server()
    with pytest.raises(ProcessError, match="not started"):
        SyncManager().dict()
    with Manager() as manager, pytest.raises(ProcessError, match="Already started"):
        manager.start()


# ---- invalid input


def test_append_of_an_item_that_cannot_be_stored_changes_nothing(manager: SyncManager) -> None:
    items = manager.list([1])
    with pytest.raises(PayloadPickleError):
        items.append(lambda: None)
    with pytest.raises(PayloadTooLargeError, match="the limit of 1000000 bytes"):
        items.append(bytes(1_000_000))
    assert items == [1]


def test_missing_authkey_is_refused_and_namespaces_are_separate(make_client: MakeClient, namespace: str) -> None:
    signed = Manager(name="m", client=make_client(authkey=b"secret"))
    signed.dict({"x": 1}, name="d")
    with pytest.raises(PayloadRefusedError, match="it is signed"):
        len(Manager(name="m", client=make_client()).dict(name="d"))
    far = Manager(name="m", client=make_client(namespace=f"{namespace}/far"))
    assert far.dict(name="d") == {}
    far.clear()
    signed.clear()


# ---- pools


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("how", ["fork", "pickle"])
def test_pool_of_a_manager_works_in_the_processes_that_get_it(manager: SyncManager, peer: Peer, how: str) -> None:
    """It could not be pickled, and a forked child that used it hung."""
    pool = manager.Pool(1)
    assert pool.map(abs, [-1, 2]) == [1, 2]
    if how == "pickle":
        assert peer.do(remote_pool.map_with, pool, abs, [-3]) == [3]
        peer.do(remote_pool.end_with, pool, "terminate")
    else:
        child = get_context("fork").Process(target=remote_pool.map_with, args=(pool, abs, [-3]))
        child.start()
        child.join()
        assert child.exitcode == 0
        child.close()
        pool.terminate()
    pool.join()
    with pytest.raises(ValueError, match="Pool not running"):
        pool.apply(abs, (1,))
    with pytest.raises(ValueError, match="Pool not running"):
        peer.do(remote_pool.map_with, pool, abs, [-4])


@pytest.mark.parametrize("closes", ["owner", "other"])
def test_closed_pool_of_a_manager_finishes_the_tasks_of_all_processes(
    manager: SyncManager, peers: list[Peer], closes: str
) -> None:
    pool, started, gate = manager.Pool(1), manager.Event(), manager.Event()
    peers[0].start(remote_pool.map_with, pool, partial(remote_pool.report_and_wait, started), [gate, gate])
    assert started.wait(PATIENCE)
    if closes == "owner":
        pool.close()
    else:
        peers[1].start(remote_pool.end_with, pool, "close")
    eventually(lambda: pool._latest._state == "CLOSE")
    with pytest.raises(ValueError, match="Pool not running"):
        pool.apply(abs, (1,))
    gate.set()
    assert peers[0].result() == [True, True]
    if closes == "other":
        peers[1].result()
    pool.join()


def test_tasks_of_other_processes_fail_when_the_manager_shuts_down(manager: SyncManager, peer: Peer) -> None:
    pool, started, gate = manager.Pool(1), manager.Event(), manager.Event()
    peer.start(remote_pool.map_with, pool, partial(remote_pool.report_and_wait, started), [gate])
    assert started.wait(PATIENCE)
    manager.shutdown()
    with pytest.raises(TaskLostError):
        peer.result()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_tasks_in_the_pool_of_a_manager_fail_when_its_process_is_killed(client: Client) -> None:
    ours, theirs = get_context("fork").Pipe()
    owner = get_context("fork").Process(target=remote_pool.own_pool, args=(theirs,))
    owner.start()
    pool, started, gate = ours.recv()
    result = pool.apply_async(remote_pool.report_and_wait, (started, gate))
    assert started.wait(PATIENCE)
    owner.kill()
    owner.join()
    owner.close()
    with pytest.raises(TaskLostError):
        result.get(PATIENCE)
    pool.join()
    gate.set()
    ours.close()
    theirs.close()


def test_proxies_of_a_pool_are_one_caller_in_a_process_and_an_ended_one_is_not_kept(manager: SyncManager) -> None:
    pool = manager.Pool(1)
    again = pickle.loads(pickle.dumps(pool))
    assert again.apply(abs, (-1,)) == 1
    assert again._latest is pool._latest
    assert list(manager._pools) == [pool._latest]
    again.terminate()
    pool.join()
    del pool, again
    gc.collect()
    assert not list(manager._pools)


def test_pool_of_a_manager_is_not_deleted_by_the_first_use_of_another_object(manager: SyncManager) -> None:
    """The process joined the generation of its objects at that use only, and deleted what was older."""
    with manager.Pool(1) as pool:
        registered = pool.owner.caller
        assert not manager.Event().is_set()
        assert pool.map(abs, [-1, 2]) == [1, 2]
        assert pool.owner.caller == registered
    pool.join()


@pytest.mark.parametrize("number", [0, -1])
def test_pool_of_a_manager_has_a_worker(manager: SyncManager, number: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        manager.Pool(number)


# ---- locks


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "BoundedSemaphore"])
def test_any_process_may_release_what_another_one_acquired(manager: SyncManager, peer: Peer, kind: str) -> None:
    """In the stdlib, the manager's process holds the lock. Here a release by another process raised NotHeldError."""
    lock = getattr(manager, kind)()
    peer.do(lock.acquire)
    assert lock.acquire(False) is False
    lock.release()
    assert lock.acquire(timeout=None) is True
    lock.release()


def test_locks_of_a_manager_take_the_timeout_of_a_proxy(manager: SyncManager) -> None:
    for lock in (manager.Lock(), manager.RLock(), manager.Condition(), manager.Semaphore()):
        assert lock.acquire(True, None) is True
        lock.release()


def test_managed_locks_and_queues_behave_as_those_of_threading_and_queue(
    client: Client, manager: SyncManager, peer: Peer
) -> None:
    queue, event, slots = manager.JoinableQueue(1), manager.Event(), manager.BoundedSemaphore(1)
    queue.put(1)
    joining = Running(queue.join)
    eventually(lambda: waiting_calls(client) == 1)
    assert peer.do(queue.get) == 1
    peer.do(queue.task_done)
    joining.result()
    peer.do(event.set)
    assert event.wait()
    with manager.RLock(), manager.Semaphore(2), slots, manager.Condition() as condition:
        assert condition
    with pytest.raises(ValueError, match="too many times"):
        slots.release()
    assert manager.Barrier(1).wait() == 0
