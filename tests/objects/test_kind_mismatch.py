"""Objects of two kinds on one path: an object refuses data that another kind has written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distsync import CorruptNodeError, CountDownLatch, IdGenerator, Lock, RateLimiter, Transaction
from distsync._client.client import Client
from distsync.threading import Barrier, Semaphore

READERS: dict[str, Callable[..., Any]] = {
    "semaphore": lambda **options: Semaphore(2, **options).acquire(timeout=1),
    "barrier": lambda **options: Barrier(1, **options).wait(),
    "latch": lambda **options: CountDownLatch(1, **options).count_down(),
    "rate": lambda **options: RateLimiter(1, **options).try_acquire(),
    "ids": lambda **options: IdGenerator(**options).next_id(),
    "transaction": lambda **options: Transaction(["a"], **options).begin(),
}


@pytest.mark.parametrize("kind", READERS)
def test_object_with_state_in_its_znode_refuses_the_path_of_a_lock(kind: str, client: Client, other: Client) -> None:
    with Lock(name="a", client=other) as _, pytest.raises(CorruptNodeError):
        READERS[kind](path=f"{client.namespace}/lock/a")


def test_objects_of_two_kinds_with_the_same_name_are_independent(client: Client, other: Client) -> None:
    with Lock(name="a"):
        assert Semaphore(1, name="a", client=other).acquire(blocking=False)
        Semaphore(1, name="a", client=other).release()
