"""An interrupt at any line of a call leaves nothing held without the caller's knowledge."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest
from helpers.interrupt_every_line import OURS, Strike, in_protocols, strikes
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, is_quiet

from distsync import (
    Condition,
    Counter,
    DoubleBarrier,
    Group,
    IdGenerator,
    JoinableQueue,
    Lock,
    NotHeldError,
    Partitioner,
    RateLimiter,
    RLock,
    Semaphore,
    SharedLock,
    Transaction,
    multiprocessing,
)
from distsync._client.background_thread import BackgroundThread
from distsync._client.client import Client
from distsync._client.driver.blocking_driver import ProtocolRun
from distsync._objects.base import SharedObject
from distsync._protocols.queues import claim_queue as joinable_protocol
from distsync._protocols.receipts import CommitOutcome, Receipts
from distsync._protocols.retries import read_all
from distsync._protocols.steps import Exists
from distsync._protocols.wait_queue import contenders
from distsync.asyncio import Queue as AsyncQueue
from distsync.asyncio import SharedLock as AsyncSharedLock
from distsync.multiprocessing import BoundedSemaphore as MultiprocessingBoundedSemaphore
from distsync.multiprocessing import Semaphore as MultiprocessingSemaphore
from distsync.multiprocessing import Value
from distsync.queue import Empty, LifoQueue, PriorityQueue, Queue, SimpleQueue

STEP = int(os.environ.get("DISTSYNC_TEST_STRIKES_STEP", "7"))
"""Interrupt only at each n-th place: all of them take minutes."""

MakeClient = Callable[..., Client]

# An interrupt may hit before the first line of a protocol.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.timeout(300),  # hundreds of interrupts, each of which may cost some round trips
]


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore])
def test_interrupted_with_block_leaves_the_object_free(kind: Any, client: Client, make_client: MakeClient) -> None:
    ours, theirs = kind(name="x"), kind(name="x", client=make_client())

    def use() -> None:
        with ours:
            pass

    def check(where: str) -> None:
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()

    use()
    assert strikes(use, check, STEP) > 100


@pytest.mark.parametrize("kind", [MultiprocessingSemaphore, MultiprocessingBoundedSemaphore])
def test_interrupted_block_of_a_semaphore_of_processes_leaves_its_permit_free(
    kind: Any, client: Client, make_client: MakeClient
) -> None:
    ours, theirs = kind(name="x"), kind(name="x", client=make_client())

    def use() -> None:
        with ours:
            pass

    def check(where: str) -> None:
        assert not ours.held, where
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        eventually(lambda: theirs.get_value() == 1, f"not one permit after an interrupt at {where}")

    use()
    assert strikes(use, check, make=in_protocols) > 50


@pytest.mark.parametrize("kind", [MultiprocessingSemaphore, MultiprocessingBoundedSemaphore])
def test_interrupted_release_of_a_permit_of_another_process_releases_one_permit(
    kind: Any, client: Client, make_client: MakeClient
) -> None:
    ours, theirs = kind(2, name="x"), kind(2, name="x", client=make_client())
    which, where = 0, ""
    while where is not None:
        which += 1
        assert theirs.acquire(timeout=PATIENCE)
        assert theirs.acquire(timeout=PATIENCE)
        where = in_protocols(which).during(ours.release)
        eventually(lambda: theirs.get_value() == 1, f"not released after an interrupt at {where}")
        theirs.release()
        eventually(lambda: theirs.get_value() == 2, f"released twice after an interrupt at {where}")
    assert which > 50


def test_interrupted_release_of_a_new_permit_adds_one_permit(client: Client) -> None:
    semaphore = MultiprocessingSemaphore(1, name="x")
    which, where = 0, ""
    while where is not None:
        which += 1
        where = in_protocols(which).during(semaphore.release)
        eventually(lambda: semaphore.get_value() == which + 1, f"{which} after an interrupt at {where}")  # noqa: B023
    assert which > 50


@pytest.mark.slow("thousands of signals")
@pytest.mark.parametrize("linger", ["0", "60"])
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore, SharedLock, Condition])
def test_signal_at_any_instruction_of_a_block_leaves_the_object_free(
    kind: Any, linger: str, make_client: MakeClient
) -> None:
    """At the first instruction of ``__exit__`` too."""
    made, other = (kind(name="x", client=make_client(linger=linger)) for _ in range(2))
    ours, theirs = (each.reader if kind is SharedLock else each for each in (made, other))
    held = ours._is_owned if kind is Condition else lambda: ours.held
    chance, caught, longest = random.Random(1), 0, 0.003 if linger == "0" else 0.0002

    def handler(number: int, frame: FrameType | None) -> None:
        """Raise where the interpreter does not swallow it, as it does in finalizers."""
        if frame is not None and frame.f_code.co_filename.startswith((OURS, __file__)):
            raise TimeoutError("of a signal handler")
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(500):
            with ours:  # cached from now on, unless linger is 0
                pass
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, longest))
                while True:
                    with ours:
                        pass
            except TimeoutError:
                caught += 1
            assert not held()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught == 500
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()
    made.client.close()
    other.client.close()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("linger", ["0", "1"])
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore, SharedLock])
def test_object_is_not_held_right_after_an_interrupted_call(kind: Any, linger: str, make_client: MakeClient) -> None:
    """The acquire has not happened, and the release has, although the znode is deleted in the background."""
    made = kind(name="x", client=make_client(linger=linger))
    ours = made.reader if kind is SharedLock else made

    def use() -> None:
        ours.acquire(timeout=PATIENCE)
        ours.release()

    def check(where: str) -> None:
        assert not ours.held, where
        if kind is not Semaphore:
            with pytest.raises(NotHeldError):
                ours.release()
        assert ours.acquire(timeout=PATIENCE), where
        assert ours.held, where
        ours.release()

    use()
    assert strikes(use, check, 1 if linger == "1" else STEP) > 10


@pytest.mark.slow_on("zookeeper")
def test_interrupted_use_of_a_contended_cached_lock_leaves_it_free(client: Client, make_client: MakeClient) -> None:
    ours, theirs = Lock(name="x", linger=60.0), Lock(name="x", linger=0, client=make_client())

    def is_cached() -> bool:
        with ours:
            pass
        return ours._core.cached is not None

    def use() -> None:
        ours._core.cached.cache.contended = True  # type: ignore[union-attr]
        with ours:
            pass

    def check(where: str) -> None:
        assert not ours.held, where
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        eventually(is_cached)

    eventually(is_cached)
    assert strikes(use, check, STEP) > 100
    with theirs:
        pass


@pytest.mark.slow("interrupts every line")
@pytest.mark.parametrize("kind", [Lock, RLock, SharedLock])
def test_acquire_after_an_interrupted_call_is_not_undone_by_its_cleanup(
    kind: Any, client: Client, make_client: MakeClient
) -> None:
    """The background clean-up of the interrupted call must not release the lock that was acquired
    after it.
    """
    shared = kind is SharedLock
    made, other = kind(name="x"), kind(name="x", client=make_client())
    ours, theirs = (made.reader, other.writer) if shared else (made, other)

    def use() -> None:
        with ours:
            pass

    def check(where: str) -> None:
        with ours:
            assert not theirs.acquire(timeout=UNIT / 2), f"two holders after an interrupt at {where}"

    use()
    assert strikes(use, check, STEP) > 100


class AtResult(Strike):
    """Interrupt a call that has its result, after ``meanwhile``."""

    def __init__(self, meanwhile: Callable[[], object], error: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(1, error)
        self.meanwhile = meanwhile

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is ProtocolRun.result.__code__:
            super().__call__(frame, event, arg)

    def strike(self) -> None:
        self.meanwhile()
        super().strike()


def test_reader_that_acquires_right_after_an_interrupted_acquire_keeps_the_lock(
    client: Client, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acquires before the clean-up of the interrupted call, by the same znode."""
    reader, theirs = SharedLock(name="x", linger=0).reader, SharedLock(name="x", linger=0, client=make_client())
    finish, may_clean_up = BackgroundThread._finish_call, threading.Event()

    def finish_late(self: BackgroundThread, run: ProtocolRun, error: BaseException | None) -> None:
        assert may_clean_up.wait(PATIENCE)
        finish(self, run, error)

    with reader:
        pass
    monkeypatch.setattr(BackgroundThread, "_finish_call", finish_late)
    assert AtResult(lambda: None).during(reader.acquire)
    assert not reader.held
    assert reader.acquire()
    may_clean_up.set()
    eventually(lambda: is_quiet(client))
    assert reader.held
    assert not theirs.acquire(False)
    reader.release()
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()


