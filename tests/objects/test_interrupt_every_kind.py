"""After an interrupt at any place of a call, each kind of object that can be held has one holder or none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from helpers.interrupt_every_line import Strike, strikes
from helpers.timing import PATIENCE

import distsync.multiprocessing as mp
from distsync import (
    BoundedSemaphore,
    Condition,
    DeadlineError,
    Election,
    Lock,
    RLock,
    Semaphore,
    SharedLock,
    acquire_all,
    synchronized,
)
from distsync._client.client import Client

STEP = int(os.environ.get("DISTSYNC_TEST_STRIKES_STEP", "31"))
"""Interrupt only at each n-th place: all of them take minutes."""

MakeClient = Callable[..., Client]

# An interrupt may hit before the first line of a protocol.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.timeout(600),
]


class Step(NamedTuple):
    """A call, and by how much it changes the number of times that ``made`` is held; None if it may lose all objects."""

    made: Any
    call: Callable[[], object]
    change: int | None


def calls(made: Any) -> list[Step]:
    return [Step(made, made.acquire, 1), Step(made, made.release, -1)]


def nested(made: Any) -> list[Step]:
    acquire, release = calls(made)
    return [acquire, acquire, release, release]


def block(made: Any, context: Any = None) -> list[Step]:
    context = context or made
    return [Step(made, context.__enter__, 1), Step(made, lambda: context.__exit__(None, None, None), -1)]


def calls_and_block(made: Any) -> list[Step]:
    return calls(made) + block(made)


def nested_and_block(made: Any) -> list[Step]:
    return nested(made) + block(made)


def downgraded(made: SharedLock) -> list[Step]:
    write, read = calls(made.writer), calls(made.reader)
    return [write[0], read[0], write[1], read[1]]


class Together:
    """Locks that `acquire_all` acquires."""

    def __init__(self, *locks: Any) -> None:
        self.locks = locks

    @property
    def held(self) -> bool:
        assert len({lock.held for lock in self.locks}) == 1
        return self.locks[0].held

    def acquire(self) -> None:
        self.taken = acquire_all(*self.locks)

    def release(self) -> None:
        self.taken.release()

    def exit(self) -> None:
        self.taken.__exit__(None, None, None)


def together(lock: Any) -> list[Step]:
    made = Together(lock, SharedLock(name="x", client=lock.client).writer)
    return [*calls(made), Step(made, made.acquire, 1), Step(made, made.exit, -1)]


def waiting(made: Any) -> list[Step]:
    enter, leave = block(made)
    wait = Step(made, lambda: made.wait(0), None)
    return [enter, wait, Step(made, lambda: made.wait_for(lambda: False, 0.001), None), leave]


def waiting_twice(made: Condition) -> list[Step]:
    acquire, release = calls(made)
    return [acquire, *waiting(made), release]


def waiting_reader(made: Condition) -> list[Step]:
    """A wait releases and restores both sides of a SharedLock, or is interrupted and leaves both free."""
    reader = made._lock.reader

    def wait() -> None:
        try:
            made.wait(0)
        finally:
            assert reader.held == made._is_owned()

    (enter, leave), (read, stop_reading) = block(made), calls(reader)
    return [enter, read, read, Step(made, wait, None), stop_reading, stop_reading, leave]


def guarded(made: Lock) -> list[Step]:
    acquire, release = calls(made)

    def commit() -> None:
        with made.transaction() as change:
            change.create(f"{made.path}-data-", sequence=True)

    return [acquire, Step(made, commit, 0), release]


def led(made: Election) -> list[Step]:
    enter, leave = block(made)
    announce = Step(made, lambda: made.announce("done"), 0)
    return [*nested_and_block(made), Step(made, lambda: made.run(int), 0), enter, announce, leave]


def decorated(made: Lock) -> list[Step]:
    return [Step(made, synchronized(made)(lambda: None), 0)]


def synchronized_block(made: Any) -> list[Step]:
    return block(made, synchronized(made))


def of_foreign_lock(made: Condition) -> list[Step]:
    lock = made._lock
    leave, release = block(lock, made)[1], Step(lock, made.release, -1)
    return [Step(lock, lock.acquire, 1), leave, Step(lock, lock.acquire, 1), release]


def with_lock(client: Client) -> Condition:
    return Condition(Lock(name="x", client=client), name="x", client=client)


def with_shared_lock(client: Client) -> Condition:
    return Condition(SharedLock(name="x", client=client), name="x", client=client)


def with_reader(client: Client) -> Condition:
    return Condition(SharedLock(name="x", client=client).reader, name="x", client=client)


def with_foreign_lock(client: Client) -> Condition:
    return Condition(threading.Lock(), name="x", client=client)


Make = Callable[[Client], Any]


def named(kind: Any, *args: Any, **options: Any) -> Make:
    return lambda client: kind(*args, name="x", client=client, **options)


def reader(client: Client) -> Any:
    return SharedLock(name="x", client=client).reader


def process_reader(client: Client) -> Any:
    return mp.SharedLock(name="x", client=client).reader


def writer(client: Client) -> Any:
    return SharedLock(name="x", client=client).writer


#: How an object is made and used, and how that of another client is made if it is of another kind.
KINDS: dict[str, tuple[Make, Callable[[Any], list[Step]], Make | None]] = {
    "Lock": (named(Lock), calls_and_block, None),
    "RLock": (named(RLock), nested_and_block, None),
    "SharedLock": (named(SharedLock), nested_and_block, reader),
    "reader": (reader, nested_and_block, writer),
    "writer": (writer, nested_and_block, reader),
    "downgrade": (named(SharedLock), downgraded, writer),
    "Semaphore": (named(Semaphore), calls_and_block, None),
    "BoundedSemaphore": (named(BoundedSemaphore), calls_and_block, None),
    "kazoo's Semaphore": (named(Semaphore, layout="kazoo"), calls_and_block, None),
    "Curator's Semaphore": (named(Semaphore, layout="curator"), calls_and_block, None),
    "multiprocessing.Lock": (named(mp.Lock), calls_and_block, None),
    "multiprocessing.RLock": (named(mp.RLock), nested_and_block, None),
    "multiprocessing.SharedLock": (named(mp.SharedLock), nested_and_block, reader),
    "multiprocessing.SharedLock.reader": (process_reader, nested_and_block, writer),
    "multiprocessing.Semaphore": (named(mp.Semaphore), calls_and_block, None),
    "multiprocessing.BoundedSemaphore": (named(mp.BoundedSemaphore), calls_and_block, None),
    "acquire_all": (named(Lock), together, writer),
    "Election": (named(Election), led, None),
    "Election.wait": (named(Election), waiting, None),
    "Condition": (named(Condition), calls_and_block, None),
    "Condition.wait": (named(Condition), waiting, None),
    "Condition.wait with a Lock": (with_lock, waiting, None),
    "Condition.wait with a SharedLock": (with_shared_lock, waiting, None),
    "Condition.wait with both sides of a SharedLock": (with_shared_lock, waiting_reader, None),
    "Condition.wait with a reader": (with_reader, waiting_twice, writer),
    "Condition with a foreign lock": (with_foreign_lock, of_foreign_lock, None),
    "multiprocessing.Condition": (named(mp.Condition), calls_and_block, None),
    "multiprocessing.Value": (named(mp.Value, "i"), calls_and_block, None),
    "GuardedTransaction": (named(Lock), guarded, None),
    "synchronized function": (named(Lock), decorated, None),
    "synchronized block": (named(Lock), synchronized_block, None),
    "synchronized block of a Semaphore": (named(Semaphore), synchronized_block, None),
    "synchronized block of a reader": (reader, synchronized_block, writer),
    "synchronized block of a Condition": (named(Condition), synchronized_block, None),
}


def is_held(made: Any) -> bool:
    """Return whether this thread holds an object, of distsync's or ``threading``."""
    if hasattr(made, "get_lock"):
        made = made.get_lock()
    return bool(
        made._is_owned() if isinstance(made, Condition) else made.held if hasattr(made, "held") else made.locked()
    )


