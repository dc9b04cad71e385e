"""Objects while the server cannot be reached, is restarted, or replies too late.

A proxy is between the client under test and the server; other clients connect to the server
directly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, Control, eventually
from helpers.worker_processes import Running

from distsync import LockLostError, NotHeldError
from distsync._client.background_thread import BATCH
from distsync._client.client import Client
from distsync._client.deadlines import NONBLOCKING_GRACE_S
from distsync._client.transport.reply_futures import ReplyFuture
from distsync._protocols.steps import GetData, Sync
from distsync._wire.codes import OpCode
from distsync.errors import OutcomeUnknownError
from distsync.queue import Empty, Full, LifoQueue, PriorityQueue, Queue, ShutDown, SimpleQueue
from distsync.recipes import Config, Election, Group, SharedLock
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

MakeClient = Callable[..., Client]

SESSION_S = 4.0
SHORT_SESSION_S = 2.0


def ephemerals(client: Client, observer: Observer) -> list[str]:
    return [
        path for path in observer.ephemerals(client.namespace) if "/receipts/" not in path and "/users/" not in path
    ]


# ---- a lost connection


def test_watches_of_many_held_locks_are_set_again_in_batches_and_after_the_request_for_a_proof(
    make_far: MakeClient, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were all requested before the reply that proves the session was read, and thousands of locks were lost."""
    client = make_far()
    locks = [Lock(name=f"x{number}", client=client, linger=0) for number in range(3 * BATCH)]
    for lock in locks:
        assert lock.acquire(timeout=PATIENCE)
    runtime = client._runtime
    assert runtime is not None
    watches = runtime.zk_session.watches
    runs = runtime.background_thread._runs
    eventually(lambda: len(watches) == len(locks) and all(run.is_idle for run in tuple(runs)))
    sent: list[ReplyFuture] = []
    unanswered: list[int] = []
    prepare = runtime.zk_session._prepare

    def count(reply: ReplyFuture) -> Any:
        sent.append(reply)
        unanswered.append(sum(each.outcome is None for each in sent if not isinstance(each.request, Sync)))
        return prepare(reply)

    monkeypatch.setattr(runtime.zk_session, "_prepare", count)
    proxy.cut()
    eventually(lambda: len({each.request.path for each in sent if isinstance(each.request, GetData)}) == len(locks))
    assert isinstance(sent[0].request, Sync)
    assert max(unanswered) <= BATCH
    assert all(lock.held for lock in locks)
    for lock in locks:
        lock.release()


# ---- a lost reply or request


def lock_cycle(client: Client) -> None:
    lock = Lock(name="x", client=client)
    assert lock.acquire(timeout=PATIENCE)
    lock.release()


def rlock_cycle(client: Client) -> None:
    lock = RLock(name="x", client=client)
    with lock, lock:
        assert len(lock.holders()) == 1


def semaphore_cycle(client: Client) -> None:
    slots = Semaphore(2, name="x", client=client)
    assert slots.acquire()
    assert slots.acquire(blocking=False)
    assert len(slots.holders()) == 2
    slots.release()
    slots.release()
    assert slots.get_value() == 2


def bound_cycle(client: Client) -> None:
    slots = BoundedSemaphore(2, name="x", client=client)
    with slots:
        assert slots.get_value() == 1
    with pytest.raises(ValueError, match="too many times"):
        slots.release()


def signal_cycle(client: Client) -> None:
    given = Semaphore(0, name="x", client=client)
    given.release(2)
    assert given.get_value() == 2
    assert given.acquire()
    assert given.acquire()
    assert not given.acquire(blocking=False)


def extra_permit_cycle(client: Client) -> None:
    slots = Semaphore(1, name="x", client=client)
    before = slots.get_value()
    slots.release()
    assert slots.get_value() == before + 1


def shared_cycle(client: Client) -> None:
    """Read; write, and read while writing; then continue as a reader."""
    shared = SharedLock(name="x", client=client)
    with shared.reader:
        assert len(shared.reader.holders()) == 1
    shared.writer.acquire()
    shared.reader.acquire()
    shared.writer.release()
    assert (shared.reader.held, shared.writer.held) == (True, False)
    assert len(shared.reader.holders()) == 1
    shared.reader.release()


def revoke_cycle(client: Client) -> None:
    """Revoke a lock that this client holds, and wait for the notification."""
    lock = Lock(name="x", client=client)
    with lock:
        assert lock.revoke() is False
        assert lock.revoked.wait(PATIENCE)


