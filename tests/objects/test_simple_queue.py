"""SimpleQueue: what CPython's own tests check only in a process without other threads."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import pytest
from helpers.timing import eventually

from distsync.queue import SimpleQueue


def calls(counter: itertools.count[int]) -> int:
    return int(repr(counter)[len("count(") : -1])


@pytest.mark.slow_on("zookeeper")
def test_put_from_finalizers_neither_blocks_nor_loses_items(client: Any) -> None:
    """CPython's test_reentrancy without the order: the collector also runs in distsync's own threads."""
    inbox: SimpleQueue[int] = SimpleQueue(name="inbox")
    numbers = itertools.count()
    made, finalized = itertools.count(), itertools.count()

    class Circular:
        def __init__(self) -> None:
            self.itself = self
            next(made)

        def __del__(self) -> None:
            inbox.put(next(numbers))
            next(finalized)

    got: list[int] = []
    while len(got) < 300:
        Circular()
        inbox.put(next(numbers))
        got.append(inbox.get(timeout=30))
    eventually(lambda: gc.collect() >= 0 and calls(finalized) == calls(made))  # another thread may be collecting
    last = next(numbers)
    got += [inbox.get(timeout=30) for _ in range(last - len(got))]
    assert sorted(got) == list(range(last))
