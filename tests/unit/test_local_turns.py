"""Turns of the threads of one process: an interrupt at any place of a call leaves the turn to the next thread."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from helpers.interrupt_every_line import Strike

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.steps import Signal, Wait, WakeReason


def begin(protocol: Coroutine[Any, Any, bool]) -> bool | None:
    """Return the result of ``protocol``; None if it waits."""
    try:
        assert isinstance(protocol.send(None), Wait)
    except StopIteration as stop:
        return bool(stop.value)
    return None


def test_turns_are_given_in_the_order_of_arrival() -> None:
    turns, (first, second, third) = LocalTurnQueue(), (Signal(), Signal(), Signal())
    waits = [turns.wait(each) for each in (first, second, third)]
    assert [begin(each) for each in waits] == [True, None, None]
    turns.pass_on(first)
    assert (second.fired, third.fired) == (True, False)
    with pytest.raises(StopIteration) as end:
        waits[1].send(WakeReason.SIGNAL)
    assert end.value.value is True
    turns.pass_on(third)  # its deadline has passed
    turns.pass_on(second)
    assert not turns.is_held
    waits[2].close()


@pytest.mark.parametrize("others", [0, 1, 2])
def test_interrupted_call_passes_its_turn_on(others: int) -> None:
    """Otherwise no thread of the process ever gets its turn again."""
    which, where = 0, ""
    while where is not None:
        which += 1
        turns, mine, theirs = LocalTurnQueue(), Signal(), [Signal() for _ in range(others)]
        assert begin(turns.wait(mine))
        waits = [turns.wait(each) for each in theirs]
        assert [begin(each) for each in waits] == [None] * others
        where = Strike(which).during(lambda: turns.pass_on(mine))  # noqa: B023
        assert [each.fired for each in theirs] == [True, False][:others], where
        for turn in theirs:
            assert turns.holder is turn, where
            turns.pass_on(turn)
        assert not turns.is_held, where
        for each in waits:
            each.close()
    assert which > 1 + others
