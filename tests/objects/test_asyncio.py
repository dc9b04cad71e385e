"""Asyncio classes: objects shared by tasks and threads of two clients, without blocking the loop."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import threading as stdlib_threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from conftest import RECEIPTS
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, expire, waiting_calls

import distsync.asyncio as tasks
from distsync import queue, threading
from distsync._client import runtime
from distsync._client.client import Client
from distsync._client.deadlines import GRACE_S
from distsync._client.driver import asyncio_driver
from distsync._protocols import group_commit
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Call, SetData
from distsync.errors import ClientClosedError, LockLostError, NotHeldError, UnreachableError
from distsync.testing.faulty_proxy import Proxy

MANY = 40
THOUSAND, FEW = 1000, 10
SESSION_S = 60 * UNIT

MakeClient = Callable[..., Client]


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition without blocking the event loop."""
    await asyncio.wait_for(_until(condition), PATIENCE)


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(UNIT / 5)


class Ticks:
    """A task that counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    async def keep_running(self) -> None:
        """Wait for 20 more iterations of the event loop."""
        more = self.count + 20
        await until(lambda: self.count >= more)

    def stop(self) -> None:
        self._task.cancel()


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, 3 * PATIENCE))


# ---- objects shared by tasks and threads of two clients


def test_lock_is_shared_by_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Lock(name="x", client=client), threading.Lock(name="x", client=other)

    async def scenario() -> None:
        assert theirs.acquire()
        ticks = Ticks()
        waits = asyncio.create_task(ours.acquire())
        await until(lambda: waiting_calls(client) == 1)
        await ticks.keep_running()
        assert not waits.done()
        theirs.release()
        assert await waits is True
        assert ours.held
        assert ours.locked()
        assert ours.fencing_token > 0
        assert not theirs.acquire(blocking=False)
        ours.release()
        assert theirs.acquire(timeout=PATIENCE)
        assert ours.locked()
        theirs.release()
        async with ours:
            assert not theirs.acquire(blocking=False)
        assert theirs.acquire(timeout=PATIENCE)
        theirs.release()
        ticks.stop()

    run(scenario())


def test_event_is_shared_by_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Event(name="e", client=client), threading.Event(name="e", client=other)

    async def scenario() -> None:
        assert not ours.is_set()
        waits = asyncio.create_task(ours.wait())
        await until(lambda: waiting_calls(client) == 1)
        theirs.set()
        assert await waits is True
        await until(ours.is_set)
        ours.clear()
        assert not ours.is_set()
        await until(lambda: not theirs.is_set())
        waiter = Running(theirs.wait)
        ours.set()
        assert ours.is_set()
        assert await asyncio.to_thread(waiter.result)

    run(scenario())


def test_set_and_clear_of_an_event_take_effect_in_the_order_of_the_calls(client: Client, other: Client) -> None:
    ours, theirs = tasks.Event(name="e", client=client), threading.Event(name="e", client=other)

    async def scenario() -> None:
        for last in (True, False, True, False):
            for flag in (not last, last, not last, last):
                (ours.set if flag else ours.clear)()
                assert ours.is_set() is flag
            await until(lambda: not ours.twin._core.pending_changes)
            assert theirs._seen(sync=True) is last

    run(scenario())


@pytest.mark.parametrize("kind", ["Semaphore", "BoundedSemaphore"])
def test_semaphore_is_shared_by_tasks_and_threads(kind: str, client: Client, other: Client) -> None:
    ours, theirs = getattr(tasks, kind)(2, name="s", client=client), getattr(threading, kind)(2, name="s", client=other)

    async def scenario() -> None:
        assert theirs.acquire()
        assert await ours.acquire() is True
        assert ours.locked()
        waits = asyncio.create_task(ours.acquire())
        await until(lambda: waiting_calls(client) == 1)
        theirs.release()
        assert await waits
        ours.release()
        ours.release()
        assert theirs.acquire(timeout=PATIENCE)
        theirs.release()
        async with ours:
            assert ours.held
        if kind == "BoundedSemaphore":
            await until(lambda: theirs.get_value() == 2)
            with pytest.raises(ValueError, match="too many times"):
                ours.release()

    run(scenario())


def test_semaphore_with_value_0_passes_signals_between_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Semaphore(0, name="s", client=client), threading.Semaphore(0, name="s", client=other)

    async def scenario() -> None:
        waits = asyncio.create_task(ours.acquire())
        await until(lambda: waiting_calls(client) >= 1)
        theirs.release()
        assert await waits
        ours.release()
        assert theirs.acquire(timeout=PATIENCE)

    run(scenario())


def test_barrier_is_shared_by_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Barrier(2, name="b", client=client), threading.Barrier(2, name="b", client=other)

    async def scenario() -> None:
        for _ in range(3):
            waiter = Running(theirs.wait)
            index = await ours.wait()
            assert {index, await asyncio.to_thread(waiter.result)} == {0, 1}
        waits = asyncio.create_task(ours.wait())
        await until(lambda: waiting_calls(client) == 1)
        theirs.abort()
        with pytest.raises(tasks.BrokenBarrierError):
            await waits
        assert ours.broken
        await ours.reset()
        assert not ours.broken
        assert ours.n_waiting == 0

    run(scenario())


def test_cancelled_wait_at_a_barrier_is_not_counted(client: Client, other: Client) -> None:
    ours, theirs = tasks.Barrier(3, name="b", client=client), threading.Barrier(3, name="b", client=other)

    async def scenario() -> None:
        waiter = Running(theirs.wait)
        for _ in range(3):
            arrives = asyncio.create_task(ours.wait())
            await until(lambda: waiting_calls(client) == waiting_calls(other) == 1)
            arrives.cancel()
            with pytest.raises(asyncio.CancelledError):
                await arrives
            assert ours.n_waiting == 1
        indexes = await asyncio.gather(ours.wait(), ours.wait())
        assert {*indexes, await asyncio.to_thread(waiter.result)} == {0, 1, 2}

    run(scenario())


def test_condition_is_shared_by_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Condition(name="c", client=client), threading.Condition(name="c", client=other)

    async def wait() -> bool:
        async with ours:
            return await ours.wait()

    def wait_there() -> bool:
        with theirs:
            return theirs.wait()

    async def scenario() -> None:
        waits = asyncio.create_task(wait())
        await until(lambda: waiting_calls(client) == 1)
        with theirs:
            theirs.notify()
        assert await waits is True
        waiter = Running(wait_there)
        await until(lambda: client.run(ours.twin._condition.waiting()) == 1)  # not for the lock, which may be cached
        async with ours:
            ours.notify_all()
        assert await asyncio.to_thread(waiter.result)
        with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
            await ours.wait()
        with pytest.raises(RuntimeError, match="cannot notify on un-acquired lock"):
            ours.notify()

    run(scenario())


@pytest.mark.parametrize("kind", ["Queue", "LifoQueue", "PriorityQueue"])
def test_queue_is_shared_by_tasks_and_threads(kind: str, client: Client, other: Client) -> None:
    ours, theirs = getattr(tasks, kind)(name="q", client=client), getattr(queue, kind)(name="q", client=other)

    async def scenario() -> None:
        waits = asyncio.create_task(ours.get())
        await until(lambda: waiting_calls(client) >= 1)
        theirs.put(1)
        assert await waits == 1
        await ours.put(2)
        assert theirs.get() == 2
        ours.put_nowait(3)
        assert ours.qsize() == 1
        assert ours.get_nowait() == 3
        assert ours.empty()
        with pytest.raises(tasks.QueueEmpty):
            ours.get_nowait()
        joins = asyncio.create_task(ours.join())
        for _ in range(2):
            ours.task_done()
        theirs.task_done()
        await joins
        await until(lambda: theirs.unfinished_tasks == 0)
        with pytest.raises(ValueError, match="too many times"):
            ours.task_done()
        theirs.shutdown()
        for refused in (ours.get(), ours.put(1)):
            with pytest.raises(tasks.QueueShutDown):
                await refused

    run(scenario())


def test_items_of_a_priority_queue_that_cannot_be_compared_raise_once_and_stop_no_others(client: Client) -> None:
    ours = tasks.PriorityQueue[Any](name="q", client=client)

    async def scenario() -> None:
        for number in range(3):
            await ours.put((1, {"n": number}))
        with pytest.raises(TypeError) as raised:
            await ours.get()
        assert raised.value.item == (1, {"n": 1})  # type: ignore[attr-defined]
        with pytest.raises(TypeError) as raised:
            ours.get_nowait()
        assert raised.value.item == (1, {"n": 2})  # type: ignore[attr-defined]
        assert await ours.get() == (1, {"n": 0})

    run(scenario())


@pytest.mark.slow
def test_immediate_shutdown_that_outlasts_the_session_timeout_discards_all_items(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(session_timeout=SESSION_S)
    box = queue.Queue[Any](name="q", client=client)
    box.put_many(range(FEW))
    take = QueueCore._take

    async def slowly(core: QueueCore, path: str, *also: SetData) -> bytes | None:
        monkeypatch.setattr(QueueCore, "_take", take)
        await Call(lambda: time.sleep(SESSION_S + 2 * GRACE_S))
        return await take(core, path, *also)

    monkeypatch.setattr(QueueCore, "_take", slowly)

    async def scenario() -> None:
        tasks.Queue[Any](name="q", client=client).shutdown(immediate=True)

    run(scenario())
    assert (box.qsize(), box.unfinished_tasks) == (0, 0)


def test_bounded_queue_is_shared_by_tasks_and_threads(client: Client, other: Client) -> None:
    ours, theirs = tasks.Queue(1, name="q", client=client), queue.Queue(1, name="q", client=other)

    async def scenario() -> None:
        await ours.put(1)
        assert ours.full()
        with pytest.raises(tasks.QueueFull):
            ours.put_nowait(2)
        waits = asyncio.create_task(ours.put(2))
        await until(lambda: waiting_calls(client) == 1)
        assert [theirs.get(), theirs.get()] == [1, 2]
        await waits

    run(scenario())


# ---- cancellation and timeouts


def waits_for(kind: str, client: Client, other: Client) -> Callable[[], Awaitable[Any]]:
    """Return a function whose call waits forever."""
    if kind == "Lock":
        assert threading.Lock(name="w", client=other, linger=0).acquire()
        return tasks.Lock(name="w", client=client).acquire
    if kind == "Semaphore":
        assert threading.Semaphore(name="w", client=other).acquire()
        return tasks.Semaphore(name="w", client=client).acquire
    if kind == "Barrier":
        return tasks.Barrier(2, name="w", client=client).wait
    if kind == "put":
        queue.Queue(1, name="w", client=other).put(1)
        full: tasks.Queue[int] = tasks.Queue(1, name="w", client=client)
        return lambda: full.put(2)
    if kind == "join":
        queue.Queue(name="w", client=other).put(1)
        undone: tasks.Queue[int] = tasks.Queue(name="w", client=client)
        return undone.join
    if kind == "Condition":
        return lambda: wait_in_condition(tasks.Condition(name="w", client=client))
    made: Any = tasks.Event(name="w", client=client) if kind == "Event" else tasks.Queue(name="w", client=client)
    waits: Callable[[], Awaitable[Any]] = made.wait if kind == "Event" else made.get
    return waits


async def wait_in_condition(condition: tasks.Condition) -> None:
    async with condition:
        try:
            await condition.wait()
        finally:
            assert condition._lock.held


def ephemerals(observer: Observer, namespace: str) -> list[str]:
    """Return the ephemeral znodes, except for receipts."""
    return [path for path in observer.ephemerals(namespace) if RECEIPTS not in path and "/users/" not in path]


WAITS = ["Lock", "Semaphore", "Event", "Condition", "Barrier", "get", "put", "join"]


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", WAITS)
@pytest.mark.parametrize("end", ["cancel", "cancel twice", "wait_for"])
def test_cancelled_or_timed_out_wait_leaves_no_znode_and_no_task(
    kind: str, end: str, make_client: MakeClient, observer: Observer, namespace: str
) -> None:
    client, other = make_client(), make_client()
    wait = waits_for(kind, client, other)
    before = ephemerals(observer, namespace)

    async def scenario() -> None:
        ticks = Ticks()
        if end == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(wait(), 10 * UNIT)
        else:
            waits = asyncio.ensure_future(wait())
            await until(lambda: waiting_calls(client) == 1)
            await ticks.keep_running()
            waits.cancel()
            if end == "cancel twice":
                await asyncio.sleep(0)
                waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
        ticks.stop()
        assert len(asyncio.all_tasks()) <= 3

    run(scenario())
    eventually(lambda: ephemerals(observer, namespace) == before)
    assert not client._runtime._calls  # type: ignore[union-attr]
    other.close()


class CancelAtAwait:
    """Cancel the current task at its ``which``-th wait for a wakeup."""

    def __init__(self, which: int, patch: pytest.MonkeyPatch) -> None:
        self.left, self.cancelled_task, self._real_wait = which, False, asyncio_driver.AsyncWakeup.wait
        patch.setattr(asyncio_driver.AsyncWakeup, "wait", lambda bell, seconds: self.wait_or_cancel(bell, seconds))

    async def wait_or_cancel(self, bell: asyncio_driver.AsyncWakeup, seconds: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.cancelled_task = True
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await self._real_wait(bell, seconds)


async def cancel_repeatedly(
    action: Callable[[], Coroutine[Any, Any, Any]],
    check: Callable[[int], Awaitable[None]],
    patch: pytest.MonkeyPatch,
    least: int,
    begin: Callable[[], object] = lambda: None,
) -> None:
    """Repeat ``cancel_at_each_await`` until ``least`` cancellations were made.

    A fast server has answered most requests before they are waited for, so that one round may make
    only a few.
    """
    made = rounds = 0
    while made < least:
        begin()
        made += await cancel_at_each_await(action, check, patch)
        rounds += 1
        assert rounds < 1000, f"{made} cancellations in {rounds} rounds"


async def cancel_at_each_await(
    action: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[int], Awaitable[None]], patch: pytest.MonkeyPatch
) -> int:
    """Cancel ``action`` at each of its waits in turn, and run ``check`` afterwards. Return the number
    of waits.

    It varies: a reply that has already arrived is not waited for.
    """
    which = 0
    while True:
        which += 1
        with patch.context() as context:
            cancellation = CancelAtAwait(which, context)
            task = asyncio.create_task(action())
            await asyncio.wait([task])
        if not cancellation.cancelled_task:
            task.result()
            return which - 1
        assert task.cancelled(), f"not cancelled at {which}"
        await check(which)


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "Condition"])
def test_cancellation_at_any_await_leaves_the_object_free(
    kind: str, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: Any = tasks.Lock(name="x", client=client, linger=0)
    theirs: Any = threading.Lock(name="x", client=other, linger=0)
    if kind == "Semaphore":
        ours, theirs = tasks.Semaphore(name="x", client=client), threading.Semaphore(name="x", client=other)
    elif kind == "Condition":
        ours = tasks.Condition(ours, name="c", client=client)

    async def use() -> None:
        async with ours:
            if kind == "Condition":
                ours.notify()

    async def check(where: int) -> None:
        assert await asyncio.to_thread(theirs.acquire, timeout=PATIENCE), f"not free after a cancel at {where}"
        theirs.release()

    async def scenario() -> None:
        await use()
        await cancel_repeatedly(use, check, monkeypatch, 10)

    run(scenario())


def test_cancellation_at_any_await_of_a_condition_wait_reacquires_the_lock(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tasks.Condition(name="c", client=client), threading.Condition(name="c", client=other)
    done = stdlib_threading.Event()

    def notify() -> None:
        while not done.wait(UNIT / 5):
            with theirs:
                theirs.notify_all()

    async def check(where: int) -> None:
        await until(lambda: not ours._lock.held)

    async def scenario() -> None:
        await wait_in_condition(ours)
        await cancel_repeatedly(lambda: wait_in_condition(ours), check, monkeypatch, 10)

    notifies = Running(notify)
    try:
        run(scenario())
    finally:
        done.set()
        notifies.result()


def test_cancellation_at_any_await_of_a_get_loses_no_item(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: tasks.Queue[str] = tasks.Queue(name="q", client=client)
    theirs: queue.Queue[str] = queue.Queue(name="q", client=other)

    async def check(where: int) -> None:
        await until(lambda: theirs.qsize() == 1)

    async def scenario() -> None:
        await ours.put("item")
        assert await ours.get() == "item"
        await cancel_repeatedly(ours.get, check, monkeypatch, 5, begin=lambda: theirs.put("item"))
        assert theirs.qsize() == 0

    run(scenario())


def test_cancellation_at_any_await_of_a_get_has_put_its_item_back_when_the_call_ends(
    far: Client, proxy: Proxy, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put back later, so that the next get took the item behind it, and the queue seemed to be empty."""
    ours: tasks.Queue[int] = tasks.Queue(name="q", client=far)
    theirs: queue.Queue[int] = queue.Queue(name="q", client=other)
    numbers, got = itertools.count(), []

    def fill() -> None:
        while theirs.qsize() < 2:
            theirs.put(next(numbers))

    async def get() -> None:
        ours.twin._core.names.clear()  # so that there are as many requests each time
        got.append(await ours.get())

    async def check(where: int) -> None:
        await get()
        assert theirs.qsize() == 1, f"after a cancel at {where}"
        fill()

    async def scenario() -> None:
        await ours.put(next(numbers))
        await get()
        proxy.delay(UNIT / 50)
        await cancel_repeatedly(get, check, monkeypatch, 10, begin=fill)
        assert got == list(range(len(got)))

    run(scenario())


