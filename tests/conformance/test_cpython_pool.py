"""CPython's ``test._test_multiprocessing`` for pools: fork, spawn, forkserver, on both servers. All of it passes.

Pools without a name need no server.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its test package")

from helpers.cpython_processes import ALL, POOLS, is_chosen, run_all, started_by
from helpers.reached import requests_of

from distsync.multiprocessing._pool.pipe_caller import PipeCaller

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(300),
]


def cases() -> Iterator[Any]:
    """Yield a pytest parameter (method, family) for each start method; with spawn and forkserver, one is not slow."""
    for method, family in product(("fork", "spawn", "forkserver"), POOLS):
        is_slow = family == "_TestPool" or (method != "fork" and family != "_TestPoolWorkerErrors")
        yield pytest.param(method, family, id=f"{method}-{family}", marks=[pytest.mark.slow] * is_slow)


def is_wanted(name: str, method: str, server_kind: str, family: str) -> bool:
    """Return whether a case runs. Pools without a name need no server, and so run on one with each start method."""
    if name == "Distsync":
        return ALL or method == "fork" or server_kind == "embedded"
    return is_chosen(method, server_kind, family)


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize("family", POOLS)
def test_harness_passes_on_the_standard_library(family: str) -> None:
    with started_by("fork"):
        run_all("Stdlib", family)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("name", ["Distsync", "Named"])
@pytest.mark.parametrize(("method", "family"), list(cases()))
def test_distsync_passes_what_the_standard_library_passes(
    name: str, family: str, method: str, client: Any, server_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_wanted(name, method, server_kind, family):
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
