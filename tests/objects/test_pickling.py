"""How objects get to other processes, what a fork does to them, and what is left behind: nothing."""

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

#: How each type is made, and a use of it that makes its znodes.
TYPES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "Lock": (Lock, lambda it: it.acquire() and it.release()),
    "RLock": (RLock, lambda it: it.acquire() and it.release()),
    "Semaphore": (lambda **own: Semaphore(3, **own), lambda it: it.acquire() and it.release()),
    "Semaphore(0)": (lambda **own: Semaphore(0, **own), lambda it: it.release()),
    "BoundedSemaphore": (lambda **own: BoundedSemaphore(2, **own), lambda it: it.acquire() and it.release()),
    "Event": (Event, lambda it: it.set()),
    "Condition": (Condition, lambda it: remote.notify(it)),
    "Condition(Lock)": (
        lambda client=None, **own: Condition(Lock(client=client), client=client, **own),
        lambda it: remote.wait_in(it, 1e-3),
    ),
    "Barrier": (lambda **own: Barrier(1, **own), lambda it: it.wait()),
    "Queue": (lambda **own: Queue(5, **own), lambda it: it.put(1)),
    "LifoQueue": (LifoQueue, lambda it: it.put(1)),
    "PriorityQueue": (PriorityQueue, lambda it: it.put(1)),
    "SimpleQueue": (SimpleQueue, lambda it: it.put(1)),
    "SharedLock": (SharedLock, lambda it: it.writer.acquire() and it.writer.release()),
    "SharedLock.reader": (lambda **own: SharedLock(**own).reader, lambda it: it.acquire() and it.release()),
    "SharedLock.writer": (lambda **own: SharedLock(**own).writer, lambda it: it.acquire() and it.release()),
    "Lock(layout)": (lambda **own: Lock(layout="kazoo", **own), lambda it: it.acquire() and it.release()),
}

each_type = pytest.mark.parametrize("kind", TYPES)


def used_elsewhere(obj: Any, kind: str) -> tuple[Any, ...]:
    TYPES[kind][1](obj)
    return remote.attributes(obj)


# ---- pickle


@each_type
def test_pickle_is_a_name(make_client: MakeClient, kind: str) -> None:
    """Of a client that is not the default one, and without a connection."""
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
def test_object_without_a_name_is_the_same_where_it_arrives(client: Client, peer: Peer, kind: str) -> None:
    made, use = TYPES[kind][0](), TYPES[kind][1]
    use(made)
    assert peer.do(remote.attributes, made) == remote.attributes(made)
    peer.do(remote.catch, repr, made)


def test_lock_that_is_held_travels_unlocked(client: Client, peer: Peer) -> None:
    """The pickle contains the name; the holder does not change."""
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


def test_condition_travels_with_its_lock(client: Client, peer: Peer, observer: Observer) -> None:
    condition = Condition()
    peer.start(remote.wait_in, condition)
    eventually(lambda: observer.tree(f"{condition.path}/waiters"))
    with condition:
        condition.notify()
    assert peer.result()


# ---- fork


def test_forked_child_holds_nothing_and_its_end_releases_nothing(client: Client) -> None:
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


def test_forked_child_that_uses_nothing_ends_nothing(client: Client) -> None:
    lock = Lock(name="a")
    with lock:
        with forked(os.getpid) as result:
            assert result() != repr(os.getpid())
        assert lock.held
        assert client.run(asked(client)) is not None


async def asked(client: Client) -> Any:
    from distsync._protocols.steps import Exists

    return await Exists("/")


def test_forked_child_waits_for_what_its_parent_holds(client: Client) -> None:
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


def test_fork_while_other_threads_work(client: Client) -> None:
    """Whatever locks they held at that moment, the child starts with none."""
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
def test_objects_of_a_module_meet_in_processes_started_apart(
    server: ServerProcess, namespace: str, tmp_path: Path
) -> None:
    """One runs the module as its main program, the other imports it."""
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
        first.communicate("go on\n")
    locked, put, path, name = second.stdout.split()
    assert (locked, put, name) == ("True", path, "jobs.lock")
    assert first.returncode == 0


# ---- what is left behind


@pytest.mark.slow_on("zookeeper")
@each_type
def test_object_without_a_name_goes_when_nobody_has_it(client: Client, observer: Observer, kind: str) -> None:
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
def test_object_without_a_name_is_deleted_with_its_client(client: Client, observer: Observer, kind: str) -> None:
    made, use = TYPES[kind]
    obj = made()
    use(obj)
    pickle.dumps(obj)  # from now on another process may have it
    path = obj.path
    assert observer.kazoo.exists(path)
    client.close()
    assert not observer.kazoo.exists(path)


def test_object_that_travelled_stays_when_its_maker_forgets_it(client: Client, peer: Peer, observer: Observer) -> None:
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
def test_object_with_a_name_stays(client: Client, make_client: MakeClient, observer: Observer, kind: str) -> None:
    other = make_client()
    made, use = TYPES[kind]
    obj = made(name="it", client=other)
    use(obj)
    guest = f"{obj.path}/guest"  # the server reaps a container that nothing is left in
    observer.kazoo.create(guest, makepath=True)
    del obj
    gc.collect()
    other.close()
    assert observer.kazoo.exists(guest)


# ---- interrupts


def blocking_calls() -> dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]]]:
    """How each call comes to block: what a process then calls, and how the object is tried afterwards."""

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
def test_ctrl_c_ends_the_call_leaves_nothing_and_the_object_works_on(
    client: Client, peer: Peer, observer: Observer, tmp_path: Path, call: str
) -> None:
    function, args, try_it = blocking_calls()[call]()
    peer.do(remote.session_id)
    held, waits = standing(client, observer), tmp_path / "waits"
    peer.start(remote.catch_and_tell, waits, function, *args)
    eventually(waits.exists)
    peer.signal(signal.SIGINT)
    assert peer.result() == "KeyboardInterrupt"
    eventually(lambda: standing(client, observer) == held)
    try_it()
    eventually(lambda: not standing(client, observer))


def standing(client: Client, observer: Observer) -> list[str]:
    return [path for path in observer.ephemerals(client.namespace) if "/receipts/" not in path]


def reader(**own: Any) -> Any:
    return SharedLock(**own).reader


def writer(**own: Any) -> Any:
    return SharedLock(**own).writer


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore, reader, writer])
@pytest.mark.parametrize("seed", [1, 2])
def test_interrupts_at_random_moments_leave_it_usable_and_nothing_behind(
    client: Client, peers: list[Peer], observer: Observer, kind: Callable[..., Any], seed: int
) -> None:
    kept = seed == 2 and kind in (Lock, RLock, writer)  # then most rounds are over before they can be interrupted
    lock = kind(name="s") if kept or kind is Semaphore else kind(name="s", linger=0)
    for place, peer in enumerate(peers[:2]):
        peer.start(remote.storm, lock, 10 * seed + place, 60)
    for peer in peers[:2]:
        inside, interrupted = peer.result(6 * PATIENCE)
        assert inside + interrupted >= 60
        assert interrupted > 0 or kept
    eventually(lambda: not standing(client, observer))
    assert lock.acquire(timeout=PATIENCE)
    lock.release()
    for peer in peers[:2]:
        assert peer.do(lock.acquire, True, PATIENCE)
        peer.do(lock.release)
