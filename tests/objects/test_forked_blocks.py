"""A forked child that ends a ``with`` block of its parent releases nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from helpers.forked_children import check, fork_by_libc, reaped
from helpers.timing import PATIENCE, eventually

from distsync import Condition, Lock, RLock, SharedLock, acquire_all, synchronized
from distsync import asyncio as aio
from distsync._client import lifecycle
from distsync._client.client import Client
from distsync.errors import NotHeldError
from distsync.multiprocessing import Manager, synchronize
from distsync.threading import BoundedSemaphore, Semaphore

MakeClient = Callable[..., Client]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
]


class Child(Exception):
    """Leaves the block in the child."""


@contextmanager
def leaving_child(close: Callable[[], object] = lifecycle.close_clients) -> Iterator[None]:
    """End a child that was forked in the block and leaves it."""
    parent = os.getpid()
    try:
        yield
    except BaseException:
        if os.getpid() == parent:
            raise
        expected = isinstance(sys.exc_info()[1], (SystemExit, Child))
        if not expected:
            traceback.print_exc()
            sys.stderr.flush()
        close()
        os._exit(0 if expected else 1)
    if os.getpid() != parent:
        os._exit(2)


def fork_and_leave(fork: Callable[[], int] = os.fork, before: Callable[[], object] = lambda: None) -> None:
    """In a forked child, leave the enclosing blocks; in the parent, wait for its end."""
    child = fork()
    if child == 0:
        before()
        sys.exit()
    assert reaped(child) == 0


def locks() -> dict[str, Callable[..., Any]]:
    return {
        "Lock": Lock,
        "RLock": RLock,
        "writer": lambda **options: SharedLock(**options).writer,
        "multiprocessing.Lock": synchronize.Lock,
        "multiprocessing.RLock": synchronize.RLock,
    }


def semaphores() -> dict[str, Callable[..., Any]]:
    kinds = [Semaphore, BoundedSemaphore, synchronize.Semaphore, synchronize.BoundedSemaphore]
    made: dict[str, Callable[..., Any]] = {f"{kind.__module__}.{kind.__name__}": kind for kind in kinds}
    for layout in ("kazoo", "curator"):
        made[layout] = lambda layout=layout, **options: Semaphore(1, layout=layout, **options)
    return made


KINDS = {**locks(), **semaphores()}


@pytest.mark.parametrize("kind", KINDS)
def test_child_that_exits_in_a_block_of_its_parent_releases_nothing(
    kind: str, client: Client, make_client: MakeClient
) -> None:
    """Regression: a permit was released, or one more made."""
    ours, theirs = KINDS[kind](name="x"), KINDS[kind](name="x", client=make_client())
    with leaving_child():
        for _ in range(2):
            with ours:
                fork_and_leave()
                assert ours.held
                assert not theirs.acquire(False)
    with theirs:
        assert not ours.acquire(False)


@pytest.mark.parametrize("kind", semaphores())
def test_child_of_a_fork_without_hooks_releases_no_permit(kind: str, client: Client, make_client: MakeClient) -> None:
    ours, theirs = KINDS[kind](name="x"), KINDS[kind](name="x", client=make_client())
    with leaving_child(close=lambda: None), ours:  # the child has its parent's client
        fork_and_leave(fork_by_libc)
        assert ours.held
        assert not theirs.acquire(False)
    with theirs:
        assert not ours.acquire(False)


@pytest.mark.parametrize("kind", ["Lock", "multiprocessing.Lock"])
def test_child_that_exits_in_a_block_of_acquire_all_releases_nothing(
    kind: str, client: Client, make_client: MakeClient
) -> None:
    ours, theirs = KINDS[kind](name="x"), KINDS[kind](name="x", client=make_client())
    with leaving_child(), acquire_all(ours, KINDS[kind](name="y")):
        fork_and_leave()
        assert not theirs.acquire(False)
    with theirs:
        pass


@pytest.mark.parametrize("kind", ["Semaphore", "Lock"])
def test_child_that_exits_in_delegating_blocks_releases_nothing(kind: str, client: Client) -> None:
    one: Any = getattr(synchronize, kind)(name="x")
    blocks: list[Callable[[], Any]] = [lambda: synchronized(one)]
    if kind == "Lock":
        blocks.append(lambda: Condition(one, name="c"))
    for block in blocks:
        with leaving_child(), ExitStack() as stack:
            stack.enter_context(block())
            fork_and_leave()
            assert not one.acquire(False)
        assert one.acquire(False)
        one.release()


def test_child_that_exits_in_a_block_of_a_signal_adds_no_permit(client: Client) -> None:
    signal = Semaphore(0, name="x")
    signal.release()
    with leaving_child(), signal:
        fork_and_leave()
        assert signal.get_value() == 0
    assert signal.get_value() == 1


@pytest.mark.parametrize("kind", [Semaphore, synchronize.Semaphore])
@pytest.mark.parametrize("value", [0, 3])
def test_child_releases_what_its_own_blocks_have_acquired(kind: Any, value: int, client: Client) -> None:
    slots = kind(value, name="x")
    for _ in range(3 - value):
        slots.release()

    def use() -> None:
        check(slots.get_value() == 2, "the parent's permit is free")
        with slots, slots:
            check(slots.get_value() == 0, "the permits are not taken")
        check(slots.get_value() == 2, "the permits are not released")
        slots.acquire()  # closing the client releases it, unless it is consumed
        with slots:
            pass
        slots.release()

    with leaving_child(), slots:
        fork_and_leave(before=use)
        eventually(lambda: slots.get_value() == 2)
    assert slots.get_value() == 3


def test_end_of_an_inherited_block_does_not_release_a_permit_of_the_child(client: Client) -> None:
    slots = Semaphore(2, name="x")
    with leaving_child():
        try:
            with slots:
                pid = os.fork()
                if pid == 0:
                    slots.acquire()
                    raise Child
                assert reaped(pid) == 0
        except Child:
            check(slots.held, "the child has lost its own permit")
            raise
        eventually(lambda: slots.get_value() == 2)


@pytest.mark.parametrize("kind", [Lock, Semaphore])
def test_child_that_ends_a_block_of_its_parent_in_good_order_gets_not_held_error(kind: Any, client: Client) -> None:
    one = kind(name="x")
    raised = False
    with leaving_child():
        try:
            with one:
                child = os.fork()
                if child:
                    assert reaped(child) == 0
        except NotHeldError:
            raised = True
            sys.exit()
        assert one.acquire(False)
        assert not raised
        one.release()


def test_child_may_release_a_permit_explicitly(client: Client) -> None:
    """As with ``threading.Semaphore``, this makes a permit of its own."""
    slots = Semaphore(1, name="x")

    def release() -> None:
        slots.release()

    with leaving_child(), slots:
        fork_and_leave(before=release)
        assert slots.get_value() == 1


@pytest.mark.parametrize("kind", [aio.Semaphore, aio.BoundedSemaphore])
def test_child_that_leaves_a_block_of_a_task_releases_no_permit(kind: Any, client: Client) -> None:
    async def main() -> None:
        ours = kind(name="x")
        async with ours:
            child = os.fork()
            if child == 0:  # the event loop is its parent's
                ended = 1
                try:
                    ours.__aexit__(None, None, None).send(None)
                except NotHeldError:
                    ended = 0
                finally:
                    os._exit(ended)
            assert reaped(child) == 0
            assert ours.held
            assert ours.locked()
        assert not ours.locked()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_child_that_exits_in_a_block_of_a_manager_deletes_nothing(client: Client) -> None:
    with leaving_child(), Manager() as manager:
        shared = manager.dict(a=1)
        fork_and_leave()
        assert dict(shared) == {"a": 1}
