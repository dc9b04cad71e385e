"""Semaphores, and Semaphore(0) as a signal, shared by threads, clients and processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results

from distsync import LockLostError
from distsync._client.client import Client
from distsync._protocols import wait_queue
from distsync.errors import MismatchError
from distsync.threading import BoundedSemaphore, Semaphore

MakeClient = Callable[..., Client]
KINDS = [Semaphore, BoundedSemaphore]


@pytest.fixture(params=KINDS)
def slots(request: pytest.FixtureRequest, client: Client) -> Semaphore:
    made: Semaphore = request.param(2, name="s")
    return made


def test_permits_are_counted_across_processes(slots: Semaphore, peers: list[Peer]) -> None:
    first, second, third = peers
    assert first.do(slots.acquire)
    assert (slots.get_value(), second.do(slots.get_value)) == (1, 1)
    assert slots.acquire()
    assert not second.do(slots.acquire, False)
    assert not slots.acquire(blocking=False)
    assert not slots.acquire(timeout=UNIT)
    third.start(slots.acquire)
    eventually(lambda: len(slots.waiters()) == 1)
    assert [holder.pid for holder in slots.holders()] == [first.pid, remote.pid()]
    assert slots.get_value() == 0
    first.do(slots.release)
    assert third.result()
    assert not second.do(slots.acquire, False)
    slots.release()
    assert slots.acquire(timeout=1e-5)
    slots.release()
    third.do(slots.release)
    assert slots.get_value() == 2


def test_number_of_concurrent_holders_never_exceeds_the_permits(
    slots: Semaphore, peers: list[Peer], tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for peer in peers:
        peer.start(remote.most_inside, slots, inside, 6, 3)
    assert max(peer.result() for peer in peers) <= 2


def test_two_threads_of_one_object_take_two_permits(slots: Semaphore) -> None:
    results([Running(slots.acquire), Running(slots.acquire)])
    assert not slots.acquire(blocking=False)
    slots.release(2)
    assert slots.get_value() == 2


def test_permits_released_in_any_order_admit_the_first_waiter(slots: Semaphore, make_client: MakeClient) -> None:
    """A waiter that watches only the holder whose release usually admits it would miss this wakeup."""
    holders = [Semaphore(2, name="s", client=make_client()) for _ in range(2)]
    for holder in holders:
        holder.acquire()
    waiters, waiting = [Semaphore(2, name="s", client=make_client()) for _ in range(2)], []
    for count, waiter in enumerate(waiters, 1):
        waiting.append(Running(waiter.acquire))
        eventually(lambda: len(slots.waiters()) == count)  # noqa: B023
    holders[1].release()
    assert waiting[0].result()
    assert waiting[1].is_alive()
    holders[0].release()
    assert waiting[1].result()
    for waiter in waiters:
        waiter.release()


@pytest.mark.slow
def test_stopped_waiter_does_not_block_the_next_one_for_long(
    slots: Semaphore, make_mortal: Callable[..., Peer]
) -> None:
    """It is first in the queue and cannot proceed. The next waiter polls, and the stopped one's
    session expires.
    """
    slots.acquire()
    slots.acquire()
    stopped = make_mortal(2.0)
    stopped.start(slots.acquire)
    eventually(lambda: len(slots.waiters()) == 1)
    waiting = Running(slots.acquire)
    eventually(lambda: len(slots.waiters()) == 2)
    stopped.signal(signal.SIGSTOP)
    slots.release(2)
    assert waiting.result()
    slots.release()


def test_permit_of_a_killed_process_is_released(slots: Semaphore, make_mortal: Callable[..., Peer]) -> None:
    mortal = make_mortal()
    mortal.do(slots.acquire)
    slots.acquire()
    assert slots.get_value() == 0
    mortal.kill()
    assert slots.acquire(timeout=PATIENCE)
    slots.release(2)
    assert slots.get_value() == 2


@pytest.mark.parametrize("lose", ["znode deleted", "session expired"])
def test_lost_permit_is_reported_and_its_release_raises(slots: Semaphore, observer: Observer, lose: str) -> None:
    losses: list[LockLostError] = []
    slots.on_lost = losses.append
    slots.acquire()
    assert (slots.held, slots.fencing_token > 0) == (True, True)
    if lose == "znode deleted":
        observer.kazoo.delete(slots.holders()[0].path)
    else:
        expire(slots.client)
    eventually(lambda: losses, limit=60 * UNIT)
    assert losses[0].args == (slots.path, lose)
    assert not slots.held
    eventually(lambda: slots.get_value() == 2)
    with pytest.raises(LockLostError, match=lose):
        slots.release()
    assert slots.get_value() == 2


def test_loss_is_raised_only_in_the_thread_that_held_the_permit(slots: Semaphore) -> None:
    lost, release = threading.Event(), threading.Event()

    def lose() -> str:
        slots.acquire()
        lost.set()
        release.wait(PATIENCE)
        return remote.catch(slots.release)

    loser = Running(lose)
    assert lost.wait(PATIENCE)
    expire(slots.client)
    eventually(lambda: not slots.held, limit=60 * UNIT)
    slots.acquire()
    slots.release()
    release.set()
    assert loser.result() == "LockLostError"
    assert slots.get_value() == 2


def test_transaction_is_refused_once_the_permit_is_lost(slots: Semaphore, observer: Observer) -> None:
    slots.acquire()
    with slots.transaction() as transaction:
        transaction.create(f"{slots.client.namespace}/guarded", b"1")
    observer.kazoo.delete(slots.holders()[0].path)
    with pytest.raises(LockLostError), slots.transaction() as transaction:
        transaction.set_data(f"{slots.client.namespace}/guarded", b"2")
    assert observer.kazoo.get(f"{slots.client.namespace}/guarded")[0] == b"1"
    with pytest.raises(LockLostError):
        slots.release()


def test_waiter_whose_session_expires_enqueues_again(slots: Semaphore, make_client: MakeClient) -> None:
    other = make_client()
    slots.acquire()
    slots.acquire()
    theirs = Semaphore(2, name="s", client=other)
    waiting = Running(theirs.acquire)
    eventually(lambda: len(slots.waiters()) == 1)
    before = slots.waiters()[0].path
    expire(other)
    eventually(lambda: slots.waiters() and slots.waiters()[0].path != before)
    slots.release()
    assert waiting.result()
    theirs.release()
    slots.release()


def test_release_without_a_held_permit_adds_one_for_all_processes(client: Client, peer: Peer) -> None:
    slots = Semaphore(1, name="s")
    slots.release(2)
    assert peer.do(slots.get_value) == 3
    for _ in range(3):
        assert peer.do(slots.acquire, False)
    assert not slots.acquire(blocking=False)
    waiting = Running(slots.acquire)
    eventually(lambda: len(slots.waiters()) == 1)
    slots.release()
    assert waiting.result()
    slots.release()


def test_bound_applies_to_all_processes(client: Client, peers: list[Peer]) -> None:
    slots, other, third = BoundedSemaphore(2, name="s"), *peers[:2]
    with pytest.raises(ValueError, match="released too many times"):
        slots.release()
    assert other.do(remote.catch, slots.release) == "OverReleaseError"
    slots.acquire()
    other.do(slots.acquire)
    assert third.do(remote.catch, slots.release, 3) == "OverReleaseError"
    slots.release()
    other.do(slots.release)
    assert third.do(remote.catch, slots.release) == "OverReleaseError"
    assert [peer.do(slots.get_value) for peer in peers] == [2, 2, 2]


def test_release_beyond_the_bound_releases_none(client: Client) -> None:
    slots = BoundedSemaphore(2, name="s")
    slots.acquire()
    with pytest.raises(ValueError, match="released too many times"):
        slots.release(2)
    assert (slots.held, slots.get_value()) == (True, 1)
    slots.release()


@pytest.mark.slow_on("zookeeper")
def test_waiters_do_not_count_towards_the_bound(client: Client, peer: Peer) -> None:
    slots = BoundedSemaphore(1, name="s")
    slots.acquire()
    waiting = Running(lambda: slots.acquire(timeout=40 * UNIT))
    eventually(lambda: len(slots.waiters()) == 1)
    assert peer.do(remote.catch, slots.release, 2) == "OverReleaseError"
    assert not waiting.result()
    slots.release()
    assert slots.get_value() == 1


def test_bound_applies_if_another_process_releases_first(client: Client, peer: Peer) -> None:
    slots = BoundedSemaphore(1, name="s")
    slots.acquire()
    peer.do(slots.release)
    with pytest.raises(ValueError, match="released too many times"):
        slots.release()
    assert (slots.get_value(), slots.held) == (1, False)
    for _ in range(2):
        slots.acquire()
        assert not peer.do(slots.acquire, False)
        slots.release()
    assert slots.get_value() == 1


def test_bounded_release_costs_one_request(client: Client, no_guards: None) -> None:
    slots = BoundedSemaphore(2, name="s")
    for _ in range(2):
        slots.acquire()
        before = sum(client.statistics().requests.values())
        slots.release()
        cost = sum(client.statistics().requests.values()) - before
    assert cost == 1


def test_semaphore_with_another_value_raises_mismatch_error(client: Client, peer: Peer) -> None:
    assert peer.do(Semaphore(2, name="s").acquire)
    with pytest.raises(MismatchError):
        Semaphore(3, name="s").acquire()
    path = Semaphore(2, name="s").path
    # the refused contender is deleted in the background
    eventually(lambda: len(client.run(wait_queue.contenders(path))) == 1)
    for other in (Semaphore(3, name="s"), Semaphore(0, name="s")):
        for operation in (other.acquire, other.get_value, other.release):
            assert peer.do(remote.catch, operation) == "MismatchError"


def test_fencing_token_is_that_of_the_threads_own_permit(client: Client) -> None:
    slots = Semaphore(2, name="s")
    slots.acquire()
    token = slots.fencing_token
    other = Running(lambda: slots.acquire() and slots.fencing_token)
    assert other.result() > token
    assert slots.fencing_token == token
    slots.release(2)


def test_repr_never_fails_and_does_not_connect(make_client: MakeClient) -> None:
    client = make_client()
    slots = Semaphore(2, name="s", client=client)
    assert "value=??" in repr(slots)
    assert client._runtime is None
    with slots:
        assert "value=1" in repr(slots)
        assert "value=??" in repr(Semaphore(3, name="s", client=client))
    client.close()
    assert "value=??" in repr(slots)


# ---- Semaphore(0) as a signal


def test_release_of_a_signal_wakes_waiting_processes(client: Client, peers: list[Peer]) -> None:
    given = Semaphore(0, name="s")
    assert not given.acquire(blocking=False)
    assert not given.acquire(timeout=UNIT)
    for peer in peers:
        peer.start(given.acquire)
    eventually(lambda: len(given.waiters()) == 3)
    given.release(2)
    eventually(lambda: len(given.waiters()) == 1)
    given.release()
    assert [peer.result() for peer in peers] == [True] * 3
    assert given.get_value() == 0


@pytest.mark.slow_on("zookeeper")
def test_signal_released_before_the_wait_is_stored_and_consumed_once(
    client: Client, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    given = Semaphore(0, name="s")
    peers[0].do(given.release, 2)
    mortal = make_mortal()
    assert mortal.do(given.acquire, False)
    mortal.kill()
    assert given.acquire(timeout=1e-5)
    assert not peers[1].do(given.acquire, False)
    assert given.get_value() == 0


def test_each_signal_is_received_once(client: Client, peers: list[Peer]) -> None:
    given = Semaphore(0, name="s")
    for peer in peers[:2]:
        peer.start(remote.repeat, 20, given.acquire)
    peers[2].do(remote.repeat, 40, given.release)
    for peer in peers[:2]:
        assert peer.result() == [True] * 20
    assert not given.acquire(blocking=False)


@pytest.mark.parametrize(
    ("make", "error"),
    [(lambda: Semaphore(-1), ValueError), (lambda: Semaphore(1, name="s").acquire(False, 1), ValueError)],
)
def test_acquire_with_invalid_arguments_raises_as_in_the_standard_library(
    client: Client, make: Callable[[], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make()