def depths_after(steps: list[Step], reached: int) -> dict[Any, int]:
    """Return how many times each object is held after an interrupt in step ``reached``."""
    depths = {step.made: 0 for step in steps}
    for step in steps[:reached]:
        depths[step.made] += step.change or 0
    last = steps[reached]
    if last.change is None:
        depths = {made: is_held(made) and depth for made, depth in depths.items()}
    elif last.change < 0:
        depths[last.made] -= 1
    return depths


@pytest.mark.parametrize("linger", ["0", "60"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow_on("zookeeper")
def test_interrupted_acquire_has_not_happened_and_interrupted_release_has(
    kind: str, linger: str, make_client: MakeClient
) -> None:
    """Another client then acquires the object exactly if it is not held."""
    make, script, make_other = KINDS[kind]
    client, other = make_client(linger=linger), make_client(linger="0")
    steps, theirs = script(make(client)), (make_other or make)(other)
    reached = 0

    def use() -> None:
        nonlocal reached
        for reached, step in enumerate(steps):  # noqa: B007
            step.call()

    def check(where: str) -> None:
        depths = depths_after(steps, reached)
        for made, depth in depths.items():
            assert is_held(made) == (depth > 0), f"held {depth} times after an interrupt at {where}"
        if any(depths.values()) and not is_foreign:
            assert not theirs.acquire(False), f"two holders after an interrupt at {where}"
        for made, depth in depths.items():
            for _ in range(depth):
                made.release()
            assert not is_held(made)
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        use()

    is_foreign = kind == "Condition with a foreign lock"
    use()
    assert strikes(use, check, STEP, errors=(DeadlineError, KeyboardInterrupt)) > STEP
    client.close()
    other.close()


@pytest.mark.parametrize("linger", ["0", "60"])
def test_interrupt_right_after_the_lock_of_a_condition_was_acquired_leaves_it_free(
    linger: str, make_client: MakeClient
) -> None:
    """A signal handler can run there: Python 3.10 and 3.11 look for signals after a call with ``*args``."""
    client = make_client(linger=linger)
    condition = Condition(name="x", client=client)
    lock = condition._lock

    def acquire_and_interrupt(*args: Any) -> None:
        type(lock).acquire(lock, *args)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "acquire", acquire_and_interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            condition.acquire()
    assert not condition._is_owned()
    assert condition.acquire()
    condition.release()
    client.close()


def test_interrupted_close_of_a_client_is_completed_by_the_next_close(make_client: MakeClient) -> None:
    theirs = Lock(name="x", client=make_client())
    which, where = 1, ""
    while where is not None:
        client = make_client()
        ours = Lock(name="x", client=client)
        ours.acquire()
        where = Strike(which).during(lambda: client.__exit__(None, None, None))  # noqa: B023
        client.close()
        assert not ours.held, where
        assert theirs.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.release()
        which += STEP
    assert which > STEP