def kazoo_semaphore_cycle(client: Client) -> None:
    slots = Semaphore(2, name="x", client=client, layout="kazoo")
    assert slots.acquire()
    assert slots.acquire(timeout=PATIENCE)
    assert len(slots.holders()) == 2
    slots.release(2)
    assert slots.get_value() == 2


def event_cycle(client: Client) -> None:
    flag = Event(name="x", client=client)
    flag.set()
    assert flag.wait(PATIENCE)
    flag.clear()
    assert not flag.is_set()


def condition_cycle(client: Client) -> None:
    changed = Condition(name="x", client=client)
    waiting = Running(remote.wait_in, changed)
    other = Condition(name="x", client=client)

    def notified() -> bool:
        remote.notify(other)
        return not waiting.is_alive()

    eventually(notified)
    assert waiting.result()


def barrier_cycle(client: Client) -> None:
    """Let two threads pass, each with another index."""
    gate = Barrier(2, name="x", client=client)
    waiting = Running(gate.wait)
    assert {gate.wait(), waiting.result()} == {0, 1}
    assert (gate.n_waiting, gate.broken) == (0, False)


def queue_cycle(kind: Callable[..., Any], *args: int) -> Callable[[Client], None]:
    def cycle(client: Client) -> None:
        box = kind(*args, name="x", client=client)
        for number in range(3):
            box.put(number)
        assert box.qsize() == 3
        assert sorted(box.get() for _ in range(3)) == [0, 1, 2]
        with pytest.raises(Empty):
            box.get_nowait()
        if kind is not SimpleQueue:
            for _ in range(3):
                box.task_done()
            assert box.unfinished_tasks == 0
            with pytest.raises(ValueError, match="too many"):
                box.task_done()

    return cycle


def full_cycle(client: Client) -> None:
    box = Queue(1, name="x", client=client)
    box.put(0)
    with pytest.raises(Full):
        box.put(1, timeout=UNIT)
    blocked = Running(box.put, 2)
    assert box.get() == 0
    blocked.result()
    assert box.get() == 2
    assert box.qsize() == 0


def shutdown_cycle(client: Client) -> None:
    box = Queue(name=f"x{time.monotonic_ns()}", client=client)
    box.put(0)
    box.put(1)
    box.shutdown(immediate=True)
    with pytest.raises(ShutDown):
        box.get()
    assert box.unfinished_tasks == 0


CYCLES: dict[str, Callable[[Client], None]] = {
    "lock": lock_cycle,
    "rlock": rlock_cycle,
    "semaphore": semaphore_cycle,
    "bounded semaphore": bound_cycle,
    "signal": signal_cycle,
    "extra permit": extra_permit_cycle,
    "shared lock": shared_cycle,
    "revocation": revoke_cycle,
    "semaphore of kazoo": kazoo_semaphore_cycle,
    "event": event_cycle,
    "condition": condition_cycle,
    "barrier": barrier_cycle,
    "queue": queue_cycle(Queue),
    "bounded queue": queue_cycle(Queue, 5),
    "full queue": full_cycle,
    "lifo queue": queue_cycle(LifoQueue),
    "priority queue": queue_cycle(PriorityQueue),
    "simple queue": queue_cycle(SimpleQueue),
    "shutdown": shutdown_cycle,
}

REQUEST_TYPES = [
    OpCode.CREATE2,
    OpCode.CREATE_CONTAINER,
    OpCode.GET_CHILDREN2,
    OpCode.GET_DATA,
    OpCode.EXISTS,
    OpCode.MULTI,
    OpCode.DELETE,
    OpCode.SET_DATA,
]