def test_cancelled_put_that_waited_for_room_has_removed_its_item_when_the_call_ends(
    far: Client, proxy: Proxy, other: Client
) -> None:
    """It was removed later, so that ``while not queue.empty(): queue.get_nowait()`` could raise QueueEmpty."""
    ours: tasks.Queue[str] = tasks.Queue(1, name="q", client=far)
    theirs: queue.Queue[str] = queue.Queue(name="q", client=other)

    async def scenario() -> None:
        await ours.put("first")
        putting = asyncio.create_task(ours.put("second"))
        await until(lambda: theirs.qsize() == 2)
        proxy.delay(UNIT / 50)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert theirs.qsize() == 1

    run(scenario())


def test_cancellation_at_any_await_of_an_acquire_has_put_the_permit_back_when_the_call_ends(
    far: Client, proxy: Proxy, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tasks.Semaphore(0, name="s", client=far), threading.Semaphore(0, name="s", client=other)

    async def check(where: int) -> None:
        assert theirs.get_value() == 1, f"after a cancel at {where}"
        assert not ours.locked()

    async def scenario() -> None:
        theirs.release()
        await ours.acquire()
        proxy.delay(UNIT / 50)
        await cancel_repeatedly(ours.acquire, check, monkeypatch, 5, begin=theirs.release)
        assert theirs.get_value() == 0

    run(scenario())


# ---- loss


@pytest.mark.parametrize("how", ["release", "async with"])
@pytest.mark.parametrize("kind", ["Lock", "Semaphore"])
def test_loss_of_the_session_is_raised_at_the_release(kind: str, how: str, client: Client) -> None:
    ours: Any = getattr(tasks, kind)(name="x", client=client)

    async def lose() -> None:
        await asyncio.to_thread(expire, client)
        await until(lambda: not ours.held)

    async def lose_inside() -> None:
        async with ours:
            await lose()

    async def scenario() -> None:
        if how == "release":
            await ours.acquire()
            await lose()
            with pytest.raises(LockLostError):
                ours.release()
        else:
            with pytest.raises(LockLostError):
                await lose_inside()
        async with ours:
            assert ours.held

    run(scenario())


def test_error_of_a_block_whose_lock_was_lost_is_raised_unchanged(client: Client) -> None:
    ours = tasks.Lock(name="x", client=client)

    async def fail_inside() -> None:
        async with ours:
            await asyncio.to_thread(expire, client)
            await until(lambda: not ours.held)
            raise KeyError

    with pytest.raises(KeyError):
        run(fail_inside())


def test_any_task_may_release_a_held_lock_and_none_a_free_one(client: Client) -> None:
    ours = tasks.Lock(name="x", client=client)

    async def release() -> None:
        ours.release()

    async def scenario() -> None:
        with pytest.raises(NotHeldError, match="not acquired") as error:
            ours.release()
        assert isinstance(error.value, RuntimeError)
        await asyncio.wait_for(ours.acquire(), PATIENCE)
        await asyncio.create_task(release())
        assert not ours.held

    run(scenario())


# ---- event loops and threads


def test_loop_keeps_running_while_no_server_is_reachable(make_client: MakeClient) -> None:
    nowhere = make_client(hosts="127.0.0.1:1", connect_timeout=10 * UNIT)

    async def scenario() -> None:
        ticks = Ticks()
        waits = asyncio.create_task(tasks.Lock(name="x", client=nowhere).acquire())
        await until(lambda: nowhere.is_started)
        await ticks.keep_running()
        with pytest.raises(UnreachableError):
            await waits
        ticks.stop()

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Lock", "Event", "Queue"])
def test_a_thousand_waiting_tasks_need_no_additional_threads(kind: str, client: Client) -> None:
    made = getattr(tasks, kind)(name="x", client=client)
    served = []

    async def use(number: int) -> None:
        if kind == "Lock":
            async with made:
                served.append(number)
        else:
            await (made.wait() if kind == "Event" else made.get())
            served.append(number)

    async def scenario() -> None:
        if kind == "Lock":
            await made.acquire()
        before = stdlib_threading.active_count()
        waiting = [asyncio.create_task(use(number)) for number in range(THOUSAND)]
        await until(lambda: waiting_calls(client) > 0)
        await Ticks().keep_running()
        assert not served
        assert stdlib_threading.active_count() < before + FEW  # the client's own threads
        if kind == "Lock":
            made.release()
        elif kind == "Event":
            made.set()
        else:
            await asyncio.gather(*(made.put(number) for number in range(THOUSAND)))
        await asyncio.gather(*waiting)
        assert stdlib_threading.active_count() < before + FEW

    run(scenario())
    assert sorted(served) == list(range(THOUSAND))


def test_waiting_call_raises_when_its_client_is_closed(client: Client, make_client: MakeClient) -> None:
    closing = make_client()

    async def scenario() -> None:
        waits = asyncio.create_task(tasks.Event(name="e", client=closing).wait())
        await until(lambda: waiting_calls(closing) == 1)
        await asyncio.to_thread(closing.close)
        with pytest.raises(ClientClosedError):
            await waits

    run(scenario())


def test_event_loops_of_several_threads_can_share_a_client(client: Client) -> None:
    lock, seen = tasks.Lock(name="x", client=client), []

    async def count() -> None:
        for _ in range(10):
            async with lock:
                before = len(seen)
                await asyncio.sleep(0)
                seen.append(before)

    async def both() -> None:
        await asyncio.gather(count(), count())

    loops = [Running(asyncio.run, both()) for _ in range(2)]
    for loop in loops:
        loop.result()
    assert seen == [*range(40)]


def test_puts_that_queue_behind_a_pending_put_share_one_transaction(
    far: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "PATIENCE_S", 10 * PATIENCE)
    ours: tasks.Queue[int] = tasks.Queue(name="q", client=far)

    async def scenario() -> None:
        await ours.put(-1)
        assert await ours.get() == -1
        before = far.statistics().requests["Multi"]
        proxy.blackhole()
        puts = [asyncio.create_task(ours.put(number)) for number in range(MANY)]
        await until(lambda: len(ours.twin._core.puts.waiting) == MANY - 1)
        proxy.heal()
        await asyncio.gather(*puts)
        assert far.statistics().requests["Multi"] == before + 2
        assert sorted([await ours.get() for _ in puts]) == [*range(MANY)]

    run(scenario())


# ---- closing the client


def close_after_set_and_clear(event: tasks.Event, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close the client while a set and a clear of the event are in progress or queued."""
    monkeypatch.setattr(runtime, "CLOSE_BACKGROUND_S", 2 * PATIENCE)
    event.client.sync()
    proxy.delay(UNIT / 5)
    event.set()
    event.clear()
    event.client.close()


def test_set_and_clear_have_taken_effect_when_the_client_is_closed(
    far: Client, client: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = threading.Event(name="e", client=client)
    close_after_set_and_clear(tasks.Event(name="e", client=far), proxy, monkeypatch)
    assert not theirs.is_set()


def test_znodes_being_created_when_the_client_closes_are_deleted(
    far: Client, proxy: Proxy, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = tasks.Event(client=far)
    path = event.path
    close_after_set_and_clear(event, proxy, monkeypatch)
    assert observer.kazoo.exists(path) is None


# ---- order


async def order_at_semaphore(client: Client) -> list[int]:
    permits, order = tasks.Semaphore(name="s", client=client), []

    async def enter(number: int) -> None:
        async with permits:
            order.append(number)

    await asyncio.gather(*map(enter, range(MANY)))
    return order


async def order_at_barrier(client: Client) -> list[int]:
    barrier = tasks.Barrier(MANY, name="b", client=client)
    return [*await asyncio.gather(*(barrier.wait() for _ in range(MANY)))]


async def order_of_puts(client: Client) -> list[int]:
    numbers: tasks.Queue[int] = tasks.Queue(name="q", client=client)
    await asyncio.gather(*map(numbers.put, range(MANY)))
    return [await numbers.get() for _ in range(MANY)]


async def order_of_gets(client: Client) -> list[int]:
    numbers: tasks.Queue[int] = tasks.Queue(name="q", client=client)
    gets = [asyncio.create_task(numbers.get()) for _ in range(MANY)]
    await until(lambda: waiting_calls(client) == MANY)
    await asyncio.gather(*map(numbers.put, range(MANY)))
    return [*await asyncio.gather(*gets)]


@pytest.mark.parametrize("order", [order_at_semaphore, order_at_barrier, order_of_puts, order_of_gets])
@pytest.mark.parametrize("is_started", [True, False])
def test_tasks_that_use_an_object_for_the_first_time_are_served_in_fifo_order(
    order: Callable[[Client], Coroutine[Any, Any, list[int]]], is_started: bool, make_client: MakeClient
) -> None:
    client = make_client()
    if is_started:
        client.sync()
    assert run(order(client)) == [*range(MANY)]


def test_cancelling_some_tasks_that_start_together_leaves_the_others_unaffected(far: Client, proxy: Proxy) -> None:
    permits = tasks.Semaphore(MANY, name="s", client=far)

    async def scenario() -> None:
        far.sync()
        proxy.blackhole()
        acquires = [asyncio.create_task(permits.acquire()) for _ in range(MANY)]
        await Ticks().keep_running()
        for cancelled in acquires[::2]:
            cancelled.cancel()
        await Ticks().keep_running()
        proxy.heal()
        found = await asyncio.gather(*acquires, return_exceptions=True)
        assert [result is True for result in found] == [False, True] * (MANY // 2)

    run(scenario())


# ---- the module


def test_names_that_distsync_does_not_replace_are_those_of_asyncio() -> None:
    assert tasks.gather is asyncio.gather
    assert tasks.QueueEmpty is asyncio.QueueEmpty
    assert {*asyncio.__all__} <= {*tasks.__all__}
    names: dict[str, Any] = {}
    exec("from distsync.asyncio import *", names)
    assert {*asyncio.__all__} <= names.keys()
    with pytest.raises(AttributeError, match=r"distsync\.asyncio"):
        _ = tasks.Lok


module_lock = tasks.Lock()


def test_object_is_named_after_its_variable_and_can_be_pickled(client: Client) -> None:
    assert module_lock.name == f"{__name__}.module_lock"
    assert pickle.loads(pickle.dumps(module_lock)).path == module_lock.path
    fresh: tasks.Queue[int] = tasks.Queue(3)
    copy = pickle.loads(pickle.dumps(fresh))
    assert (copy.name, copy.maxsize) == (fresh.name, 3)


def test_reprs_are_those_of_asyncio(client: Client) -> None:
    async def scenario() -> None:
        lock, event, permits = tasks.Lock(name="x"), tasks.Event(name="e"), tasks.Semaphore(2, name="s")
        assert repr(lock).endswith(f"distsync.asyncio.Lock object at {id(lock):#x} [unlocked]>")
        async with lock:
            assert repr(lock).endswith("[locked]>")
        assert repr(event).endswith("[unset]>")
        event.set()
        await event.wait()
        assert repr(event).endswith("[set]>")
        assert repr(permits).endswith("[unlocked, value:2]>")
        assert repr(tasks.Barrier(2, name="b")).endswith("[filling, waiters:0/2]>")
        assert repr(tasks.Condition(name="c")).endswith("[unlocked]>")

    run(scenario())
