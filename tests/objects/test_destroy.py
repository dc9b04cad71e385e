"""``destroy()``: the object is gone for all processes, what was held is lost, and the next use begins afresh."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from threading import BrokenBarrierError
from typing import Any

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES
from helpers.leak_census import CONTAINER, Observer
from helpers.public_names import MODULES, own_names
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Running, waiting_calls

import distsync.asyncio
from distsync import (
    AccessDeniedError,
    DeadlineError,
    DistsyncError,
    LockLostError,
    MismatchError,
    StillUsedError,
    multiprocessing,
)
from distsync._client.client import Client
from distsync._client.naming.paths import PARTS, is_part
from distsync._objects.aio.base import AsyncObject
from distsync._objects.base import SharedObject
from distsync._objects.joinable_queue import JoinableQueue
from distsync._wire.codes import OpCode
from distsync.futures import Executor
from distsync.multiprocessing._ctypes_views import View
from distsync.multiprocessing.managers import SyncManager
from distsync.multiprocessing.sharedctypes import SynchronizedBase
from distsync.queue import LifoQueue, PriorityQueue, Queue, SimpleQueue
from distsync.recipes import Config, CountDownLatch, Counter, DoubleBarrier, Gate, IdGenerator, RateLimiter, SharedLock
from distsync.testing.faulty_proxy import Proxy, _DropRule
from distsync.threading import Barrier, Condition, Event, Lock, RLock, Semaphore

MakeClient = Callable[..., Client]

#: Seconds after which the server removes what a client leaves that cannot close its session.
SESSION_S = 3.0
EVERY_KIND = KINDS | {kind: made for kind, made in PROCESSES.items() if kind != "multiprocessing.Pool"}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_destroyed_object_of_every_kind_is_gone_and_begins_afresh_in_both_processes(
    client: Client, make_client: MakeClient, observer: Observer, kind: str
) -> None:
    make, use = EVERY_KIND[kind]
    clients = client, make_client()
    objects: list[Any] = []
    for user, destroyer in ((0, 1), (1, 0), (0, 0)):
        if not objects or "Queue" in kind:  # those of multiprocessing are closed by their use
            objects = [make(name="a", client=each) for each in clients]
        stack = ExitStack()
        use(objects[user], clients[user], stack)
        assert stored(observer, client)
        objects[destroyer].destroy(20)
        left(stack)
        objects[destroyer].destroy(20)  # what waiting calls have created afresh
        assert stored(observer, client) == []


def left(stack: ExitStack) -> None:
    """Release what was held, which raises if that was lost."""
    with suppress(DistsyncError, ValueError):
        stack.close()


def stored(observer: Observer, client: Client) -> list[str]:
    """Return the znodes of objects; folders and receipts belong to no object."""
    found = (path.removeprefix(client.namespace).removeprefix("/users") for path in observer.tree(client.namespace))
    return [path for path in found if path.count("/") >= 2 and not path.startswith("/receipts/")]


def test_every_public_class_of_shared_objects_has_destroy() -> None:
    found = {value for module in MODULES for _, value in own_names(importlib.import_module(module))}
    shared = [kind for kind in found if isinstance(kind, type) and issubclass(kind, (SharedObject, AsyncObject))]
    others = [Executor, SharedLock, View, SynchronizedBase]
    assert len(shared) > 40
    assert [kind for kind in (*shared, *others) if not callable(getattr(kind, "destroy", None))] == []


# ---- what is lost


def test_lock_that_another_process_destroyed_is_lost_by_its_holder(client: Client, other: Client) -> None:
    lost: list[LockLostError] = []
    lock = Lock(name="a", on_lost=lost.append)
    lock.acquire()
    Lock(name="a", client=other).destroy()
    eventually(lambda: not lock.held)
    eventually(lambda: lost)
    with pytest.raises(LockLostError):
        lock.release()
    with lock:
        assert lock.held


@pytest.mark.parametrize("kind", [Lock, RLock, partial(Semaphore, 2), lambda **own: SharedLock(**own).reader])
def test_holder_that_destroys_its_own_object_holds_it_no_more(client: Client, kind: Callable[..., Any]) -> None:
    lock = kind(name="a")
    lock.acquire()
    lock.destroy()
    assert not lock.held
    with pytest.raises(LockLostError):
        lock.release()
    with lock:
        assert lock.held


def test_cached_lock_is_acquired_afresh_after_destroy(client: Client, other: Client) -> None:
    lock = Lock(name="a", linger=60)
    with lock:
        pass
    lock.destroy()
    with lock:
        assert not Lock(name="a", client=other).acquire(blocking=False)


def test_waiter_for_a_destroyed_lock_acquires_a_fresh_one(client: Client, other: Client) -> None:
    lock = Lock(name="a")
    lock.acquire()
    theirs = Lock(name="a", client=other)
    waiter = Running(theirs.acquire)
    eventually(lambda: waiting_calls(other) > 0)
    lock.destroy()
    assert waiter.result()
    assert theirs.held
    theirs.release()


Step = Callable[[Any], object]
WAITS: dict[str, tuple[Callable[..., Any], Step, Step, Step]] = {
    "Semaphore": (partial(Semaphore, 1), Semaphore.acquire, Semaphore.acquire, lambda _: None),
    "SharedWriter": (lambda **own: SharedLock(**own).writer, RLock.acquire, RLock.acquire, lambda _: None),
    "Semaphore(0)": (partial(Semaphore, 0), lambda _: None, Semaphore.acquire, Semaphore.release),
    "Gate": (Gate, Gate.close, Gate.wait, lambda gate: gate.close() and gate.open()),
    "CountDownLatch": (partial(CountDownLatch, 1), lambda _: None, CountDownLatch.wait, CountDownLatch.count_down),
    "Condition": (Condition, lambda _: None, lambda it: locked(it, it.wait), lambda it: locked(it, it.notify_all)),
    "Config": (Config, lambda _: None, Config.wait, lambda config: config.update(a=1)),
    "JoinableQueue": (JoinableQueue, lambda _: None, JoinableQueue.get, lambda queue: queue.put(1)),
    "DoubleBarrier": (partial(DoubleBarrier, 2), lambda _: None, DoubleBarrier.enter, DoubleBarrier.enter),
}


def locked(lock: Any, call: Callable[[], object]) -> object:
    with lock:
        return call()


@pytest.mark.parametrize("kind", WAITS)
def test_waiting_call_ends_by_what_happens_to_the_fresh_object(client: Client, other: Client, kind: str) -> None:
    make, begin, wait, end = WAITS[kind]
    mine, theirs = make(name="a"), make(name="a", client=other)
    begin(mine)
    waiter = Running(wait, theirs)
    eventually(lambda: waiting_calls(other) > 0)
    mine.destroy()
    end(mine)
    waiter.result()
    mine.destroy()


def test_getter_waits_on_after_destroy(client: Client, other: Client) -> None:
    queue = Queue[int](name="a")
    getter = Running(Queue[int](name="a", client=other).get)
    eventually(lambda: waiting_calls(other) > 0)
    queue.destroy()
    queue.put(7)
    assert getter.result() == 7


def test_waiter_for_an_event_waits_on_after_destroy(client: Client, other: Client) -> None:
    event = Event(name="a")
    waiter = Running(Event(name="a", client=other).wait)
    eventually(lambda: waiting_calls(other) > 0)
    event.destroy()
    event.set()
    assert waiter.result()


def test_party_of_a_destroyed_barrier_gets_broken_barrier_error_and_does_not_break_the_fresh_one(
    client: Client, other: Client
) -> None:
    barrier = Barrier(2, name="a")
    for _ in range(20):
        waiter = Running(Barrier(2, name="a", client=other).wait)
        eventually(lambda: waiting_calls(other) > 0)
        barrier.destroy()
        fresh = Running(barrier.wait)
        with pytest.raises(BrokenBarrierError):
            waiter.result()
        assert sorted((Barrier(2, name="a", client=other).wait(PATIENCE), fresh.result())) == [0, 1]
        barrier.destroy()


def test_flag_that_two_processes_know_as_set_is_unset_after_destroy(client: Client, other: Client) -> None:
    event, theirs = Event(name="a"), Event(name="a", client=other)
    event.set()
    assert event.is_set()
    assert theirs.is_set()
    theirs.destroy()
    assert not theirs.is_set()
    eventually(lambda: not event.is_set())


@pytest.mark.parametrize("kind", [Queue, LifoQueue, PriorityQueue, SimpleQueue, JoinableQueue])
def test_items_of_a_destroyed_queue_are_gone(client: Client, other: Client, kind: Callable[..., Any]) -> None:
    queue = kind(name="a")
    for number in range(5):
        queue.put(number)
    queue.get()  # its process now knows the next ones
    kind(name="a", client=other).destroy()
    queue.put(7)
    assert queue.get() == 7
    assert queue.empty()
    if kind is JoinableQueue:
        with pytest.raises(LockLostError):
            queue.task_done()
        queue.task_done()


def test_items_that_a_feeder_has_not_sent_are_gone(client: Client) -> None:
    queue = multiprocessing.Queue(name="a")
    for number in range(50):
        queue.put(number)
    queue.destroy()
    queue.put("fresh")
    assert queue.get() == "fresh"
    queue.close()
    queue.join_thread()


# ---- what is remembered


@pytest.mark.parametrize("first", ["mine", "theirs"])
@pytest.mark.parametrize(("kind", "before", "after"), [(Semaphore, 2, 5), (Barrier, 2, 3), (CountDownLatch, 2, 4)])
def test_destroyed_object_is_created_with_another_number(
    client: Client, other: Client, kind: Callable[..., Any], before: int, after: int, first: str
) -> None:
    number = "n_waiting" if kind is Barrier else "count"

    def use(obj: Any) -> object:
        return obj.acquire() and obj.release() if kind is Semaphore else getattr(obj, number)

    old = kind(before, name="a")
    use(old)
    old.destroy()
    fresh = [kind(after, name="a"), kind(after, name="a", client=other)]
    for obj in fresh if first == "mine" else reversed(fresh):
        use(obj)


def test_counter_adds_to_what_others_counted_after_they_destroyed_it(client: Client, other: Client) -> None:
    counter, theirs = Counter(name="a"), Counter(name="a", client=other)
    assert counter.add(7) == 7  # remembered with version 1
    theirs.destroy()
    assert theirs.add(5) == 5  # version 1, too
    assert not counter.compare_and_set(7, 8)
    assert counter.add(1) == 6


def test_shared_array_keeps_what_others_wrote_after_they_destroyed_it(client: Client, other: Client) -> None:
    mine, theirs = (multiprocessing.Array("i", 2, name="a", client=each, lock=False) for each in (client, other))
    mine[0] = 1
    theirs.destroy()
    theirs[1] = 5
    mine[0] = 2
    assert theirs[:] == [2, 5]


def test_shared_dict_keeps_what_others_wrote_after_they_cleared_its_manager(client: Client, other: Client) -> None:
    managers = [SyncManager(name="m", client=each) for each in (client, other)]
    for manager in managers:
        manager.connect()
    mine = managers[0].dict(name="d")
    mine["a"] = 1
    managers[1].clear()
    theirs = managers[1].dict(name="d")
    theirs["b"] = 2
    mine["a"] = 3
    assert theirs.copy() == {"a": 3, "b": 2}


def test_rate_limiter_counts_the_tokens_of_others_after_they_destroyed_it(client: Client, other: Client) -> None:
    mine, theirs = (RateLimiter(1, per=3600, burst=10, name="a", client=each) for each in (client, other))
    assert mine.try_acquire(1)
    theirs.destroy()
    assert theirs.try_acquire(10)
    assert not mine.try_acquire(5)


def test_ids_begin_again_after_destroy(client: Client, other: Client) -> None:
    mine, theirs = (IdGenerator(2, name="a", client=each) for each in (client, other))
    assert [next(mine), next(theirs), next(mine), next(mine)] == [1, 3, 2, 5]
    mine.destroy()
    assert next(mine) == 1
    assert next(theirs) == 4  # the rest of its block
    assert next(theirs) not in (1, 2)


def test_process_that_remembers_another_block_refuses_after_destroy(client: Client, other: Client) -> None:
    mine, theirs = IdGenerator(1, name="a"), IdGenerator(1, name="a", client=other)
    assert [next(mine), next(theirs)] == [1, 2]
    mine.destroy()
    del mine
    fresh = IdGenerator(10, name="a")
    assert next(fresh) == 1
    with pytest.raises(MismatchError):
        next(theirs)


# ---- the call


def test_object_that_does_not_exist_is_destroyed_without_an_error(client: Client) -> None:
    lock = Lock(name="a")
    lock.destroy()
    lock.destroy()
    with lock:
        pass


def test_timeout_that_is_no_number_is_refused(client: Client) -> None:
    with pytest.raises(TypeError):
        Lock(name="a").destroy("soon")  # type: ignore[arg-type]


def test_destroy_of_another_users_object_is_denied(client: Client, make_client: MakeClient, observer: Observer) -> None:
    observer.kazoo.add_auth("digest", "alice:secret")  # it deletes the namespace at the end
    mine = Queue[int](name="a", client=make_client(auth="digest:alice:secret"))
    mine.put(1)
    with pytest.raises(AccessDeniedError):
        Queue[int](name="a").destroy()
    assert mine.get() == 1


def test_destroy_raises_deadline_error_if_no_server_answers(make_client: MakeClient, proxy: Proxy) -> None:
    client = make_client(hosts=proxy.hosts, session_timeout=SESSION_S)
    queue = Queue[int](name="a", client=client)
    queue.put(1)
    proxy.blackhole()
    with pytest.raises(DeadlineError):
        queue.destroy(0.2)
    proxy.heal()
    assert queue.get() == 1


class SecondReply(_DropRule):
    """Drops the second such reply: the first one is that of a sync."""

    replies = 0

    def matches(self, opcode: int, session_id: int, *, before: bool) -> bool:
        is_one = not before and (opcode, session_id) == (self.opcode, self.session_id)
        self.replies += is_one
        if not is_one or self.replies != 2:
            return False
        self.triggered.set()
        return True


def test_destroy_whose_reply_was_lost_spares_the_object_that_another_process_created_afresh(
    make_client: MakeClient, proxy: Proxy, other: Client
) -> None:
    mine = make_client(hosts=proxy.hosts, session_timeout=SESSION_S)
    queue, theirs = Queue[int](name="a", client=mine), Queue[int](name="a", client=other)
    queue.put(1)
    assert queue.client.session_id is not None
    dropped = proxy._set_drop_rule(SecondReply(OpCode.MULTI, queue.client.session_id, before=False))
    call = Running(queue.destroy)
    assert dropped.wait(PATIENCE)
    proxy.refuse()
    theirs.put(2)
    proxy.heal()
    call.result()
    assert theirs.get(timeout=PATIENCE) == 2


def test_znode_of_another_client_is_destroyed_without_its_neighbours(client: Client, observer: Observer) -> None:
    for path in ("/locks/a/_c_1-lock-0000000000", "/locks/ab", "/locks/b"):
        observer.kazoo.ensure_path(client.namespace + path)
    Lock(path=f"{client.namespace}/locks/a").destroy()
    assert observer.kazoo.get_children(f"{client.namespace}/locks") in (["ab", "b"], ["b", "ab"])


FOLDERS = [
    "",
    "/queue",
    "/process",
    "/users",
    "/users/queue",
    "/users/queue/a",
    "/receipts",
    "/module/jobs/objects/queue",
]


@pytest.fixture
def neighbour(client: Client, make_client: MakeClient) -> Iterator[Queue[int]]:
    """A queue with an item, in the namespace of another client."""
    queue = Queue[int](name="a", client=make_client(namespace=f"{client.namespace}/theirs"))
    queue.put(1)
    yield queue
    assert queue.get(timeout=PATIENCE) == 1


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("kind", [Lock, Config, SharedLock, distsync.asyncio.Lock, SyncManager])
def test_path_that_is_a_folder_of_the_namespace_is_not_destroyed(
    client: Client, observer: Observer, kind: Callable[..., Any], folder: str
) -> None:
    """All objects in it were deleted."""
    queue = Queue[int](name="a")
    queue.put(1)
    path = client.namespace + folder
    wrong = kind(path=path, client=client)
    before = sorted(observer.tree(client.namespace))
    refused = rf"{path} cannot be destroyed: it is .* namespace.*the path of one object"
    if kind is distsync.asyncio.Lock:
        with pytest.raises(ValueError, match=refused):
            asyncio.run(wrong.destroy())
    else:
        with pytest.raises(ValueError, match=refused):
            wrong.destroy()
    assert sorted(observer.tree(client.namespace)) == before
    assert queue.get(timeout=PATIENCE) == 1


def test_path_above_the_namespace_is_not_destroyed(neighbour: Queue[int], client: Client) -> None:
    with pytest.raises(ValueError, match=f"it is a part of the namespace {client.namespace}/theirs"):
        Lock(path=client.namespace, client=neighbour.client).destroy()


@pytest.mark.parametrize("folder", ["", "/queue", "/queue/a"])
@pytest.mark.parametrize("kind", [Lock, Counter, Condition, partial(Barrier, 2), Event])
def test_path_that_contains_objects_of_another_namespace_or_kind_is_not_destroyed(
    neighbour: Queue[int], client: Client, kind: Callable[..., Any], folder: str
) -> None:
    wrong = kind(path=f"{neighbour.client.namespace}{folder}", client=client)
    with pytest.raises(ValueError, match=rf"{wrong.path}/\w+ does not belong to a \w+; destroy the objects below"):
        wrong.destroy()


def test_path_below_which_there_is_another_object_is_not_destroyed(client: Client) -> None:
    counter = Counter(path=f"{client.namespace}/app/jobs")
    counter.add(3)
    lock = Lock(path=f"{client.namespace}/app")
    with lock:
        with pytest.raises(ValueError, match="/app/jobs does not belong to a Lock"):
            lock.destroy()
        assert lock.held
    assert counter.get() == 3
    counter.destroy()
    lock.destroy()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("Registry", "Pool")])
def test_object_of_every_kind_that_was_given_a_path_is_destroyed(
    client: Client, other: Client, observer: Observer, kind: str
) -> None:
    make, use = KINDS[kind]
    path = f"{client.namespace}/app/{kind}"
    stack = ExitStack()
    use(make(path=path, client=client), client, stack)
    make(path=path, client=other).destroy(20)
    left(stack)
    make(path=path, client=other).destroy(20)
    assert observer.tree(path) == {}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_znodes_of_every_kind_are_known_as_its_parts(client: Client, observer: Observer, kind: str) -> None:
    make, use = EVERY_KIND[kind]
    with ExitStack() as stack:
        made = make(name="a", client=client)
        use(made, client, stack)
        tree = observer.tree(client.namespace)
        parts = [
            path[len(client.namespace) + 1 :].split("/") for path, owner in tree.items() if owner in (0, CONTAINER)
        ]
        objects = {part[0] for part in parts} - {"users", "receipts", "process"}
        assert objects <= {*PARTS}
        assert [part for part in parts if len(part) == 3 and part[0] in objects and not is_part(part[0], part[2])] == []
    made.destroy(20)


def test_every_kind_of_object_is_known_by_its_folder() -> None:
    kinds = [SharedObject]
    for each in kinds:
        kinds += each.__subclasses__()
    found = {kind._kind for kind in kinds if isinstance(getattr(kind, "_kind", None), str)}
    assert found - {*PARTS} == set()
    assert len(found) > 20


def test_own_lock_of_a_condition_is_destroyed_with_it_and_a_given_one_is_not(client: Client) -> None:
    lock = Lock(name="lock")
    condition = Condition(lock, name="given")
    with condition:
        condition.destroy()
        assert lock.held
    own = Condition(name="own")
    own.acquire()
    own.destroy()
    with pytest.raises(LockLostError):
        own.release()


def test_async_object_is_destroyed(client: Client) -> None:
    async def main() -> None:
        queue = distsync.asyncio.Queue[int](name="a")
        await queue.put(1)
        await queue.destroy()
        assert queue.qsize() == 0
        lock = distsync.asyncio.Lock(name="a")
        await lock.acquire()
        await lock.destroy()
        assert not lock.held
        with pytest.raises(LockLostError):
            lock.release()
        async with lock:
            assert lock.held

    asyncio.run(main())


def test_10000_items_are_destroyed_in_few_round_trips(client: Client) -> None:
    queue = Queue[int](name="a")
    queue.put_many(range(10_000))
    with counted(client) as cost:
        queue.destroy()
    assert cost.requests < 240
    assert cost.round_trips < 20
    assert queue.empty()


@pytest.mark.usefixtures("no_guards", "nothing_kept")
def test_destroy_of_a_held_lock_costs_4_requests_in_3_round_trips(client: Client) -> None:
    lock = Lock(name="a")
    lock.acquire()
    with counted(client) as held:
        lock.destroy()
    with counted(client) as missing:
        lock.destroy()
    assert (held, missing) == (Cost(4, 3, held.events), Cost(2, 1))


# ---- pools


def test_named_pool_is_destroyed_after_its_last_caller_has_left(
    client: Client, other: Client, observer: Observer
) -> None:
    pool = multiprocessing.Pool(1, name="a")
    theirs = multiprocessing.Pool(0, name="a", client=other)
    assert pool.apply(abs, (-1,)) == 1
    with pytest.raises(ValueError, match="still running"):
        pool.destroy()
    pool.close()
    pool.join()
    with pytest.raises(StillUsedError):
        pool.destroy()
    theirs.close()
    theirs.join()
    pool.destroy()
    assert stored(observer, client) == []


def test_executor_is_destroyed_after_its_shutdown(client: Client, observer: Observer) -> None:
    executor = Executor(1, name="a")
    assert executor.submit(abs, -1).result() == 1
    with pytest.raises(ValueError, match="shutdown"):
        executor.destroy()
    executor.shutdown()
    executor.destroy()
    assert stored(observer, client) == []
