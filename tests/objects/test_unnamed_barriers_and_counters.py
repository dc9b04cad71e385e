"""Unnamed gates, barriers, latches, counters, values, rate limiters and id generators."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import eventually
from helpers.worker_processes import Peer

from distsync import CountDownLatch, Counter, DoubleBarrier, Gate, IdGenerator, RateLimiter, Value
from distsync._client.client import Client


def enter_and_leave(barrier: DoubleBarrier) -> None:
    """Enter and leave, which creates the znode."""
    with barrier:
        pass


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "Gate": (Gate, lambda it: it.close()),
    "DoubleBarrier": (lambda: DoubleBarrier(1), enter_and_leave),
    "CountDownLatch": (lambda: CountDownLatch(3), lambda it: it.count_down()),
    "Counter": (lambda: Counter(5), lambda it: it.add()),
    "Value": (lambda: Value([1]), lambda it: it.set([2])),
    "RateLimiter": (lambda: RateLimiter(5, per=2, burst=3), lambda it: it.try_acquire()),
    "IdGenerator": (lambda: IdGenerator(10, 7), lambda it: it.next_id()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pickled_object_is_the_same_elsewhere_and_is_deleted_when_its_client_closes(
    client: Client, peer: Peer, observer: Observer, kind: str
) -> None:
    make, use = KINDS[kind]
    made = make()
    use(made)
    assert peer.do(remote.attributes, made) == remote.attributes(made)
    assert pickle.loads(pickle.dumps(made))._arguments() == made._arguments()
    path = made.path
    assert observer.kazoo.exists(path)
    client.close()
    assert not observer.kazoo.exists(path)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("kind", KINDS)
def test_object_is_deleted_when_it_is_collected(client: Client, observer: Observer, kind: str) -> None:
    make, use = KINDS[kind]
    made = make()
    use(made)
    path = made.path
    assert observer.kazoo.exists(path)
    del made
    gc.collect()
    eventually(lambda: not observer.kazoo.exists(path))
