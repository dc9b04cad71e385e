"""Children of libc's fork, in random states of their parent, neither hold nor release what it holds."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from helpers.forked_children import check, fork_by_libc, in_child

from distsync import Lock, NotHeldError, RLock, Semaphore, SharedLock, UpgradeError
from distsync._client.client import Client

SEEDS = int(os.environ.get("DISTSYNC_TEST_FORK_SEEDS", "4"))
THREADS, ROUNDS = 3, 6
PERMITS = 2
CACHED = ("cached", "rlock")
"""Objects with a fast path, which sends no request."""

pytestmark = [
    pytest.mark.slow("many processes"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Held:
    """An object, the threads of the parent that hold it, and the greatest token that it has had there."""

    def __init__(self, made: Any, excludes: tuple[str, ...] = ()) -> None:
        self.made, self.excludes = made, excludes
        self.owners: list[int] = []
        self.token = -1

    def acquire(self, thread: int) -> None:
        with suppress(UpgradeError):  # this thread reads
            if self.made.acquire(blocking=False):
                self.owners.append(thread)
                self.token = max(self.token, self.made.fencing_token)

    def release(self, thread: int) -> None:
        self.made.release()
        self.owners.remove(thread)


def objects_of(client: Client) -> dict[str, Held]:
    shared = SharedLock(name="shared", client=client)
    return {
        "lock": Held(Lock(name="lock", client=client, linger=0), excludes=("lock",)),
        "cached": Held(Lock(name="cached", client=client, linger=60), excludes=("cached",)),
        "rlock": Held(RLock(name="rlock", client=client, linger=60), excludes=("rlock",)),
        "writer": Held(shared.writer, excludes=("writer", "reader")),
        "reader": Held(shared.reader, excludes=("writer",)),
        "semaphore": Held(Semaphore(PERMITS, name="semaphore", client=client)),
    }


def is_free(objects: dict[str, Held], name: str) -> bool:
    """Return whether another process can acquire the object."""
    if name == "semaphore":
        return len(objects[name].owners) < PERMITS
    return not any(objects[other].owners for other in objects[name].excludes)


def check_child(objects: dict[str, Held], order: list[str], uses_first: bool) -> None:
    """Check in a child that it holds nothing, and acquires only what is free, by a grant of its own."""
    for name in () if uses_first else order:
        check(not objects[name].made.held, f"the child holds {name}")
        if name != "semaphore":  # it would get a permit more
            with pytest.raises(NotHeldError):
                objects[name].made.release()
    for name in order:
        made = objects[name].made
        acquired = made.acquire(blocking=False)
        check(acquired == is_free(objects, name), f"{name}: acquired {acquired}, held by {objects[name].owners}")
        if acquired:
            check(made.fencing_token > objects[name].token, f"{name} has its parent's grant")
            made.release()
    for name in order:
        objects[name].made.client.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_child_in_any_state_of_its_parent_holds_nothing_and_acquires_only_what_is_free(
    seed: int, make_client: Callable[..., Client]
) -> None:
    chance, objects = random.Random(seed), objects_of(make_client())
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(THREADS)]

        def use(thread: int, name: str) -> None:
            held = objects[name]
            (held.release if thread in held.owners else held.acquire)(thread)

        for _ in range(ROUNDS):
            for _ in range(4):
                thread, name = chance.randrange(THREADS), chance.choice(list(objects))
                threads[thread].submit(use, thread, name).result()
            for name in CACHED:
                if not objects[name].owners:  # then it is cached
                    for _ in range(2):
                        threads[0].submit(use, 0, name).result()
            order, uses_first = chance.sample(list(objects), len(objects)), chance.random() < 0.5
            order.sort(key=[chance.choice(CACHED)].__contains__, reverse=uses_first)
            forking = threads[chance.randrange(THREADS)]
            child = forking.submit(in_child, lambda: check_child(objects, order, uses_first), fork=fork_by_libc)  # noqa: B023
            assert child.result() == 0, f"{ {name: held.owners for name, held in objects.items()} }"
            for name, held in objects.items():
                assert not held.owners or held.made.held, f"the parent has lost {name}"
        for held in objects.values():
            for thread in held.owners[:]:
                threads[thread].submit(held.release, thread).result()
