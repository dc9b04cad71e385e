"""Curator's own DistributedDoubleBarrier and DistributedBarrier, together with ours.

Before the next round all of Curator's members have left: one that is still leaving mistakes a new
member for one that has not left, also among Curator's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.curator_process import Curator
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, results

from distsync._client.client import Client
from distsync.recipes import DoubleBarrier, Gate

MS = int(UNIT * 1000)
PATIENCE_MS = int(PATIENCE * 1000)


@pytest.fixture
def curator(make_curator: Callable[..., Curator]) -> Curator:
    """One for each test: Curator leaves watches on members that have gone, as long as its session lives."""
    return make_curator()


def test_curator_waits_for_ours_to_enter_and_to_leave(client: Client, curator: Curator) -> None:
    meeting = DoubleBarrier(2, name="m")
    for _ in range(4):
        theirs = curator.actor("meeting", meeting.path, 2).start("enter")
        eventually(lambda: meeting.n_waiting == 1)
        assert not theirs.has_answered
        assert meeting.enter(PATIENCE)
        assert theirs.result()
        assert meeting.n_inside == 2
        theirs.start("leave")
        assert meeting.leave(PATIENCE)
        assert theirs.result()


def test_ours_waits_for_curator_to_enter_and_to_leave(client: Client, curator: Curator) -> None:
    meeting = DoubleBarrier(2, name="m")
    for _ in range(4):
        inside, go = threading.Event(), threading.Event()
        staying = Running(stay, meeting, inside, go)
        eventually(lambda: meeting.n_waiting == 1)
        assert not inside.is_set()
        theirs = curator.actor("meeting", meeting.path, 2)
        assert theirs.do("enter", PATIENCE_MS)
        assert inside.wait(PATIENCE)
        go.set()
        assert theirs.do("leave", PATIENCE_MS)
        assert staying.result()


def stay(meeting: DoubleBarrier, inside: threading.Event, go: threading.Event) -> bool:
    with meeting:
        inside.set()
        return go.wait(PATIENCE)


def test_no_member_of_four_starts_or_ends_before_the_others(client: Client, curator: Curator, tmp_path: Path) -> None:
    meeting = DoubleBarrier(4, name="m")
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        theirs = [curator.actor("meeting", meeting.path, 4).start("meet", folder) for _ in range(2)]
        ours = [Running(meet, meeting, folder, number) for number in range(2)]
        assert [*results(ours), *(actor.result() for actor in theirs)] == ["4 4"] * 4


def meet(meeting: DoubleBarrier, folder: Path, number: int) -> str:
    """How many have begun, as their files say, once it is inside, and how many have ended when it is out. Curator's
    actors do the same."""
    (folder / f"begun-{number}").touch()
    with meeting:
        begun = len(list(folder.glob("begun*")))
        (folder / f"ended-{number}").touch()
    return f"{begun} {len(list(folder.glob('ended*')))}"


def test_exited_member_is_not_waited_for(
    client: Client, make_curator: Callable[..., Curator], curator: Curator, mortal: Peer, observer: Observer
) -> None:
    meeting, inside, go = DoubleBarrier(4, name="m"), threading.Event(), threading.Event()
    doomed, theirs = (one.actor("meeting", meeting.path, 4) for one in (make_curator(2_000), curator))
    doomed.start("enter")
    theirs.start("enter")
    mortal.start(meeting.enter)
    staying = Running(stay, meeting, inside, go)
    assert (doomed.result(), theirs.result(), mortal.result(), inside.wait(PATIENCE)) == (True, True, True, True)
    mortal.kill()
    doomed.curator.kill()
    theirs.start("leave")
    go.set()
    assert theirs.result(2 * PATIENCE)
    assert staying.result(2 * PATIENCE)
    eventually(lambda: observer.ephemerals(meeting.path) == [])  # Curator does not wait for the last one


def test_gate_and_curators_barrier_are_one(client: Client, curator: Curator) -> None:
    gate = Gate(name="g")
    theirs, other = (curator.actor("gate", gate.path) for _ in range(2))
    assert theirs.do("wait", 0)
    gate.close()
    assert theirs.do("wait", MS) is False
    theirs.start("wait", PATIENCE_MS)
    gate.open()
    assert theirs.result()
    other.do("close")
    assert not gate.is_open
    waiting = Running(gate.wait)
    assert not gate.wait(UNIT)
    other.do("open")
    assert waiting.result()
