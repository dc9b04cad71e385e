"""CPython's ``test.test_asyncio``, locks and queues, against ``asyncio`` and against ``distsync.asyncio``."""

from __future__ import annotations

import asyncio
import sys
import unittest
from types import ModuleType
from typing import Any

import pytest

import distsync.asyncio

REASON = "this Python comes without its test package"
test_locks: Any = pytest.importorskip("test.test_asyncio.test_locks", reason=REASON)
test_queues: Any = pytest.importorskip("test.test_asyncio.test_queues", reason=REASON)
utils: Any = pytest.importorskip("test.test_asyncio.utils", reason=REASON)

from helpers.asyncio_shim import be_patient, patient  # noqa: E402
from helpers.cpython import Build, Case, cases, run  # noqa: E402

FAMILIES = {
    name: found
    for module in (test_locks, test_queues)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, unittest.TestCase) and not name.startswith("_")
}
"""CPython's classes. They take the types from the module ``asyncio`` in their globals, or from ``q_class``."""

QUEUES = ("Queue", "LifoQueue", "PriorityQueue")

WAITERS, VALUE, GETTERS, PUTTERS, FORMAT = (
    f"looks at {name} of CPython's own implementation"
    for name in ("_waiters", "_value", "_getters", "_putters", "_format")
)
DRAINING = "asks who of the tasks that passed a barrier has left it, which is known inside of one loop only"

EXPECTED_FAILURES: dict[str, str] = {
    "LockTests.test_acquire_cancel": WAITERS,
    "LockTests.test_cancel_race": WAITERS,
    "LockTests.test_finished_waiter_cancelled": WAITERS,
    "LockTests.test_cancel_release_race": "looks in the very turn in which another task's cancellation ends",
    "EventTests.test_repr": WAITERS,
    "EventTests.test_wait_cancel": WAITERS,
    "EventTests.test_clear_with_waiters": WAITERS,
    "ConditionTests.test_repr": WAITERS,
    "ConditionTests.test_wait_cancel": WAITERS,
    "SemaphoreTests.test_acquire": WAITERS,
    "SemaphoreTests.test_acquire_cancel": WAITERS,
    "SemaphoreTests.test_repr": WAITERS,
    "SemaphoreTests.test_semaphore": VALUE,
    "SemaphoreTests.test_acquire_fifo_order_4": VALUE,
    "BarrierTests.test_abort_barrier_when_tasks_half_draining_half_blocking": DRAINING,
    "BarrierTests.test_draining_state": DRAINING,
    "BarrierTests.test_repr": DRAINING,
    "BarrierTests.test_reset_barrier_when_tasks_half_draining": DRAINING,
    "QueueBasicTests.test_repr": GETTERS,
    "QueueBasicTests.test_str": GETTERS,
    "QueueGetTests.test_get_with_putters": PUTTERS,
    "QueueGetTests.test_cancelled_getters_not_being_held_in_self_getters": GETTERS,
    "QueuePutTests.test_cancelled_puts_not_being_held_in_self_putters": PUTTERS,
    **{f"{kind}{of}Tests.test_format": FORMAT for kind in QUEUES for of in ("Join", "Shutdown")},
}
"""Tests that look into CPython's own implementation, or count the turns of a loop, each with what it asks for."""

if sys.version_info < (3, 11):
    EXPECTED_FAILURES |= {
        "LockTests.test_lock_doesnt_accept_loop_parameter": "wants the words of Python 3.10's own mixin",
        "QueueGetTests.test_why_are_getters_waiting": "calls _get_loop of CPython's own implementation",
        "QueuePutTests.test_why_are_putters_waiting": "calls _get_loop of CPython's own implementation",
    }

NOT_HERE = {
    "EventTests.test_wait": "expects a waiter after set() to continue before those woken by it; here either may",
    "ConditionTests.test_ambiguous_loops": "sets _loop, and waits forever; here a call is bound to its own loop",
    "SemaphoreTests.test_acquire_fifo_order_2": "two permits are free for two waiters: either may get its own first",
    "BarrierTests.test_reset_barrier_when_tasks_half_draining_half_blocking": DRAINING,
    "BarrierTests.test_reset_barrier_while_tasks_draining": DRAINING,
}
"""Tests that may wait forever here, or whose outcome depends on timing, each with its reason."""

if sys.version_info < (3, 11):
    NOT_HERE["QueueGetTests.test_get_cancelled"] = "asks when a timer began, by a clock that stands while we wait"


NOT_OF_ONE_TASK = {
    "ConditionTests.test_wait": "a task releases the lock that another task holds",
    "ConditionTests.test_wait_cancel_contested": "a task waits with the lock that another task holds",
}
"""Tests of an asyncio.Lock that any task may release, where a SharedLock belongs to one task."""

if sys.version_info < (3, 12):
    NOT_OF_ONE_TASK["ConditionTests.test_timeout_in_block"] = "wait_for calls the wait in a task of its own"


def builder(base: type) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        own = getattr(base, "q_class", None)
        return type(base.__name__, (base,), {"q_class": getattr(module, own.__name__)} if own else {})

    return build


def condition_with_shared_lock(lock: Any = None) -> Any:
    return distsync.asyncio.Condition(distsync.asyncio.SharedLock() if lock is None else lock)


CASES = list(cases({name: builder(base) for name, base in FAMILIES.items()}, asyncio))


@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
    run(case, asyncio)


@pytest.fixture
def face(client: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``distsync.asyncio`` in the place of asyncio, with its session and threads there before CPython counts them."""
    client.start()  # CPython counts threads
    made = patient(distsync.asyncio, client)
    for module in (test_locks, test_queues):
        monkeypatch.setattr(module, "asyncio", made)
    be_patient(monkeypatch, utils, client)
    return made


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", [case for case in CASES if case.id not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.id.startswith("Condition") and case.id not in NOT_HERE | NOT_OF_ONE_TASK]
)
def test_condition_with_a_shared_lock_passes_what_the_standard_library_passes(case: Case, face: Any) -> None:
    face.Lock, face.Condition = distsync.asyncio.SharedLock, condition_with_shared_lock
    run(case, face, EXPECTED_FAILURES)


GIVES_A_LOCK = "gives the condition a lock; an election's is leadership"
ELECTION_EXPECTED_FAILURES = {
    "ConditionTests.test_ambiguous_loops": GIVES_A_LOCK,
    "ConditionTests.test_explicit_lock": GIVES_A_LOCK,
    **{name: reason for name, reason in EXPECTED_FAILURES.items() if name.startswith("ConditionTests.")},
}
ELECTION_CASES = [case for case in CASES if case.values[0].family == "ConditionTests" and case.id not in NOT_HERE]


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", ELECTION_CASES)
def test_election_passes_the_tests_of_a_condition(case: Case, face: ModuleType) -> None:
    face.Condition = distsync.asyncio.Election  # type: ignore[attr-defined]
    run(case, face, ELECTION_EXPECTED_FAILURES)
