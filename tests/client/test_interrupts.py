"""Ctrl-C at any moment, once or again and again: nothing hangs, nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from helpers.sample_protocols import ask
from helpers.timing import UNIT, eventually

import distsync
from distsync._client.client import Client
from distsync._protocols.steps import Children, Connected, Create, Delete, Guid, Hold, Loss, Signal, StopHolding, Wait

CALLS = 150
OURS = os.path.dirname(distsync.__file__)

# An interrupt may come before the first line of a call.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@contextmanager
def interrupts(after: float, again: float) -> Iterator[None]:
    """Raise KeyboardInterrupt ``after`` a time, and ``again`` periodically, in the line that runs
    then, if it belongs to a call of a client; swallow it at the end of the block.
    """
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, after, again)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Not in others' lines: the interpreter calls some where an exception cannot be raised, finalizers for one; nor
    in this function, which such a line may have been interrupted by."""
    if frame is None or not frame.f_code.co_filename.startswith((OURS, __file__)) or frame.f_code is interrupt.__code__:
        return
    while frame is not None:
        if frame.f_code is Client.run.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back


async def hold_a_while(namespace: str) -> None:
    session = await Connected()
    loss = Loss()
    # The GUID is what the janitor knows it by when its reply is lost.
    created = await Create(f"{namespace}/{await Guid()}-", ephemeral=True, sequence=True)
    try:
        await Hold(created.path, session.session_id, loss)
        await Wait(Signal(), limit=UNIT / 20)
    finally:
        await StopHolding(loss)
        await Delete(created.path)


@pytest.mark.parametrize("again", [0.0, 0.0015], ids=["once", "again and again"])
def test_interrupted_calls_leave_nothing_and_the_client_works(near: Client, namespace: str, again: float) -> None:
    chance = random.Random(again)
    for _ in range(CALLS):
        with interrupts(chance.uniform(0.0002, 0.006), again):
            near.run(hold_a_while(namespace))
    eventually(lambda: not near.run(ask(Children(namespace))).names)
    runtime: Any = near._runtime
    assert not runtime._calls
    assert len(runtime.holds) == 0


def test_interrupted_calls_leave_nothing_while_other_threads_call(
    near: Client, namespace: str, in_thread: Callable[..., Any]
) -> None:
    chance = random.Random(1)
    stop: list[int] = []

    def busy() -> None:
        while not stop:
            near.run(hold_a_while(namespace))

    others = [in_thread(busy) for _ in range(2)]
    try:
        for _ in range(CALLS):
            with interrupts(chance.uniform(0.0002, 0.006), 0.0):
                near.run(hold_a_while(namespace))
    finally:
        stop.append(1)
    for one in others:
        one.result()
    eventually(lambda: not near.run(ask(Children(namespace))).names)
