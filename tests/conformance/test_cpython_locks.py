"""CPython's ``test.lock_tests``, all seven families, against ``threading`` and against ``distsync.threading``.

Those of RLock and Condition also run on a SharedLock, which is an RLock.
"""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import distsync.threading

lock_tests = pytest.importorskip("test.lock_tests", reason="this Python comes without its test package")

from helpers.cpython import Build, Case, cases, run  # noqa: E402
from helpers.timing import UNIT  # noqa: E402

FAMILIES = {
    "LockTests": ("locktype", "Lock"),
    "RLockTests": ("locktype", "RLock"),
    "EventTests": ("eventtype", "Event"),
    "ConditionTests": ("condtype", "Condition"),
    "SemaphoreTests": ("semtype", "Semaphore"),
    "BoundedSemaphoreTests": ("semtype", "BoundedSemaphore"),
    "BarrierTests": ("barriertype", "Barrier"),
}
"""CPython's class, the attribute that it takes the type from, and the type."""

EXPECTED_FAILURES: dict[str, str] = {
    "LockTests.test_at_fork_reinit": "calls _at_fork_reinit of the C lock; a forked child holds nothing here anyway",
    "EventTests.test_at_fork_reinit": "looks at _cond, the Condition inside CPython's own Event",
}
"""Tests that look at private attributes of CPython's own implementation, each with the attribute."""


SLOWNESS = min(3.0, UNIT / 0.05)
"""What a slow machine multiplies a barrier's default time-out by."""


def patient(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Barriers whose default time-out is longer on a slow machine: Python 3.10 wants five threads to meet twice within
    0.3 s, before one of them sleeps for 1 s."""

    def make(parties: int, action: Any = None, timeout: float | None = None) -> Any:
        return kind(parties, action, None if timeout is None else timeout * SLOWNESS)

    return make


def builder(family: str) -> Build:
    attribute, name = FAMILIES[family]

    def build(module: ModuleType) -> type[unittest.TestCase]:
        kind = getattr(module, name)
        made = patient(kind) if name == "Barrier" else kind
        return type(family, (getattr(lock_tests, family),), {attribute: staticmethod(made)})

    return build


def of_shared_lock(family: str) -> Build:
    """Return what tests a SharedLock in place of an RLock, alone or as the lock of a Condition."""

    def build(module: ModuleType) -> type[unittest.TestCase]:
        attribute, name = FAMILIES[family]
        lock = getattr(module, "SharedLock", module.RLock)  # the standard library has none
        kind = lock if name == "RLock" else lambda given=None: module.Condition(lock() if given is None else given)
        return type(family, (getattr(lock_tests, family),), {attribute: staticmethod(kind)})

    return build


SHARED = ("RLockTests", "ConditionTests")
SHARED_CASES = list(cases({family: of_shared_lock(family) for family in SHARED}, threading))
CASES = list(cases({family: builder(family) for family in FAMILIES}, threading))


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
    run(case, threading)


@pytest.fixture
def face(client: Any) -> ModuleType:
    client.start()  # CPython counts threads
    return distsync.threading


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", CASES)
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", SHARED_CASES)
def test_shared_lock_passes_what_an_rlock_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)


def condition_like(module: ModuleType, name: str) -> type[unittest.TestCase]:
    """CPython's tests of a Condition, unchanged, on an object that is like one."""
    return type("ConditionTests", (lock_tests.ConditionTests,), {"condtype": staticmethod(getattr(module, name))})


ELECTION_CASES = list(cases({"ConditionTests": lambda module: condition_like(module, "Election")}, distsync.threading))


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", ELECTION_CASES)
def test_election_passes_the_tests_of_a_condition(case: Case, face: ModuleType) -> None:
    run(case, face, {"ConditionTests.test_acquire": "gives the condition a lock; an election's is leadership"})
