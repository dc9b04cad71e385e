"""Synchronization objects of distsync.multiprocessing, beyond what CPython's own tests check."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls

import distsync.threading
from distsync import LockLostError, NotHeldError
from distsync._client.client import Client
from distsync.errors import NotOwnerError, ReleasedTooOftenError, UpgradeError
from distsync.multiprocessing import (
    Barrier,
    BoundedSemaphore,
    Condition,
    Election,
    Event,
    Lock,
    Manager,
    RLock,
    Semaphore,
    SharedLock,
    Value,
    get_context,
)

TOO_OFTEN = "semaphore or lock released too many times"


@pytest.fixture
def lock(client: Client) -> Any:
    return Lock(name="a")


# ---- exclusion


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_lock_excludes_threads_of_other_processes(
    kind: Callable[..., Any], client: Client, peers: list[Peer], tmp_path: Path
) -> None:
    lock = kind(name="a")
    counter = tmp_path / "counter"
    counter.write_text("0")
    for peer in peers:
        peer.start(remote.bump_in_threads, lock, counter, 5, 2)
    remote.bump_in_threads(lock, counter, 5, 2)
    for peer in peers:
        peer.result()
    assert counter.read_text() == "40"


def test_rlock_excludes_others_until_its_last_release(client: Client, peer: Peer) -> None:
    lock = RLock(name="a")
    with lock:
        with lock:
            assert peer.do(lock.acquire, False) is False
        assert peer.do(lock.acquire, False) is False
    assert peer.do(lock.acquire, False) is True
    peer.do(lock.release)


def test_locks_of_multiprocessing_and_threading_with_one_name_are_the_same(
    lock: Any, client: Client, peer: Peer
) -> None:
    twin = distsync.threading.Lock(name="a")
    with lock:
        assert peer.do(twin.acquire, False) is False
    with twin:
        assert peer.do(lock.acquire, False) is False


# ---- release by another process


def test_lock_released_by_another_process_is_free(lock: Any, peer: Peer) -> None:
    peer.do(lock.acquire)
    lock.release()
    assert lock.acquire(False) is True
    assert peer.do(lock.acquire, False) is False
    lock.release()


def test_former_holder_can_acquire_again_after_another_process_released_the_lock(lock: Any, peer: Peer) -> None:
    for block in (True, False):
        peer.do(lock.acquire)
        lock.release()
        assert peer.do(lock.acquire, block) is True
        peer.do(lock.release)
    assert lock.acquire(False) is True
    lock.release()


@pytest.mark.parametrize("kind", [Lock, Semaphore])
def test_release_by_another_process_calls_no_on_lost_and_the_end_of_the_session_does(
    kind: Callable[..., Any], client: Client, peer: Peer
) -> None:
    lost: list[LockLostError] = []
    held = kind(name="a")
    held.on_lost = lost.append
    held.acquire()
    peer.do(held.release)
    eventually(lambda: not held.held)
    held.acquire()
    expire(client)
    eventually(lambda: lost)
    assert len(lost) == 1
    assert "znode deleted" not in str(lost[0])


def test_holder_waits_for_the_release_by_another_process(lock: Any, client: Client, peer: Peer) -> None:
    for _ in range(3):
        lock.acquire()
        again = Running(lock.acquire)
        eventually(lambda: waiting_calls(client))
        peer.do(lock.release)
        assert again.result() is True
        lock.release()


def test_second_release_by_the_former_holder_raises_and_leaves_the_new_holder(lock: Any, peers: list[Peer]) -> None:
    one, two, _ = peers
    one.do(lock.acquire)
    lock.release()
    two.do(lock.acquire)
    with pytest.raises(ReleasedTooOftenError):
        one.do(lock.release)
    assert lock.acquire(False) is False
    two.do(lock.release)


def test_second_release_by_the_former_holder_wakes_no_local_waiter(
    lock: Any, client: Client, peers: list[Peer]
) -> None:
    lock.acquire()
    peers[0].do(lock.release)
    peers[1].do(lock.acquire)
    next_one = Running(lock.acquire)
    with pytest.raises(ReleasedTooOftenError):
        lock.release()
    eventually(lambda: len(lock.waiters()) == 1)
    peers[1].do(lock.release)
    assert next_one.result() is True
    lock.release()


def test_release_of_a_free_lock_raises_the_error_of_multiprocessing(lock: Any, peer: Peer) -> None:
    with pytest.raises(ValueError, match=TOO_OFTEN):
        lock.release()
    with lock:
        pass
    with pytest.raises(ReleasedTooOftenError, match=TOO_OFTEN) as caught:
        lock.release()
    assert isinstance(caught.value, NotHeldError)
    peer.do(lock.acquire)
    peer.do(lock.release)
    with pytest.raises(ValueError, match=TOO_OFTEN):
        lock.release()


def test_release_after_a_session_loss_raises_and_leaves_the_new_holder(lock: Any, client: Client, peer: Peer) -> None:
    lock.acquire()
    expire(client)
    peer.do(lock.acquire)
    eventually(lambda: not lock.held)  # a release whose reply is lost counts as one of a lock that was still held
    with pytest.raises(LockLostError):
        lock.release()
    assert peer.do(remote.held, lock)[0]
    peer.do(lock.release)


def test_release_of_an_rlock_by_another_thread_or_process_raises(client: Client, peer: Peer) -> None:
    lock = RLock(name="a")
    lock.acquire()
    assert remote.in_thread(remote.catch, lock.release) == "NotOwnerError"
    with pytest.raises(AssertionError):
        peer.do(lock.release)
    lock.release()
    with pytest.raises(AssertionError, match="not owned by thread"):
        lock.release()


# ---- permits


def test_permit_released_by_another_process_counts_once(client: Client, peer: Peer) -> None:
    slots = Semaphore(2, name="slots")
    peer.do(slots.acquire)
    assert slots.get_value() == 1
    slots.release()
    assert slots.get_value() == 2
    peer.leave()
    assert slots.get_value() == 2
    slots.release()
    assert slots.get_value() == 3


def test_permits_released_by_another_process_leave_no_znode_behind(
    client: Client, peer: Peer, observer: Observer
) -> None:
    slots = Semaphore(2, name="slots")
    for _ in range(5):
        slots.acquire()
        peer.do(slots.release)
    assert slots.get_value() == 2
    assert observer.ephemerals(slots.path) == []
    with slots:
        assert slots.get_value() == 1
    assert slots.get_value() == 2


def test_permit_released_by_another_process_is_not_reported_as_lost(client: Client, peer: Peer) -> None:
    slots = Semaphore(2, name="slots")
    slots.acquire()
    peer.do(slots.acquire)
    peer.do(slots.release)
    peer.do(slots.release)
    assert slots.get_value() == 2
    slots.release()
    assert slots.get_value() == 3


def test_bound_of_a_semaphore_applies_across_processes(client: Client, peer: Peer) -> None:
    slots = BoundedSemaphore(2, name="slots")
    peer.do(slots.acquire)
    slots.release()
    for release in (slots.release, lambda: peer.do(slots.release)):
        with pytest.raises(ValueError, match=TOO_OFTEN):
            release()
    assert slots.get_value() == 2
    assert [slots.acquire(False) for _ in range(3)] == [True, True, False]
    assert peer.do(slots.acquire, False) is False
    slots.release()
    slots.release()


@pytest.mark.slow_on("zookeeper")
def test_permits_of_a_killed_process_are_released(client: Client, make_mortal: Callable[..., Peer]) -> None:
    slots = BoundedSemaphore(2, name="slots")
    peer = make_mortal()
    peer.do(remote.repeat, 2, slots.acquire)
    assert slots.acquire(False) is False
    peer.kill()
    assert [slots.acquire(timeout=PATIENCE) for _ in range(2)] == [True, True]
    slots.release()
    slots.release()
    with pytest.raises(ValueError, match=TOO_OFTEN):
        slots.release()


@pytest.mark.slow_on("zookeeper")
def test_lock_of_a_killed_process_is_released(lock: Any, make_mortal: Callable[..., Peer]) -> None:
    peer = make_mortal()
    peer.do(lock.acquire)
    peer.kill()
    assert lock.acquire(timeout=PATIENCE) is True
    lock.release()


# ---- holders that have ended

pytest_fork = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
KINDS = [Lock, BoundedSemaphore, Semaphore, "Lock", "BoundedSemaphore", "Semaphore"]


@pytest.fixture(params=KINDS, ids=lambda kind: f"manager.{kind}" if isinstance(kind, str) else kind.__name__)
def unnamed(request: pytest.FixtureRequest, client: Client) -> Iterator[Any]:
    """A lock or semaphore without a name; a str is a method of a manager."""
    with Manager() as manager:
        yield getattr(manager, request.param)() if isinstance(request.param, str) else request.param()


def acquired_by_ended_process(obj: Any) -> Any:
    child = get_context("fork").Process(target=obj.acquire)
    child.start()
    child.join()
    assert child.exitcode == 0
    return obj


@pytest_fork
def test_what_an_ended_process_held_is_free_and_can_be_released_once(unnamed: Any) -> None:
    """In the stdlib, the parent releases what its child held. Here that raised an error, or added a permit."""
    acquired_by_ended_process(unnamed).release()
    acquired_by_ended_process(unnamed)
    acquired_by_ended_process(unnamed).release()  # the second process could acquire it: one release remains
    if "Bounded" in type(unnamed).__name__ or "Lock" in type(unnamed).__name__:
        with pytest.raises(NotHeldError):
            unnamed.release()
    assert [unnamed.acquire(False), unnamed.acquire(False)] == [True, False]
    unnamed.release()


@pytest_fork
def test_release_after_an_ended_holder_is_that_of_a_present_holder_first(unnamed: Any, peer: Peer) -> None:
    acquired_by_ended_process(unnamed)
    peer.do(unnamed.acquire)
    unnamed.release()
    assert unnamed.acquire(False) is True
    unnamed.release()


@pytest_fork
def test_ended_holder_of_a_named_lock_leaves_no_znode(lock: Any, observer: Observer) -> None:
    acquired_by_ended_process(lock)
    assert not [path for path in observer.tree(lock.path) if "ended" in path]
    with pytest.raises(ReleasedTooOftenError):
        lock.release()


@pytest_fork
def test_processes_that_end_while_they_hold_leave_at_most_as_many_znodes_as_permits(
    client: Client, observer: Observer
) -> None:
    slots = Semaphore(2)
    for _ in range(4):
        acquired_by_ended_process(slots)
    ended = sorted(path for path in observer.tree(slots.path) if "ended" in path)
    assert ended == [f"{slots.path}/ended-0", f"{slots.path}/ended-1"]


# ---- events, conditions, barriers


def test_set_followed_by_clear_wakes_waiters_in_other_processes(
    client: Client, peers: list[Peer], tmp_path: Path
) -> None:
    event = Event(name="now")
    for count, peer in enumerate(peers):
        peer.start(remote.catch_and_tell, tmp_path / str(count), event.wait)
    eventually(lambda: len(list(tmp_path.iterdir())) == len(peers))
    event.set()
    event.clear()
    for peer in peers:
        assert peer.result() == "True"
    assert not event.is_set()


def test_abort_breaks_the_barrier_for_waiters_in_other_processes(client: Client, peers: list[Peer]) -> None:
    barrier = Barrier(4, name="start")
    for peer in peers:
        peer.start(remote.catch, barrier.wait)
    eventually(lambda: barrier.n_waiting == 3)
    barrier.abort()
    assert [peer.result() for peer in peers] == ["BrokenBarrierError"] * 3
    assert peers[0].do(remote.catch, barrier.wait) == "BrokenBarrierError"
    assert barrier.broken


def test_condition_calls_raise_unless_the_calling_thread_holds_the_lock(client: Client, peer: Peer) -> None:
    changed = Condition(name="changed")
    for call in (changed.wait, changed.notify, changed.notify_all):
        with pytest.raises(AssertionError):
            call()
    with changed:
        with pytest.raises(AssertionError):
            peer.do(changed.notify)


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_notify_wakes_a_waiter_in_another_process(kind: Callable[..., Any], client: Client, peer: Peer) -> None:
    changed = Condition(kind(name="under"), name="changed")
    client.sync()
    peer.start(remote.wait_in, changed)
    eventually(lambda: repr(changed).endswith(", 1)>"))
    with changed:
        changed.notify()
    assert peer.result() is True


# ---- arguments, reprs and pickles


@pytest.mark.parametrize("make", [Lock, lambda name: Semaphore(1, name=name), lambda name: BoundedSemaphore(name=name)])
def test_timeouts_are_as_in_multiprocessing(make: Callable[..., Any], client: Client, peer: Peer) -> None:
    one = make(name="one")
    assert one.acquire(block=True, timeout=-1) is True
    assert peer.do(one.acquire, True, -5) is False
    assert peer.do(one.acquire, False, 100) is False
    assert peer.do(one.acquire, True, UNIT) is False
    assert one.acquire(timeout=0) is False
    with pytest.raises(TypeError):
        one.acquire(True, "soon")
    one.release()


def test_reprs_are_those_of_multiprocessing(client: Client, peer: Peer) -> None:
    lock, rlock = Lock(name="l"), RLock(name="r")
    client.sync()
    peer.do(remote.catch, lock.locked)
    assert (repr(lock), repr(rlock)) == ("<Lock(owner=None)>", "<RLock(None, 0)>")
    with lock, rlock, rlock:
        assert (repr(lock), repr(rlock)) == ("<Lock(owner=MainProcess)>", "<RLock(MainProcess, 2)>")
        assert remote.in_thread(repr, lock) == "<Lock(owner=SomeOtherThread)>"
        assert peer.do(repr, lock) == "<Lock(owner=SomeOtherProcess)>"
        assert peer.do(repr, rlock) == "<RLock(SomeOtherProcess, nonzero)>"
    assert repr(Semaphore(3, name="s")) == "<Semaphore(value=3)>"
    assert repr(BoundedSemaphore(3, name="b")) == "<BoundedSemaphore(value=3, maxvalue=3)>"
    assert re.fullmatch("<Event at 0x[0-9a-f]+ unset>", repr(Event(name="e")))
    assert repr(Condition(rlock, name="c")) == "<Condition(<RLock(None, 0)>, 0)>"


def test_reprs_do_not_connect_the_client(make_client: Callable[..., Client]) -> None:
    unconnected = make_client()
    assert repr(Lock(name="l", client=unconnected)) == "<Lock(owner=unknown)>"
    assert repr(RLock(name="r", client=unconnected)) == "<RLock(unknown, unknown)>"
    assert repr(BoundedSemaphore(2, name="b", client=unconnected)) == "<BoundedSemaphore(value=unknown, maxvalue=2)>"
    assert unconnected.state == "connecting"


def test_reprs_of_unnamed_objects_that_were_not_used_show_the_initial_state(make_client: Callable[..., Client]) -> None:
    unconnected = make_client()
    assert repr(Lock(client=unconnected)) == "<Lock(owner=None)>"
    assert repr(RLock(client=unconnected)) == "<RLock(None, 0)>"
    assert repr(Semaphore(2, client=unconnected)) == "<Semaphore(value=2)>"
    assert repr(Condition(RLock(client=unconnected), client=unconnected)) == "<Condition(<RLock(None, 0)>, 0)>"
    assert repr(Event(client=unconnected)).endswith(" unset>")
    assert unconnected.state == "connecting"
    shared = Lock(client=unconnected)
    pickle.dumps(shared)
    assert repr(shared) == "<Lock(owner=unknown)>"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_objects_of_each_context_can_be_pickled(method: str, client: Client) -> None:
    context = get_context(method)
    made = [
        context.Lock(),
        context.RLock(name="r"),
        context.Semaphore(2),
        context.BoundedSemaphore(2),
        context.Event(),
        context.Barrier(2),
        context.Condition(context.Lock()),
    ]
    for one in made:
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), again.path) == (type(one), one.path)
    assert pickle.loads(pickle.dumps(context)) is context


# ---- costs


def cost(client: Client, call: Callable[[], Any]) -> int:
    """Return the number of requests that a call makes."""
    before = sum(client.statistics().requests.values())
    call()
    return sum(client.statistics().requests.values()) - before


def test_release_of_a_lock_of_another_process_costs_4_requests(
    lock: Any, client: Client, peer: Peer, no_guards: None
) -> None:
    assert cost(client, lock.acquire) >= 2
    assert cost(client, lock.release) == 1
    assert (cost(client, lock.acquire), cost(client, lock.release)) == (2, 1)
    peer.do(lock.acquire)
    assert cost(client, lock.release) == 4


def test_release_of_a_permit_of_another_process_costs_4_requests_and_of_a_new_one_6(
    client: Client, peer: Peer, no_guards: None
) -> None:
    slots = Semaphore(2, name="slots")
    slots.release()
    slots.acquire()
    assert cost(client, slots.release) == 1
    peer.do(slots.acquire)
    assert cost(client, slots.release) == 4
    assert cost(client, slots.release) == 6


# ---- SharedLock


def test_shared_lock_is_an_rlock_of_its_writer(client: Client, peer: Peer) -> None:
    lock = SharedLock(name="t")
    assert isinstance(lock, type(RLock(name="r")))
    assert lock.acquire(True, None)
    with lock, lock.writer, lock.reader:
        assert (repr(lock), repr(lock.writer)) == ("<SharedLock(MainProcess, 3)>", "<SharedWriter(MainProcess, 3)>")
        assert peer.do(lock.acquire, False) is False
        assert peer.do(lock.reader.acquire, False) is False
        assert peer.do(repr, lock) == "<SharedLock(SomeOtherProcess, nonzero)>"
    lock.release()
    with lock.reader:
        assert peer.do(lock.reader.acquire, True, -1) is True
        assert (repr(lock), lock.locked()) == ("<SharedLock(None, 0)>", False)
        with pytest.raises(UpgradeError):
            lock.acquire(timeout=UNIT)
    peer.do(lock.reader.release)


def test_release_of_a_shared_lock_by_a_thread_that_does_not_hold_it_raises_assertion_error(client: Client) -> None:
    lock = SharedLock(name="t")
    for side in (lock, lock.reader, lock.writer):
        with pytest.raises(NotOwnerError):
            side.release()
        with side, pytest.raises(AssertionError):
            Running(side.release).result()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_context_makes_shared_locks(client: Client, method: str) -> None:
    lock = get_context(method).SharedLock(name="t")
    with lock, distsync.threading.SharedLock(name="t"):
        assert lock.held
    assert "SharedLock" in dir(distsync.multiprocessing)


def test_shared_lock_and_its_sides_reach_other_processes(client: Client, peer: Peer) -> None:
    lock = SharedLock()
    for each in (lock, copy.copy(lock), pickle.loads(pickle.dumps(lock)), lock.writer, lock.reader):
        assert type(pickle.loads(pickle.dumps(each))) is type(each)
        assert peer.do(each.acquire) is True
        assert lock.acquire(block=False) is False
        peer.do(each.release)


def test_wait_for_a_condition_releases_both_sides_of_a_shared_lock(client: Client, peer: Peer) -> None:
    lock = SharedLock(name="t")
    condition = Condition(lock, name="c")
    with condition, lock.reader:
        peer.start(remote.notify, condition)
        assert condition.wait(PATIENCE)
        assert (lock.held, lock.reader.held) == (True, True)
    peer.result()
    with pytest.raises(AssertionError):
        condition.notify()


def test_value_may_have_a_shared_lock(client: Client) -> None:
    lock = SharedLock(name="t")
    value = Value("i", 1, lock=lock, name="v")
    with value, lock.reader:
        value.value += 1
        assert lock.held
    assert value.value == 2


# ---- Election


def test_election_is_a_condition_with_the_errors_of_multiprocessing(client: Client, peer: Peer) -> None:
    election = Election({"port": 80}, name="e")
    assert isinstance(election, type(Condition(name="c")))
    for refused in (election.release, election.wait, election.notify):
        with pytest.raises(AssertionError):
            refused()
    assert election.acquire(True, None)
    with election:
        assert repr(election) == "<Election(MainProcess, 0)>"
        assert peer.do(election.acquire, False) is False
        assert peer.do(election.wait_for_leader, PATIENCE).data == {"port": 80}
        with pytest.raises(AssertionError):
            Running(election.release).result()
    election.release()
    assert peer.do(election.acquire, True, PATIENCE) is True
    assert election.acquire(timeout=0) is False
    assert election.find_leader(sync=True) is not None
    peer.do(election.release)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_context_makes_elections(client: Client, method: str) -> None:
    election = get_context(method).Election("here", name="e")
    with election:
        assert distsync.threading.Election(name="e").leader.data == "here"
    copied = pickle.loads(pickle.dumps(election))
    assert (type(copied), copied.name) == (type(election), "e")
