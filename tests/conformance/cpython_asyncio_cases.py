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

from cpython import Build, Case, cases, run, warm_up  # noqa: E402
from patient import be_patient, patient  # noqa: E402

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
    "EventTests.test_repr": WAITERS,
    "EventTests.test_wait_cancel": WAITERS,
    "EventTests.test_clear_with_waiters": WAITERS,
    "EventTests.test_wait": "wants who comes after set() to go on before those who are woken by it",
    "ConditionTests.test_repr": WAITERS,
    "ConditionTests.test_wait_cancel": WAITERS,
    "ConditionTests.test_ambiguous_loops": "sets _loop; here each call is bound to the loop that it runs in",
    "SemaphoreTests.test_acquire_cancel": WAITERS,
    "SemaphoreTests.test_repr": WAITERS,
    "SemaphoreTests.test_semaphore": VALUE,
    "SemaphoreTests.test_acquire_fifo_order_4": VALUE,
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
    EXPECTED_FAILURES["LockTests.test_lock_doesnt_accept_loop_parameter"] = "wants the words of Python 3.10's own mixin"

FRESH = "several tasks begin at once with an object whose znodes have to be made: whoever is answered first is first"
NOT_HERE = {
    "SemaphoreTests.test_acquire": WAITERS,
    "ConditionTests.test_notify": FRESH,
    "LockTests.test_cancel_release_race": "looks in the very turn in which another task's cancellation ends",
    "SemaphoreTests.test_acquire_cancel_before_awoken": FRESH,
    "SemaphoreTests.test_acquire_fifo_order": FRESH,
    "SemaphoreTests.test_acquire_fifo_order_2": FRESH,
    "SemaphoreTests.test_acquire_fifo_order_3": FRESH,
    "SemaphoreTests.test_acquire_no_hang": FRESH,
    "QueueGetTests.test_get_with_waiting_putters": FRESH,
    "QueuePutTests.test_put_cancelled_race": FRESH,
    "BarrierTests.test_filling_tasks_cancel_one": "cancels one who waits: that breaks the barrier here, for all to see",
    "BarrierTests.test_abort_barrier_when_tasks_half_draining_half_blocking": DRAINING,
    "BarrierTests.test_reset_barrier_when_tasks_half_draining_half_blocking": DRAINING,
    "BarrierTests.test_reset_barrier_while_tasks_draining": DRAINING,
    "BarrierTests.test_reset_barrier_while_tasks_waiting_and_waiting_again": FRESH,
}
"""Tests whose outcome depends on who is faster, or that wait for ever, each with its reason."""


def builder(base: type) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        own = getattr(base, "q_class", None)
        return type(base.__name__, (base,), {"q_class": getattr(module, own.__name__)} if own else {})

    return build


CASES = list(cases({name: builder(base) for name, base in FAMILIES.items()}, asyncio))


@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
    run(case, asyncio)


@pytest.fixture
def face(client: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``distsync.asyncio`` in the place of asyncio, with its session and threads there before CPython counts them."""
    warm_up()
    made = patient(distsync.asyncio, client)
    for module in (test_locks, test_queues):
        monkeypatch.setattr(module, "asyncio", made)
    be_patient(monkeypatch, utils, client)
    return made


@pytest.mark.parametrize("case", [case for case in CASES if case.id not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)
