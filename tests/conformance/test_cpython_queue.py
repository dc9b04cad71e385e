"""CPython's ``test.test_queue`` against ``queue`` and against ``distsync.queue``."""

from __future__ import annotations

import queue
import unittest
from types import ModuleType
from typing import Any

import pytest

import distsync.queue

test_queue: Any = pytest.importorskip("test.test_queue", reason="this Python comes without its test package")

from cpython import Build, Case, cases, run  # noqa: E402

FAMILIES = {
    "QueueTest": test_queue.QueueTest,
    "LifoQueueTest": test_queue.LifoQueueTest,
    "PriorityQueueTest": test_queue.PriorityQueueTest,
    "FailingQueueTest": test_queue.FailingQueueTest,
    "SimpleQueueTest": test_queue.CSimpleQueueTest,
}
"""CPython's classes. They take the module under test from the attribute ``queue``. CSimpleQueueTest is the one
that tests ``SimpleQueue`` under its public name."""

EXPECTED_FAILURES: dict[str, str] = {
    "SimpleQueueTest.test_references": "puts an object of a class inside a function, and waits for that very object to "
    "be freed: what another process gets is a copy, and has to pickle",
}
"""Tests that cannot pass in another process than the one that puts, each with its reason."""

NOT_HERE = {
    "SimpleQueueTest.test_reentrancy": "puts numbers in finalizers and asks for their order: the collector also runs "
    "in distsync's own threads, so there is none; tests/faces/test_simple_queue.py asks for all but the order",
}
"""Tests whose outcome depends on there being no other thread, each with its reason, and the test in its stead."""


def builder(base: type) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        bases = (base,) if issubclass(base, unittest.TestCase) else (base, unittest.TestCase)
        return type(base.__name__, bases, {"queue": module})

    return build


CASES = list(cases({name: builder(base) for name, base in FAMILIES.items()}, queue))


@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
    run(case, queue)


@pytest.fixture
def face(client: Any) -> ModuleType:
    """``distsync.queue``, with its session and threads there before CPython counts threads."""
    distsync.queue.SimpleQueue().put("connected")
    return distsync.queue


@pytest.mark.parametrize("case", [case for case in CASES if case.id not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)
