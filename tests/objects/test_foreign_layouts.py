"""Queues shared with other clients: kazoo's recipes in either layout, and a mutex as in go-zookeeper."""

from __future__ import annotations

import pickle
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, results
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock as KazooLock

from distsync import (
    BoundedSemaphore,
    ConfigurationError,
    Lock,
    LockLostError,
    MismatchError,
    OverReleaseError,
    RLock,
    Semaphore,
    SharedLock,
)
from distsync._client.client import Client
from distsync.recipes import Election

MakeClient = Callable[..., Client]

LAYOUTS = pytest.mark.parametrize("layout", ["curator", "kazoo"])
"""For semaphores too, whose foreign layouts are a lock and a pool of leases."""


@pytest.fixture
def kazoo(server: ServerProcess) -> Iterator[KazooClient]:
    made = KazooClient(server.hosts)
    made.start()
    yield made
    made.stop()
    made.close()


def foreign(kazoo: KazooClient, path: str, layout: str) -> KazooLock:
    """Return kazoo's own Lock, which also counts distsync's znode names if they differ from its own."""
    return kazoo.Lock(path, "foreign", extra_lock_patterns=["-lock-"] if layout == "curator" else [])


def queue_length(lock: Any) -> int:
    return len(lock.holders()) + len(lock.waiters())


# ---- Lock


@LAYOUTS
@pytest.mark.parametrize("kind", [Lock, RLock])
def test_distsync_and_kazoo_locks_share_the_queue_in_fifo_order(
    kind: Callable[..., Any], layout: str, client: Client, kazoo: KazooClient
) -> None:
    lock = kind(name="a", layout=layout)
    theirs = [foreign(kazoo, lock.path, layout) for _ in range(2)]
    assert theirs[0].acquire(timeout=PATIENCE)
    assert not lock.acquire(blocking=False)
    waiting = Running(acquire_and_release, lock)
    eventually(lambda: queue_length(lock) == 2)
    behind = Running(theirs[1].acquire)
    eventually(lambda: queue_length(lock) == 3)
    assert (waiting.is_alive(), behind.is_alive()) == (True, True)
    theirs[0].release()
    assert waiting.result()
    assert behind.result()
    assert not lock.acquire(timeout=UNIT)
    theirs[1].release()
    assert lock.acquire(timeout=PATIENCE)
    assert not theirs[0].acquire(blocking=False)
    lock.release()


