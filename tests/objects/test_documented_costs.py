"""Documented costs of calls: the numbers in the docstrings equal those of the requests that a client
sends.

The znodes of the objects and the receipt of the process already exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.documented_costs import documented_cost
from helpers.request_counts import counted

from distsync import CountDownLatch, Delivery, Gate, JoinableQueue
from distsync._client.client import Client
from distsync.queue import LifoQueue, PriorityQueue, Queue
from distsync.recipes import Counter, Election, IdGenerator, RateLimiter, Value
from distsync.threading import Barrier, Event, Lock, RLock, Semaphore

pytestmark = pytest.mark.usefixtures("no_guards", "nothing_kept")

Step = tuple[Callable[[], Any], Any, str]
"""A call, the object that documents its cost, and the words next to that cost."""


def locks() -> Iterator[Step]:
    for kind in (Lock, RLock):
        lock: Any = kind(name=kind.__name__)
        with lock:
            pass
        yield lock.acquire, Lock.acquire, "if it is free"
        yield lambda lock=lock: lock.fencing_token, type(lock).fencing_token, ""
        yield lock.release, Lock.release, "otherwise"


def lock_state() -> Iterator[Step]:
    lock = Lock(name="lock")
    with lock:
        yield lock.locked, Lock.locked, "if this process holds or caches the lock"
        yield lambda: lock.held, Lock.held, ""


def semaphores() -> Iterator[Step]:
    slots = Semaphore(2, name="slots")
    with slots:
        pass
    yield slots.acquire, Semaphore.acquire, "if a permit is free"
    yield slots.release, Semaphore.release, "for each permit that is held"
    slots.release()  # the first permit that is added creates a znode
    yield slots.release, Semaphore.release, "for new ones"
    yield slots.get_value, Semaphore.get_value, ""


def events() -> Iterator[Step]:
    event = Event(name="event")
    event.set()
    yield event.set, Event.set, ""
    yield event.wait, Event.wait, ""
    yield event.clear, Event.clear, "if the flag is set"
    yield event.clear, Event.clear, "if it is not"


def barriers() -> Iterator[Step]:
    start = Barrier(1, name="start")
    for _ in range(2):
        start.wait()
    yield lambda: start.n_waiting, Barrier.n_waiting, ""
    yield lambda: start.broken, Barrier.broken, ""
    yield start.abort, Barrier.abort, ""
    yield start.abort, Barrier.abort, "if the barrier was already broken"


def gates() -> Iterator[Step]:
    gate = Gate(name="gate")
    gate.close()
    yield gate.open, Gate.open, ""
    yield gate.wait, Gate.wait, "if the gate is open"
    yield gate.close, Gate.close, ""
    yield lambda: gate.is_open, Gate.is_open, ""
    gate.open()


def queues() -> Iterator[Step]:
    jobs, few = Queue[int](name="jobs"), Queue[int](9, name="few")
    for number in range(5):
        jobs.put(number)
        few.put(number)
    jobs.get()
    yield lambda: jobs.put(5), Queue.put, ""
    yield lambda: few.put(5), Queue.put, "with a bound"
    yield jobs.get, Queue.get, "if items are waiting"
    yield jobs.task_done, Queue.task_done, "for an item that this process got"
    yield jobs.qsize, Queue.qsize, ""
    yield jobs.empty, Queue.empty, ""
    yield few.full, Queue.full, ""
    yield jobs.full, Queue.full, "without a bound"
    yield lambda: jobs.unfinished_tasks, Queue.unfinished_tasks, ""
    yield lambda: jobs.is_shutdown, Queue.is_shutdown, ""
    yield jobs.shutdown, Queue.shutdown, ""


def ordered_queues() -> Iterator[Step]:
    for kind in (LifoQueue, PriorityQueue):
        queue = kind[int](name=kind.__name__)
        queue.put(0)
        queue.put(1)
        yield lambda queue=queue: queue.put(2), kind, "or 3 with a bound"
        yield queue.get, kind, "if items are waiting"


def joinable_queues() -> Iterator[Step]:
    jobs = JoinableQueue[int](name="work")
    for number in range(6):
        jobs.put(number)
    jobs.claim().done()
    yield lambda: jobs.put(6), JoinableQueue.put, ""
    claimed: list[Delivery[int]] = []
    yield lambda: claimed.append(jobs.claim()), JoinableQueue.claim, "if items are waiting"
    yield claimed[0].done, Delivery.done, ""
    claimed.append(jobs.claim())
    yield claimed[1].nack, Delivery.nack, ""
    jobs.claim()
    yield jobs.task_done, JoinableQueue.task_done, ""


def counters() -> Iterator[Step]:
    votes, result, ids = Counter(name="votes"), Value(0, name="result"), IdGenerator(2, name="ids")
    votes.add(1)
    result.set(1)
    yield lambda: votes.add(1), Counter.add, ""
    yield votes.get, Counter.get, ""
    yield lambda: votes.get(sync=True), Counter.get, "with ``sync``"
    yield lambda: votes.set(7), Counter.set, ""
    yield result.get, Value.get, ""
    yield result.read, Value.read, ""
    yield lambda: result.set(2), Value.set, ""
    yield lambda: result.update(lambda old: old + 1), Value.update, ""
    ids.next_id()
    yield ids.next_id, IdGenerator.next_id, "if ids of this process's block are left"
    yield ids.next_id, IdGenerator.next_id, "otherwise"


def others() -> Iterator[Step]:
    done, calls, leader = CountDownLatch(5, name="done"), RateLimiter(1000, name="calls"), Election(name="leader")
    done.count_down()
    calls.acquire()
    leader.acquire()
    leader.release()
    yield done.count_down, CountDownLatch.count_down, ""
    yield calls.acquire, RateLimiter.acquire, ""
    yield leader.acquire, Election.acquire, "if there is no other candidate"
    yield lambda: leader.is_leader, Election.is_leader, ""
    yield leader.release, Election.release, ""


@pytest.mark.parametrize(
    "steps",
    [
        locks, lock_state, semaphores, events, barriers, gates,
        queues, ordered_queues, joinable_queues, counters, others,
    ],
)  # fmt: skip
def test_call_costs_what_its_docstring_says(client: Client, steps: Callable[[], Iterator[Step]]) -> None:
    measured: dict[str, tuple[int, int | None]] = {}
    documented: dict[str, tuple[int, int | None]] = {}
    for call, documents, condition in steps():
        requests, round_trips = documented_cost(documents, condition)
        with counted(client) as cost:
            call()
        name = f"{len(measured)} {getattr(documents, '__qualname__', documents)} {condition}"
        documented[name] = requests, round_trips
        measured[name] = cost.requests, None if round_trips is None else cost.round_trips
    assert measured == documented
