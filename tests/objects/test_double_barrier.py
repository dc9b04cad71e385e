"""DoubleBarrier shared by threads, clients and processes.

Source: ZooKeeper recipes, Double Barriers.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.interrupt_every_line import strikes
from helpers.leak_census import Observer
from helpers.remote_functions import barriers as remote_barriers
from helpers.remote_functions import general as remote
from helpers.request_counts import Cost, counted, settle
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, is_quiet, results, waiting_calls

from distsync import DoubleBarrier, LockLostError, MismatchError, NotHeldError, UsageError
from distsync._client.client import Client

MakeClient = Callable[..., Client]

STEP = int(os.environ.get("DISTSYNC_TEST_STRIKES_STEP", "11"))


@pytest.fixture
def barrier(client: Client) -> DoubleBarrier:
    return DoubleBarrier(4, name="d")


def waiting(barrier: DoubleBarrier, count: int) -> None:
    eventually(lambda: barrier.n_waiting == count)


def members(observer: Observer, barrier: DoubleBarrier) -> list[str]:
    return sorted(path for path in observer.tree(barrier.path) if "-lock-" in path)


def test_enter_and_leave_return_when_all_members_have_called_them(barrier: DoubleBarrier, peers: list[Peer]) -> None:
    for count, peer in enumerate(peers, 1):
        peer.start(remote_barriers.enter_then, barrier, True)
        waiting(barrier, count)
    assert barrier.enter()
    eventually(lambda: barrier.n_inside == 1 or barrier.n_inside == 2)  # the lowest member leaves last
    assert all(peer.is_busy for peer in peers)
    assert not any(peer._pipe.poll(0) for peer in peers)
    assert barrier.leave()
    assert [peer.result() for peer in peers] == ["True"] * 3
    assert (barrier.n_waiting, barrier.n_inside) == (0, 0)


@pytest.mark.slow_on("zookeeper")
def test_each_of_30_rounds_of_6_threads_in_2_processes_sees_all_members(
    client: Client, peer: Peer, tmp_path: Path
) -> None:
    """A fast thread enters the next round while others are still leaving."""
    barrier, turns = DoubleBarrier(6, name="d"), 30
    peer.start(remote_barriers.meet, barrier, tmp_path, "theirs", turns, 3)
    seen = [*remote_barriers.meet(barrier, tmp_path, "ours", turns, 3), *peer.result(6 * PATIENCE)]
    assert seen == [(6, 6)] * 6 * turns
    assert (barrier.n_waiting, barrier.n_inside) == (0, 0)


def test_double_barrier_leaves_no_znode_behind(client: Client, observer: Observer, tmp_path: Path) -> None:
    barrier = DoubleBarrier(3, name="d")
    remote_barriers.meet(barrier, tmp_path, "ours", 2, 3)
    eventually(lambda: not observer.tree(barrier.path))


def test_enter_that_times_out_withdraws_and_is_not_counted(
    barrier: DoubleBarrier, peers: list[Peer], observer: Observer
) -> None:
    assert not barrier.enter(0)
    assert not barrier.enter(UNIT)
    assert not members(observer, barrier)
    for peer in peers:
        peer.start(barrier.enter, 4 * PATIENCE)
    waiting(barrier, 3)
    assert barrier.enter(PATIENCE)
    assert [peer.result() for peer in peers] == [True] * 3
    for peer in peers:
        peer.start(barrier.leave)
    assert barrier.leave()
    assert [peer.result() for peer in peers] == [True] * 3


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("lowest", [True, False])
def test_killed_member_does_not_keep_the_others_from_leaving(
    client: Client, peers: list[Peer], make_mortal: Callable[..., Peer], observer: Observer, lowest: bool
) -> None:
    """Double Barriers: "processes that fail after the barrier has been entered do not prevent correct
    processes from finishing".

    The killed member is the lowest, for which the others wait, or the highest, for which the lowest
    waits.
    """
    barrier, tries = DoubleBarrier(3, name="d"), 0
    mortal = make_mortal()
    while True:
        mortal.start(barrier.enter)
        waiting(barrier, 1)
        (its,) = members(observer, barrier)
        for peer in peers[:2]:
            peer.start(barrier.enter)
        assert all([mortal.result(), *(peer.result() for peer in peers[:2])])
        all_members = members(observer, barrier)
        if its == all_members[0 if lowest else -1]:
            break
        for one in (mortal, *peers[:2]):  # names are random: try again
            one.start(barrier.leave)
        assert all([mortal.result(), *(peer.result() for peer in peers[:2])])
        tries += 1
        assert tries < 50
    for peer in peers[:2]:
        peer.start(barrier.leave)
    eventually(lambda: barrier.n_inside <= 2)
    assert not any(peer._pipe.poll(2 * UNIT) for peer in peers[:2])
    mortal.kill()
    assert [peer.result() for peer in peers[:2]] == [True] * 2


class Inside:
    """A thread that enters, and leaves once ``go`` is set."""

    def __init__(self, barrier: DoubleBarrier) -> None:
        self.barrier = barrier
        self.go = threading.Event()
        self.name = ""
        self.running = Running(self._run)

    def _run(self) -> bool:
        self.barrier.enter()
        (self.name,) = [stay.entry.name for stay in self.barrier._core.visits.values()]
        self.go.wait()
        return self.barrier.leave()


def inside_together(clients: list[Client]) -> list[Inside]:
    """Enter with a thread for each client, and return these threads sorted by member name."""
    stays = [Inside(DoubleBarrier(len(clients), name="d", client=one)) for one in clients]
    eventually(lambda: all(stay.name for stay in stays))
    return sorted(stays, key=lambda stay: stay.name)


def test_deletion_of_the_lowest_member_lets_no_other_leave_before_all_are_ready(
    client: Client, make_client: MakeClient, observer: Observer
) -> None:
    """The others then wait for the next lowest member: "delete(n) if still exists, and wait"."""
    lowest, middle, highest = inside_together([make_client() for _ in range(3)])
    highest.go.set()
    eventually(lambda: waiting_calls(highest.barrier.client))
    observer.kazoo.delete(f"{lowest.barrier.path}/{lowest.name}")
    highest.running.join(4 * UNIT)
    assert highest.running.is_alive()
    middle.go.set()
    assert results([middle.running, highest.running]) == [True] * 2
    lowest.go.set()
    with pytest.raises(LockLostError):
        lowest.running.result()


def test_member_whose_session_expires_inside_gets_lock_lost_error_and_blocks_no_other(
    client: Client, peer: Peer, make_client: MakeClient
) -> None:
    other = make_client()
    barrier, theirs = DoubleBarrier(2, name="d"), DoubleBarrier(2, name="d", client=other)
    entering = Running(remote_barriers.enter_then, barrier, True)
    assert theirs.enter()
    before = other.session_id
    expire(other)
    eventually(lambda: other.session_id not in (None, before))
    assert entering.result() == "True"
    with pytest.raises(LockLostError):
        theirs.leave()
    with pytest.raises(NotHeldError):
        theirs.leave()


def test_waiting_member_whose_session_expires_enqueues_again(client: Client, make_client: MakeClient) -> None:
    other = make_client()
    barrier, theirs = DoubleBarrier(2, name="d"), DoubleBarrier(2, name="d", client=other)
    entering = Running(remote_barriers.enter_then, theirs, True)
    waiting(barrier, 1)
    before = other.session_id
    expire(other)
    eventually(lambda: other.session_id not in (None, before))
    waiting(barrier, 1)
    assert barrier.enter()
    assert barrier.leave()
    assert entering.result() == "True"


def test_member_stopped_while_the_barrier_opened_has_entered_and_can_leave(
    client: Client, make_mortal: Callable[..., Peer]
) -> None:
    """It finds its name among the members inside, and the next round waits for it."""
    barrier, mortal = DoubleBarrier(2, name="d"), make_mortal(4 * PATIENCE)
    mortal.start(remote_barriers.enter_then, barrier, True)
    waiting(barrier, 1)
    mortal.signal(signal.SIGSTOP)
    assert barrier.enter(PATIENCE)
    assert not barrier.leave(4 * UNIT)
    assert not barrier.enter(4 * UNIT)
    mortal.signal(signal.SIGCONT)
    assert mortal.result() == "True"
    assert (barrier.n_waiting, barrier.n_inside) == (0, 0)


def test_members_beyond_a_full_round_wait_for_the_next_one(client: Client, make_client: MakeClient) -> None:
    barriers = [DoubleBarrier(2, name="d", client=make_client()) for _ in range(4)]
    running = [Running(remote_barriers.enter_then, one, True) for one in barriers]
    assert results(running) == ["True"] * 4


@pytest.mark.slow_on("zookeeper")
def test_next_members_enter_after_all_members_inside_were_killed(
    client: Client, make_mortal: Callable[..., Peer], make_client: MakeClient
) -> None:
    """``ready`` remains when the last member is killed; the next member that waits deletes it."""
    barrier, mortal = DoubleBarrier(2, name="d"), make_mortal()
    assert mortal.do(remote_barriers.enter_in_threads, barrier, 2) == ["inside"] * 2
    running = [
        Running(remote_barriers.enter_then, DoubleBarrier(2, name="d", client=make_client()), True) for _ in range(2)
    ]
    waiting(barrier, 2)
    mortal.kill()
    assert results(running, 2 * PATIENCE) == ["True"] * 2


def test_changes_of_the_members_znodes_let_no_member_in_or_out(
    barrier: DoubleBarrier, observer: Observer, peers: list[Peer]
) -> None:
    """A watch event is only a hint: a member counts again when it is woken."""
    for peer in peers:
        peer.start(barrier.enter)
    waiting(barrier, 3)
    for path in members(observer, barrier):
        observer.kazoo.set(path, b"touched")
    assert not any(peer._pipe.poll(UNIT) for peer in peers)
    foreign = observer.kazoo.create(f"{barrier.path}/notes-", sequence=True)
    assert not any(peer._pipe.poll(UNIT) for peer in peers)
    assert barrier.n_waiting == 3
    barrier.enter()
    observer.kazoo.delete(foreign)
    assert [peer.result() for peer in peers] == [True] * 3
    for peer in peers:
        peer.start(barrier.leave)
    (ours,) = (stay.entry.name for stay in barrier._core.visits.values())
    eventually(lambda: len(members(observer, barrier)) == (1 if members(observer, barrier)[0].endswith(ours) else 2))
    for path in members(observer, barrier):
        observer.kazoo.set(path, b"touched")
    assert not any(peer._pipe.poll(UNIT) for peer in peers)
    assert barrier.leave()
    assert [peer.result() for peer in peers] == [True] * 3


def test_enter_with_another_number_of_parties_raises_mismatch_error_with_both(
    barrier: DoubleBarrier, peer: Peer
) -> None:
    peer.start(remote.catch, barrier.enter, PATIENCE)
    waiting(barrier, 1)
    with pytest.raises(MismatchError, match=r"is 4, not 3"):
        DoubleBarrier(3, name="d").enter()
    assert barrier.n_waiting == 1
    with pytest.raises(MismatchError, match=r"is 4, not 2"):
        DoubleBarrier(2, path=barrier.path).enter(0)
    peer.signal(signal.SIGINT)
    assert peer.result() == "KeyboardInterrupt"


def test_enter_of_another_client_with_another_number_of_parties_raises(client: Client, make_client: MakeClient) -> None:
    """Only while a member is present: the server deletes the znode of an unused barrier."""
    barrier, other = DoubleBarrier(2, name="d"), make_client()
    entering = Running(remote_barriers.enter_then, barrier, True)
    waiting(barrier, 1)
    with pytest.raises(MismatchError, match=r"is 2, not 3"):
        DoubleBarrier(3, name="d", client=other).enter(PATIENCE)
    assert "Create" not in other.statistics().requests  # it created no znode, so it was never counted
    assert barrier.enter()
    assert barrier.leave()
    assert entering.result() == "True"


def test_first_member_sets_the_number_of_parties_of_a_barrier_without_data(
    client: Client, make_client: MakeClient, observer: Observer
) -> None:
    barrier, other = DoubleBarrier(2, name="d"), make_client()
    observer.kazoo.create(barrier.path, b"", makepath=True)  # as Curator creates it
    assert barrier.n_waiting == 0  # reading the barrier does not set the number
    entering = Running(remote_barriers.enter_then, barrier, True)
    waiting(barrier, 1)
    eventually(lambda: observer.kazoo.get(barrier.path)[0])  # the number is written after the member has enqueued
    with pytest.raises(MismatchError, match=r"is 2, not 1"):
        DoubleBarrier(1, name="d", client=other).enter(PATIENCE)
    assert "Create" not in other.statistics().requests
    assert barrier.enter()
    assert barrier.leave()
    assert entering.result() == "True"


def test_invalid_arguments_and_calls_in_the_wrong_state_raise(client: Client) -> None:
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError)):
        with pytest.raises(error):
            DoubleBarrier(wrong)  # type: ignore[arg-type]
    barrier = DoubleBarrier(1, name="d")
    with pytest.raises(NotHeldError, match=r"call enter\(\) first"):
        barrier.leave()
    with barrier:
        with pytest.raises(UsageError, match="is already inside"):
            barrier.enter()
    with pytest.raises(NotHeldError):
        barrier.leave()
    with pytest.raises(OverflowError):
        barrier.enter(1e20)


def test_with_block_that_raises_does_not_wait_for_the_others(client: Client, make_client: MakeClient) -> None:
    barrier, other = DoubleBarrier(2, name="d"), DoubleBarrier(2, name="d", client=make_client())
    entering = Running(remote_barriers.enter_then, other, True)
    with pytest.raises(LookupError):
        with barrier:
            raise LookupError
    assert entering.result() == "True"


@pytest.mark.parametrize("call", ["enter", "leave"])
def test_keyboard_interrupt_in_enter_or_leave_leaves_no_znode_behind(
    barrier: DoubleBarrier, client: Client, peers: list[Peer], observer: Observer, tmp_path: Path, call: str
) -> None:
    pair, waits = DoubleBarrier(2, name="e"), tmp_path / "waits"
    if call == "leave":
        peers[0].start(pair.enter)
        assert pair.enter()
        assert peers[0].result()
    peers[0].start(remote.catch_and_tell, waits, getattr(pair, call))
    eventually(waits.exists)
    peers[0].signal(signal.SIGINT)
    assert peers[0].result() == "KeyboardInterrupt"
    if call == "leave":
        assert pair.leave()
    eventually(lambda: not observer.tree(pair.path))


# An interrupt may hit before the first line of a protocol.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_interrupt_at_any_line_leaves_no_member_inside(client: Client, observer: Observer) -> None:
    """Also at the end of the block: an interrupt at the call of ``__exit__`` comes before any line of
    distsync.
    """
    barrier = DoubleBarrier(1, name="d")

    def use() -> None:
        with barrier:
            pass

    def check(where: str) -> None:
        if where.endswith(("__exit__, call", "_end_block, call", "leave, call", "exit_context, call")):
            remote.catch(barrier.leave)
        eventually(lambda: not members(observer, barrier), f"a member is left after an interrupt at {where}")
        assert not barrier._core.visits, where

    use()
    assert strikes(use, check, STEP) > 100


def test_pickled_double_barrier_has_the_same_path_and_parties(barrier: DoubleBarrier) -> None:
    copy = pickle.loads(pickle.dumps(barrier))
    assert (copy.path, copy.parties) == (barrier.path, 4)
    assert "parties=4" in repr(copy)


# ---- costs


def complete_round(barriers: list[DoubleBarrier]) -> None:
    """Enter and leave once, which creates the znodes."""
    results([Running(remote_barriers.enter_then, one, True) for one in barriers])


def test_enter_costs_4_requests_before_the_wait_and_2_after_it_and_5_for_the_last_member(
    client: Client, make_client: MakeClient
) -> None:
    other = make_client()
    ours, theirs = DoubleBarrier(2, name="d"), DoubleBarrier(2, name="d", client=other)
    complete_round([ours, theirs])
    eventually(lambda: is_quiet(client) and is_quiet(other))
    with counted(client) as all_in_all:
        with counted(client) as first:
            stay = Inside(ours)
            eventually(lambda: waiting_calls(client))
        with counted(other) as last:
            assert theirs.enter()
        eventually(lambda: stay.name)
    assert first == Cost(4, 1)
    assert last == Cost(5, 2, last.events)
    assert all_in_all == Cost(6, 2, 1)
    stay.go.set()
    assert theirs.leave()
    assert stay.running.result()


def test_leave_wakes_one_member_at_a_time_and_all_at_the_end(client: Client, make_client: MakeClient) -> None:
    """Double Barriers: "only a single process wakes up on each node deletion except for the last"."""
    clients = [make_client() for _ in range(8)]
    stays = inside_together(clients)
    lowest, *others = stays
    lowest.go.set()
    eventually(lambda: waiting_calls(lowest.barrier.client))
    for stay in others[:-1]:
        settle(clients)
        with counted(*clients) as cost:
            stay.go.set()
            eventually(lambda: waiting_calls(stay.barrier.client))  # noqa: B023
            settle(clients)
        assert cost.events <= 1
    with counted(*clients) as cost:
        others[-1].go.set()
        assert all(results([stay.running for stay in stays]))
    assert cost.events <= len(clients)


def test_leave_costs_4_requests_before_the_wait_and_2_after_it(client: Client, make_client: MakeClient) -> None:
    """The lowest member, which leaves last, pays 3."""
    clients = [make_client() for _ in range(2)]
    lowest, highest = inside_together(clients)
    with counted(highest.barrier.client) as before:
        highest.go.set()
        eventually(lambda: waiting_calls(highest.barrier.client))
    with counted(lowest.barrier.client) as last, counted(highest.barrier.client) as after:
        lowest.go.set()
        assert all(results([lowest.running, highest.running]))
    assert before == Cost(4, 2)
    assert last == Cost(3, 2)
    assert after == Cost(2, 1, 1)
