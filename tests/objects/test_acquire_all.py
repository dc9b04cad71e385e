"""acquire_all: all locks or none, in a fixed order, within one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.interrupt_every_line import strikes
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, expire, results

from distsync import (
    DeadlineError,
    Lock,
    LockLostError,
    NotHeldError,
    RLock,
    Semaphore,
    SharedLock,
    UsageError,
    acquire_all,
    multiprocessing,
)
from distsync._client.client import Client

MakeClient = Callable[..., Client]


def test_locks_acquired_together_are_held_and_released_together(client: Client, other: Client) -> None:
    a, b, c = Lock(name="a"), RLock(name="b"), SharedLock(name="c")
    with acquire_all(c.writer, b, a) as held:
        assert held.held
        assert held.locks == (a, b, c.writer)
        for path in (a.path, b.path, c.path):
            assert path in repr(held)
        assert not any(Lock(path=each.path, client=other).acquire(blocking=False) for each in (a, b))
    assert [each.held for each in (a, b, c.writer)] == [False] * 3


def test_callers_that_name_the_locks_in_opposite_order_do_not_deadlock(client: Client, other: Client) -> None:
    def use(one: Lock, two: Lock) -> int:
        for _ in range(10):
            with acquire_all(one, two, timeout=PATIENCE):
                time.sleep(0)
        return 10

    ours = Running(use, Lock(name="a"), Lock(name="b"))
    theirs = Running(use, Lock(name="b", client=other), Lock(name="a", client=other))
    assert results([ours, theirs]) == [10, 10]


def test_acquire_all_that_times_out_holds_none_of_the_locks(client: Client, other: Client) -> None:
    a, b, c = Lock(name="a"), SharedLock(name="b"), Lock(name="z")
    with Lock(name="z", client=other):
        for timeout in (0, UNIT):
            with pytest.raises(DeadlineError, match=f"timed out: {c.path}, one of 3 locks"):
                acquire_all(c, b.reader, a, timeout=timeout)
            eventually(lambda: not (a.holders() or b.holders()))
        assert len(c.holders()) == 1
    assert [each.held for each in (a, b.reader)] == [False] * 2


def test_acquire_all_waits_for_locks_that_are_released_one_after_another(client: Client, other: Client) -> None:
    names = ["a", "b", "c"]
    theirs = [Lock(name=name, client=other) for name in names]
    for each in theirs:
        each.acquire()
    waiting = Running(acquire_all, *[Lock(name=name) for name in names])
    for lock in theirs:
        eventually(lambda: len(lock.waiters()) == 1)  # noqa: B023
        lock.release()
    waiting.result().release()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "SharedLock", "reader"])
def test_acquire_all_without_a_timeout_waits_for_a_lock_of_multiprocessing(
    kind: str, client: Client, other: Client
) -> None:
    """It raised DeadlineError at once."""
    make = getattr(multiprocessing, "SharedLock" if kind == "reader" else kind)
    ours, theirs = make(name="a"), make(name="a", client=other)
    with theirs:
        waiting = Running(is_held_by_all, ours.reader if kind == "reader" else ours)
        eventually(lambda: len(theirs.waiters()) == 1)
    assert waiting.result()


def is_held_by_all(*locks: Any) -> bool:
    with acquire_all(*locks) as all_held:
        return all_held.held


def test_the_wait_for_one_lock_counts_towards_the_deadline_of_the_next(client: Client, other: Client) -> None:
    theirs = [Lock(name=name, client=other) for name in "ab"]
    for each in theirs:
        each.acquire()
    timeout = 20 * UNIT
    began = time.monotonic()
    waiting = Running(partial(acquire_all, Lock(name="a"), Lock(name="b"), timeout=timeout))
    time.sleep(timeout / 2)
    theirs[0].release()
    with pytest.raises(DeadlineError, match=f"timed out: {theirs[1].path}, one of 2 locks"):
        waiting.result()
    assert timeout <= time.monotonic() - began < 1.4 * timeout
    theirs[1].release()


def test_acquire_all_restores_the_recursion_count_of_an_rlock_that_was_already_held(
    client: Client, other: Client
) -> None:
    a, b = RLock(name="a"), Lock(name="b")
    with a, Lock(name="b", client=other):
        with pytest.raises(DeadlineError):
            acquire_all(a, b, timeout=UNIT)
        assert (a.held, a._recursion_count()) == (True, 1)
    with a:
        with acquire_all(a, b):
            assert a._recursion_count() == 2
        assert a._recursion_count() == 1


def test_lock_lost_while_waiting_for_another_one_raises_lock_lost_error(
    client: Client, other: Client, observer: Observer
) -> None:
    a, b = Lock(name="a"), Lock(name="b")
    theirs = Lock(name="b", client=other)
    theirs.acquire()
    waiting = Running(acquire_all, a, b)
    eventually(lambda: len(theirs.waiters()) == 1)
    observer.kazoo.delete(a.holders()[0].path)
    eventually(lambda: not a.held)
    theirs.release()
    with pytest.raises(LockLostError, match=a.path):
        waiting.result()
    eventually(lambda: not (a.holders() or b.holders()))


def test_loss_of_one_lock_is_raised_after_all_locks_are_released(client: Client, observer: Observer) -> None:
    a, b, c = Lock(name="a"), Lock(name="b"), Lock(name="c")
    held = acquire_all(a, b, c)
    observer.kazoo.delete(b.holders()[0].path)
    eventually(lambda: not held.held)
    with pytest.raises(LockLostError, match=b.path):
        held.release()
    assert [each.holders() for each in (a, b, c)] == [[]] * 3


def test_release_that_finds_several_losses_raises_the_first_one(client: Client, observer: Observer) -> None:
    a, b, c = Lock(name="a"), Lock(name="b"), Lock(name="c")
    held = acquire_all(a, b, c)
    for each in (a, b):
        observer.kazoo.delete(each.holders()[0].path)
    eventually(lambda: not (a.held or b.held))
    with pytest.raises(LockLostError, match=b.path):
        held.release()
    assert c.holders() == []


def test_loss_of_a_lock_that_another_thread_reuses_is_raised_by_acquire_all_only(
    client: Client, other: Client, observer: Observer
) -> None:
    a, b = Lock(name="a"), SharedLock(name="b")
    theirs = SharedLock(name="z", client=other).writer
    theirs.acquire()

    def use() -> None:
        with pytest.raises(LockLostError):
            acquire_all(a, b.reader, SharedLock(name="z").writer)
        for each in (a, b.reader):
            with pytest.raises(NotHeldError):
                each.release()

    waiting = Running(use)
    eventually(lambda: len(theirs.waiters()) == 1)
    for lock in (a, b):
        observer.kazoo.delete(lock.holders()[0].path)
    for each in (a, b.reader):
        eventually(lambda: not each.held)  # noqa: B023
        with each:
            pass
    theirs.release()
    waiting.result()


def test_end_of_the_session_loses_all_locks(client: Client) -> None:
    a, b = Lock(name="a"), Lock(name="b")
    with pytest.raises(LockLostError), acquire_all(a, b) as held:  # noqa: PT012
        expire(client)
        eventually(lambda: not held.held)


@pytest.mark.parametrize("wrong", [Semaphore(2, name="s"), "a", None])
def test_arguments_that_are_not_locks_raise_type_error(wrong: Any, client: Client) -> None:
    with pytest.raises(TypeError, match="acquire_all takes locks"):
        acquire_all(Lock(name="a"), wrong)


def test_duplicate_locks_and_negative_timeouts_are_refused(client: Client) -> None:
    shared = SharedLock(name="a")
    for twice in ((Lock(name="a"), Lock(name="a")), (shared.reader, shared.writer)):
        with pytest.raises(UsageError, match="given twice"):
            acquire_all(*twice)
    with pytest.raises(ValueError, match="timeout must be seconds >= 0, None, or -1"):
        acquire_all(Lock(name="a"), timeout=-2)
    with acquire_all() as nothing:
        assert nothing.held


@pytest.mark.slow_on("zookeeper")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_interrupt_at_any_line_leaves_no_lock_held(client: Client, other: Client) -> None:
    a, b = Lock(name="a"), SharedLock(name="b")
    free = [Lock(name="a", client=other), SharedLock(name="b", client=other).writer]

    def use() -> None:
        acquire_all(a, b.reader)

    def check(where: str) -> None:
        for each in (a, b.reader):
            if where.endswith(("__enter__, call", "__exit__, call")) and each.held:  # interrupted outside acquire_all
                each.release()
        check_free(free, where)

    def use_and_release() -> None:
        with acquire_all(a, b.reader):
            pass

    use()
    a.release()
    b.reader.release()
    assert strikes(use_and_release, check, 29) > 100


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_interrupt_at_any_line_of_the_release_leaves_no_lock_held(client: Client, other: Client) -> None:
    a, b = Lock(name="a"), SharedLock(name="b")
    free = [Lock(name="a", client=other), SharedLock(name="b", client=other).writer]
    held = [acquire_all(a, b.reader)]

    def check(where: str) -> None:
        check_free(free, where)
        held[0] = acquire_all(a, b.reader)

    assert strikes(lambda: held[0].__exit__(None, None, None), check, 11, 2) > 20


@pytest.mark.slow_on("zookeeper")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_interrupt_at_any_line_of_a_call_that_times_out_leaves_no_lock_held(client: Client, other: Client) -> None:
    a, b, c = Lock(name="a"), SharedLock(name="b"), Lock(name="z")
    free = [Lock(name="a", client=other), SharedLock(name="b", client=other).writer]
    theirs = Lock(name="z", client=other)

    def acquire_and_time_out() -> None:
        with pytest.raises(DeadlineError):
            acquire_all(a, b.reader, c, timeout=0)

    with theirs:
        acquire_and_time_out()
        assert strikes(acquire_and_time_out, lambda where: check_free(free, where), 31) > 100


def check_free(locks: list[Any], where: str) -> None:
    for each in locks:
        assert each.acquire(timeout=PATIENCE), f"{each} is not free after an interrupt at {where}"
        each.release()
