"""A downgrading reader commits while its writer's znode is replaced by its own: it is refused if it
lost the lock, and only then.

Before the downgrading thread learns of the replacement, the committing thread may have seen that
the old znode is gone.
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


async def there(path: str) -> bool:
    return await Exists(path) is not None


async def delete(path: str) -> None:
    await Delete(path)


class Reader:
    """Writes, reads, releases the writer, and commits in between, or its ``child`` does."""

    def __init__(self, process: SimProcess, timeout: float | None, deleted: bool, child: SimProcess | None) -> None:
        self.process, self.timeout, self.deleted, self.child = process, timeout, deleted, child
        self.core = SharedCore(PATH)
        self.told: object = None
        self.held = self.made = False

    async def work(self) -> None:
        core = self.core
        await Run(core.writer.acquire("me", b"{}"))
        await Run(core.acquire("me", b"{}"))
        (share,) = core.shares
        self.process.spawn(self.let_go(), name="writer")
        await Run(sleep(LATE_S / 2))
        if self.deleted:
            await Run(delete(share.grant.place.path))
        if self.child is None:
            await self.commit(share.grant)
        else:
            self.child.spawn(self.commit(replace(share.grant)), name="child")
            await Run(sleep(LATE_S))
        self.held, self.made = core.reads("me"), await Run(there(TARGET))
        await Run(sleep(2 * LATE_S))
        with suppress(LockLostError):
            await Run(core.release("me"))

    async def commit(self, grant: Grant) -> None:
        transaction = GuardedTransaction(cast("Client", None), Receipts("/distsync/receipts"), grant)
        transaction.create(TARGET)
        try:
            await Run(transaction._commit(), self.timeout)
            self.told = "done"
        except (DeadlineError, LockLostError) as error:
            self.told = type(error)

    async def let_go(self) -> None:
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
    """Return a schedule in which the thread that replaces the znode is stalled before this step."""
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
def test_downgrading_reader_that_holds_the_lock_is_not_refused(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    reader = played(monkeypatch, "_hold_reader", seed)
    assert (reader.told, reader.held, reader.made) == ("done", True, True)


@pytest.mark.parametrize("seed", range(5))
def test_reader_that_loses_the_lock_during_a_downgrade_is_refused(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The writer's znode is deleted before the replacement."""
    reader = played(monkeypatch, "_exchange", seed, deleted=True)
    assert (reader.told, reader.held, reader.made) == (LockLostError, False, False)


@pytest.mark.parametrize("seed", range(5))
def test_commit_without_time_to_wait_fails_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    reader = played(monkeypatch, "_hold_reader", seed, timeout=LATE_S / 10)
    assert (reader.told, reader.held, reader.made) == (DeadlineError, True, False)


@pytest.mark.parametrize("seed", range(5))
def test_child_forked_during_a_downgrade_is_refused(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """It has a copy of the unfinished downgrade, which never ends."""
    reader = played(monkeypatch, "_hold_reader", seed, forked=True)
    assert (reader.told, reader.held, reader.made) == (LockLostError, True, False)
