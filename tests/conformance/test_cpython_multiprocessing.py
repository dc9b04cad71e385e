"""CPython's ``test._test_multiprocessing`` for locks and their like: fork, spawn, forkserver, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its test package")

from helpers.cpython_processes import METHODS, cases, run, started_by

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

EXPECTED_FAILURES: dict[str, str] = {}

CASES = list(cases())


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize(("family", "method"), CASES)
def test_harness_passes_on_the_standard_library(family: str, method: str) -> None:
    with started_by("fork"):
        run("Stdlib", family, method)


@pytest.fixture(params=METHODS)
def start_method(request: pytest.FixtureRequest, client: Any) -> Iterator[str]:
    """The default start method."""
    client.start()  # CPython counts threads
    with started_by(request.param):
        yield request.param


def quick_or_slow(case: Any) -> Any:
    """Return the case, marked slow unless it is of a lock or a condition."""
    family, method = case.values
    marks = [] if family in ("_TestLock", "_TestCondition") else pytest.mark.slow
    return pytest.param(family, method, id=case.id, marks=marks)


def takes_an_rlock(family: str, method: str) -> bool:
    """Return whether it is a method for RLocks, or for what uses one; a repr has the name of the class in it."""
    return family == "_TestCondition" or (family == "_TestLock" and "rlock" in method and "repr" not in method)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), [quick_or_slow(case) for case in CASES])
def test_distsync_passes_what_the_standard_library_passes(family: str, method: str, start_method: str) -> None:
    run("Distsync", family, method, EXPECTED_FAILURES)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), [case for case in CASES if takes_an_rlock(*case.values)])
def test_shared_lock_passes_what_an_rlock_passes(family: str, method: str, start_method: str) -> None:
    run("Shared", family, method)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), [case for case in CASES if case.values[0] == "_TestCondition"])
def test_election_passes_what_a_condition_passes(family: str, method: str, start_method: str) -> None:
    run("Election", family, method)
