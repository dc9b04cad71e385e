"""A finished call leaves no reference to its caller's frame, however it ended.

Otherwise the caller's locals, such as open files, would live until the garbage collector runs.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from helpers.timing import UNIT, eventually
from helpers.worker_processes import is_quiet

import distsync
from distsync._client.client import Client


class Local:
    """An object in a local variable of the caller."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def set_event(client: Client) -> None:
    """Set an event twice. The first attempt fails internally, because there is no znode yet."""
    event = distsync.Event(client=client)
    event.set()
    event.set()


def get_from_empty(client: Client) -> None:
    distsync.Queue(client=client).get_nowait()


def get_with_timeout(client: Client) -> None:
    distsync.Queue(client=client).get(timeout=0.01)


def acquire_with_timeout(client: Client) -> None:
    lock = distsync.Lock(client=client)
    with lock:
        lock.acquire(timeout=0.01)


def release_unlocked(client: Client) -> None:
    distsync.Lock(client=client).release()


def break_barrier(client: Client) -> None:
    barrier = distsync.Barrier(2, client=client)
    try:
        barrier.wait(0.01)
    finally:
        barrier.reset()


def put_into_full(client: Client) -> None:
    queue = distsync.Queue(1, client=client)
    queue.put(1)
    queue.put_nowait(2)


def read_missing(client: Client) -> None:
    distsync.Config(client=client)["key"]


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(
    "call",
    [
        set_event,
        get_from_empty,
        get_with_timeout,
        acquire_with_timeout,
        release_unlocked,
        break_barrier,
        put_into_full,
        read_missing,
    ],
)
def test_finished_call_leaves_no_reference_to_its_callers_frame(
    call: Callable[[Client], None], client: Client, no_collector: None
) -> None:
    def caller() -> weakref.ref[Local]:
        local = Local()
        with contextlib.suppress(Exception):
            call(client)
        return weakref.ref(local)

    left = caller()
    eventually(lambda: left() is None)


def test_generator_that_catches_the_error_of_a_call_can_continue(client: Client) -> None:
    def wait_and_continue() -> Iterator[int]:
        try:
            distsync.Barrier(2, name="b").wait(UNIT)
        except distsync.BrokenBarrierError:
            yield 1
        yield 2

    steps = wait_and_continue()
    assert next(steps) == 1
    eventually(lambda: is_quiet(client))
    assert next(steps) == 2
