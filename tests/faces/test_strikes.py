"""One Ctrl-C, wherever it strikes in a call, leaves nothing held that the caller does not know of."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from peers import Running
from strikes import Strike, strikes
from timing import PATIENCE, eventually

from distsync import Condition, Lock, RLock, Semaphore
from distsync.protocols.line import contenders
from distsync.session.client import Client

STEP = int(os.environ.get("DISTSYNC_STRIKES_STEP", "7"))
"""Each seventh place: all of them take minutes."""

UNAVOIDABLE = "__exit__, call"
"""No line of ours runs before the first instruction of a method. The Condition of the stdlib has that hole too."""

MakeClient = Callable[..., Client]

# An interrupt may come before the first line of a protocol.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore])
def test_interrupted_with_block_leaves_it_free(kind: Any, client: Client, make_client: MakeClient) -> None:
    ours, theirs = kind(name="x"), kind(name="x", client=make_client())

    def use() -> None:
        with ours:
            pass

    def check(where: str) -> None:
        if where.endswith(UNAVOIDABLE):
            assert ours.held
            ours.release()
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()

    use()
    assert strikes(use, check, STEP) > 100


def test_interrupted_wait_leaves_no_waiter_and_no_lock(client: Client, make_client: MakeClient) -> None:
    ours, theirs = Condition(name="c"), Condition(name="c", client=make_client())

    def use() -> None:
        with ours:
            ours.wait(0)

    def check(where: str) -> None:
        if where.endswith(UNAVOIDABLE) and ours._is_owned():
            ours.release()
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        eventually(lambda: waiters_of(ours) == 0, f"a waiter is left after an interrupt at {where}")

    use()
    assert strikes(use, check, STEP) > 100


def waiters_of(condition: Condition) -> int:
    return len(condition.client.run(contenders(f"{condition.path}/waiters")))


def test_wait_that_is_refused_leaves_no_waiter(client: Client, make_client: MakeClient) -> None:
    condition = Condition(name="c")
    with condition:
        for wrong, error in (("x", TypeError), (1e20, OverflowError)):
            with pytest.raises(error):
                condition.wait(wrong)  # type: ignore[arg-type]
    assert waiters_of(condition) == 0


def test_thread_of_the_process_gets_a_lock_whose_release_is_interrupted(client: Client) -> None:
    lock = Lock(name="x")

    def take() -> None:
        with lock:
            pass

    which, where = 0, ""
    while where is not None:
        which += STEP
        lock.acquire()
        other = Running(take)
        eventually(lambda: len(lock._core.tickets) == 1)
        where = Strike(which).during(lock.release)
        if where is not None and where.endswith("release, call"):
            lock.release()
        other.result()
    assert which > 50
