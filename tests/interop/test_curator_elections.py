"""Leadership between our Election and Curator's own LeaderSelector and LeaderLatch."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from helpers.curator_process import Curator
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running

from distsync._client.client import Client
from distsync.recipes import Election

MS = int(UNIT * 1000)
PATIENCE_MS = int(PATIENCE * 1000)

KINDS = pytest.mark.parametrize(("recipe", "layout"), [("selector", "curator"), ("latch", "latch")])


def lead(election: Election) -> bool:
    with election:
        return election.is_leader


@KINDS
def test_leadership_passes_both_ways_and_only_one_leads(
    recipe: str, layout: str, client: Client, curator: Curator
) -> None:
    election = Election({"port": 80}, name="e", layout=layout)
    theirs = curator.actor(recipe, election.path, "them")
    with election:
        theirs.do("stand")
        eventually(lambda: len(election.candidates()) == 2)
        assert theirs.do("lead", MS) is False
        assert theirs.do("leads") is False
        assert json.loads(theirs.do("leader"))["data"] == {"port": 80}
    assert theirs.do("lead", PATIENCE_MS)
    assert election.leader is None
    assert election.candidates()[0].owner.pid is None
    assert not election.acquire(blocking=False)
    assert not election.acquire(timeout=UNIT)
    waiting = Running(lead, election)
    eventually(lambda: len(election.candidates()) == 2)
    assert theirs.do("leader") == "them"
    theirs.do("resign")
    assert waiting.result()
    eventually(lambda: not election.candidates())


@KINDS
def test_another_leads_when_a_leaders_process_is_killed(
    recipe: str, layout: str, client: Client, make_curator: Callable[..., Curator], curator: Curator, mortal: Peer
) -> None:
    election = Election(name="e", layout=layout)
    doomed = make_curator(2_000)
    first, last = doomed.actor(recipe, election.path, "first"), curator.actor(recipe, election.path, "last")
    first.do("stand")
    assert first.do("lead", PATIENCE_MS)
    between = Running(mortal.do, election.acquire)
    eventually(lambda: len(election.candidates()) == 2)
    last.do("stand")
    eventually(lambda: len(election.candidates()) == 3)
    doomed.kill()
    assert between.result(2 * PATIENCE)
    assert last.do("leads") is False
    mortal.kill()
    assert last.start("lead", 2 * PATIENCE_MS).result(2 * PATIENCE)
    last.do("resign")
    eventually(lambda: not election.candidates())
