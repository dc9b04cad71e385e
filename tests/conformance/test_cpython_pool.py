"""CPython's ``test._test_multiprocessing`` for pools: fork, spawn, forkserver, on both servers. All of it passes.

Pools without a name need no server.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its test package")

from helpers.cpython_processes import METHODS, POOLS, is_chosen, run_all, started_by
from helpers.reached import requests_of

from distsync.multiprocessing._pipe_caller import PipeCaller

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(300),
]


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize("family", POOLS)
def test_harness_passes_on_the_standard_library(family: str) -> None:
    with started_by("fork"):
        run_all("Stdlib", family)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("name", ["Distsync", "Named"])
@pytest.mark.parametrize("family", [pytest.param("_TestPool", marks=pytest.mark.slow), *POOLS[1:]])
@pytest.mark.parametrize("method", METHODS)
def test_distsync_passes_what_the_standard_library_passes(
    name: str, family: str, method: str, client: Any, server_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_chosen(method, server_kind, family):
        pytest.skip("DISTSYNC_TEST_START_METHODS=all runs each start method on each server")
    client.start()  # CPython counts threads
    submit, submitted, before = PipeCaller._submit, [], requests_of(client)
    monkeypatch.setattr(PipeCaller, "_submit", lambda *task: submitted.append(task[1]) or submit(*task))
    with started_by(method):
        run_all(name, family)
    reached = submitted if name == "Distsync" else requests_of(client) > before
    assert reached, "is it distsync that these test?"


@pytest.mark.slow
def test_pool_of_a_manager_passes_what_the_standard_library_passes(client: Any) -> None:
    client.start()  # CPython counts threads
    before = requests_of(client)
    with started_by("fork"):
        run_all("Managed", "_TestPool")
    assert requests_of(client) > before, "is it distsync that these test?"
