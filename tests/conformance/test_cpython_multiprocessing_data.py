"""CPython's ``test._test_multiprocessing`` for queues, values, arrays and a manager's containers, as for locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its test package")

from helpers.cpython_processes import CLASSES, COMPLETE, DATA, FAMILIES, MANAGED, METHODS, cases, run, started_by
from helpers.reached import ENOUGH, Reached, bound_to_stdlib

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

EXPECTED_FAILURES = {
    "TestSimpleQueue.test_closed": "it looks at the private ends of a pipe, and there is none",
    "TestInitializers.test_manager_initializer": "a manager is no process: what was meant for one is refused",
}
OF_MANAGERS_EXPECTED_FAILURES = {"_TestEvent.test_repr": "wants the repr of a proxy"}

CASES, MANAGERS, COMPLETE_CASES = list(cases(DATA)), list(cases(MANAGED)), list(cases(COMPLETE))
OF_MANAGERS = list(cases((*FAMILIES, "_TestQueue"), "StdlibManaged"))


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize(("family", "method"), [*CASES, *MANAGERS, *COMPLETE_CASES])
def test_harness_passes_on_the_standard_library(family: str, method: str) -> None:
    with started_by("fork"):
        run("Stdlib", family, method)


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize(("family", "method"), OF_MANAGERS)
def test_harness_passes_on_a_manager_of_the_standard_library(family: str, method: str) -> None:
    with started_by("fork"):
        run("StdlibManaged", family, method)


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


def quick_or_slow(case: Any) -> Any:
    """Return the case, marked slow unless it is of a lock or a queue."""
    marks = [] if case.values[0] in ("_TestLock", "_TestQueue") else pytest.mark.slow
    return pytest.param(*case.values, id=case.id, marks=marks)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), [quick_or_slow(case) for case in OF_MANAGERS])
def test_objects_of_a_manager_pass_what_the_standard_library_passes(family: str, method: str, connected: None) -> None:
    with started_by("fork"):
        run("Managed", family, method, OF_MANAGERS_EXPECTED_FAILURES)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("family", "method"), COMPLETE_CASES)
def test_complete_classes_pass_too(family: str, method: str, connected: None) -> None:
    with started_by("fork"):
        run("Distsync", family, method, EXPECTED_FAILURES)


@pytest.mark.parametrize("family", ["_TestValue", "TestSyncManagerTypes"])
def test_class_that_is_bound_to_the_standard_library_is_found(family: str) -> None:
    """These two tested the standard library for a while."""
    assert any(bound_to_stdlib(CLASSES["Stdlib", family], {}))


def test_family_that_reaches_no_client_is_found() -> None:
    reached = Reached()
    for number in range(ENOUGH):
        reached.add("of distsync", number)
        reached.add("of the standard library", 0)
    assert reached.unreached() == ["of the standard library"]
