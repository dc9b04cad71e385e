"""Whatever a signal handler raises arrives as itself; the call has happened or not, and the connection works."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from helpers.interrupt_every_line import PACKAGES, Strike

from distsync import ClientClosedError, Condition, Counter, DeadlineError, Lock, Queue, Semaphore, SharedLock
from distsync.queue import Empty
from distsync.testing.faulty_proxy import Proxy

STEP = int(os.environ.get("DISTSYNC_TEST_STRIKES_STEP", "7"))
"""Interrupt only at each n-th place: all of them take minutes."""

MakeClient = Callable[..., Any]


class Problem(Exception):
    """An error of the program's own."""


ERRORS = (
    OSError,
    TimeoutError,
    ValueError,
    RuntimeError,
    Problem,
    KeyboardInterrupt,
    ClientClosedError,
    Empty,
    DeadlineError,
    StopIteration,
)

# An exception may come before the first line of a protocol.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.timeout(300),
]

fast_wires = pytest.mark.parametrize("fast_wire", [True, False])


def strike_all(action: Callable[[], object], check: Callable[[str], object]) -> int:
    """Raise one error after the other in the lines of ``action``. Return how many places there are."""
    which = 1
    while (where := Strike(which, ERRORS[which % len(ERRORS)], PACKAGES).during(action)) is not None:
        check(where)
        which += STEP
    return which


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", [Lock, Condition, Semaphore, Counter, SharedLock])
def test_interrupted_call_leaves_no_coroutine_that_was_never_awaited(kind: Any, make_client: MakeClient) -> None:
    """Python prints a warning when such a coroutine is freed, and a signal in that moment is swallowed."""
    client = make_client(linger=0)
    shared = kind(name="x", client=client)
    if kind is SharedLock:
        shared = shared.reader

    def use() -> None:
        if kind is Counter:
            shared.add(1)
        else:
            assert shared.acquire()
            if kind is Condition:
                shared.notify()
            shared.release()

    use()
    unawaited = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        which = 1
        while (where := Strike(which).during(use)) is not None:
            unawaited += [f"{each.message} at {where}" for each in caught if "never awaited" in str(each.message)]
            caught.clear()
            which += STEP
    assert unawaited == []
    client.close()


@fast_wires
@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("linger", [0.0, 60.0])
def test_exception_of_a_handler_in_a_lock_arrives_as_itself_and_leaves_it_free(
    linger: float, fast_wire: bool, make_client: MakeClient, proxy: Proxy
) -> None:
    client = make_client(hosts=proxy.hosts, fast_wire=fast_wire)
    lock = Lock(name="x", linger=linger, client=client)

    def use() -> None:
        assert lock.acquire(timeout=8)
        lock.release()

    def check(where: str) -> None:
        use()
        assert not lock.held, where

    use()
    assert strike_all(use, check) > 100
    assert proxy.connections == 1
    client.close()


@fast_wires
@pytest.mark.slow_on("zookeeper")
def test_exception_of_a_handler_in_a_queue_arrives_as_itself_and_puts_and_gets_nothing_twice(
    fast_wire: bool, make_client: MakeClient, proxy: Proxy
) -> None:
    client = make_client(hosts=proxy.hosts, fast_wire=fast_wire)
    queue = Queue[int](name="q", client=client)
    begun, put, got = [0], [], []

    def put_one() -> None:
        begun[0] += 1
        queue.put(begun[0])
        put.append(begun[0])

    def get_one() -> None:
        got.append(queue.get(block=False))

    def check_put(where: str) -> None:
        put_one()

    def check_get(where: str) -> None:
        put_one()
        put_one()
        get_one()

    put_one()
    assert strike_all(put_one, check_put) > 100
    assert strike_all(get_one, check_get) > 100
    while not queue.empty():
        get_one()
    assert len(got) == len(set(got))
    assert set(got) <= set(range(1, begun[0] + 1))
    assert proxy.connections == 1
    client.close()


@fast_wires
@pytest.mark.slow("a thousand signals")
def test_each_exception_of_a_real_signal_arrives(fast_wire: bool, make_client: MakeClient, proxy: Proxy) -> None:
    client = make_client(hosts=proxy.hosts, fast_wire=fast_wire)
    lock, queue = Lock(name="x", client=client), Queue[int](name="q", client=client)
    chance = random.Random(fast_wire)
    raised, caught = [0], 0

    def use() -> None:
        with lock:
            pass
        queue.put(1)
        queue.get()

    def handler(number: int, frame: FrameType | None) -> None:
        """Raise in lines of the call. The interpreter swallows what is raised in a finalizer."""
        if frame is None or not frame.f_code.co_filename.startswith(PACKAGES):
            return
        while frame is not None:
            if frame.f_code is use.__code__:
                raised[0] += 1
                raise TimeoutError("of a handler")
            if frame.f_code.co_name in ("__del__", "_atfork_child"):
                return
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.003))
                use()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except TimeoutError:
                caught += 1
                assert not lock.held
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught == raised[0] > 100
    assert proxy.connections == 1
    client.close()
