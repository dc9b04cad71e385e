"""CPython's ``test.test_queue`` against ``queue`` and against ``distsync.queue``."""

from __future__ import annotations

import os
import queue
import unittest
from types import ModuleType
from typing import Any

import pytest

import distsync.queue

test_queue: Any = pytest.importorskip("test.test_queue", reason="this Python comes without its test package")

from helpers.cpython import Build, Case, cases, changed, run  # noqa: E402

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
    "in distsync's own threads, so there is none; tests/objects/test_simple_queue.py asks for all but the order",
}
"""Tests whose outcome depends on there being no other thread, each with its reason, and the test in its stead."""


FEWER = {
    "_shutdown_all_methods_in_many_threads": (1024 * 64, 1024),
    "test_many_threads": (10000, 1000),
    "test_many_threads_nonblock": (10000, 1000),
}
"""Methods that put many items, each in a transaction of its own, which take minutes over a network; and for the
queues that are not FIFO, the first one puts more than one znode may list. On distsync they put the second number
instead. DISTSYNC_TEST_MANY=1 leaves FIFO queues the first."""


def fewer_items(base: type) -> dict[str, Any]:
    """The methods of FEWER that ``base`` has, with the one number changed."""
    ordered = (test_queue.LifoQueueTest, test_queue.PriorityQueueTest)
    if os.environ.get("DISTSYNC_TEST_MANY") and base not in ordered:
        return {}
    return {name: changed(getattr(base, name), *FEWER[name]) for name in FEWER if hasattr(base, name)}


def builder(base: type) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        bases = (base,) if issubclass(base, unittest.TestCase) else (base, unittest.TestCase)
        fewer = fewer_items(base) if module is distsync.queue else {}
        return type(base.__name__, bases, {"queue": module, **fewer})

    return build


CASES = list(cases({name: builder(base) for name, base in FAMILIES.items()}, queue))


@pytest.mark.slow("checks the harness")
@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
    run(case, queue)


@pytest.fixture
def face(client: Any) -> ModuleType:
    """``distsync.queue``, with its session and threads there before CPython counts threads."""
    distsync.queue.SimpleQueue().put("connected")
    return distsync.queue


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("case", [case for case in CASES if case.id not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)
