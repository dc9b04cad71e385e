"""Pickled, forked and interrupted objects, and what is left of them: nothing."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.forked_children import forked
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running

import distsync
from distsync._client.client import Client
from distsync.queue import LifoQueue, PriorityQueue, Queue, SimpleQueue
from distsync.recipes import SharedLock
from distsync.threading import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

MakeClient = Callable[..., Client]

#: How each type is created, and a use that creates its znodes.
TYPES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "Lock": (Lock, lambda it: it.acquire() and it.release()),
    "RLock": (RLock, lambda it: it.acquire() and it.release()),
    "Semaphore": (lambda **options: Semaphore(3, **options), lambda it: it.acquire() and it.release()),
    "Semaphore(0)": (lambda **options: Semaphore(0, **options), lambda it: it.release()),
    "BoundedSemaphore": (lambda **options: BoundedSemaphore(2, **options), lambda it: it.acquire() and it.release()),
    "Event": (Event, lambda it: it.set()),
    "Condition": (Condition, lambda it: remote.notify(it)),
    "Condition(Lock)": (
        lambda client=None, **options: Condition(Lock(client=client), client=client, **options),
        lambda it: remote.wait_in(it, 1e-3),
    ),
    "Barrier": (lambda **options: Barrier(1, **options), lambda it: it.wait()),
    "Queue": (lambda **options: Queue(5, **options), lambda it: it.put(1)),
    "LifoQueue": (LifoQueue, lambda it: it.put(1)),
    "PriorityQueue": (PriorityQueue, lambda it: it.put(1)),
    "SimpleQueue": (SimpleQueue, lambda it: it.put(1)),
    "SharedLock": (SharedLock, lambda it: it.writer.acquire() and it.writer.release()),
    "SharedLock.reader": (lambda **options: SharedLock(**options).reader, lambda it: it.acquire() and it.release()),
    "SharedLock.writer": (lambda **options: SharedLock(**options).writer, lambda it: it.acquire() and it.release()),
    "Lock(layout)": (lambda **options: Lock(layout="kazoo", **options), lambda it: it.acquire() and it.release()),
}

each_type = pytest.mark.parametrize("kind", TYPES)


def used_elsewhere(obj: Any, kind: str) -> tuple[Any, ...]:
    TYPES[kind][1](obj)
    return remote.attributes(obj)


# ---- pickle


@each_type
def test_pickled_object_has_the_same_attributes(make_client: MakeClient, kind: str) -> None:
    """Even if its client is not the default one, and not connected."""
    client = make_client()
    made = TYPES[kind][0](client=client)
    copy = pickle.loads(pickle.dumps(made))
    try:
        assert remote.attributes(copy) == remote.attributes(made)
    finally:
        copy.client.close()
        distsync._client.default_client.close_default()


@pytest.mark.slow_on("zookeeper")
@each_type
def test_unnamed_object_is_the_same_in_another_process(client: Client, peer: Peer, kind: str) -> None:
    made, use = TYPES[kind][0](), TYPES[kind][1]
    use(made)
    assert peer.do(remote.attributes, made) == remote.attributes(made)
    peer.do(remote.catch, repr, made)


def test_pickled_lock_is_not_held_by_its_receiver(client: Client, peer: Peer) -> None:
    """A pickle contains the name; the holder does not change."""
    lock = Lock()
    with lock:
        assert not peer.do(lock.acquire, False)
        assert peer.do(remote.catch, lock.release) == "NotHeldError"
        waiting = peer.start(lock.acquire)
        eventually(lambda: lock.waiters())
    assert waiting is None
    assert peer.result()
    assert not lock.acquire(blocking=False)
    peer.do(lock.release)


def test_condition_is_pickled_with_its_lock(client: Client, peer: Peer, observer: Observer) -> None:
    condition = Condition()
    peer.start(remote.wait_in, condition)
    eventually(lambda: observer.tree(f"{condition.path}/waiters"))
    with condition:
        condition.notify()
    assert peer.result()


# ---- fork


def test_forked_child_holds_nothing_and_its_exit_releases_nothing(client: Client) -> None:
    lock, rlock, slots = Lock(name="a"), RLock(name="b"), Semaphore(2, name="s")
    lock.acquire()
    rlock.acquire()
    slots.acquire()
    ours = client.session_id

    def child() -> Any:
        with client:
            held = [lock.held, rlock.held, slots.held, rlock._is_owned()]
            errors = [remote.catch(one.release) for one in (lock, rlock)]
            got = [lock.acquire(False), rlock.acquire(timeout=UNIT), slots.acquire(False), slots.acquire(False)]
            return held, errors, got, client.session_id != ours

    with forked(child) as result:
        assert result() == repr(([False] * 4, ["NotHeldError", "NotHeldError"], [False, False, True, False], True))
    assert [lock.held, rlock.held, slots.held] == [True] * 3
    assert len(lock.holders()) == len(rlock.holders()) == len(slots.holders()) == 1
    rlock.release()
    slots.release()
    lock.release()


def test_exit_of_a_forked_child_that_uses_no_object_affects_nothing(client: Client) -> None:
    lock = Lock(name="a")
    with lock:
        with forked(os.getpid) as result:
            assert result() != repr(os.getpid())
        assert lock.held
        assert client.run(asked(client)) is not None


async def asked(client: Client) -> Any:
    from distsync._protocols.steps import Exists

    return await Exists("/")


def test_forked_child_waits_for_a_lock_that_its_parent_holds(client: Client) -> None:
    lock, box = Lock(name="a"), Queue[str](name="q")
    lock.acquire()

    def child() -> Any:
        with client:
            box.put("waits")
            with lock:
                return lock.held

    with forked(child) as result:
        assert box.get() == "waits"
        eventually(lambda: lock.waiters())
        lock.release()
        assert result() == "True"
    with lock:
        assert lock.held


def test_child_forked_while_other_threads_use_a_lock_can_use_it(client: Client) -> None:
    """Whatever internal locks those threads held at the fork, the child starts with new state."""
    lock, stop = Lock(name="a"), Event(name="stop")

    def work() -> int:
        turns = 0
        while not done:
            with lock:
                turns += 1
        return turns

    done: list[int] = []
    running = [Running(work) for _ in range(3)]

    def child() -> Any:
        with client:
            with lock:
                pass
            stop.set()
            return lock.fencing_token if lock.held else "released"

    try:
        for _ in range(3):
            with forked(child) as result:
                assert result() == "'released'"
    finally:
        done.append(1)
    assert all(one.result() for one in running)
    eventually(stop.is_set)


# ---- names


MODULE = """
import sys
from distsync.threading import Lock
from distsync.queue import Queue

