"""A reader that also wrote commits while its writer's znode is exchanged for a reader's: the commit is
refused if the lock was lost, and only then.

The committing thread may be notified that its znode is deleted before the thread that makes the
exchange learns that it is done.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._objects.fenced_transaction import GuardedTransaction
from distsync._protocols.locks import downgrade
from distsync._protocols.locks.grant import Grant
from distsync._protocols.locks.shared_lock import SharedCore
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Delete, Exists, Wait
from distsync.errors import DeadlineError, LockLostError

if TYPE_CHECKING:
    from distsync._client.client import Client

PATH, TARGET = "/distsync/sharedlock/s", "/made"
LATE_S = 1.0


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def exists(path: str) -> bool:
    return await Exists(path) is not None


async def delete(path: str) -> None:
    await Delete(path)


class Reader:
    """A thread that writes, reads, releases the writer, and commits at the same time, or lets
    ``child`` commit.
    """

    def __init__(self, process: SimProcess, timeout: float | None, deleted: bool, child: SimProcess | None) -> None:
        self.process, self.timeout, self.deleted, self.child = process, timeout, deleted, child
        self.core = SharedCore(PATH)
        self.outcome: object = None
        self.held = self.made = False

    async def work(self) -> None:
        core = self.core
        await Run(core.writer.acquire("me", b"{}"))
        await Run(core.acquire("me", b"{}"))
        (share,) = core.shares
        self.process.spawn(self.release_writer(), name="writer")
        await Run(sleep(LATE_S / 2))
        if self.deleted:
            await Run(delete(share.grant.entry.path))
        if self.child is None:
            await self.commit(share.grant)
        else:
            self.child.spawn(self.commit(replace(share.grant)), name="child")
            await Run(sleep(LATE_S))
        self.held, self.made = core.reads("me"), await Run(exists(TARGET))
        await Run(sleep(2 * LATE_S))
        with suppress(LockLostError):
            await Run(core.release("me"))

    async def commit(self, grant: Grant) -> None:
        transaction = GuardedTransaction(cast("Client", None), Receipts("/distsync/receipts"), grant)
        transaction.create(TARGET)
        try:
            await Run(transaction._commit(), self.timeout)
            self.outcome = "done"
        except (DeadlineError, LockLostError) as error:
            self.outcome = type(error)

    async def release_writer(self) -> None:
        with suppress(LockLostError):
            await Run(self.core.writer.release("me"))


def played(
    monkeypatch: pytest.MonkeyPatch,
    slow: str,
    seed: int,
    *,
    timeout: float | None = None,
    deleted: bool = False,
    forked: bool = False,
) -> Reader:
    """Play a schedule in which the thread that makes the exchange is delayed before the function
    ``slow``.
    """
    step = getattr(downgrade, slow)

    async def late(*arguments: Any) -> Any:
        await Wait(limit=LATE_S)
        return await step(*arguments)

    monkeypatch.setattr(downgrade, slow, late)
    with Simulation(seed) as world:
        process = world.process("p")
        reader = Reader(process, timeout, deleted, world.process("child") if forked else None)
        process.spawn(reader.work(), name="reader")
        world.run()
        assert [path for path in world.leftovers() if path.startswith(f"{PATH}/")] == []
    return reader


@pytest.mark.parametrize("seed", range(5))
def test_commit_of_a_reader_that_still_holds_the_lock_succeeds_during_the_exchange(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    reader = played(monkeypatch, "_hold_reader", seed)
    assert (reader.outcome, reader.held, reader.made) == ("done", True, True)


@pytest.mark.parametrize("seed", range(5))
def test_commit_of_a_reader_that_lost_the_lock_before_the_exchange_is_refused(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The writer's znode is deleted externally."""
    reader = played(monkeypatch, "_exchange", seed, deleted=True)
    assert (reader.outcome, reader.held, reader.made) == (LockLostError, False, False)


@pytest.mark.parametrize("seed", range(5))
def test_commit_that_times_out_during_the_exchange_does_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    reader = played(monkeypatch, "_hold_reader", seed, timeout=LATE_S / 10)
    assert (reader.outcome, reader.held, reader.made) == (DeadlineError, True, False)


@pytest.mark.parametrize("seed", range(5))
def test_commit_of_a_child_forked_during_the_exchange_is_refused(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The child has a copy of the exchange in progress, which never ends there."""
    reader = played(monkeypatch, "_hold_reader", seed, forked=True)
    assert (reader.outcome, reader.held, reader.made) == (LockLostError, True, False)
