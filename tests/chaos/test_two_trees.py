"""The comparison of trees finds what differs and what is lost; where nothing is killed there is neither."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos.two_trees import ROOT, Trial, Write, client_of, differing, lost, trees_of
from helpers.servers import need_zookeeper

from distsync.testing import Ensemble

pytestmark = pytest.mark.timeout(300)

ONE = {"/a": ("1", 10, 10, 0), "/b": ("2", 11, 11, 0)}


def test_trees_that_are_alike_differ_nowhere() -> None:
    assert differing({"x": ONE, "y": dict(ONE)}) == []


def test_a_node_that_one_server_lacks_and_one_that_another_write_made_differ() -> None:
    other = {"/a": ("1", 10, 10, 0), "/b": ("2", 11, 12, 1)}
    assert differing({"x": ONE, "y": other, "z": {"/a": ONE["/a"]}}) == ["/b"]


def test_an_acknowledged_write_is_lost_where_its_node_is_missing_or_older() -> None:
    acknowledged = [Write("/a", 1), Write("/b", 3), Write("/c", 1)]
    assert lost(acknowledged, {"x": ONE}) == ["/b = 3 on x", "/c = 1 on x"]


@pytest.fixture
def trial() -> Iterator[Trial]:
    need_zookeeper()
    with Ensemble(1, 0, tick_ms=200) as ensemble:
        made = Trial(ensemble, "test")
        yield made
        made.close()


@pytest.mark.slow("chaos")
def test_where_nothing_is_killed_all_is_alike_and_what_is_deleted_is_lost(trial: Trial) -> None:
    differ, gone, count = trial.cycle(kills=0)
    assert (differ, gone) == ([], [])
    assert count
    acknowledged = trial.writers[0].acknowledged
    path = next(write.path for write in acknowledged if "-" in write.path)
    with client_of(trial.ensemble.servers[0].address) as client:
        client.delete(path)
    (found,) = lost(acknowledged, trees_of(trial.ensemble))
    assert path.startswith(ROOT)
    assert found.startswith(path)