lock = Lock()

class Worker:
    box = Queue()

if __name__ == "__main__":
    with lock:
        Worker.box.put(lock.path)
        print("ready", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.slow_on("zookeeper")
def test_module_level_objects_are_shared_by_independently_started_processes(
    server: ServerProcess, namespace: str, tmp_path: Path
) -> None:
    """One process runs the module as its main program, the other imports it."""
    (tmp_path / "jobs.py").write_text(MODULE)
    home = str(Path(distsync.__file__).parents[1])
    environment = {
        **os.environ,
        "DISTSYNC_HOSTS": server.hosts,
        "DISTSYNC_NAMESPACE": namespace,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{home}",
    }
    ask = "import jobs; print(jobs.lock.locked(), jobs.Worker.box.get(timeout=9), jobs.lock.path, jobs.lock.name)"
    first = subprocess.Popen(
        [sys.executable, str(tmp_path / "jobs.py")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        second = subprocess.run(
            [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=6 * PATIENCE
        )
        first.communicate("continue\n")
    locked, put, path, name = second.stdout.split()
    assert (locked, put, name) == ("True", path, "jobs.lock")
    assert first.returncode == 0


# ---- clean-up


@pytest.mark.slow_on("zookeeper")
@each_type
def test_unnamed_object_is_deleted_when_it_is_collected(client: Client, observer: Observer, kind: str) -> None:
    made, use = TYPES[kind]
    obj = made()
    use(obj)
    path = obj.path
    assert observer.kazoo.exists(path)
    del obj
    gc.collect()
    eventually(lambda: not observer.kazoo.exists(path))


@pytest.mark.slow_on("zookeeper")
@each_type
def test_pickled_unnamed_object_is_deleted_when_its_client_closes(
    client: Client, observer: Observer, kind: str
) -> None:
    made, use = TYPES[kind]
    obj = made()
    use(obj)
    pickle.dumps(obj)  # from now on another process may use it
    path = obj.path
    assert observer.kazoo.exists(path)
    client.close()
    assert not observer.kazoo.exists(path)


def test_pickled_unnamed_object_is_not_deleted_when_its_creator_drops_it(
    client: Client, peer: Peer, observer: Observer
) -> None:
    box = Queue[str]()
    box.put("in it")
    path = box.path
    peer.start(box.get)
    del box
    gc.collect()
    assert peer.result() == "in it"
    assert observer.kazoo.exists(path)


@pytest.mark.slow_on("zookeeper")
@each_type
def test_named_object_is_deleted_neither_by_collection_nor_by_close(
    client: Client, make_client: MakeClient, observer: Observer, kind: str
) -> None:
    other = make_client()
    made, use = TYPES[kind]
    obj = made(name="it", client=other)
    use(obj)
    guest = f"{obj.path}/guest"  # the server deletes empty containers
    observer.kazoo.create(guest, makepath=True)
    del obj
    gc.collect()
    other.close()
    assert observer.kazoo.exists(guest)


# ---- interrupts


def blocking_calls() -> dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]]]:
    """Return, for each call that blocks, a function that prepares an object.

    It returns the call, its arguments, and a function that uses the object afterwards.
    """

    def held(kind: Callable[..., Any]) -> Any:
        lock = kind(name="i")
        lock.acquire()
        return lock.acquire, (), lock.release

    def semaphore() -> Any:
        slots = Semaphore(1, name="i")
        slots.acquire()
        return slots.acquire, (), slots.release

    def signalled() -> Any:
        given = Semaphore(0, name="i")
        return given.acquire, (), lambda: (given.release(), given.acquire(timeout=PATIENCE))

    def event() -> Any:
        flag = Event(name="i")
        return flag.wait, (), flag.set

    def condition() -> Any:
        changed = Condition(name="i")
        return remote.wait_in, (changed,), lambda: remote.notify(changed)

    def barrier() -> Any:
        gate = Barrier(2, name="i")
        return gate.wait, (), lambda: (eventually(lambda: gate.broken), gate.reset())

    def get(kind: Callable[..., Any]) -> Any:
        box = kind(name="i")
        return box.get, (), lambda: (box.put(1), box.get(timeout=PATIENCE), box.qsize() == 0 or 1 / 0)

    def put() -> Any:
        box = Queue(1, name="i")
        box.put(1)
        return box.put, (2,), lambda: (box.get() == 1, eventually(lambda: box.qsize() == 0))

    def join() -> Any:
        box = Queue(name="i")
        box.put(1)
        return box.join, (), box.task_done

    return {
        "Lock.acquire": lambda: held(Lock),
        "RLock.acquire": lambda: held(RLock),
        "Semaphore.acquire": semaphore,
        "Semaphore(0).acquire": signalled,
        "Event.wait": event,
        "Condition.wait": condition,
        "Barrier.wait": barrier,
        "Queue.get": lambda: get(Queue),
        "LifoQueue.get": lambda: get(LifoQueue),
        "PriorityQueue.get": lambda: get(PriorityQueue),
        "SimpleQueue.get": lambda: get(SimpleQueue),
        "Queue.put": put,
        "Queue.join": join,
    }


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("call", blocking_calls())
def test_keyboard_interrupt_of_a_blocking_call_leaves_no_znode_and_a_usable_object(
    client: Client, peer: Peer, observer: Observer, tmp_path: Path, call: str
) -> None:
    function, args, use = blocking_calls()[call]()
    peer.do(remote.session_id)
    held, waits = ephemerals(client, observer), tmp_path / "waits"
    peer.start(remote.catch_and_tell, waits, function, *args)
    eventually(waits.exists)
    peer.signal(signal.SIGINT)
    assert peer.result() == "KeyboardInterrupt"
    eventually(lambda: ephemerals(client, observer) == held)
    use()
    eventually(lambda: not ephemerals(client, observer))


def ephemerals(client: Client, observer: Observer) -> list[str]:
    return [
        path for path in observer.ephemerals(client.namespace) if "/receipts/" not in path and "/users/" not in path
    ]


def reader(**options: Any) -> Any:
    return SharedLock(**options).reader


def writer(**options: Any) -> Any:
    return SharedLock(**options).writer


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore, reader, writer])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_interrupts_leave_a_usable_object_and_no_znode(
    client: Client, peers: list[Peer], observer: Observer, kind: Callable[..., Any], seed: int
) -> None:
    cached = seed == 2 and kind in (Lock, RLock, writer)  # cached: most rounds end before they can be interrupted
    lock = kind(name="s") if cached or kind is Semaphore else kind(name="s", linger=0)
    for place, peer in enumerate(peers[:2]):
        peer.start(remote.storm, lock, 10 * seed + place, 60)
    for peer in peers[:2]:
        inside, interrupted = peer.result(6 * PATIENCE)
        assert inside + interrupted >= 60
        assert interrupted > 0 or cached
    eventually(lambda: not ephemerals(client, observer))
    assert lock.acquire(timeout=PATIENCE)
    lock.release()
    for peer in peers[:2]:
        assert peer.do(lock.acquire, True, PATIENCE)
        peer.do(lock.release)
