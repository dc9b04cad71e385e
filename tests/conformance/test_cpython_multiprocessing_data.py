"""CPython's ``test._test_multiprocessing`` for queues, values, arrays and a manager's containers, as for locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its test package")

from helpers.cpython_processes import COMPLETE, DATA, MANAGED, METHODS, cases, run, started_by

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

EXPECTED_FAILURES = {
    "TestSimpleQueue.test_closed": "it looks at the private ends of a pipe, and there is none",
    "TestInitializers.test_manager_initializer": "a manager is no process: what was meant for one is refused",
}

CASES, MANAGERS, COMPLETE_CASES = list(cases(DATA)), list(cases(MANAGED)), list(cases(COMPLETE))


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize(("family", "method"), [*CASES, *MANAGERS, *COMPLETE_CASES])
def test_harness_passes_on_the_standard_library(family: str, method: str) -> None:
    with started_by("fork"):
        run("Stdlib", family, method)


@pytest.fixture
def connected(client: Any) -> None:
    client.start()  # CPython counts threads


@pytest.fixture(params=METHODS)
def start_method(request: pytest.FixtureRequest, connected: None) -> Iterator[str]:
    with started_by(request.param):
        yield request.param


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), CASES)
def test_distsync_passes_what_the_standard_library_passes(family: str, method: str, start_method: str) -> None:
    run("Distsync", family, method)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "method"), MANAGERS)
def test_a_manager_passes_what_the_standard_library_passes(family: str, method: str, connected: None) -> None:
    run("Distsync", family, method)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), COMPLETE_CASES)
def test_complete_classes_pass_too(family: str, method: str, connected: None) -> None:
    with started_by("fork"):
        run("Distsync", family, method, EXPECTED_FAILURES)
