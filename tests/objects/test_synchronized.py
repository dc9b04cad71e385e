"""``@synchronized``: functions, methods, coroutines and blocks that hold a lock."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, results, waiting_calls

from distsync import Condition, Lock, LockLostError, RLock, Semaphore, SharedLock, synchronized
from distsync._client.client import Client

LOCK = threading.Lock()
KINDS: dict[str, Callable[[], Any]] = {
    "distsync": lambda: Lock(name="synchronized"),
    "distsync RLock": lambda: RLock(name="synchronized"),
    "semaphore": lambda: Semaphore(1, name="synchronized"),
    "stdlib": threading.Lock,
}


@pytest.fixture(params=KINDS)
def lock(client: Client, request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


class Meter:
    """Counts the concurrent entries."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    def __enter__(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


def is_held(lock: Any) -> bool:
    """Return whether any thread holds the lock."""
    tried = Running(lambda: lock.acquire(False) and (lock.release() or True))
    return not tried.result()


def test_calls_of_a_synchronized_function_exclude_each_other(lock: Any) -> None:
    meter, held = Meter(), []

    @synchronized(lock)
    def work(number: int, *, more: int = 0) -> int:
        with meter:
            held.append(is_held(lock))
            return number + more

    assert results([Running(work, 1), Running(work, 2), Running(lambda: work(3, more=1))]) == [1, 2, 4]
    assert (meter.most, held) == (1, [True] * 3)
    assert not is_held(lock)


def test_error_of_the_function_is_raised_and_the_lock_is_released(lock: Any) -> None:
    @synchronized(lock)
    def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()
    assert not is_held(lock)


class Account:
    """A class with all kinds of methods."""

    lock = LOCK

    def __init__(self, name: str) -> None:
        self.name = name

    @synchronized(LOCK)
    def method(self, more: str) -> str:
        """Joined."""
        assert LOCK.locked()
        return self.name + more

    @synchronized(LOCK)
    @classmethod
    def of_class(cls, more: str) -> str:
        assert LOCK.locked()
        return cls.__name__ + more

    @classmethod
    @synchronized(LOCK)
    def inner_of_class(cls, more: str) -> str:
        assert LOCK.locked()
        return cls.__name__ + more

    @synchronized(LOCK)
    @staticmethod
    def static(more: str) -> str:
        assert LOCK.locked()
        return more

    @synchronized(LOCK)
    async def coroutine(self, more: str) -> str:
        assert LOCK.locked()
        return self.name + more


@synchronized(LOCK)
def at_module_level(number: int) -> int:
    return number + 1


def test_methods_of_all_kinds_can_be_synchronized() -> None:
    account = Account("a")
    assert account.method("b") == Account.method(account, "b") == "ab"
    assert account.of_class("b") == Account.of_class("b") == Account.inner_of_class("b") == "Accountb"
    assert account.static("b") == Account.static("b") == "b"
    assert asyncio.run(account.coroutine("b")) == "ab"
    assert not LOCK.locked()


def test_signature_and_docstring_are_preserved() -> None:
    assert list(inspect.signature(Account.method).parameters) == ["self", "more"]
    assert list(inspect.signature(Account("a").method).parameters) == ["more"]
    assert (Account.method.__doc__, Account.method.__qualname__) == ("Joined.", "Account.method")
    assert inspect.iscoroutinefunction(Account.coroutine)
    assert not inspect.iscoroutinefunction(Account.method)


def test_synchronized_functions_and_methods_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert pickle.loads(pickle.dumps(Account("a").method))("b") == "ab"
    assert pickle.loads(pickle.dumps(Account.of_class))("b") == "Accountb"
    assert pickle.loads(pickle.dumps(Account.static))("b") == "b"


def test_block_excludes_another_process(client: Client, peer: Peer) -> None:
    with synchronized(Lock(name="synchronized")) as got:
        assert got is True
        peer.start(Lock(name="synchronized").acquire, True, 2 * UNIT)
        assert peer.result() is False


@pytest.mark.parametrize("bad", [None, 5, object(), print, Account])
def test_argument_that_is_no_lock_raises_type_error(bad: object) -> None:
    with pytest.raises(TypeError, match="needs a lock"):
        synchronized(bad)


def test_asyncio_lock_is_refused_with_a_hint_to_its_twin() -> None:
    import distsync.asyncio

    lock = distsync.asyncio.Lock(name="s")
    with pytest.raises(TypeError, match=r"not distsync\.asyncio\.Lock; use its twin instead"):
        synchronized(lock)
    synchronized(lock.twin)


def test_generators_and_classes_are_refused() -> None:
    def generator() -> Any:
        yield 1

    async def asynchronous() -> Any:
        yield 1

    for function in (generator, asynchronous):
        with pytest.raises(TypeError, match="is a generator: take the lock inside of it"):
            synchronized(LOCK)(function)
    for what in (Account, 5):
        with pytest.raises(TypeError, match="a function can be synchronized"):
            synchronized(LOCK)(what)  # type: ignore[type-var]


