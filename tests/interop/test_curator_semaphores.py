"""Permits shared with Curator's own InterProcessSemaphoreV2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers.curator_process import Curator, cycle
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, results

from distsync import BoundedSemaphore, Semaphore
from distsync._client.client import Client

MS = int(UNIT * 1000)


def test_permits_are_shared_and_waiters_of_both_come_in_their_order(client: Client, curator: Curator) -> None:
    ours = Semaphore(2, name="s", layout="curator")
    theirs, behind = (curator.actor("semaphore", ours.path, 2) for _ in range(2))
    assert ours.acquire()
    assert theirs.do("acquire")
    assert ours.get_value() == 0
    assert sorted(theirs.do("line").split()) == sorted(held.path.rpartition("/")[2] for held in ours.holders())
    assert behind.do("acquire", MS) is False
    assert not ours.acquire(blocking=False)
    assert not ours.acquire(timeout=UNIT)
    waiting = Running(ours.acquire)
    eventually(lambda: len(ours.waiters()) == 1)
    behind.start("acquire")
    eventually(lambda: len(ours.waiters()) == 2)
    theirs.do("release")
    assert waiting.result()
    ours.release()
    assert behind.result()
    assert [held.pid is None for held in ours.holders()] == [False, True]
    ours.release()
    behind.do("release")
    eventually(lambda: (ours.get_value(), ours.waiters()) == (2, []))


def test_waiting_curator_has_created_its_lease_and_is_no_holder(
    client: Client, curator: Curator, observer: Observer
) -> None:
    ours = BoundedSemaphore(1, name="s", layout="curator")
    theirs = curator.actor("semaphore", ours.path, 1)
    with ours:
        theirs.start("acquire")
        eventually(lambda: len(observer.kazoo.get_children(f"{ours.path}/leases")) == 2)
        assert (ours.get_value(), len(ours.holders()), len(ours.waiters())) == (0, 1, 1)
        assert ours.holders()[0].pid is not None
        waiting = Running(ours.acquire)
        eventually(lambda: len(ours.waiters()) == 2)
    assert theirs.result()
    assert waiting.is_alive()
    theirs.do("release")
    assert waiting.result()
    ours.release()


def test_permits_of_an_exited_process_are_available_to_the_other(
    client: Client, make_curator: Callable[..., Curator], curator: Curator, mortal: Peer
) -> None:
    slots = Semaphore(1, name="s", layout="curator")
    doomed = make_curator(2_000)
    assert doomed.actor("semaphore", slots.path, 1).do("acquire")
    waiting = Running(mortal.do, slots.acquire)
    eventually(lambda: len(slots.waiters()) == 1)
    doomed.kill()
    assert waiting.result(2 * PATIENCE)
    theirs = curator.actor("semaphore", slots.path, 1).start("acquire")
    eventually(lambda: len(slots.waiters()) == 1)
    mortal.kill()
    assert theirs.result(2 * PATIENCE)
    theirs.do("release")


def test_never_more_hold_than_there_are_permits(
    client: Client, make_client: Callable[..., Client], curator: Curator, tmp_path: Path
) -> None:
    slots = [Semaphore(2, name="s", layout="curator", client=make_client()) for _ in range(2)]
    theirs = [curator.actor("semaphore", slots[0].path, 2).start("cycle", 10, tmp_path) for _ in range(2)]
    ours = [Running(cycle, one, 10, tmp_path) for one in slots]
    assert max([*results(ours), *(int(actor.result()) for actor in theirs)]) <= 2
