"""A client connected to a server that its ensemble has lost, and that still answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from helpers.frame_client import Link
from helpers.servers import need_zookeeper
from helpers.worker_processes import Running

from distsync import Counter
from distsync._client.client import Client
from distsync._wire import records as r
from distsync.testing import Ensemble
from distsync.threading import Lock

MINUTE = 60.0
TICK_MS = 200
PATIENT_TICKS = 200
"""A server that hears nothing of its leader answers its clients for so long: here far beyond their sessions."""


@pytest.fixture
def patient() -> Iterator[Ensemble]:
    need_zookeeper()
    with Ensemble(3, 0, tick_ms=TICK_MS, settings={"syncLimit": PATIENT_TICKS}) as ensemble:
        yield ensemble


def last_seen_held(lock: Lock, taking: Running, before: float) -> float:
    """When ``lock`` was held last, as seen until ``taking`` has ended."""
    last = before
    while taking.is_alive():
        now = time.monotonic()
        if lock.held:
            last = now
        time.sleep(0.001)
    return last


@pytest.mark.slow("an ensemble")
def test_held_is_false_before_another_holds_though_a_follower_that_is_cut_off_still_shows_our_znode(
    patient: Ensemble, connected: Callable[..., Client]
) -> None:
    """Neither its pings nor its reads prove anything: the leader has ended the session."""
    leader, follower = patient.wait_for_leader(), patient.followers()[0]
    lock = Lock(name="one", client=connected(follower.hosts))
    rival = Lock(name="one", client=connected(leader.hosts))
    lock.acquire()
    assert lock.held
    last_held = time.monotonic()
    (mine,) = lock.holders()
    bystander = Link(follower.client_port)
    bystander.greet()
    patient.isolate(follower)
    taking = Running(lambda: (rival.acquire(timeout=MINUTE), time.monotonic()))
    last_held = last_seen_held(lock, taking, last_held)
    got, since = taking.result()
    _, _, error, _ = bystander.ask(1, r.GetDataRequest(mine.path, False), r.GetDataReply)
    bystander.close()
    assert got
    assert error == 0, "the follower does not show it any more: the test shows nothing"
    assert last_held < since
    assert not lock.held


@pytest.mark.slow("an ensemble")
def test_held_is_false_before_another_holds_though_a_leader_that_was_replaced_answers_its_own_clients(
    patient: Ensemble, connected: Callable[..., Client]
) -> None:
    """It answers sync alone, until it gives up: that proves nothing, and shows nothing new."""
    leader, followers = patient.wait_for_leader(), patient.followers()
    client, other = connected(leader.hosts), connected(",".join(one.hosts for one in followers))
    lock, rival = Lock(name="one", client=client), Lock(name="one", client=other)
    seen, written = Counter(name="n", client=client), Counter(name="n", client=other)
    written.add(1)
    lock.acquire()
    assert lock.held
    last_held = time.monotonic()
    bystander = Link(leader.client_port)
    bystander.greet()
    patient.isolate(leader)
    for one in followers:  # they forget their leader
        one.kill()
    for one in followers:
        one.start()
    taking = Running(lambda: (rival.acquire(timeout=MINUTE), time.monotonic()))
    last_held = last_seen_held(lock, taking, last_held)
    got, since = taking.result()
    written.add(1)
    _, _, error, _ = bystander.ask(1, r.SyncRequest("/"), r.SyncReply)
    bystander.close()
    assert got
    assert error == 0, "it has given up: the test shows nothing"
    assert last_held < since
    assert not lock.held
    looking = Running(lambda: seen.get(sync=True))
    patient.heal()
    assert looking.result() == 2