def test_loss_is_raised_at_the_end_of_the_function(client: Client, observer: Observer) -> None:
    lock = Lock(name="synchronized")

    @synchronized(lock)
    def work() -> str:
        for path in observer.ephemerals(client.namespace):
            observer.kazoo.delete(path)
        eventually(lambda: not lock.held)
        return "done"

    with pytest.raises(LockLostError):
        work()


# ---- coroutines


def test_coroutines_run_one_at_a_time_and_do_not_block_the_loop(lock: Any) -> None:
    meter, ticks = Meter(), []

    @synchronized(lock)
    async def work(number: int) -> int:
        with meter:
            await asyncio.sleep(UNIT / 5)
            return number

    async def tick() -> None:
        while True:
            ticks.append(meter.inside)
            await asyncio.sleep(0)

    async def main() -> list[int]:
        ticking = asyncio.create_task(tick())
        done = await asyncio.gather(*map(work, range(4)))
        ticking.cancel()
        return done

    assert asyncio.run(main()) == [0, 1, 2, 3]
    assert meter.most == 1
    assert len(ticks) > 4
    assert not is_held(lock)


def test_waiting_for_a_held_lock_does_not_block_the_loop(lock: Any) -> None:
    @synchronized(lock)
    async def work() -> str:
        return "done"

    async def main() -> str:
        task = asyncio.create_task(work())
        for _ in range(5):
            await asyncio.sleep(UNIT / 5)
            assert not task.done()
        lock.release()
        return await task

    lock.acquire()
    assert asyncio.run(main()) == "done"


def test_rlock_is_owned_by_the_task(client: Client) -> None:
    lock = RLock(name="synchronized")

    @synchronized(lock)
    async def inner() -> str:
        return "in"

    @synchronized(lock)
    async def outer() -> tuple[str, bool]:
        other = asyncio.create_task(inner())
        async with synchronized(lock):
            own = await inner()
        await asyncio.sleep(UNIT)
        waits = not other.done()
        others.append(other)
        return own, waits

    async def main() -> None:
        assert await outer() == ("in", True)
        assert await others[0] == "in"

    others: list[asyncio.Task[str]] = []
    asyncio.run(main())
    assert not is_held(lock)


@pytest.mark.parametrize("kind", [RLock, SharedLock])
def test_objects_of_one_lock_are_owned_by_the_task_together(kind: Any, client: Client) -> None:
    """A coroutine waited forever for the lock that its own task held by another object, or by the other side."""
    lock, again = kind(name="synchronized"), kind(name="synchronized")
    condition = Condition(lock, name="synchronized")

    @synchronized(again.reader if kind is SharedLock else again)
    async def inner() -> bool:
        return bool(lock.held)

    @synchronized(condition)
    async def between() -> bool:
        return await inner()

    @synchronized(lock)
    async def outer() -> bool:
        return await between()

    async def main() -> bool:
        return await asyncio.wait_for(outer(), PATIENCE)

    assert asyncio.run(main())
    assert not is_held(lock)
    eventually(lambda: not any(each.name == "distsync-synchronized" for each in threading.enumerate()))


def test_cancelled_waiting_coroutine_leaves_no_thread_and_no_contender(client: Client, observer: Observer) -> None:
    lock, other = Lock(name="synchronized"), Lock(name="synchronized", client=client)

    @synchronized(lock)
    async def work() -> None:
        raise AssertionError("the lock was never acquired")

    async def main() -> None:
        task = asyncio.create_task(work())
        while not waiting_calls(client):
            await asyncio.sleep(UNIT / 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while any(thread.name == "distsync-synchronized" for thread in threading.enumerate()):
            await asyncio.sleep(UNIT / 5)

    with other:
        asyncio.run(main())
        assert other.held
    assert not lock.locked()


def test_thread_of_a_cancelled_coroutine_releases_a_stdlib_lock_and_ends() -> None:
    lock = threading.Lock()

    @synchronized(lock)
    async def work() -> None:
        raise AssertionError("the lock was never acquired")

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(UNIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with lock:
        asyncio.run(main())
    eventually(lambda: not lock.locked() and lock.acquire(timeout=PATIENCE) and (lock.release() or True))
    eventually(lambda: not any(each.name == "distsync-synchronized" for each in threading.enumerate()))


def test_coroutine_cancelled_inside_releases_the_lock(lock: Any) -> None:
    async def main() -> None:
        inside = asyncio.Event()

        @synchronized(lock)
        async def work() -> None:
            inside.set()
            await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not is_held(lock)


def test_error_of_the_acquire_is_raised_and_no_thread_remains() -> None:
    class Refusing:
        def __enter__(self) -> None:
            raise OSError("no lock today")

        def __exit__(self, *_: object) -> None:
            raise AssertionError("it was never entered")

    @synchronized(Refusing())
    async def work() -> None:
        raise AssertionError("the lock was never acquired")

    with pytest.raises(OSError, match="no lock today"):
        asyncio.run(work())
    eventually(lambda: not any(each.name == "distsync-synchronized" for each in threading.enumerate()))


def test_copy_of_a_synchronized_function_is_the_function_itself(client: Client) -> None:
    @synchronized(Lock(name="a"))
    def function() -> None: ...

    assert copy.copy(function) is function
    assert copy.deepcopy({"function": function}) == {"function": function}
