"""What a call leaves in memory: nothing that leads back to its caller's frame, however it ended.

Else whatever the caller's locals hold, files too, would live until the garbage collector comes.
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
    """Something that a caller has in a local variable."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def set_event(client: Client) -> None:
    """The first set() is refused, for there is no znode yet."""
    event = distsync.Event(client=client)
    event.set()
    event.set()


def get_from_empty(client: Client) -> None:
    distsync.Queue(client=client).get_nowait()


def get_in_vain(client: Client) -> None:
    distsync.Queue(client=client).get(timeout=0.01)


def acquire_in_vain(client: Client) -> None:
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
        get_in_vain,
        acquire_in_vain,
        release_unlocked,
        break_barrier,
        put_into_full,
        read_missing,
    ],
)
def test_call_leaves_nothing_that_leads_to_its_caller(
    call: Callable[[Client], None], client: Client, no_collector: None
) -> None:
    def caller() -> weakref.ref[Local]:
        local = Local()
        with contextlib.suppress(Exception):
            call(client)
        return weakref.ref(local)

    left = caller()
    eventually(lambda: left() is None)


def test_generator_that_catches_the_error_of_a_call_continues(client: Client) -> None:
    def wait_and_go_on() -> Iterator[int]:
        try:
            distsync.Barrier(2, name="b").wait(UNIT)
        except distsync.BrokenBarrierError:
            yield 1
        yield 2

    steps = wait_and_go_on()
    assert next(steps) == 1
    eventually(lambda: is_quiet(client))
    assert next(steps) == 2