@pytest.mark.usefixtures("nothing_kept")  # otherwise a used lock would send nothing
@pytest.mark.parametrize("warm", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("name", CYCLES)
def test_lost_reply_or_request_of_each_kind_does_not_affect_the_result(
    far: Client, proxy: Proxy, observer: Observer, name: str, warm: bool
) -> None:
    """The connection breaks at the first request of each type, before or after the server executed it."""
    cycle, drops = CYCLES[name], 0
    if warm:
        cycle(far)
    for kind in REQUEST_TYPES:
        for drop in (proxy.drop_next_reply, proxy.drop_next_request):
            dropped = drop(kind)
            cycle(far)
            drops += dropped.is_set()
            if not dropped.is_set():
                proxy.drop_next_reply(-1)  # no request has this type: nothing is dropped any more
    assert drops > 0
    eventually(lambda: not ephemerals(far, observer))


@pytest.mark.usefixtures("nothing_kept")
def test_lost_reply_of_a_create_leaves_one_contender(
    far: Client, proxy: Proxy, make_client: MakeClient, observer: Observer
) -> None:
    lock = Lock(name="a", client=far)
    assert not lock.locked()
    for _ in range(3):
        dropped = proxy.drop_next_reply(OpCode.CREATE2)
        assert lock.acquire(timeout=PATIENCE)
        assert dropped.is_set()
        assert lock.held
        assert len(observer.tree(lock.path)) == 1
        lock.release()
        assert observer.tree(lock.path) == {}
    with Lock(name="a", client=make_client()):
        assert not lock.acquire(blocking=False)


@pytest.mark.parametrize("how", ["cut", "refuse", "blackhole"])
def test_flag_changed_in_an_outage_is_seen_before_any_later_read(
    far: Client, proxy: Proxy, other: Client, how: str
) -> None:
    flag, theirs, lock = Event(name="e", client=far), Event(name="e", client=other), Lock(name="a", client=far)
    for change, is_set in ((theirs.set, True), (theirs.clear, False), (theirs.set, True)):
        assert flag.is_set() is not is_set
        getattr(proxy, how)()
        change()
        proxy.heal()
        assert not lock.locked()
        assert flag.is_set() is is_set


# ---- no server replies


#: What each call returns or raises if no server replies in time.
TIMED_CALLS: dict[str, tuple[Callable[[Client], Any], Callable[[Any], Any], str]] = {
    "Lock.acquire": (lambda client: Lock(name="a", client=client), lambda it: it.acquire(timeout=1.0), "False"),
    "RLock.acquire": (lambda client: RLock(name="r", client=client), lambda it: it.acquire(timeout=1.0), "False"),
    "Lock.acquire at once": (lambda client: Lock(name="n", client=client), lambda it: it.acquire(False), "False"),
    "Semaphore.acquire": (
        lambda client: Semaphore(1, name="s", client=client),
        lambda it: it.acquire(True, 1),
        "False",
    ),
    "signal": (lambda client: Semaphore(0, name="0", client=client), lambda it: it.acquire(True, 1), "False"),
    "Event.wait": (lambda client: Event(name="e", client=client), lambda it: it.wait(1.0), "False"),
    "Barrier.wait": (lambda client: Barrier(2, name="b", client=client), lambda it: it.wait(1.0), "BrokenBarrierError"),
    "Queue.get": (lambda client: Queue(name="g", client=client), lambda it: it.get(True, 1.0), "Empty"),
    "Queue.get at once": (lambda client: Queue(name="h", client=client), lambda it: it.get(False), "Empty"),
    "LifoQueue.get": (lambda client: LifoQueue(name="l", client=client), lambda it: it.get(True, 1.0), "Empty"),
    "Queue.put": (
        lambda client: Queue(9, name="p", client=client),
        lambda it: it.put(1, True, 1.0),
        "Full OutcomeUnknownError",
    ),
    "Queue.put at once": (
        lambda client: Queue(9, name="m", client=client),
        lambda it: it.put(1, False),
        "Full OutcomeUnknownError",
    ),
    "Condition.wait": (lambda client: held_condition(client), lambda it: it.wait(1.0), "False"),
    "Group.wait_for": (
        lambda client: Group(name="g", client=client),
        lambda it: it.wait_for(lambda: len(it) == 2, 1.0),
        "False",
    ),
    "Config.wait_for": (
        lambda client: Config(name="c", client=client),
        lambda it: it.wait_for(lambda: "x" in it, 1.0),
        "False",
    ),
    "Group.wait_for of another object": (
        lambda client: watched_group_and_queue(client),
        lambda both: both[0].wait_for(both[1].qsize, 1.0),
        "False",
    ),
    "Election.wait_for_leader": (
        lambda client: Election(name="v", client=client),
        lambda it: it.wait_for_leader(1.0),
        "None",
    ),
}


def watched_group_and_queue(client: Client) -> tuple[Group, Queue[Any]]:
    group = Group(name="o", client=client)
    assert not group.members
    return group, Queue(name="o", client=client)


def held_condition(client: Client) -> Condition:
    """Return an acquired condition of a Lock, which any thread may release."""
    made = Condition(Lock(name="k", client=client), name="k", client=client)
    made.acquire()
    return made


def timed(call: Callable[[Any], Any], obj: Any) -> tuple[str, float]:
    began = time.monotonic()
    answer = remote.catch(call, obj)
    return answer, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("how", ["refuse", "blackhole"])
@pytest.mark.parametrize("warm", [False, True], ids=["new", "used"])
def test_timeouts_are_observed_while_no_server_replies(
    far: Client, proxy: Proxy, observer: Observer, how: str, warm: bool
) -> None:
    """A call takes at most half a second longer than its timeout. A non-blocking call sends its
    request all the same.
    """
    objects = {name: make(far) for name, (make, _, _) in TIMED_CALLS.items()}
    for obj in objects.values() if warm else ():
        getattr(obj, "locked", getattr(obj, "qsize", getattr(obj, "get_value", obj.__repr__)))()
    getattr(proxy, how)()
    with Control() as control:
        calls = {name: Running(timed, call, objects[name]) for name, (_, call, _) in TIMED_CALLS.items()}
        results = {name: call.result() for name, call in calls.items()}
    wrong = []
    for name, (answer, seconds) in results.items():
        longest = NONBLOCKING_GRACE_S + 0.5 if "at once" in name else 1.5
        if answer not in TIMED_CALLS[name][2].split() or seconds > longest + control.late:
            wrong.append((name, answer, seconds))
    assert not wrong
    proxy.heal()
    eventually(lambda: far.state == "connected")
    with suppress(LockLostError):  # the outage was long
        objects["Condition.wait"].release()
    eventually(lambda: not ephemerals(far, observer))
    assert objects["Lock.acquire"].acquire(timeout=PATIENCE)
    objects["Lock.acquire"].release()


@pytest.mark.slow_on("zookeeper")
def test_lease_that_expired_in_an_outage_stays_lost_after_the_reconnect(
    make_far: MakeClient, proxy: Proxy, observer: Observer
) -> None:
    """The lease expires before the session does at the server, and a reconnect in the same session
    restores nothing.
    """
    client = make_far(SHORT_SESSION_S)
    losses: list[LockLostError] = []
    lock = Lock(name="a", client=client, on_lost=losses.append)
    slots = Semaphore(1, name="s", client=client)
    slots.acquire()
    lock.acquire()
    session, path = client.session_id, lock.holders()[0].path
    proxy.blackhole()
    eventually(lambda: not lock.held)
    assert not slots.held
    assert observer.kazoo.exists(path)  # the server still has the contender
    eventually(lambda: losses)
    assert losses[0].args == (lock.path, "lease expired")
    with pytest.raises(LockLostError, match="lease expired"):
        lock.release()
    proxy.heal()
    eventually(lambda: not observer.kazoo.exists(path))
    eventually(lambda: client.state == "connected")
    assert not lock.held
    with pytest.raises(NotHeldError):
        lock.release()
    with pytest.raises(LockLostError):
        slots.release()
    assert lock.acquire(timeout=PATIENCE)
    assert lock.held
    lock.release()
    assert len(losses) == 1
    assert session is not None


# ---- server restarts


@pytest.fixture
def clients(own_server: ServerProcess) -> Iterator[Callable[[], Client]]:
    """Yield a function that creates clients of the server that the test breaks."""
    made: list[Client] = []

    def make(session_timeout: float = 10.0) -> Client:
        made.append(Client(own_server.hosts, namespace="/outage", session_timeout=session_timeout))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_puts_and_gets_across_a_restart_lose_and_duplicate_no_item(
    own_server: ServerProcess, clients: Callable[[], Client]
) -> None:
    queues = [Queue[Any](name="q", client=clients()) for _ in range(3)]
    count, putting = 150, []
    for place, queue in enumerate(queues[:2]):
        queue.empty()
        putting.append(Running(remote.put_all, queue, f"{place}", count))
    getting = Running(remote.get_until, queues[2], "end")
    eventually(lambda: queues[0].client.statistics().requests.get("Multi", 0) > 20)
    own_server.restart(kill=True)
    for one in putting:
        one.result(6 * PATIENCE)
    queues[0].put("end")
    got = getting.result(6 * PATIENCE)
    assert Counter(got) == {(producer, number): 1 for producer in "01" for number in range(count)}
    for producer in "01":
        assert [number for name, number in got if name == producer] == [*range(count)]
    assert queues[0].qsize() == 0


def test_waits_continue_after_a_restart_of_the_server(own_server: ServerProcess, clients: Callable[[], Client]) -> None:
    holder, waiter = clients(), clients()
    locks = [Lock(name="a", client=one) for one in (holder, waiter)]
    slots = [Semaphore(1, name="s", client=one) for one in (holder, waiter)]
    flags = [Event(name="e", client=one) for one in (holder, waiter)]
    boxes = [Queue[int](name="q", client=one) for one in (holder, waiter)]
    gates = [Barrier(2, name="b", client=one) for one in (holder, waiter)]
    conditions = [Condition(name="c", client=one) for one in (holder, waiter)]
    locks[0].acquire()
    slots[0].acquire()
    waits = [locks[1].acquire, slots[1].acquire, flags[1].wait, boxes[1].get, gates[1].wait]
    waiting = [Running(wait) for wait in waits] + [Running(remote.wait_in, conditions[1])]
    eventually(lambda: waiter._runtime is not None and len(waiter._runtime.zk_session.watches) >= 7)
    own_server.restart(kill=True)
    eventually(lambda: holder.state == waiter.state == "connected")
    assert all(one.is_alive() for one in waiting)
    assert locks[0].held
    locks[0].release()
    slots[0].release()
    flags[0].set()
    boxes[0].put(7)
    index = gates[0].wait(PATIENCE)
    remote.notify(conditions[0])
    assert [one.result() for one in waiting] == [True, True, True, 7, 1 - index, True]
    locks[1].release()
    slots[1].release()


@pytest.mark.slow
def test_timeouts_are_observed_while_the_server_is_stopped(
    own_server: ServerProcess, clients: Callable[[], Client]
) -> None:
    client = clients()
    lock, box = Lock(name="a", linger=0, client=client), Queue[int](name="q", client=client)
    with lock:
        box.put(0)
    own_server.kill()
    with Control() as control:
        acquired, of_acquire = timed(lambda lock: lock.acquire(timeout=1.0), lock)
        got, of_get = timed(lambda box: box.get(timeout=1.0), box)
    assert (acquired, got) == ("False", "Empty")
    assert max(of_acquire, of_get) < 1.5 + control.late
    own_server.start()
    assert box.get(timeout=PATIENCE) == 0
    assert lock.acquire(timeout=PATIENCE)
    lock.release()


@pytest.mark.slow_on("zookeeper")
def test_lease_expires_while_the_server_is_paused(own_server: ServerProcess, clients: Callable[..., Client]) -> None:
    client = clients(SHORT_SESSION_S)
    losses: list[LockLostError] = []
    lock = RLock(name="a", client=client, on_lost=losses.append)
    lock.acquire()
    assert lock.held
    own_server.pause()
    try:
        eventually(lambda: not lock.held)
        eventually(lambda: losses)
        with pytest.raises(LockLostError, match="lease expired"):
            lock.release()
    finally:
        own_server.resume()
    eventually(lambda: client.state == "connected")
    assert not lock.held
    assert lock.acquire(timeout=PATIENCE)
    assert len(lock.holders()) == 1
    lock.release()


@pytest.mark.slow_on("zookeeper")
def test_item_of_a_get_that_times_out_in_an_outage_returns_to_the_queue(
    far: Client, proxy: Proxy, make_client: MakeClient
) -> None:
    box, near = Queue[int](name="q", client=far), Queue[int](name="q", client=make_client())
    for item in range(3):
        box.put(item)
    assert box.get() == 0
    proxy.drop_next_reply(OpCode.MULTI)
    proxy.refuse()
    with pytest.raises(Empty):
        box.get(timeout=2 * UNIT)
    proxy.heal()
    eventually(lambda: far.state == "connected")
    eventually(lambda: near.qsize() == 2)
    assert [near.get(timeout=PATIENCE) for _ in range(2)] == [1, 2]


def test_put_that_times_out_in_an_outage_adds_its_item_at_most_once(
    far: Client, proxy: Proxy, make_client: MakeClient
) -> None:
    box, near = Queue[int](name="q", client=far), Queue[int](name="q", client=make_client())
    box.put(0)
    proxy.drop_next_reply(OpCode.MULTI)
    proxy.refuse()
    with pytest.raises((OutcomeUnknownError, Full)):
        box.put(1, timeout=2 * UNIT)
    proxy.heal()
    eventually(lambda: far.state == "connected")
    box.put(2)
    got = [near.get() for _ in range(near.qsize())]
    assert got in ([0, 1, 2], [0, 2])


@pytest.mark.slow
def test_release_without_a_server_returns_when_the_session_expires_at_the_latest(
    own_server: ServerProcess, clients: Callable[..., Client]
) -> None:
    """It does not wait for a server that may never return."""
    lock = Lock(name="a", client=clients(SHORT_SESSION_S))
    slots = Semaphore(1, name="s", client=lock.client)
    lock.acquire()
    slots.acquire()
    own_server.kill()
    releasing = [Running(remote.catch, lock.release), Running(remote.catch, slots.release)]
    for one in releasing:
        assert one.result() in ("None", "LockLostError")
    assert not lock.held
    assert not slots.held
