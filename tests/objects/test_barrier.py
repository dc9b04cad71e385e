"""Barrier shared by threads, clients and processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results

from distsync._client.client import Client
from distsync._client.deadlines import GRACE_S
from distsync.errors import BrokenBarrierError, MismatchError
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Barrier

MakeClient = Callable[..., Client]

SHORT_SESSION_S = 20 * UNIT


@pytest.fixture
def barrier(client: Client) -> Barrier:
    return Barrier(4, name="b")


def arrived(barrier: Barrier, count: int) -> None:
    eventually(lambda: barrier.n_waiting == count)


def test_barrier_opens_when_all_parties_have_arrived_and_gives_each_another_index(
    barrier: Barrier, peers: list[Peer]
) -> None:
    for count, peer in enumerate(peers, 1):
        peer.start(barrier.wait)
        arrived(barrier, count)
    ours = barrier.wait()
    assert sorted([ours, *(peer.result() for peer in peers)]) == [0, 1, 2, 3]
    assert (barrier.n_waiting, barrier.broken) == (0, False)


@pytest.mark.slow_on("zookeeper")
def test_each_of_100_cycles_of_8_threads_in_2_processes_gives_each_another_index(client: Client, peer: Peer) -> None:
    barrier = Barrier(8, name="b")
    peer.start(remote.cycles, barrier, 100, 4)
    got = [*remote.cycles(barrier, 100, 4), *peer.result(3 * PATIENCE)]
    for indices in zip(*got, strict=True):
        assert sorted(indices) == [*range(8)]
    assert barrier.n_waiting == 0


def test_action_is_called_once_per_cycle_before_any_party_passes(
    client: Client, peers: list[Peer], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    barrier = Barrier(3, remote.Note(note), name="b")
    for cycle in range(1, 4):
        for peer in peers:
            peer.start(barrier.wait)
        assert sorted(peer.result() for peer in peers) == [0, 1, 2]
        calls = note.read_text().split()
        assert len(calls) == cycle
        assert int(calls[-1]) in [peer.pid for peer in peers]


@pytest.mark.slow
def test_action_that_outlasts_the_timeout_of_its_wait_does_not_break_the_barrier(client: Client, other: Client) -> None:
    barrier = Barrier(2, partial(time.sleep, GRACE_S + 24 * UNIT), name="b")
    for _ in range(2):
        first = Running(Barrier(2, client=other, name="b").wait)
        eventually(lambda: barrier.n_waiting == 1)
        assert {barrier.wait(20 * UNIT), first.result()} == {0, 1}
    assert not barrier.broken


def test_action_that_fails_breaks_the_barrier_for_all(client: Client, peers: list[Peer], tmp_path: Path) -> None:
    barrier = Barrier(3, remote.Note(tmp_path / "note", fails=True), name="b")
    for peer in peers:
        peer.start(remote.catch, barrier.wait)
    assert sorted(peer.result() for peer in peers) == ["BrokenBarrierError", "BrokenBarrierError", "LookupError"]
    assert barrier.broken
    with pytest.raises(BrokenBarrierError):
        barrier.wait()


def test_abort_breaks_the_barrier_for_all_parties_until_it_is_reset(barrier: Barrier, peers: list[Peer]) -> None:
    for peer in peers[:2]:
        peer.start(remote.catch, barrier.wait)
    arrived(barrier, 2)
    peers[2].do(barrier.abort)
    assert [peer.result() for peer in peers[:2]] == ["BrokenBarrierError"] * 2
    assert barrier.broken
    assert peers[0].do(remote.catch, barrier.wait) == "BrokenBarrierError"
    peers[2].do(barrier.reset)
    assert (barrier.broken, barrier.n_waiting) == (False, 0)
    for peer in peers:
        peer.start(barrier.wait)
    assert barrier.wait(PATIENCE) in range(4)
    assert sorted(peer.result() for peer in peers) != []


def test_reset_raises_in_waiting_parties_and_leaves_the_barrier_intact(barrier: Barrier, peers: list[Peer]) -> None:
    for peer in peers[:2]:
        peer.start(remote.catch, barrier.wait)
    arrived(barrier, 2)
    peers[2].do(barrier.reset)
    assert [peer.result() for peer in peers[:2]] == ["BrokenBarrierError"] * 2
    assert (barrier.broken, barrier.n_waiting) == (False, 0)
    for peer in peers:
        peer.start(barrier.wait)
    barrier.wait(PATIENCE)
    assert len({peer.result() for peer in peers}) == 3


def test_timeout_of_one_party_breaks_the_barrier_for_all(barrier: Barrier, peers: list[Peer]) -> None:
    for peer in peers[:2]:
        peer.start(remote.catch, barrier.wait)
    arrived(barrier, 2)
    with pytest.raises(BrokenBarrierError):
        barrier.wait(UNIT)
    assert [peer.result() for peer in peers[:2]] == ["BrokenBarrierError"] * 2
    assert barrier.broken


def test_timeout_of_the_constructor_applies_to_each_wait(client: Client, peer: Peer) -> None:
    barrier = Barrier(2, timeout=UNIT, name="b")
    assert peer.do(remote.catch, barrier.wait) == "BrokenBarrierError"
    assert barrier.broken


def test_killed_waiter_breaks_the_barrier_for_all(
    barrier: Barrier, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    mortal.start(barrier.wait)
    arrived(barrier, 1)
    for peer in peers[:2]:
        peer.start(remote.catch, barrier.wait)
    arrived(barrier, 3)
    mortal.kill()
    assert [peer.result() for peer in peers[:2]] == ["BrokenBarrierError"] * 2
    eventually(lambda: barrier.broken)


@pytest.mark.parametrize("earlier", [1, 2])
def test_waiter_killed_before_any_other_has_seen_it_breaks_the_barrier_for_all(
    earlier: int, barrier: Barrier, make_client: MakeClient, make_mortal: Callable[..., Peer]
) -> None:
    """The others first look when its session has ended."""
    mortal, waiting = make_mortal(), []
    for count in range(1, earlier + 1):
        theirs = Barrier(4, name="b", client=make_client(session_timeout=4 * SHORT_SESSION_S))
        waiting.append(Running(remote.catch, theirs.wait))
        arrived(barrier, count)
    mortal.start(barrier.wait)
    arrived(barrier, earlier + 1)
    mortal.kill()
    assert results(waiting) == ["BrokenBarrierError"] * earlier
    assert barrier.broken


def test_last_party_killed_in_its_action_breaks_the_barrier(
    client: Client, make_client: MakeClient, make_mortal: Callable[..., Peer]
) -> None:
    """No other party has seen it: its arrival does not wake them."""
    mortal, barrier = make_mortal(), Barrier(2, partial(time.sleep, PATIENCE), name="b")
    theirs = Barrier(2, name="b", client=make_client(session_timeout=4 * SHORT_SESSION_S))
    waiting = Running(remote.catch, theirs.wait)
    arrived(barrier, 1)
    mortal.start(barrier.wait)
    arrived(barrier, 2)
    mortal.kill()
    assert waiting.result() == "BrokenBarrierError"
    assert barrier.broken


def test_end_of_a_waiters_session_breaks_the_barrier_for_all(
    barrier: Barrier, peers: list[Peer], make_client: MakeClient
) -> None:
    other = make_client()
    waiting = Running(Barrier(4, name="b", client=other).wait)
    arrived(barrier, 1)
    peers[0].start(remote.catch, barrier.wait)
    arrived(barrier, 2)
    expire(other)
    with pytest.raises(BrokenBarrierError):
        waiting.result()
    assert peers[0].result() == "BrokenBarrierError"


def test_parties_beyond_a_full_cycle_wait_for_the_next_one(client: Client, make_client: MakeClient) -> None:
    barrier = Barrier(2, name="b")
    waiting = [Running(Barrier(2, name="b", client=make_client()).wait) for _ in range(5)]
    eventually(lambda: sum(one.is_alive() for one in waiting) == 1)
    arrived(barrier, 1)
    barrier.wait(PATIENCE)
    assert sorted(results(waiting)) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_changes_of_the_members_znodes_open_no_barrier(barrier: Barrier, observer: Observer, peers: list[Peer]) -> None:
    """A watch event is only a hint: a member counts again when it is woken."""
    for peer in peers:
        peer.start(barrier.wait)
    arrived(barrier, 3)
    for _ in range(3):
        for path in observer.tree(barrier.path):
            observer.kazoo.set(path, b"touched")
        for name in ("notes", "notes-0000000001"):
            observer.kazoo.create(f"{barrier.path}/{name}")
            observer.kazoo.delete(f"{barrier.path}/{name}")
    observer.kazoo.create(f"{barrier.path}/notes-", sequence=True)
    assert (barrier.n_waiting, barrier.broken) == (3, False)
    barrier.wait(PATIENCE)
    assert len({peer.result() for peer in peers}) == 3


@pytest.mark.slow_on("zookeeper")
def test_deleted_znode_of_a_member_breaks_the_barrier(barrier: Barrier, observer: Observer, peers: list[Peer]) -> None:
    for peer in peers[:3]:
        peer.start(remote.catch, barrier.wait)
    arrived(barrier, 3)
    observer.kazoo.delete(next(path for path in observer.tree(barrier.path) if "-lock-" in path))
    assert [peer.result() for peer in peers[:3]] == ["BrokenBarrierError"] * 3
    eventually(lambda: barrier.broken)


def test_wait_with_another_number_of_parties_raises_mismatch_error(
    barrier: Barrier, peer: Peer, make_client: MakeClient
) -> None:
    peer.start(barrier.wait)
    arrived(barrier, 1)
    with pytest.raises(MismatchError):
        Barrier(3, name="b").wait()
    other = make_client()
    with pytest.raises(MismatchError):
        Barrier(3, name="b", client=other).wait()
    assert "Create" not in other.statistics().requests  # it created no znode, so it was never counted
    assert peer.is_busy
    barrier.abort()
    with pytest.raises(BrokenBarrierError):
        peer.result()


@pytest.mark.parametrize("rounds", [1, 2])
def test_member_whose_znode_was_deleted_does_not_break_cycles_that_others_completed(
    client: Client, observer: Observer, make_mortal: Callable[..., Peer], make_client: MakeClient, rounds: int
) -> None:
    """It notices the deletion only after the others have passed once or twice, and it did not pass
    with them.
    """
    barrier, mortal = Barrier(2, name="b"), make_mortal(4 * PATIENCE)
    mortal.start(remote.catch, barrier.wait)
    arrived(barrier, 1)
    mortal.signal(signal.SIGSTOP)
    observer.kazoo.delete(next(path for path in observer.tree(barrier.path) if "-lock-" in path))
    other = Barrier(2, name="b", client=make_client())
    for _ in range(rounds):
        assert sorted(results([Running(barrier.wait), Running(other.wait)])) == [0, 1]
    mortal.signal(signal.SIGCONT)
    assert mortal.result() == "BrokenBarrierError"
    assert not barrier.broken


@pytest.mark.parametrize("then_reset", [False, True])
def test_party_stopped_during_later_cycles_still_passes_its_own_cycle(
    client: Client, make_mortal: Callable[..., Peer], make_client: MakeClient, then_reset: bool
) -> None:
    barrier, mortal = Barrier(2, name="b"), make_mortal(4 * PATIENCE)
    mortal.start(barrier.wait)
    arrived(barrier, 1)
    mortal.signal(signal.SIGSTOP)
    assert barrier.wait(PATIENCE) == 1
    other = Barrier(2, name="b", client=make_client())
    assert sorted(results([Running(barrier.wait), Running(other.wait)])) == [0, 1]
    if then_reset:
        barrier.reset()
    mortal.signal(signal.SIGCONT)
    assert mortal.result() == 0


@pytest.fixture
def passed(far: Client, other: Client) -> tuple[Barrier, Barrier]:
    """Return a barrier for two that has opened once, for a client behind the proxy, which arrived
    last, and for another one.
    """
    ours, theirs = Barrier(2, name="b", client=far), Barrier(2, name="b", client=other)
    waiting = Running(theirs.wait)
    arrived(theirs, 1)
    assert (ours.wait(), waiting.result()) == (1, 0)
    return ours, theirs


@pytest.mark.parametrize("how", ["refuse", "blackhole"])
def test_timeout_of_a_wait_that_never_enqueued_breaks_the_barrier_after_the_reconnect(
    passed: tuple[Barrier, Barrier], proxy: Proxy, how: str
) -> None:
    ours, theirs = passed
    getattr(proxy, how)()
    with pytest.raises(BrokenBarrierError):
        ours.wait(UNIT)
    proxy.heal()
    assert ours.broken
    assert theirs.broken


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("how", ["refuse", "blackhole"])
def test_party_that_timed_out_in_an_outage_finds_the_barrier_broken_and_is_not_counted(
    passed: tuple[Barrier, Barrier], proxy: Proxy, how: str
) -> None:
    ours, theirs = passed
    waiting = Running(ours.wait, 20 * UNIT)
    arrived(theirs, 1)
    getattr(proxy, how)()
    with pytest.raises(BrokenBarrierError):
        waiting.result()
    proxy.heal()
    with pytest.raises(BrokenBarrierError):
        ours.wait(PATIENCE)
    assert (theirs.n_waiting, theirs.broken) == (0, True)
