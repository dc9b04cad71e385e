"""SharedLock of ``distsync.asyncio``: reentrant, and owned by a task."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Coroutine
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running

import distsync.threading
from distsync import LockLostError, NotHeldError, UpgradeError
from distsync._client.client import Client
from distsync._objects.aio.base import mine
from distsync.asyncio import Condition, Lock, SharedLock, SharedReader, SharedWriter


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 2 * PATIENCE))


async def comes_true(predicate: Any) -> None:
    await asyncio.to_thread(eventually, predicate)


async def refused(side: Any) -> bool:
    """Return whether another task has to wait for a side. It is then cancelled."""

    async def use() -> None:
        async with side:
            pass

    task = asyncio.create_task(use())
    done, _ = await asyncio.wait([task], timeout=2 * UNIT)
    if done:
        return False
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return True


def test_lock_is_the_reentrant_lock_of_its_writer(client: Client) -> None:
    async def main() -> None:
        lock = SharedLock(name="t")
        assert isinstance(lock, Lock)
        assert await lock.acquire()
        async with lock, lock.writer, lock.reader, lock.reader:
            assert (lock.held, lock.locked(), lock.writer.locked(), lock.reader.held) == (True,) * 4
            assert await refused(lock)
            assert await refused(lock.reader)
        assert lock.held
        lock.release()
        for side in (lock, lock.reader, lock.writer):
            with pytest.raises(NotHeldError):
                side.release()
            with pytest.raises(NotHeldError):
                await side.__aexit__(None, None, None)
        assert not lock.locked()

    run(main())


def test_each_side_belongs_to_a_task(client: Client) -> None:
    async def main() -> None:
        lock = SharedLock(name="t")
        for side in (lock, lock.reader, lock.writer):
            async with side:
                with pytest.raises(NotHeldError):
                    await asyncio.create_task(release(side))
                assert side.held

    async def release(side: Any) -> None:
        side.release()

    run(main())


def test_readers_share_the_lock_and_a_writer_excludes_all_others(client: Client, other: Client) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
        async with ours.reader, theirs.reader:
            assert (ours.reader.locked(), theirs.locked()) == (True, False)
            assert not await refused(ours.reader)
            for lock in (ours, theirs):
                with pytest.raises(UpgradeError, match="release the read lock first"):
                    await lock.acquire()
        async with ours:
            assert await refused(theirs.reader)
            assert await refused(theirs)

    run(main())


def test_released_lock_is_no_longer_the_tasks_when_release_returns(client: Client) -> None:
    """Another acquire of the task queues behind those that wait."""

    async def main() -> list[str]:
        lock, order = SharedLock(name="t"), list[str]()

        async def use(name: str) -> None:
            async with lock:
                order.append(name)

        await lock.acquire()
        waiting = [asyncio.create_task(use(name)) for name in "ab"]
        await comes_true(lambda: len(lock.twin._core.local_waiters) == 2)
        lock.release()
        await use("c")
        await asyncio.gather(*waiting)
        return order

    assert run(main()) == ["a", "b", "c"]


def test_increments_of_many_tasks_under_the_writer_are_not_lost(client: Client, other: Client) -> None:
    async def main() -> int:
        locks, number = [SharedLock(name="t"), SharedLock(name="t", client=other)], 0

        async def bump(lock: SharedLock) -> None:
            nonlocal number
            for _ in range(5):
                async with lock.reader:
                    seen = number
                    await asyncio.sleep(0)
                    assert number == seen
                async with lock:
                    seen = number
                    await asyncio.sleep(0)
                    number = seen + 1

        await asyncio.gather(*(bump(lock) for lock in locks * 4))
        return number

    assert run(main()) == 40


@pytest.mark.parametrize("by_block", [False, True])
def test_writer_that_also_reads_is_downgraded_by_the_release(by_block: bool, client: Client, other: Client) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
        if by_block:
            async with ours:
                await ours.reader.acquire()
        else:
            await ours.acquire()
            await ours.reader.acquire()
            ours.release()
        async with theirs.reader:
            assert (ours.reader.held, ours.held) == (True, False)
        assert await refused(theirs)
        ours.reader.release()
        async with theirs:
            pass

    run(main())


@pytest.mark.parametrize("order", [("writer", "reader"), ("reader", "writer")])
def test_releases_of_both_sides_in_one_turn_free_the_lock(
    order: tuple[str, str], client: Client, other: Client, observer: Observer
) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t", linger=0), SharedLock(name="t", client=other, linger=0)
        await ours.acquire()
        await ours.reader.acquire()
        for side in order:
            getattr(ours, side).release()
        async with theirs:
            assert not ours.reader.held
        await comes_true(lambda: not observer.tree(ours.path))

    run(main())


@pytest.mark.parametrize("side", ["acquire", "reader"])
def test_cancelled_acquire_leaves_no_znode(side: str, client: Client, other: Client, observer: Observer) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t", linger=0), SharedLock(name="t", client=other, linger=0)
        async with theirs:
            assert await refused(ours.reader if side == "reader" else ours)
        await comes_true(lambda: not observer.tree(ours.path))

    run(main())


@pytest.mark.parametrize("by_block", [False, True])
@pytest.mark.parametrize("side", ["lock", "reader"])
def test_lost_lock_is_reported_by_its_release(side: str, by_block: bool, client: Client, observer: Observer) -> None:
    async def main() -> None:
        lock = SharedLock(name="t")
        used = lock.reader if side == "reader" else lock
        await used.acquire()
        observer.kazoo.delete(lock.twin.holders()[0].path)
        await comes_true(lambda: not used.held)
        with pytest.raises(LockLostError, match="znode deleted"):  # noqa: PT012
            if by_block:
                await used.__aexit__(None, None, None)
            else:
                used.release()
        with pytest.raises(NotHeldError):
            used.release()
        async with lock:
            pass

    run(main())


# ---- Conditions


def test_wait_releases_and_restores_both_sides(client: Client, other: Client) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
        here, there = Condition(ours, name="c"), Condition(theirs, name="c", client=other)

        async def wait() -> None:
            async with here, ours.writer, ours.reader, ours.reader:
                assert await here.wait()
                assert (ours.held, ours.reader.held) == (True, True)
                assert (ours.twin._core.depth, await refused(theirs.reader)) == (2, True)

        waiting = asyncio.create_task(wait())
        await comes_true(lambda: client.run(_contenders(f"{here.path}/waiters")))
        async with there:
            there.notify()
        await waiting
        async with theirs:
            pass

    run(main())


def test_cancelled_wait_restores_both_sides(client: Client, other: Client, observer: Observer) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t", linger=0), SharedLock(name="t", client=other, linger=0)
        condition = Condition(ours, name="c")

        async def wait(delay: int) -> None:
            async with ours, ours, ours.reader:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_later(delay * UNIT / 20, task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await condition.wait()
                assert (ours.held, ours.reader.held, ours.twin._core.depth) == (True, True, 2)

        for delay in range(8):
            await asyncio.create_task(wait(delay))
            async with theirs:
                assert not ours.reader.held
        await comes_true(lambda: not observer.tree(f"{condition.path}/waiters"))

    run(main())


def test_release_of_a_reader_that_was_acquired_twice_leaves_it_acquired_once(client: Client, other: Client) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t", linger=0), SharedLock(name="t", client=other)
        async with ours.reader:
            await ours.reader.acquire()
            ours.reader.release()
            assert ours.reader._is_owned()
            assert await refused(theirs)
        async with theirs:
            with pytest.raises(NotHeldError):
                ours.reader.release()

    run(main())


def test_reader_can_be_the_lock_of_a_condition(client: Client, other: Client) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
        here = pickle.loads(pickle.dumps(Condition(ours.reader, name="c")))
        there = Condition(theirs, name="c", client=other)
        with pytest.raises(NotHeldError):
            await here.wait()

        async def wait() -> None:
            async with here, ours.reader:
                assert await here.wait()
                assert ours.reader.twin._core.depth(mine()) == 2
                assert await refused(theirs)

        waiting = asyncio.create_task(wait())
        await comes_true(lambda: client.run(_contenders(f"{here.path}/waiters")))
        async with there:
            there.notify()
        await waiting

    run(main())


def test_cancelled_wait_restores_the_reader(client: Client, other: Client, observer: Observer) -> None:
    async def main() -> None:
        ours, theirs = SharedLock(name="t", linger=0), SharedLock(name="t", client=other, linger=0)
        condition = Condition(ours.reader, name="c")

        async def wait(delay: int) -> None:
            async with ours.reader, ours.reader:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_later(delay * UNIT / 20, task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await condition.wait()
                assert ours.reader.twin._core.depth(mine()) == 2

        for delay in range(4):
            await asyncio.create_task(wait(delay))
            async with theirs:
                assert not ours.reader.held
        await comes_true(lambda: not observer.tree(f"{condition.path}/waiters"))

    run(main())


def test_wait_or_notify_of_a_task_that_does_not_hold_the_lock_raises(client: Client) -> None:
    async def main() -> None:
        lock = SharedLock(name="t")
        condition = Condition(lock, name="c")

        async def notify() -> None:
            condition.notify()

        async with lock.reader:
            with pytest.raises(NotHeldError):
                await condition.wait()
        async with condition:
            for call in (notify, condition.wait):
                with pytest.raises(NotHeldError):
                    await asyncio.create_task(call())

    run(main())


def _contenders(directory: str) -> Any:
    from distsync._protocols.wait_queue import contenders

    return contenders(directory)


# ---- twins and pickles


def test_lock_of_tasks_and_lock_of_threads_exclude_each_other(client: Client, peer: Peer) -> None:
    async def main() -> None:
        lock, threads = SharedLock(name="t"), distsync.threading.SharedLock(name="t")
        assert lock.twin.path == threads.path
        async with lock:
            assert not Running(threads.acquire, False).result()
            assert await asyncio.to_thread(peer.do, threads.reader.acquire, False) is False
        with threads:
            assert await refused(lock)
        async with lock.reader:
            assert await asyncio.to_thread(peer.do, threads.reader.acquire) is True
        await asyncio.to_thread(peer.do, threads.reader.release)

    run(main())


def test_lock_its_sides_and_its_condition_can_be_pickled(client: Client) -> None:
    async def main() -> None:
        lock = SharedLock()
        condition = Condition(lock, name="c")
        sides = (lock, lock.reader, lock.writer, condition)
        again = pickle.loads(pickle.dumps(sides))
        assert [type(each) for each in again] == [SharedLock, SharedReader, SharedWriter, Condition]
        assert [each.path for each in again] == [each.path for each in sides]
        async with lock, again[0], again[2], again[1], again[3]:
            again[3].notify()
        assert pickle.loads(pickle.dumps(Condition(lock.writer, name="w")))._lock.path == lock.path

    run(main())


def test_reader_made_of_a_writer_is_its_reader(client: Client) -> None:
    async def main() -> None:
        writer = SharedWriter(name="t")
        async with writer, SharedReader(writer):
            assert "locked" in repr(SharedLock(name="t").reader)
            assert SharedLock(name="t").reader.held

    run(main())