@pytest.mark.parametrize(
    "acquire",
    [lambda: SharedLock(name="x", linger=0).reader.acquire(), lambda: asyncio.run(read_in_task())],
    ids=["thread", "task"],
)
def test_reader_of_another_thread_keeps_the_lock_if_the_first_acquire_is_interrupted(
    acquire: Callable[[], object], client: Client, make_client: MakeClient
) -> None:
    reader, theirs = SharedLock(name="x", linger=0).reader, SharedLock(name="x", linger=0, client=make_client())
    with reader:
        pass
    with ThreadPoolExecutor(1) as executor:
        assert AtResult(lambda: executor.submit(reader.acquire).result(PATIENCE), TimeoutError).during(acquire)
        eventually(lambda: is_quiet(client))
        assert executor.submit(lambda: reader.held).result()
        assert not theirs.acquire(False)
        executor.submit(reader.release).result()
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()


async def read_in_task() -> None:
    await AsyncSharedLock(name="x", linger=0).reader.acquire()


@pytest.mark.slow("interrupts every line")
def test_interrupted_condition_wait_leaves_no_waiter_and_no_held_lock(client: Client, make_client: MakeClient) -> None:
    ours, theirs = Condition(name="c"), Condition(name="c", client=make_client())

    def use() -> None:
        with ours:
            ours.wait(0)

    def check(where: str) -> None:
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        eventually(lambda: waiters_of(ours) == 0, f"a waiter is left after an interrupt at {where}")

    use()
    assert strikes(use, check, STEP) > 100


