"""Event shared by threads, clients and processes."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls

from distsync._client.client import Client
from distsync.threading import Event, Lock


@pytest.fixture
def event(client: Client) -> Event:
    return Event(name="e")


def test_flag_is_shared_by_processes(event: Event, peers: list[Peer]) -> None:
    assert not any(peer.do(event.is_set) for peer in peers)
    peers[0].do(event.set)
    assert peers[0].do(event.is_set)
    assert event.is_set()
    eventually(lambda: all(peer.do(event.is_set) for peer in peers))
    assert all(peer.do(event.wait, 0.0) for peer in peers)
    event.clear()
    assert not event.is_set()
    eventually(lambda: not any(peer.do(event.is_set) for peer in peers))
    assert not peers[1].do(event.wait, UNIT)


def test_set_wakes_the_waiters_of_all_processes(event: Event, peers: list[Peer]) -> None:
    for peer in peers:
        peer.start(event.wait, PATIENCE)
    ours = Running(event.wait)
    event.set()
    assert [peer.result() for peer in peers] == [True] * 3
    assert ours.result()


def test_set_followed_by_clear_wakes_present_waiters_and_no_later_ones(
    event: Event, client: Client, make_client: Callable[..., Client]
) -> None:
    others = [make_client() for _ in range(3)]
    for _ in range(5):
        waiting = [Running(Event(name="e", client=one).wait) for one in others]
        eventually(lambda: all(map(waiting_calls, others)))
        event.set()
        event.clear()
        assert [one.result() for one in waiting] == [True] * 3
        assert not Event(name="e", client=others[0]).wait(0)


def test_waiter_that_reads_late_does_not_miss_a_set_followed_by_clear(event: Event, client: Client) -> None:
    """Many changes may cause a single watch event; the data show that the flag was set."""
    waiting = Running(event.wait)
    eventually(lambda: waiting_calls(client))
    other = Event(name="e")
    for _ in range(20):
        other.set()
        other.clear()
    assert waiting.result()


def test_wait_continues_after_its_session_expired(
    event: Event, client: Client, make_client: Callable[..., Client]
) -> None:
    other = make_client()
    waiting = Running(Event(name="e", client=other).wait)
    eventually(lambda: waiting_calls(other))
    before = other.session_id
    expire(other)
    eventually(lambda: other.session_id not in (None, before))
    event.set()
    assert waiting.result()


def test_wait_continues_after_the_znode_was_deleted(event: Event, client: Client, observer: Observer) -> None:
    event.clear()
    waiting = Running(event.wait)
    eventually(lambda: waiting_calls(client))
    observer.wipe(event.path)
    eventually(lambda: observer.kazoo.exists(event.path))
    event.set()
    assert waiting.result()


def test_wait_that_times_out_leaves_no_call_behind(event: Event, client: Client) -> None:
    for _ in range(20):
        assert not event.wait(1e-4)
    assert not waiting_calls(client)


def test_same_call_of_several_processes_at_once_leaves_its_state(event: Event, peers: list[Peer]) -> None:
    for operation in (event.set, event.clear, event.set):
        for peer in peers:
            peer.start(operation)
        for peer in peers:
            peer.result()
        eventually(lambda: event.is_set() == (operation == event.set))  # noqa: B023


def test_signal_handler_can_set_an_event_at_any_line(client: Client) -> None:
    """Also in the middle of a call, where the handler's thread cannot wait."""
    lock, numbers = Lock(name="busy"), 40
    stops = [Event(name=f"stop {number}") for number in range(numbers)]
    left = list(stops)

    def stop(number: int, frame: object) -> None:
        if left:
            left.pop().set()

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
    try:
        while left:
            with lock:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for event in stops:
        assert event.wait(PATIENCE)
