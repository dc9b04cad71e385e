"""The background clean-up of an interrupted release, at any point of other threads' calls."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from distsync._protocols.locks.grant import Grant
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Delete, SessionAlive, StopHolding, Wait, WakeReason
from distsync._protocols.wait_queue import QueueEntry


def step_of(protocol: Coroutine[Any, Any, Any], answer: Any = None) -> Any:
    """Resume a protocol; return its next step, or its result."""
    try:
        return protocol.send(answer)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("begins_late", [False, True])
def test_clean_up_of_a_release_that_handed_the_lock_over_deletes_nothing(begins_late: bool) -> None:
    core, first, second = LockCore("/lock"), object(), object()
    core.grant = Grant(QueueEntry("/lock", "_c_x-lock-0000000001", 5, 7), owner=first)
    core.owner, core.depth = first, 1
    waiting = core.acquire(second, b"")
    assert isinstance(step_of(waiting), Wait)
    before = core.snapshot
    assert core._hand_to_local_waiter()
    clean_up = None if begins_late else core.finish_release(before, first)
    assert step_of(waiting, WakeReason.SIGNAL) is True
    releasing = core.release(second, linger=False)
    assert isinstance(step_of(releasing), SessionAlive)
    assert isinstance(step_of(releasing, True), StopHolding)  # its Delete is its next step
    assert step_of(clean_up or core.finish_release(before, first)) is None
    assert isinstance(step_of(releasing), Delete)
    assert step_of(releasing) is None
