"""The turn to enqueue, which a thread of a process grants to another one that waits for the same lock."""

from __future__ import annotations

from helpers.interrupt_every_line import Strike

from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Connected, Wait, WakeReason


def test_waiter_that_is_interrupted_after_it_got_its_turn_passes_it_on() -> None:
    """Otherwise no thread of the process ever acquires the lock again."""
    which, where = 1, ""
    while where is not None:
        core = LockCore("/x")
        core.contending = True  # another thread is enqueued
        first, second = core.acquire(object(), b""), core.acquire(object(), b"")
        assert isinstance(first.send(None), Wait)
        assert isinstance(second.send(None), Wait)
        core.contending = False  # it has reached its deadline
        core._let_next_waiter_enqueue()
        where = Strike(which).during(lambda: first.send(WakeReason.SIGNAL))  # noqa: B023
        if where is not None:
            (waiter,) = core.local_waiters
            assert waiter.may_enqueue, where
            assert isinstance(second.send(WakeReason.SIGNAL), Connected)
        first.close()
        second.close()
        which += 1
    assert which > 3