def waiters_of(condition: Condition) -> int:
    return len(condition.client.run(contenders(f"{condition.path}/waiters")))


@pytest.mark.slow("interrupts every line")
@pytest.mark.parametrize("linger", ["0", "1"])
@pytest.mark.parametrize("kind", [Condition, Value])
def test_interrupted_exit_of_a_block_leaves_the_underlying_lock_free(
    kind: Any, linger: str, make_client: MakeClient
) -> None:
    """Interrupt at each place: there are few between such a block and its lock."""
    arguments = {Condition: (), Value: ("i", 0)}[kind]
    ours, theirs = (kind(*arguments, name="x", client=make_client(linger=linger)) for _ in range(2))
    which, where = 0, ""
    while where is not None:
        which += 1
        ours.acquire()
        where = Strike(which).during(lambda: ours.__exit__(None, None, None))
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
    assert which > {"0": 20, "1": 5}[linger]  # of a cached lock, the fast path is all there is


@pytest.mark.slow("interrupts every line")
def test_interrupted_exit_of_a_double_barrier_block_leaves_no_member_inside(
    client: Client,
) -> None:
    ours = DoubleBarrier(1, name="d")

    which, where = 0, ""
    while where is not None:
        which += 1
        ours.enter()
        where = Strike(which).during(lambda: ours.__exit__(None, None, None))
        eventually(lambda: inside(ours) == 0, f"a member is left inside after an interrupt at {where}")
    assert which > 50


def inside(barrier: DoubleBarrier) -> int:
    return len(barrier.client.run(contenders(barrier.path)))


def claimed(name: str) -> tuple[Any, str]:
    queue = JoinableQueue[str](name=name)
    queue.put("item")
    delivery = queue.claim()
    return delivery, f"{queue.path}/claims"


def partitioned(name: str) -> tuple[Any, str]:
    partitioner = Partitioner(["a", "b"], name=name).__enter__()
    assert partitioner.wait_for(lambda: len(partitioner.shares) == 2, PATIENCE)
    return partitioner, partitioner.path


def participating(name: str) -> tuple[Any, str]:
    order = Transaction(["x"], "peers", name=name)
    site = order.participant("x")
    order.begin()
    assert (site.take_part(), order.decide()) == ("commit", True)
    return site, order.path