def acquire_and_release(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


@LAYOUTS
def test_distsync_and_kazoo_locks_exclude_each_other_under_contention(
    layout: str, make_client: MakeClient, kazoo: KazooClient
) -> None:
    inside: list[int] = []
    most = [0]
    ours = [Lock(name="a", layout=layout, client=make_client()) for _ in range(2)]
    theirs = [foreign(kazoo, ours[0].path, layout) for _ in range(2)]

    def work(lock: Any) -> int:
        for _ in range(8):
            lock.acquire()
            inside.append(1)
            most[0] = max(most[0], len(inside))
            inside.pop()
            lock.release()
        return 8

    assert results([Running(work, lock) for lock in (*ours, *theirs)]) == [8] * 4
    assert most == [1]


def test_znode_names_follow_the_layout(client: Client, observer: Observer) -> None:
    guid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    forms = {"curator": rf"_c_{guid}-lock-\d{{10}}", "kazoo": r"[0-9a-f]{32}__lock__\d{10}"}
    for layout, form in forms.items():
        with Lock(name=layout, layout=layout) as _:
            (name,) = observer.kazoo.get_children(Lock(name=layout).path)
            assert re.fullmatch(form, name)
    shared = SharedLock(name="s", layout="kazoo")
    for side, form in ((shared.reader, "[0-9a-f]{32}__rlock__.{10}"), (shared.writer, "[0-9a-f]{32}__lock__.{10}")):
        with side:
            (name,) = observer.kazoo.get_children(shared.path)
            assert re.fullmatch(form, name)


class GoLock:
    """The algorithm of go-zookeeper's mutex, with kazoo's requests.

    It uses protected names, parses the number after the last dash of every child (any other child
    is an error), and watches the child with the next lower number.
    """

    def __init__(self, kazoo: KazooClient, path: str) -> None:
        self.kazoo, self.path, self.mine = kazoo, path, ""

    def acquire(self) -> bool:
        prefix = f"{self.path}/_c_{uuid.uuid4().hex}-lock-"
        self.mine = self.kazoo.create(prefix, b"", ephemeral=True, sequence=True, makepath=True)
        while True:
            numbers = {number_for_go(name): name for name in self.kazoo.get_children(self.path)}
            ahead = [number for number in numbers if number < number_for_go(self.mine)]
            if not ahead:
                return True
            changed = threading.Event()
            try:
                self.kazoo.get(f"{self.path}/{numbers[max(ahead)]}", lambda event, changed=changed: changed.set())
            except NoNodeError:
                continue
            assert changed.wait(PATIENCE)

    def release(self) -> None:
        self.kazoo.delete(self.mine)


def number_for_go(name: str) -> int:
    return int(name.split("-")[-1])


def test_go_zookeeper_mutex_shares_the_queue_in_fifo_order(client: Client, kazoo: KazooClient) -> None:
    lock, theirs = Lock(name="a"), [GoLock(kazoo, Lock(name="a").path) for _ in range(2)]
    lock.acquire()
    waiting = Running(theirs[0].acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    lock.release()
    assert waiting.result()
    assert lock.holders()[0].path == theirs[0].mine
    assert not lock.acquire(blocking=False)
    ours = Running(acquire_and_release, lock)
    eventually(lambda: queue_length(lock) == 2)
    behind = Running(theirs[1].acquire)
    eventually(lambda: queue_length(lock) == 3)
    theirs[0].release()
    assert ours.result()
    assert behind.result()
    theirs[1].release()


def test_unknown_and_mismatched_layouts_are_refused(client: Client) -> None:
    for kind in (Lock, RLock, SharedLock, Semaphore):
        with pytest.raises(ConfigurationError, match="layout='zab' .* one of .*'curator', 'kazoo'"):
            kind(name="a", layout="zab")  # type: ignore[operator]
    lock = Lock(name="a")
    with lock, pytest.raises(MismatchError, match="the layout of"):
        Lock(name="a", layout="kazoo").acquire()
    layouts = ("distsync", "curator", "kazoo")
    for used, other in zip(layouts, layouts[1:] + layouts[:1], strict=True):
        slots = Semaphore(2, name=used, layout=used)
        with slots, pytest.raises(MismatchError, match="the layout of"):
            Semaphore(2, name=used, layout=other).acquire()


# ---- SharedLock


def test_shared_lock_shares_the_queue_with_kazoo_read_and_write_locks(client: Client, kazoo: KazooClient) -> None:
    shared = SharedLock(name="a", layout="kazoo")
    reads, writes = kazoo.ReadLock(shared.path), kazoo.WriteLock(shared.path)
    with shared.reader:
        assert reads.acquire(timeout=PATIENCE)
        assert not shared.writer.locked()
        waiting = Running(writes.acquire)
        eventually(lambda: len(shared.writer.waiters()) == 1)
        behind = Running(acquire_and_release, SharedLock(name="a", layout="kazoo").reader)
        reads.release()
        assert waiting.is_alive()
    assert waiting.result()
    assert not shared.reader.acquire(timeout=UNIT)
    assert not shared.writer.acquire(blocking=False)
    writes.release()
    assert behind.result()
    with shared.writer:
        assert not reads.acquire(blocking=False)
        assert not writes.acquire(blocking=False)
        reading = Running(reads.acquire)
        eventually(lambda: len(shared.reader.waiters()) == 1)
        shared.reader.acquire()
    assert shared.reader.held  # downgraded: kazoo's reader acquires, its writer does not
    assert reading.result()
    assert not writes.acquire(blocking=False)
    shared.reader.release()
    reads.release()
    assert writes.acquire(timeout=PATIENCE)
    writes.release()


# ---- Semaphore


def test_distsync_and_kazoo_semaphores_share_the_permits(
    client: Client, make_client: MakeClient, kazoo: KazooClient
) -> None:
    ours = Semaphore(2, name="s", layout="kazoo")
    theirs = [kazoo.Semaphore(ours.path, max_leases=2) for _ in range(2)]
    assert ours.acquire()
    assert theirs[0].acquire(timeout=PATIENCE)
    assert ours.get_value() == 0
    assert len(ours.holders()) == 2
    assert not ours.acquire(blocking=False)
    assert not ours.acquire(timeout=UNIT)
    waiting = Running(theirs[1].acquire)
    eventually(lambda: len(ours.waiters()) == 1)
    behind = Running(ours.acquire)
    eventually(lambda: len(ours.waiters()) == 2)
    ours.release()
    assert waiting.result()
    assert behind.is_alive()
    theirs[0].release()
    assert behind.result()
    assert [holder.pid is None for holder in ours.holders()] == [True, False]
    theirs[1].release()
    ours.release()
    eventually(lambda: (ours.get_value(), ours.waiters()) == (2, []))


def test_semaphore_with_another_value_than_kazoo_wrote_raises_mismatch_error(
    client: Client, kazoo: KazooClient
) -> None:
    ours = Semaphore(2, name="s", layout="kazoo")
    theirs = kazoo.Semaphore(ours.path, max_leases=3)
    theirs.acquire()
    with pytest.raises(MismatchError, match="is 3, not 2"):
        ours.acquire()
    theirs.release()
    first = Semaphore(2, name="t", layout="kazoo")
    with first, pytest.raises(ValueError, match="Inconsistent max leases: 2, expected: 3"):
        kazoo.Semaphore(first.path, max_leases=3).acquire()


@LAYOUTS
def test_semaphore_in_a_foreign_layout_refuses_excess_releases_and_value_0(layout: str, client: Client) -> None:
    for kind in (Semaphore, BoundedSemaphore):
        slots = kind(2, name=kind.__name__, layout=layout)
        with pytest.raises(OverReleaseError):
            slots.release()
        with slots, pytest.raises(OverReleaseError):
            slots.release(2)
        assert slots.get_value() == 2
    with pytest.raises(ConfigurationError, match="at least 1"):
        Semaphore(0, name="s", layout=layout)


def test_znode_names_of_a_semaphore_in_curators_layout_are_those_of_curator(client: Client, observer: Observer) -> None:
    guid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    slots = Semaphore(1, name="s", layout="curator")
    with slots:
        (lease,) = observer.kazoo.get_children(f"{slots.path}/leases")
        assert re.fullmatch(rf"_c_{guid}-lease-\d{{10}}", lease)
        waiting = Running(acquire_and_release, slots)
        eventually(lambda: len(slots.waiters()) == 1)
        (turn,) = observer.kazoo.get_children(f"{slots.path}/locks")
        assert re.fullmatch(rf"_c_{guid}-lock-\d{{10}}", turn)
        assert (slots.get_value(), len(slots.holders())) == (0, 1)
    assert waiting.result()
    assert slots.get_value() == 1


@LAYOUTS
def test_permit_lost_in_a_foreign_layout_is_reported_and_can_be_acquired_again(
    layout: str, client: Client, observer: Observer
) -> None:
    losses: list[LockLostError] = []
    slots = Semaphore(1, name="s", layout=layout, on_lost=losses.append)
    slots.acquire()
    observer.kazoo.delete(slots.holders()[0].path)
    eventually(lambda: losses)
    assert not slots.held
    with pytest.raises(LockLostError):
        slots.release()
    with slots:
        assert slots.fencing_token > 0


@LAYOUTS
def test_semaphore_waiter_whose_znode_is_deleted_enqueues_again(
    layout: str, client: Client, make_client: MakeClient, observer: Observer
) -> None:
    ours = Semaphore(1, name="s", layout=layout)
    ours.acquire()
    theirs = Semaphore(1, name="s", layout=layout, client=make_client())
    waiting = Running(theirs.acquire)
    eventually(lambda: len(ours.waiters()) == 1)
    observer.kazoo.delete(ours.waiters()[0].path)
    ours.release()
    assert waiting.result()
    theirs.release()


def test_layout_is_pickled_with_the_object(client: Client, peer: Any) -> None:
    pools = (Semaphore(1, name=layout, layout=layout) for layout in ("curator", "kazoo"))
    for made in (Lock(name="a", layout="kazoo"), *pools):
        with made:
            assert peer.do(made.acquire, False) is False
        assert peer.do(made.acquire) is True
        assert made.acquire(blocking=False) is False
        peer.do(made.release)
    shared = SharedLock(name="t", layout="kazoo")
    with shared.reader:
        assert peer.do(shared.reader.acquire) is True
        peer.do(shared.reader.release)
        assert peer.do(shared.writer.acquire, False) is False


# ---- Election


def test_distsync_and_kazoo_elections_share_the_queue(client: Client, kazoo: KazooClient) -> None:
    ours = Election("ours", name="e", layout="kazoo")
    theirs = kazoo.Election(ours.path, "theirs")
    resign, leads = threading.Event(), threading.Event()
    with ours:
        running = Running(theirs.run, lambda: leads.set() or resign.wait(PATIENCE))
        eventually(lambda: len(ours.candidates()) == 2)
        assert not leads.is_set()
        assert len(theirs.contenders()) == 2
    assert leads.wait(PATIENCE)
    assert ours.leader is None
    assert len(ours.candidates()) == 1
    waiting = Running(acquire_and_release, ours)
    eventually(lambda: len(ours.candidates()) == 2)
    resign.set()
    running.result()
    assert waiting.result()


def test_znode_names_of_an_election_follow_its_layout(client: Client, observer: Observer) -> None:
    for layout, form in (("curator", "_c_.*-lock-"), ("latch", "_c_.*-latch-"), ("kazoo", "[0-9a-f]{32}__lock__")):
        election = pickle.loads(pickle.dumps(Election(name=layout, layout=layout)))
        with election:
            leader, candidate = sorted(observer.kazoo.get_children(election.path), key=len)
            assert (leader, bool(re.fullmatch(form + r"\d{10}", candidate))) == ("LEADER", True)
            with pytest.raises(MismatchError, match="the layout of"):
                Election(name=layout, layout="latch" if layout == "kazoo" else "kazoo").acquire()
    with pytest.raises(ConfigurationError, match="one of 'curator', 'kazoo', 'latch'"):
        Election(name="e", layout="zab")
