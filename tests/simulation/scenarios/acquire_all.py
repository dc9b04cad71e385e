"""acquire_all: several locks in one order, all or none, however the call ends.

The loop is that of _objects/acquire_all.py, on the cores that the public classes use. Each step
that waits is a call of its own, as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios import shared_lock
from simulation.scenarios.common import ROOT, Scenario, finish, maybe_timeout, processes, spawn, work

from distsync._protocols.locks.grant import TemporaryOwner
from distsync._protocols.locks.lock import Grant, LockCore
from distsync._protocols.locks.shared_lock import ReadSnapshot
from distsync.errors import DistsyncError, LockLostError, NotHeldError

#: In the order of their paths: two locks, with a shared one between them.
LOCKS = (f"{ROOT}/lock/a", shared_lock.PATH, f"{ROOT}/zlock/z")


@dataclass(frozen=True)
class Part:
    """One of the locks as one thread uses it: a Lock, or a side of a SharedLock."""

    process: SimProcess
    owner: object
    path: str
    what: str

    @property
    def core(self) -> Any:
        if self.what == "lock":
            return self.process.local(self.path, lambda: LockCore(self.path))
        core = shared_lock.core_of(self.process)
        return core.writer if self.what == "writer" else core

    @property
    def snapshot(self) -> Any:
        return self.core.reading(self.owner) if self.what == "reader" else self.core.snapshot

    @property
    def grant(self) -> Grant | None:
        """The grant by which this thread holds the lock."""
        core = self.core
        if self.what == "reader":
            share = core.share_of(self.owner)
            return share.grant if share else None
        grant: Grant | None = core.grant
        return grant if core.owner is self.owner else None

    @property
    def held(self) -> bool:
        grant = self.grant
        return grant is not None and not grant.loss.fired and self.process.is_proven(grant.entry.session_id)

    @property
    def depth(self) -> int:
        """How many times this thread holds the lock."""
        if self.what == "reader":
            return int(self.core.depth(self.owner))
        return int(self.core.depth) if self.grant is not None else 0

    def _is_owned(self) -> bool:
        """Return whether the thread owns it as an RLock. The depth of a reader is tracked by the core."""
        return self.what != "reader" and self.grant is not None and not self.grant.loss.fired

    async def acquire(self, timeout: float | None) -> bool:
        """Acquire as an RLock does."""
        if self._is_owned():
            self.core.depth += 1
            return True
        return bool(await Run(self.core.acquire(self.owner, b""), timeout))

    async def release(self) -> None:
        if self._is_owned() and self.core.depth > 1:
            self.core.depth -= 1
        elif self.what != "reader" and not self._is_owned() and self.core.loss_of(self.owner) is None:
            raise NotHeldError("cannot release un-acquired lock")
        else:
            await Run(self.core.release(self.owner), self.process.session.timeout_ms / 1000)

    def undo_acquire(self, before: Any, stranger: TemporaryOwner) -> None:
        ending = self.core.undo_acquire(self.owner, before, stranger)
        if ending is not None:
            self.process.background(ending)

    def finish_release(self, was: Any) -> None:
        """Complete an interrupted release."""
        if self.what == "reader":
            self.undo_acquire(ReadSnapshot(max(0, was.depth - 1)), TemporaryOwner())
        else:
            self.process.background(self.core.finish_release(was, self.owner))


async def acquire_all(world: Simulation, parts: list[Part], timeout: float | None) -> bool:
    """Acquire all parts; return False on timeout. On failure, undo the acquisitions; raise other
    errors again.
    """
    deadline = None if timeout is None else world.now + timeout
    begun: list[tuple[Part, Any, object]] = []
    try:
        for part in parts:
            begun.append((part, part.snapshot, TemporaryOwner()))
            if not await part.acquire(None if deadline is None else max(0.0, deadline - world.now)):
                raise TimeoutError
        for part in parts:
            if not part.held:
                raise LockLostError(part.path, "lost during acquire_all")
        return True
    except BaseException as error:
        for part, before, stranger in reversed(begun):
            part.undo_acquire(before, stranger)
        if not isinstance(error, TimeoutError):
            raise
        return False


async def release_all(parts: list[Part]) -> None:
    """Release in reverse order. An error of one part does not prevent the release of the others."""
    before = [part.snapshot for part in parts]
    failed: list[DistsyncError] = []
    try:
        for part in reversed(parts):
            try:
                await part.release()
            except DistsyncError as error:
                failed.append(error)
    except BaseException:
        for part, was in zip(parts, before, strict=True):
            part.finish_release(was)
        raise
    if failed:
        raise failed[0]


def draw_parts(world: Simulation, process: SimProcess, owner: object) -> list[Part]:
    """Return two or three of the locks in the order of their paths, whatever the order in which they
    are named.
    """
    named = world.rng.sample(LOCKS, world.rng.choice((2, 2, 3)))
    sides = {path: world.rng.choice(("reader", "writer")) if path == shared_lock.PATH else "lock" for path in named}
    return [Part(process, owner, path, sides[path]) for path in sorted(named)]


async def thread(world: Simulation, process: SimProcess) -> None:
    """Acquire some locks together once or twice, sometimes while holding the first of them."""
    owner = object()
    for _ in range(world.rng.randint(1, 2)):
        parts = draw_parts(world, process, owner)
        if world.rng.random() < 0.25 and parts[0].what == "lock":
            await within(world, parts)
        else:
            await together(world, parts)


async def within(world: Simulation, parts: list[Part]) -> None:
    """Acquire all of them while the first one is already held."""
    first = parts[0]
    if not await first.acquire(None):
        return
    granted(world, [first])
    try:
        await together(world, parts)
    finally:
        world.record("released", what=tag(first))
        await release(world, [first])


async def together(world: Simulation, parts: list[Part]) -> None:
    before = [part.depth for part in parts]
    got = False
    try:
        got = await acquire_all(world, parts, maybe_timeout(world))
    except LockLostError as error:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")
    finally:
        if not got:
            check_undone(world, parts, before)
    if got:
        await use(world, parts, before)


def check_undone(world: Simulation, parts: list[Part], before: list[int]) -> None:
    """Check that a failed call left no lock held more deeply than before."""
    still_held = [part.path for part, was in zip(parts, before, strict=True) if part.depth > was]
    if still_held:
        world.fail(f"a failed call still holds {still_held}")


async def use(world: Simulation, parts: list[Part], before: list[int]) -> None:
    fresh = [part for part, was in zip(parts, before, strict=True) if not was]
    granted(world, fresh)
    try:
        await Run(work(world))
        world.record("working")
    finally:
        for part in fresh:
            world.record("released", what=tag(part))
        await release(world, parts)


def tag(part: Part) -> str:
    return part.path if part.what == "lock" else part.what


def granted(world: Simulation, parts: list[Part]) -> None:
    """Record the grants at the moment when the call returns."""
    for part in parts:
        grant = part.grant
        if grant is not None:
            entry = grant.entry
            name = None if part.what == "lock" else entry.name
            what, token = tag(part), entry.token
            world.record("granted", what=what, session_id=entry.session_id, token=token, loss=grant.loss, name=name)


async def release(world: Simulation, parts: list[Part]) -> None:
    """Release all; fail if a loss is reported without a fault."""
    try:
        await release_all(parts)
    except (LockLostError, NotHeldError) as error:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")


def check_idle(world: Simulation) -> None:
    """Check that no live process still holds a lock or waits."""
    for process in world.processes.values():
        busy = [path for path, core in process.shared.items() if process.alive and not core.idle]
        if busy:
            world.fail(f"{process.name} still holds or waits for {busy}")


def run(world: Simulation) -> None:
    """Check that locks acquired in one order never deadlock: the world fails if a thread waits
    forever.
    """
    world.checks += [Exclusion(path) for path in LOCKS if path != shared_lock.PATH]
    world.checks += [shared_lock.ReadersOrWriter(), shared_lock.OneKindHolds()]
    world.checks += [NothingLeft(f"{path}/") for path in LOCKS]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, thread(world, process))
    finish(world, lambda: check_idle(world))


ACQUIRE_ALL = Scenario("acquire-all", run)
