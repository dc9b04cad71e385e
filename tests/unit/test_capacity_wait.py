"""Waiting for capacity, with scripted snapshots: a waiter marks its znode when it is admitted."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from distsync._protocols.semaphores.admission import QueueSnapshot, wait_for_admission
from distsync._protocols.steps import GetData, Node, Stat, Watch
from distsync.errors import NoNodeError

STAT = Stat(1, 1, 0, 0, 0, 0, 0, 7, 0, 0, 1)


class Crowd:
    """A queue whose contenders ahead are gone at the second read."""

    poll_interval = 1.0

    def __init__(self) -> None:
        self.said_so = 0

    async def read(self) -> QueueSnapshot:
        return QueueSnapshot((), 2)

    async def watch(self, view: QueueSnapshot, watch: Watch) -> QueueSnapshot:
        return QueueSnapshot((), 2)

    async def check_session(self) -> None:
        return None

    def is_admitted(self, node: Node) -> bool:
        return False

    async def mark_admitted(self) -> None:
        self.said_so += 1


def admitted(work: Coroutine[Any, Any, bool | None]) -> bool | None:
    """Return the result if every znode that is read is gone."""
    try:
        step = work.send(None)
        while True:
            assert isinstance(step, GetData)
            step = work.throw(NoNodeError(step.path))
    except StopIteration as stop:
        result: bool | None = stop.value
        return result


@pytest.mark.parametrize("ahead", [("/a", "/b", "/c"), ("/a", "/b")])
def test_waiter_marks_its_admission_even_if_it_never_slept(ahead: tuple[str, ...]) -> None:
    crowd = Crowd()
    assert admitted(wait_for_admission(crowd, QueueSnapshot(ahead, 2)))
    assert crowd.said_so == 1


def test_contender_admitted_at_once_marks_nothing() -> None:
    crowd = Crowd()
    assert admitted(wait_for_admission(crowd, QueueSnapshot(("/a",), 2)))
    assert crowd.said_so == 0