@pytest.mark.slow("interrupts every line")
@pytest.mark.parametrize("begin", [claimed, partitioned, participating])
def test_interrupted_exit_of_a_block_leaves_no_ephemeral_znode(begin: Any, client: Client, observer: Observer) -> None:
    which, where = 0, ""
    while where is not None:
        which += 1 if which < 30 else STEP
        block, path = begin(f"x{which}")
        assert ephemerals(observer, path)
        where = Strike(which).during(lambda: block.__exit__(None, None, None))  # noqa: B023
        eventually(
            lambda: not ephemerals(observer, path),  # noqa: B023
            f"{path}: a znode is left after an interrupt at {where}",
        )
    assert which > 30


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("make", [Group, partial(Partitioner, ["a", "b"])], ids=["Group", "Partitioner"])
def test_interrupt_right_after_a_join_leaves_no_member(
    make: Any, error: type[BaseException], client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, real = make(name="x"), SharedObject._run

    def run_and_interrupt(named: SharedObject, *args: Any) -> Any:
        real(named, *args)
        assert ephemerals(observer, ours.path)
        handler(signal.SIGINT, sys._getframe())

    def handler(number: int, frame: FrameType) -> None:
        raise error("of a signal handler")

    with monkeypatch.context() as patched:
        patched.setattr(SharedObject, "_run", run_and_interrupt)
        with pytest.raises(error, match="of a signal handler"):
            ours.join()
    eventually(lambda: not ephemerals(observer, ours.path), "a member is left")


def ephemerals(observer: Observer, path: str) -> list[str]:
    """Return the ephemeral znodes below a path."""
    return [each for each, owner in observer.tree(path).items() if owner]


def test_condition_wait_with_an_invalid_timeout_leaves_no_waiter(client: Client, make_client: MakeClient) -> None:
    condition = Condition(name="c")
    with condition:
        for wrong, error in (("x", TypeError), (1e20, OverflowError)):
            with pytest.raises(error):
                condition.wait(wrong)  # type: ignore[arg-type]
    assert waiters_of(condition) == 0


@pytest.mark.slow("interrupts every line")
@pytest.mark.parametrize(("linger", "places"), [(0.0, 50), (1.0, 10)])
def test_local_waiter_acquires_a_lock_whose_release_is_interrupted(client: Client, linger: float, places: int) -> None:
    lock = Lock(name="x", linger=linger)

    def take() -> None:
        with lock:
            pass

    which, where = 0, ""
    while where is not None:
        which += STEP
        lock.acquire()
        other = Running(take)
        eventually(lambda: len(lock._core.local_waiters) == 1)
        where = Strike(which).during(lock.release)
        other.result()
    assert which > places


class EndOfCall(Strike):
    """Interrupt at the ``which``-th call of ``_finish_call``, when the call already has its result."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_name == "_finish_call":
            super().__call__(frame, event, arg)


def test_interrupt_at_the_end_of_a_get_or_task_done_loses_no_item(client: Client, make_client: MakeClient) -> None:
    ours, theirs = JoinableQueue(name="j"), JoinableQueue(name="j", client=make_client())
    theirs.put("item")
    for which in range(1, 7):
        assert EndOfCall(which).during(lambda: (ours.get(), ours.task_done()))
        for each in ours._open():
            each.done()
        eventually(lambda: unfinished(theirs) == 0, f"an item is left after an interrupt at the end {which}")
        theirs.put("item")


class AfterCommit(Strike):
    """Interrupt at the ``which``-th place after a transaction, when nothing is in flight any more."""

    committed = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.committed:
            super().__call__(frame, event, arg)
        elif event == "return" and frame.f_code is Receipts.commit.__code__:
            self.committed = isinstance(arg, CommitOutcome)


async def awaited_get(queue: Any) -> Any:
    return await queue.get()


#: How an item is got from a queue, and the kind of the same queue that gets the other items.
GETS: dict[str, tuple[Callable[..., Any], Callable[[Any], object], Any]] = {
    "Queue.get": (Queue, lambda queue: queue.get(), Queue),
    "Queue.get_nowait": (Queue, lambda queue: queue.get_nowait(), Queue),
    "Queue.get_many": (Queue, lambda queue: queue.get_many(2), Queue),
    "LifoQueue.get": (LifoQueue, lambda queue: queue.get(), LifoQueue),
    "PriorityQueue.get": (PriorityQueue, lambda queue: queue.get(), PriorityQueue),
    "SimpleQueue.get": (SimpleQueue, lambda queue: queue.get(), SimpleQueue),
    "multiprocessing.Queue.get": (multiprocessing.Queue, lambda queue: queue.get(), Queue),
    "multiprocessing.JoinableQueue.get": (multiprocessing.JoinableQueue, lambda queue: queue.get(False), Queue),
    "multiprocessing.SimpleQueue.get": (multiprocessing.SimpleQueue, lambda queue: queue.get(), SimpleQueue),
    "asyncio.Queue.get_nowait": (AsyncQueue, lambda queue: queue.get_nowait(), Queue),
    "asyncio.Queue.get": (AsyncQueue, lambda queue: asyncio.run(awaited_get(queue)), Queue),
}


@pytest.mark.parametrize("call", GETS)
def test_interrupt_after_an_item_was_taken_puts_it_back(call: str, client: Client) -> None:
    """In its place, before this process gets another item."""
    kind, get, same_kind = GETS[call]
    ours, queue = kind(name="q"), same_kind(name="q")

    def fill() -> None:
        queue.put(1)
        queue.put(2)

    def check(where: str) -> None:
        found = [queue.get(timeout=PATIENCE), queue.get(timeout=PATIENCE)]
        assert found == ([2, 1] if kind is LifoQueue else [1, 2]), f"after an interrupt at {where}"
        assert queue.empty(), f"two copies after an interrupt at {where}"
        fill()

    fill()
    assert strikes(lambda: get(ours), check, errors=(KeyboardInterrupt, TimeoutError), make=AfterCommit) > 10


@pytest.mark.parametrize("get", [lambda queue: queue.get(), lambda queue: queue.get_many(2)], ids=["get", "get_many"])
def test_interrupt_after_an_item_was_claimed_gives_it_back(get: Callable[[Any], object], client: Client) -> None:
    """Before this process gets another item, and without a count of that delivery."""
    queue: JoinableQueue[int] = JoinableQueue(name="j")

    def check(where: str) -> None:
        assert not queue._open(), f"claimed after an interrupt at {where}"
        found = [queue.claim(timeout=PATIENCE), queue.claim(timeout=PATIENCE)]
        assert [(each.item, each.deliveries) for each in found] == [(1, 1), (2, 1)], f"after an interrupt at {where}"
        for each in found:
            each.done()
        queue.put_many([1, 2])

    queue.put_many([1, 2])
    assert strikes(lambda: get(queue), check, errors=(KeyboardInterrupt, TimeoutError), make=AfterCommit) > 10
    for each in tuple(queue._open()):
        each.done()


def strikes_split_by_server(
    server_kind: str, action: Callable[[], object], check: Callable[[str], object], step: int
) -> int:
    """Interrupt at half of the places on each server: they are in the client's own code."""
    return strikes(action, check, 2 * step, 1 + step * (server_kind == "zookeeper"))


@pytest.mark.slow("interrupts every line")
def test_interrupt_loses_no_prefetched_item(
    client: Client, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, server_kind: str
) -> None:
    monkeypatch.setattr(joinable_protocol, "AHEAD_S", UNIT)
    ours, theirs = JoinableQueue(name="j", prefetch=2), JoinableQueue(name="j", client=make_client())

    def use() -> None:
        for _ in range(3):
            ours.get()
            ours.task_done()

    def check(where: str) -> None:
        for each in tuple(ours._open()):
            each.done()
        eventually(lambda: unfinished(theirs) == 0, f"an item is left after an interrupt at {where}")
        theirs.put_many("abc")

    theirs.put_many("abc")
    assert strikes_split_by_server(server_kind, use, check, 2 * STEP) > 100


def unfinished(queue: JoinableQueue[Any]) -> int:
    """Return the number of items that were put and are not done, after ending one that is unclaimed."""
    with suppress(Empty):
        queue.claim(block=False).done()
    znodes = queue._claims.znodes
    puts, dones = queue.client.run(read_all(Exists(znodes.puts), Exists(znodes.dones)))
    return int(puts.version - dones.version)


@pytest.mark.slow("interrupts every line")
def test_item_of_an_interrupted_worker_is_done_or_redelivered(
    client: Client, make_client: MakeClient, server_kind: str
) -> None:
    ours, theirs = JoinableQueue(name="j"), JoinableQueue(name="j", client=make_client())

    def use() -> None:
        ours.get()
        ours.task_done()

    def check(where: str) -> None:
        for each in ours._open():
            each.done()
        eventually(lambda: unfinished(theirs) == 0, f"an item is left after an interrupt at {where}")
        theirs.put("item")

    theirs.put("item")
    use()
    theirs.put("item")
    assert strikes_split_by_server(server_kind, use, check, STEP) > 100


TURNS: list[Callable[[str], Callable[[], object]]] = [
    lambda name: partial(Counter(name=name).add, 1),
    lambda name: RateLimiter(1e6, name=name).acquire,
    lambda name: partial(IdGenerator(1, name=name).next_ids, 2),
]


@pytest.mark.slow("interrupts every line")
@pytest.mark.parametrize("make", TURNS, ids=["Counter", "RateLimiter", "IdGenerator"])
def test_call_after_an_interrupted_call_does_not_wait_for_it(
    make: Callable[[str], Callable[[], object]], client: Client
) -> None:
    """The threads of a process take turns, and an interrupted call passes its turn on."""
    with ThreadPoolExecutor(1) as executor:
        step = max(1, STEP // 3)
        assert strikes(make("n"), lambda where: executor.submit(make("n")).result(PATIENCE), step) > 20
