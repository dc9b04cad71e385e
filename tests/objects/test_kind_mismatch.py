"""Two kinds of object on one path in two processes: a reader of a znode refuses the data of another
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distsync import CorruptNodeError, CountDownLatch, IdGenerator, Lock, RateLimiter, Transaction
from distsync._client.client import Client
from distsync.threading import Barrier, Semaphore

READERS: dict[str, Callable[..., Any]] = {
    "semaphore": lambda **how: Semaphore(2, **how).acquire(timeout=1),
    "barrier": lambda **how: Barrier(1, **how).wait(),
    "latch": lambda **how: CountDownLatch(1, **how).count_down(),
    "rate": lambda **how: RateLimiter(1, **how).try_acquire(),
    "ids": lambda **how: IdGenerator(**how).next_id(),
    "transaction": lambda **how: Transaction(["a"], **how).begin(),
}


@pytest.mark.parametrize("kind", READERS)
def test_path_of_a_lock_is_refused_by_what_keeps_its_state_there(kind: str, client: Client, other: Client) -> None:
    with Lock(name="a", client=other) as _, pytest.raises(CorruptNodeError):
        READERS[kind](path=f"{client.namespace}/lock/a")


def test_objects_of_one_name_and_two_kinds_are_two_objects(client: Client, other: Client) -> None:
    with Lock(name="a"):
        assert Semaphore(1, name="a", client=other).acquire(blocking=False)
        Semaphore(1, name="a", client=other).release()
