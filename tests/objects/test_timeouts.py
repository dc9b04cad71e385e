"""Timeouts of calls that ask the server, while it is paused or stopped: by argument, by block, by default.

All calls run at the same time, each in a thread and on an object of its own.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf, nan
from typing import Any

import pytest
from helpers.interrupt_every_line import strikes
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, Control, eventually
from helpers.worker_processes import Running

import distsync
from distsync import asyncio as aio
from distsync import multiprocessing
from distsync._client.client import Client
from distsync._client.deadlines import GRACE_S, ask_timeout, limit_predicate
from distsync._objects.fenced_transaction import GuardedTransaction
from distsync.errors import DeadlineError
from distsync.queue import Queue, SimpleQueue
from distsync.recipes import (
    Config,
    CountDownLatch,
    Counter,
    Delivery,
    DoubleBarrier,
    Election,
    Gate,
    Group,
    IdGenerator,
    JoinableQueue,
    Participant,
    Partitioner,
    Registry,
    SharedLock,
    Transaction,
    Value,
)
from distsync.threading import Barrier, Condition, Event, Lock, Semaphore

SECONDS = 10 * UNIT
"""The timeout of each call."""

SHORT = 6 * UNIT
"""The time of a block that ends during a test, and is long enough for a call."""

LONG_SESSION_S = 10.0
"""The session is alive until the end of a test."""

Call = Callable[..., Any]


def change_at(obj: Any, key: str) -> None:
    obj[key] = 1


def held_lock(name: str, client: Client) -> Lock:
    lock = Lock(name=name, client=client, linger=0)
    lock.acquire()
    return lock


def held_table(name: str, client: Client) -> SharedLock:
    table = SharedLock(name=name, client=client, linger=0)
    table.acquire()
    return table


def led_election(name: str, client: Client) -> Election:
    election = Election(name=name, client=client)
    election.acquire()
    return election


def owned_condition(name: str, client: Client) -> Condition:
    """Return a condition whose lock belongs to this process, as its Lock belongs to no thread."""
    condition = Condition(Lock(name=f"lock of {name}", client=client, linger=0), name=name, client=client)
    condition.acquire()
    return condition


def joined_group(name: str, client: Client) -> Group:
    group = Group(name=name, client=client)
    group.join()
    return group


def begun_transaction(name: str, client: Client) -> Participant:
    transaction = Transaction(["site"], name=name, client=client)
    transaction.begin()
    return transaction.participant("site")


def claimed(name: str, client: Client) -> JoinableQueue[int]:
    """Return a queue with an item that this thread has got."""
    queue = JoinableQueue[int](name=name, client=client)
    queue.put(1)
    queue.get()
    return queue


def delivery(name: str, client: Client) -> Delivery[int]:
    queue = JoinableQueue[int](name=name, client=client)
    queue.put(1)
    return queue.claim()


def guarded(name: str, client: Client) -> GuardedTransaction:
    change = held_lock(name, client).transaction()
    change.create("/changed")
    return change


def in_loop(call: Callable[..., Any]) -> Call:
    """Return a function that runs a coroutine function in an event loop of its own."""
    return lambda it, **limit: asyncio.run(call(it, **limit))


async def put_async(queue: aio.Queue[int]) -> None:
    await queue.put(1)


Latch = partial(CountDownLatch, 3)
Step = partial(DoubleBarrier, 2)
Gathering = partial(Barrier, 2)
Ids = partial(IdGenerator, 1)
Shares = partial(Partitioner, ["a", "b"])
Slots = partial(Semaphore, 2)
Votes = partial(Transaction, ["site"])

#: Calls with a parameter ``timeout``: how to make the object, and the call.
CALLS: dict[str, tuple[Callable[..., Any], Call]] = {
    "Counter.get": (Counter, lambda it, **limit: it.get(**limit)),
    "Counter.get with sync": (Counter, lambda it, **limit: it.get(sync=True, **limit)),
    "Counter.add": (Counter, lambda it, **limit: it.add(2, **limit)),
    "Counter.set": (Counter, lambda it, **limit: it.set(7, **limit)),
    "Counter.compare_and_set": (Counter, lambda it, **limit: it.compare_and_set(0, 1, **limit)),
    "Counter.destroy": (Counter, lambda it, **limit: it.destroy(**limit)),
    "Value.read": (Value, lambda it, **limit: it.read(**limit)),
    "Value.get": (Value, lambda it, **limit: it.get(**limit)),
    "Value.set": (Value, lambda it, **limit: it.set(1, **limit)),
    "Value.set of a version": (Value, lambda it, **limit: it.set(1, version=0, **limit)),
    "Value.compare_and_set": (Value, lambda it, **limit: it.compare_and_set(None, 1, **limit)),
    "Value.update": (Value, lambda it, **limit: it.update(lambda old: 1, **limit)),
    "Config.snapshot": (Config, lambda it, **limit: it.snapshot(sync=True, **limit)),
    "Config.replace": (Config, lambda it, **limit: it.replace({"a": 1}, **limit)),
    "Config.clear": (Config, lambda it, **limit: it.clear(**limit)),
    "Config.pop": (Config, lambda it, **limit: it.pop("a", None, **limit)),
    "Config.setdefault": (Config, lambda it, **limit: it.setdefault("a", 1, **limit)),
    "Config.compare_and_set": (Config, lambda it, **limit: it.compare_and_set("a", ..., 1, **limit)),
    "Config.edit": (Config, lambda it, **limit: it.edit(dict.clear, **limit)),
    "Gate.close": (Gate, lambda it, **limit: it.close(**limit)),
    "Gate.open": (Gate, lambda it, **limit: it.open(**limit)),
    "CountDownLatch.count_down": (Latch, lambda it, **limit: it.count_down(**limit)),
    "CountDownLatch.try_set_count": (Latch, lambda it, **limit: it.try_set_count(1, **limit)),
    "IdGenerator.next_id": (Ids, lambda it, **limit: it.next_id(**limit)),
    "IdGenerator.next_ids": (Ids, lambda it, **limit: it.next_ids(3, **limit)),
    "Registry.register": (Registry, lambda it, **limit: it.register("a", 1, replace=True, **limit)),
    "Registry.resolve": (Registry, lambda it, **limit: it.resolve("a", sync=True, **limit)),
    "Group.join": (Group, lambda it, **limit: it.join(**limit)),
    "Group.find_members": (Group, lambda it, **limit: it.find_members(sync=True, **limit)),
    "Partitioner.join": (Shares, lambda it, **limit: it.join(**limit)),
    "Transaction.votes": (Votes, lambda it, **limit: it.votes(**limit)),
    "Transaction.abort": (begun_transaction, lambda it, **limit: it.transaction.abort(**limit)),
    "Participant.vote": (begun_transaction, lambda it, **limit: it.vote(True, **limit)),
    "Participant.leave": (begun_transaction, lambda it, **limit: it.leave(**limit)),
    "JoinableQueue.nack": (claimed, lambda it, **limit: it.nack(**limit)),
    "JoinableQueue.nack with delay": (claimed, lambda it, **limit: it.nack(delay=1, **limit)),
    "Delivery.done": (delivery, lambda it, **limit: it.done(**limit)),
    "Delivery.nack": (delivery, lambda it, **limit: it.nack(**limit)),
    "Semaphore.get_value": (Slots, lambda it, **limit: it.get_value(**limit)),
    "Semaphore.holders": (Slots, lambda it, **limit: it.holders(**limit)),
    "Semaphore.waiters": (Slots, lambda it, **limit: it.waiters(**limit)),
    "kazoo's Semaphore.holders": (partial(Slots, layout="kazoo"), lambda it, **limit: it.holders(**limit)),
    "kazoo's Semaphore.waiters": (partial(Slots, layout="kazoo"), lambda it, **limit: it.waiters(**limit)),
    "Lock.holders": (Lock, lambda it, **limit: it.holders(**limit)),
    "Lock.waiters": (Lock, lambda it, **limit: it.waiters(**limit)),
    "Lock.revoke": (held_lock, lambda it, **limit: it.revoke(**limit)),
    "SharedLock.holders": (SharedLock, lambda it, **limit: it.holders(**limit)),
    "SharedLock.waiters": (SharedLock, lambda it, **limit: it.waiters(**limit)),
    "SharedLock.revoke": (held_table, lambda it, **limit: it.revoke(**limit)),
    "SharedLock.writer.revoke": (held_table, lambda it, **limit: it.writer.revoke(**limit)),
    "SharedLock.reader.holders": (SharedLock, lambda it, **limit: it.reader.holders(**limit)),
    "Election.announce": (led_election, lambda it, **limit: it.announce("done", **limit)),
    "Election.candidates": (Election, lambda it, **limit: it.candidates(**limit)),
    "Election.find_leader": (Election, lambda it, **limit: it.find_leader(sync=True, **limit)),
    "asyncio.Election.candidates": (aio.Election, in_loop(aio.Election.candidates)),
    "asyncio.Election.find_leader": (aio.Election, in_loop(partial(aio.Election.find_leader, sync=True))),
    "Lock.transaction.commit": (guarded, lambda it, **limit: it.commit(**limit)),
    "Queue.destroy": (Queue, lambda it, **limit: it.destroy(**limit)),
    "multiprocessing.Queue.destroy": (multiprocessing.Queue, lambda it, **limit: it.destroy(**limit)),
    "asyncio.Lock.destroy": (aio.Lock, in_loop(aio.Lock.destroy)),
    "Client.sync": (lambda name, client: client, lambda it, **limit: it.sync(**limit)),
}

#: Calls of these whose state is in a cache, and so need no server; and calls that can be made once.
NOT_REPEATED = {
    *("Config.setdefault", "Delivery.done", "Delivery.nack", "JoinableQueue.nack", "JoinableQueue.nack with delay"),
    *("Lock.transaction.commit", "Partitioner.join", "Registry.resolve", "Participant.leave", "Participant.vote"),
}

#: Calls without it, to which the client's default and `distsync.timeout` apply.
LIMITED: dict[str, tuple[Callable[..., Any], Call]] = {
    "Counter.value": (Counter, lambda it: it.value),
    "Counter +=": (Counter, lambda it: it.__iadd__(1)),
    "Counter -=": (Counter, lambda it: it.__isub__(1)),
    "Config[] =": (Config, lambda it: change_at(it, "a")),
    "Config.update": (Config, lambda it: it.update(timeout=1)),
    "del Config[]": (Config, lambda it: it.__delitem__("a")),
    "Config[]": (Config, lambda it: it["a"]),
    "len(Config)": (Config, len),
    "iter(Config)": (Config, list),
    "in Config": (Config, lambda it: "a" in it),
    "Gate.is_open": (Gate, lambda it: it.is_open),
    "CountDownLatch.count": (Latch, lambda it: it.count),
    "next(IdGenerator)": (Ids, next),
    "Registry[] =": (Registry, lambda it: change_at(it, "a")),
    "del Registry[]": (Registry, lambda it: it.__delitem__("a")),
    "Registry[]": (Registry, lambda it: it["a"]),
    "len(Registry)": (Registry, len),
    "iter(Registry)": (Registry, list),
    "Group.members": (Group, lambda it: it.members),
    "len(Group)": (Group, len),
    "iter(Group)": (Group, list),
    "Transaction.outcome": (Votes, lambda it: it.outcome),
    "Transaction.reason": (Votes, lambda it: it.reason),
    "DoubleBarrier.n_waiting": (Step, lambda it: it.n_waiting),
    "DoubleBarrier.n_inside": (Step, lambda it: it.n_inside),
    "Barrier.n_waiting": (Gathering, lambda it: it.n_waiting),
    "Barrier.broken": (Gathering, lambda it: it.broken),
    "Barrier.reset": (Gathering, lambda it: it.reset()),
    "Barrier.abort": (Gathering, lambda it: it.abort()),
    "Event.is_set": (Event, lambda it: it.is_set()),
    "Event.set": (Event, lambda it: it.set()),
    "Event.clear": (Event, lambda it: it.clear()),
    "Lock.locked": (Lock, lambda it: it.locked()),
    "SharedLock.locked": (SharedLock, lambda it: it.locked()),
    "SharedLock.reader.locked": (SharedLock, lambda it: it.reader.locked()),
    "Election.leader": (Election, lambda it: it.leader),
    "Election.locked": (Election, lambda it: it.locked()),
    "Condition.notify": (owned_condition, lambda it: it.notify()),
    "Condition.notify_all": (owned_condition, lambda it: it.notify_all()),
    "asyncio.Election.leader": (aio.Election, lambda it: it.leader),
    "Semaphore.release": (Slots, lambda it: it.release()),
    "signal": (partial(Semaphore, 0), lambda it: it.release()),
    "Queue.put": (Queue, lambda it: it.put(1)),
    "Queue.put_many": (Queue, lambda it: it.put_many([1, 2])),
    "Queue.qsize": (Queue, lambda it: it.qsize()),
    "Queue.empty": (Queue, lambda it: it.empty()),
    "Queue.full": (partial(Queue, 1), lambda it: it.full()),
    "Queue.task_done": (Queue, lambda it: it.task_done()),
    "Queue.shutdown": (Queue, lambda it: it.shutdown()),
    "Queue.shutdown at once": (Queue, lambda it: it.shutdown(immediate=True)),
    "Queue.is_shutdown": (Queue, lambda it: it.is_shutdown),
    "Queue.unfinished_tasks": (Queue, lambda it: it.unfinished_tasks),
    "SimpleQueue.put": (SimpleQueue, lambda it: it.put(1)),
    "SimpleQueue.qsize": (SimpleQueue, lambda it: it.qsize()),
    "JoinableQueue.put": (JoinableQueue, lambda it: it.put(1)),
    "JoinableQueue.put with a key": (JoinableQueue, lambda it: it.put(1, key="a")),
    "JoinableQueue.put_many": (JoinableQueue, lambda it: it.put_many([1, 2])),
    "JoinableQueue.task_done": (claimed, lambda it: it.task_done()),
    "JoinableQueue.qsize": (JoinableQueue, lambda it: it.qsize()),
    "JoinableQueue.shutdown": (JoinableQueue, lambda it: it.shutdown()),
    "multiprocessing.Queue.qsize": (multiprocessing.Queue, lambda it: it.qsize()),
    "multiprocessing.SimpleQueue.put": (multiprocessing.SimpleQueue, lambda it: it.put(1)),
    "multiprocessing.SimpleQueue.empty": (multiprocessing.SimpleQueue, lambda it: it.empty()),
    "multiprocessing.JoinableQueue.task_done": (multiprocessing.JoinableQueue, lambda it: it.task_done()),
    "asyncio.Barrier.reset": (partial(aio.Barrier, 2), in_loop(aio.Barrier.reset)),
    "asyncio.Barrier.abort": (partial(aio.Barrier, 2), in_loop(aio.Barrier.abort)),
    "asyncio.Barrier.broken": (partial(aio.Barrier, 2), lambda it: it.broken),
    "asyncio.Queue.put": (aio.Queue, in_loop(put_async)),
    "asyncio.Queue.qsize": (aio.Queue, lambda it: it.qsize()),
    "asyncio.Queue.shutdown": (aio.Queue, lambda it: it.shutdown()),
    "asyncio.Queue.shutdown at once": (aio.Queue, lambda it: it.shutdown(immediate=True)),
    "asyncio.Semaphore.locked": (partial(aio.Semaphore, 2), lambda it: it.locked()),
    "asyncio.Lock.locked": (aio.Lock, lambda it: it.locked()),
}


@pytest.fixture
def make(own_server: ServerProcess) -> Iterator[Callable[..., Client]]:
    """Yield a function that creates clients of the server that the test stops."""
    made: list[Client] = []

    def make_client(**settings: Any) -> Client:
        made.append(Client(own_server.hosts, namespace="/timeouts", session_timeout=LONG_SESSION_S, **settings))
        return made[-1]

    yield make_client
    for client in made:
        client.close()


@pytest.fixture(params=["paused", "killed"])
def stop(request: pytest.FixtureRequest, own_server: ServerProcess) -> Iterator[Callable[[], None]]:
    """Yield a function after which the server does not answer."""
    yield own_server.pause if request.param == "paused" else own_server.kill
    if own_server.process is not None:
        own_server.resume()


def ended(call: Callable[[], Any]) -> tuple[str, float]:
    """Return the name of the error that ``call`` raises, or its result, and the seconds that it takes."""
    began = time.monotonic()
    try:
        outcome = repr(call())
    except BaseException as error:
        outcome = type(error).__name__
    return outcome, time.monotonic() - began


def check_all_time_out(calls: dict[str, Callable[[], Any]]) -> None:
    with Control() as control:
        running = {name: Running(ended, call) for name, call in calls.items()}
        found = {name: call.result() for name, call in running.items()}
    late = SECONDS + GRACE_S + 6 * UNIT + control.late
    wrong = {name: each for name, each in found.items() if each[0] != "DeadlineError" or not SECONDS <= each[1] <= late}
    assert not wrong


def objects_of(client: Client, calls: dict[str, tuple[Callable[..., Any], Call]]) -> dict[str, Any]:
    """Return an object for each call, which has not been used."""
    made = {name: kind(name=f"o{number}", client=client) for number, (name, (kind, _)) in enumerate(calls.items())}
    client.sync()
    return made


def test_call_raises_deadline_error_at_its_timeout(make: Callable[..., Client], stop: Callable[[], None]) -> None:
    objects = objects_of(make(), CALLS)
    stop()
    check_all_time_out({name: partial(CALLS[name][1], each, timeout=SECONDS) for name, each in objects.items()})


def test_call_of_a_used_object_raises_deadline_error_at_its_timeout(
    make: Callable[..., Client], stop: Callable[[], None]
) -> None:
    """A write was sent, or is sent to a server that does not answer, and its outcome is unknown."""
    calls = {name: call for name, call in CALLS.items() if name not in NOT_REPEATED}
    objects = objects_of(make(), calls)
    for name, each in objects.items():
        calls[name][1](each)
    stop()
    check_all_time_out({name: partial(calls[name][1], each, timeout=SECONDS) for name, each in objects.items()})


def test_call_without_a_timeout_ends_at_the_default_of_its_client(
    make: Callable[..., Client], stop: Callable[[], None]
) -> None:
    every = {**CALLS, **LIMITED}
    objects = objects_of(make(timeout=SECONDS), every)
    stop()
    check_all_time_out({name: partial(every[name][1], each) for name, each in objects.items()})


def test_call_in_a_block_ends_with_the_time_of_the_block(make: Callable[..., Client], stop: Callable[[], None]) -> None:
    """The default, which is shorter here, does not apply in the block."""
    every = {**CALLS, **LIMITED}
    objects = objects_of(make(timeout=SECONDS / 2), every)
    stop()

    def in_block(name: str) -> None:
        with distsync.timeout(SECONDS):
            every[name][1](objects[name])

    check_all_time_out({name: partial(in_block, name) for name in objects})


def test_write_that_timed_out_is_executed_at_most_once(
    make: Callable[..., Client], own_server: ServerProcess, stop: Callable[[], None]
) -> None:
    number = Counter(name="n", client=make())
    number.add(1)
    stop()
    with pytest.raises(DeadlineError):
        number.add(10, timeout=UNIT)
    own_server.resume() if own_server.process is not None else own_server.start()
    number.add(100, timeout=PATIENCE)
    assert number.get() in (101, 111)


def test_turn_of_a_thread_that_waits_for_another_one_ends_in_time(
    make: Callable[..., Client], own_server: ServerProcess
) -> None:
    """It went on without its turn, and sent a request after its deadline."""
    number = Counter(name="n", client=make())
    number.add(1)
    own_server.pause()
    try:
        first = Running(number.add, 10)
        eventually(lambda: number._core.turns.is_held)
        requests = number.client.statistics().requests
        with pytest.raises(DeadlineError, match="another change"):
            number.add(100, timeout=2 * UNIT)
        assert number.client.statistics().requests == requests
    finally:
        own_server.resume()
    assert first.result() == 11
    assert number.get() == 11


@pytest.mark.parametrize("end", [Delivery.done, Delivery.nack])
def test_delivery_whose_end_timed_out_is_done_or_redelivered(
    make: Callable[..., Client], own_server: ServerProcess, stop: Callable[[], None], end: Any
) -> None:
    """It stayed claimed by this process, which knew of it no more."""
    queue = JoinableQueue[int](name="q", client=make())
    queue.put(1)
    item = queue.claim()
    stop()
    with pytest.raises(DeadlineError):
        end(item, timeout=UNIT)
    own_server.resume() if own_server.process is not None else own_server.start()
    other = JoinableQueue[int](name="q", client=make())
    eventually(lambda: other.unfinished_tasks == 0 or other.qsize() == 1)
    if other.unfinished_tasks:
        assert other.get(timeout=PATIENCE) == 1
        other.task_done()
    other.join()


def test_delivery_is_kept_if_no_time_is_left_to_end_it(client: Client) -> None:
    queue = JoinableQueue[int](name="q")
    queue.put(1)
    item = queue.claim()
    with distsync.timeout(SHORT):
        time.sleep(SHORT + UNIT)
        with pytest.raises(DeadlineError):
            item.done()
    item.done()
    queue.join()


def test_member_that_could_not_leave_in_time_leaves_afterwards(
    make: Callable[..., Client], own_server: ServerProcess, stop: Callable[[], None]
) -> None:
    group, shares = Group(name="g", client=make()), Partitioner(["a"], name="p", client=make())
    for _ in range(3):
        group.join()
    shares.join()
    assert shares.wait_for(lambda: len(shares) == 1, PATIENCE)
    stop()
    outcomes = [Running(ended, partial(each.leave, timeout=SECONDS)).result() for each in (group, shares)]
    assert [outcome for outcome, _ in outcomes] == ["None", "DeadlineError"]
    assert max(seconds for _, seconds in outcomes) < 2 * SECONDS + 4 * GRACE_S
    assert not group.joined
    own_server.resume() if own_server.process is not None else own_server.start()
    client = make()
    eventually(lambda: len(Group(name="g", client=client)) == 0)
    eventually(lambda: not shares.shares)


def test_join_that_waits_for_another_one_ends_in_time(make: Callable[..., Client], own_server: ServerProcess) -> None:
    """It looked for the end of the other one again and again, and never ended."""
    shares = Partitioner(["a"], name="p", client=make())
    shares.client.sync()
    own_server.pause()
    try:
        first = Running(shares.join)
        eventually(lambda: shares._core._joining is not None)
        with pytest.raises(DeadlineError, match="another membership"):
            shares.join(timeout=2 * UNIT)
    finally:
        own_server.resume()
    first.result()
    shares.leave()


# ---- distsync.timeout


def test_blocks_nest_and_the_nearer_deadline_counts(client: Client) -> None:
    number = Counter(name="n")
    with distsync.timeout(PATIENCE), distsync.timeout(SHORT), distsync.timeout(None), distsync.timeout(PATIENCE):
        number += 1
        time.sleep(SHORT + UNIT)
        with pytest.raises(DeadlineError, match="no time is left") as late:
            number.add(10)
        assert not late.value.sent
        with pytest.raises(DeadlineError):
            number.add(100, timeout=PATIENCE)
    assert number.add(1000) == 1001


def test_block_counts_from_its_start_and_ends_with_an_exception(client: Client) -> None:
    number, limit = Counter(name="n"), distsync.timeout(SHORT)
    time.sleep(SHORT + UNIT)
    with suppress(KeyError), limit:
        number.add(1)
        raise KeyError
    time.sleep(SHORT)
    assert number.add(1) == 2


def test_block_is_that_of_its_thread_and_of_its_task(client: Client) -> None:
    number = Counter(name="n")

    async def limited() -> str:
        with distsync.timeout(SHORT):
            await asyncio.sleep(SHORT + UNIT)
            return remote.catch(number.add, 1)

    async def free() -> str:
        await asyncio.sleep(SHORT)
        return remote.catch(number.add, 10)

    async def both() -> list[str]:
        return await asyncio.gather(limited(), free())

    with distsync.timeout(SHORT):
        time.sleep(SHORT + UNIT)
        assert Running(remote.catch, number.add, 100).result() == "100"
    assert asyncio.run(both()) == ["DeadlineError", "110"]


def test_block_of_no_seconds_gets_replies_of_a_server_that_answers(client: Client) -> None:
    with distsync.timeout(0):
        assert Counter(name="n").add(1) == 1


def test_release_after_the_end_of_a_block_is_executed(client: Client) -> None:
    lock = Lock(name="a")
    with distsync.timeout(SHORT):
        lock.acquire()
        time.sleep(SHORT + UNIT)
        lock.release()
    assert not lock.locked()


@pytest.mark.parametrize("limit", [None, PATIENCE])
def test_items_of_tasks_keep_their_order_with_a_default(
    make_client: Callable[..., Client], limit: float | None
) -> None:
    """The first task creates the znodes of the queue, and the others found them and overtook it."""
    client = make_client(timeout=limit)

    async def put_all(name: str) -> list[int]:
        box = aio.Queue[int](name=name, client=client)
        await asyncio.gather(*(box.put(number) for number in range(5)))
        return [await box.get() for _ in range(5)]

    async def fill_queues() -> list[list[int]]:
        return [await put_all(f"q{number}") for number in range(30)]

    assert asyncio.run(fill_queues()) == [[*range(5)]] * 30


def test_task_that_waits_for_the_start_of_another_call_ends_in_time(
    make: Callable[..., Client], own_server: ServerProcess
) -> None:
    client = make(timeout=SECONDS)
    client.sync()
    own_server.pause()

    async def put_two() -> list[Any]:
        box = aio.Queue[int](name="q", client=client)
        return await asyncio.gather(box.put(1), box.put(2), return_exceptions=True)

    with Control() as control:
        began = time.monotonic()
        outcomes = asyncio.run(put_two())
        seconds = time.monotonic() - began
    own_server.resume()
    assert [type(each) for each in outcomes] == [DeadlineError] * 2
    assert seconds < SECONDS + 2 * GRACE_S + 6 * UNIT + control.late


def test_interrupt_at_any_place_of_a_block_leaves_no_limit() -> None:
    """All later calls of the thread raised DeadlineError, once the time of the block had passed."""

    def use_blocks() -> None:
        with distsync.timeout(PATIENCE), limit_predicate(0.0):
            pass

    def check_no_limit(where: str) -> None:
        assert ask_timeout(None, PATIENCE) == PATIENCE, where

    assert strikes(use_blocks, check_no_limit) > 20
    assert ask_timeout(None, PATIENCE) == PATIENCE


def test_block_is_entered_once() -> None:
    limit = distsync.timeout(PATIENCE)
    with limit, pytest.raises(RuntimeError, match="entered before"), limit:
        raise AssertionError("it was entered twice")
    assert ask_timeout(None, None) is None


# ---- what counts


def test_minus_one_waits_longer_than_the_default(make: Callable[..., Client], own_server: ServerProcess) -> None:
    number = Counter(name="n", client=make(timeout=UNIT))
    number.add(1, timeout=PATIENCE)
    own_server.pause()
    waiting = Running(partial(number.add, 1, timeout=-1))
    with pytest.raises(DeadlineError):
        number.get()
    time.sleep(SECONDS)
    assert waiting.is_alive()
    own_server.resume()
    assert waiting.result() == 2


def test_default_does_not_limit_a_wait_for_another_process(make_client: Callable[..., Client]) -> None:
    hasty, other = make_client(timeout=2 * UNIT), make_client()
    flag = Event(name="e", client=hasty)
    waiting = [Running(flag.wait), Running(Queue[int](name="q", client=hasty).get)]
    waiting.append(Running(Config(name="c", client=hasty).wait_for, lambda: Counter(name="n", client=hasty).get()))
    time.sleep(SECONDS)
    assert all(each.is_alive() for each in waiting)
    Event(name="e", client=other).set()
    Queue[int](name="q", client=other).put(1)
    Counter(name="n", client=other).set(3)
    Config(name="c", client=other)["a"] = 1
    assert [each.result() for each in waiting] == [True, 1, 3]


def test_default_does_not_end_a_wait_whose_predicate_reads_in_an_outage(
    make: Callable[..., Client], own_server: ServerProcess
) -> None:
    """A call without a timeout waits, and so do the reads of its predicate."""
    client = make(timeout=2 * UNIT)
    settings, number = Config(name="c", client=client), Counter(name="n", client=client)
    settings.snapshot(timeout=PATIENCE)
    evaluated: list[bool] = []

    def is_positive() -> bool:
        if not evaluated:
            own_server.pause()
        evaluated.append(True)
        return number.get() >= 0

    waiting = Running(settings.wait_for, is_positive)
    eventually(lambda: evaluated)
    time.sleep(SECONDS)
    own_server.resume()
    assert waiting.result() is True


# ---- the standard library's calls


def owned(condition: Any) -> Any:
    condition.acquire()
    return condition


def held(lock: Any) -> Any:
    lock.acquire()
    return lock


def set_event(event: Any) -> Any:
    event.set()
    return event


def filled(box: Any) -> Any:
    box.put(1)
    return box


#: Calls with a timeout of the standard library: how to make the object with its module, and the call.
COMPARED: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "Lock.acquire": (lambda of, **name: held(of.Lock(**name)), lambda it, seconds: it.acquire(timeout=seconds)),
    "free RLock.acquire": (lambda of, **name: of.RLock(**name), lambda it, seconds: it.acquire(timeout=seconds)),
    "Semaphore.acquire": (lambda of, **name: of.Semaphore(0, **name), lambda it, seconds: it.acquire(True, seconds)),
    "free Semaphore.acquire": (
        lambda of, **name: of.Semaphore(1, **name),
        lambda it, seconds: it.acquire(timeout=seconds),
    ),
    "Event.wait": (lambda of, **name: of.Event(**name), lambda it, seconds: it.wait(seconds)),
    "set Event.wait": (lambda of, **name: set_event(of.Event(**name)), lambda it, seconds: it.wait(seconds)),
    "Condition.wait": (lambda of, **name: owned(of.Condition(**name)), lambda it, seconds: it.wait(seconds)),
    "Barrier.wait": (lambda of, **name: of.Barrier(2, **name), lambda it, seconds: it.wait(seconds)),
    "full Barrier.wait": (lambda of, **name: of.Barrier(1, **name), lambda it, seconds: it.wait(seconds)),
    "Queue.get": (lambda of, **name: of.Queue(**name), lambda it, seconds: it.get(timeout=seconds)),
    "filled Queue.get": (lambda of, **name: filled(of.Queue(**name)), lambda it, seconds: it.get(timeout=seconds)),
    "Queue.put": (lambda of, **name: filled(of.Queue(1, **name)), lambda it, seconds: it.put(1, timeout=seconds)),
    "free Queue.put": (lambda of, **name: of.Queue(1, **name), lambda it, seconds: it.put(1, timeout=seconds)),
    "unbounded Queue.put": (lambda of, **name: of.Queue(**name), lambda it, seconds: it.put(1, timeout=seconds)),
    "SimpleQueue.get": (lambda of, **name: of.SimpleQueue(**name), lambda it, seconds: it.get(timeout=seconds)),
    "filled SimpleQueue.get": (
        lambda of, **name: filled(of.SimpleQueue(**name)),
        lambda it, seconds: it.get(timeout=seconds),
    ),
}

ODD = [inf, nan, 1e18, -1, -inf, -2, 0, 0.0, True]
"""Timeouts; True is one second. A timeout that is not a number is refused in any case."""

ENDLESS = {
    *(("Semaphore.acquire", "nan"), ("Barrier.wait", "nan"), ("Queue.get", "nan"), ("Queue.put", "nan")),
    *(("filled Queue.get", "nan"), ("free Queue.put", "nan"), ("Lock.acquire", "-1")),
}
"""Calls that do not return: -1 is forever, and the standard library compares with NaN again and again."""


def outcome_of(call: Callable[[Any, Any], Any], obj: Any, seconds: Any) -> str:
    outcome = remote.catch(call, obj, seconds)
    if outcome == "True" and hasattr(obj, "release") or isinstance(obj, (Lock, Condition)):
        obj.release()
    return outcome


@pytest.mark.parametrize("name", COMPARED)
def test_odd_timeout_has_the_effect_that_it_has_in_the_standard_library(client: Client, name: str) -> None:
    make, call = COMPARED[name]
    module = queue if "Queue" in name else threading
    different = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, seconds in enumerate(ODD):
            if (name, str(seconds)) not in ENDLESS:
                theirs = outcome_of(call, make(module), seconds)
                ours = outcome_of(call, make(distsync, name=f"{number}"), seconds)
                if theirs != ours:
                    different[str(seconds)] = (theirs, ours)
        gc.collect()
    assert not different
    assert not caught  # of a coroutine that was never awaited


@pytest.mark.parametrize("seconds", [inf, 1e18, -1, -inf, 0])
def test_wait_for_evaluates_its_predicate_first_as_in_the_standard_library(client: Client, seconds: float) -> None:
    """It raised OverflowError although it did not have to wait."""
    theirs = threading.Condition()
    for ours in (Condition(name="c"), multiprocessing.Condition(name="m")):
        with ours, theirs:
            for predicate in (lambda: True, lambda: False):
                expected = remote.catch(theirs.wait_for, predicate, seconds)
                assert remote.catch(ours.wait_for, predicate, seconds) == expected


def test_wait_for_refuses_nan_if_it_has_to_wait(client: Client) -> None:
    """It waited for no time, again and again, as the standard library does."""
    looks, condition = iter([False, False, True]), Condition(name="c")
    with condition:
        assert condition.wait_for(lambda: True, nan) is True
        with pytest.raises(ValueError, match="not NaN"):
            condition.wait_for(lambda: next(looks), nan)


# ---- distsync's own calls


INVALID = {
    -2: ValueError,
    -inf: ValueError,
    nan: ValueError,
    inf: OverflowError,
    1e18: OverflowError,
    "soon": TypeError,
}


@pytest.mark.parametrize("seconds", INVALID)
def test_invalid_timeout_of_a_call_is_refused_and_nothing_is_done(client: Client, seconds: Any) -> None:
    number, value = Counter(name="n"), Value[Any](name="v")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in (number.add, number.get, partial(value.update, lambda old: 1), value.destroy, client.sync):
            with pytest.raises(INVALID[seconds]):
                call(timeout=seconds)
        with pytest.raises(INVALID[seconds]):
            distsync.timeout(seconds)
        gc.collect()
    assert not caught  # of a coroutine that was never awaited
    assert number.get() == 0
    assert value.get() is None


def test_invalid_timeout_of_a_wait_leaves_no_coroutine_that_is_never_awaited(client: Client) -> None:
    order = Transaction(["site"], name="t")
    order.begin()
    waits: list[Callable[..., Any]] = [Config(name="c").wait, Group(name="g").wait, Election(name="e").wait_for_leader]
    waits += [order.begin, order.decide, order.participant("site").take_part]
    waits.append(partial(multiprocessing.JoinableQueue(name="q").put, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for wait in waits:
            with pytest.raises(TypeError):
                wait(timeout="soon")
        gc.collect()
    assert not caught
    order.abort()
