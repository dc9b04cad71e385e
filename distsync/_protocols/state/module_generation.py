"""Generation of a module: the processes that use its objects at the same time.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

A process joins before its first use of an object that is bound at module or class level. The objects
live as long as the generation has a member: the last one that leaves deletes them, or the first one
of the next generation does, before it uses any. A process whose session has ended joins again, and
finds its objects if no other generation has begun since.

Each join, leave and sweep is one transaction that changes the version of ``path``, and all but a leave
require the version at which the members were listed. So of two at the same time one is repeated,
and the znodes that are deleted are those of a generation that no process can join any more. A member
is ephemeral. One that ``is_dead``, a process of this host that does not run any more, counts as gone
before its session has ended.

Znodes:
  ``<path>``               its version counts joins, leaves and sweeps
  ``<path>/m_<process>_<guid>``  ephemeral, one for each member
  ``<path>/s_<process>_<guid>``  ephemeral: this process deletes the objects; others wait
  ``<path>/objects``       all objects of the generation; its czxid identifies the generation

The objects without a name that a process creates have a generation too, whose members are the processes
that use any of them. It keeps its objects while its creator may come back: until the creator leaves, or
provably does not run any more. Its ``path`` is deleted with the objects, and then counts from the beginning
when it is created again. Each transaction that requires the version therefore also requires, or creates, a
znode whose name is never used again.

Znodes of such a generation, in addition:
  ``<path>/o_<process>_<guid>``  from the creator's first join until it leaves; ``o_<process>_0`` if another process
                           was the first to join
  ``<path>/g_<guid>``      exists as long as this ``path``, from the first change of its version on
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.retries import INTERRUPTED, delete_guaranteed, delete_tree, ensure, read, read_all
from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    Guid,
    Listing,
    Multi,
    Pipeline,
    Request,
    SetData,
    Signal,
    Stat,
    Step,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt
from distsync.errors import (
    BadVersionError,
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

ResultT = TypeVar("ResultT")

MEMBER = "m_"
SWEEP = "s_"
CREATOR = "o_"
GUARD = "g_"
OBJECTS = "objects"

#: Seconds after which to look again whether the process that sweeps still runs.
SWEEP_CHECK_S = 1.0


class GenerationCore:
    """Membership of this process in the generation of a module.

    Args:
        path: Path of the module.
        process: What identifies this process, for the names of its znodes; without ``_``.
        is_dead: Whether a process that is so identified does provably not run any more.
        creator: The process that creates all objects, identified so. None for those of a module.
    """

    def __init__(self, path: str, process: str, is_dead: Callable[[str], bool], creator: str | None = None) -> None:
        self.path = path
        self.process = process
        self.is_dead = is_dead
        self.creator = creator
        #: Name of the znode that this process, as the creator, has made and not deleted.
        self.mark = ""
        #: The session in which this process is a member.
        self.session_id: int | None = None
        #: The zxid at which its generation has begun: that which created the znode of all objects.
        self.began = 0
        #: The name of its znodes in the latest session, which all joins use. Before it, those of former sessions in
        #: which znodes may have been created.
        self.names: dict[int, str] = {}
        #: The running joins. More than one: a signal handler or finalizer interrupts the others.
        self.joining: set[Signal] = set()
        #: Whether others may have to wait for this process.
        self.is_sweeping = False
        self.turns = LocalTurnQueue()

    @property
    def objects(self) -> str:
        """Path of the znode above all objects."""
        return f"{self.path}/{OBJECTS}"

    @property
    def member(self) -> str:
        """Path of this process's member in the session in which it has joined."""
        return self._member(self.names[self.session_id or 0])

    def _member(self, name: str) -> str:
        return f"{self.path}/{MEMBER}{name}"

    def _sweeper(self, name: str) -> str:
        """Return the path of the znode by which this process keeps others from joining."""
        return f"{self.path}/{SWEEP}{name}"

    async def join(self, is_nested: bool = False) -> None:
        """Become a member, unless this process is one in the current session.

        Args:
            is_nested: Whether this interrupts another call in the same thread, which continues afterwards. It does
                not wait for running joins, since one of them may be part of that call, but joins by itself. The
                others then find the member, as they have the same name.

        Raises:
            DeadlineError: This process has not become a member in time.
        """
        turn = Signal()
        try:
            if not is_nested and not await self.turns.wait(turn):
                raise DeadlineError(f"joining {self.path}")
            self.joining.add(turn)
            while (session_id := (await Connected()).session_id) != self.session_id or self._has_leftovers:
                await self._join(session_id)
        except BaseException:
            if self.is_sweeping or (self.session_id is not None and len(self.names) > 1):
                await Background(self.join)  # others wait for it, or for what it has left
            raise
        finally:
            try:
                self.turns.pass_on(turn)
            finally:
                self.joining.discard(turn)

    @property
    def _has_leftovers(self) -> bool:
        """Whether znodes of former sessions may be left, which no running join can create any more."""
        return len(self.names) > 1 and len(self.joining) == 1

    async def rejoin(self) -> None:
        """Become a member in the current session, if this process has been one, and has not left."""
        if self.session_id is not None:
            await self.join()

    async def _join(self, session_id: int) -> None:
        """Try to become a member in this session."""
        name = self.names.setdefault(session_id, f"{self.process}_{await Guid()}")
        former = {session: each for session, each in self.names.items() if session != session_id}
        if (await Connected()).session_id != session_id:
            return
        for session, each in former.items():
            await self._delete_former(each)
            if len(self.joining) == 1:  # otherwise, a join that this one interrupts may still create them
                self.names.pop(session, None)
        while (await Connected()).session_id == session_id:
            _, listing, objects = await read_all(Sync(self.path), Children(self.path), Exists(self.objects))
            if isinstance(listing, NoNodeError):
                await ensure(self.path)
            elif SWEEP + name in listing.names:  # an earlier call was interrupted, or this one has begun to sweep
                await self._sweep(name)
            elif MEMBER + name in listing.names and isinstance(objects, Stat):
                await self._joined(session_id, objects.czxid)
                return
            elif MEMBER + name in listing.names:
                await ensure(self.objects)
            elif any(each.startswith(SWEEP) and not self._is_gone(each) for each in listing.names):
                await self._wait_for_sweep()
            else:
                try:
                    began = await self._add_member(name, listing, objects)
                except (BadVersionError, NoNodeError, NodeExistsError, *INTERRUPTED):
                    continue
                if began is not None:
                    await self._joined(session_id, began)
                    return

    async def _delete_former(self, name: str) -> None:
        """Delete the znodes of a former session, as a request sent in it may have been executed in this one.

        Another join of this process may create both at this moment. The member is therefore deleted first, and is
        provably missing when the other is deleted: otherwise, it would be taken for one that has swept.
        """
        member = self._member(name)
        while True:
            await delete_guaranteed(member)
            try:
                await Multi((Create(member), Delete(member), Delete(self._sweeper(name))))
                return
            except NoNodeError:
                return
            except NodeExistsError:
                continue
            except INTERRUPTED:
                await Connected()

    async def _add_member(self, name: str, listing: Listing, objects: Stat | None) -> int | None:
        """Become a member if nothing has changed since. Begin a generation if no member lives.

        Return the zxid at which the generation has begun; None if the objects of another one must be
        deleted first.
        """
        gone = [each for each in listing.names if self._is_gone(each)]
        living = [each for each in listing.names if each.startswith(MEMBER) and each not in gone]
        count = SetData(self.path, b"", listing.stat.version)
        changes: list[SetData | Create | Delete | Check] = [count, *await self._guards(listing)]
        changes.append(Create(self._member(name), ephemeral=True, own_cleanup=True))
        if self.process == self.creator:
            self.mark = self.mark or f"{CREATOR}{name}"
            if self.mark not in listing.names:
                changes.append(Create(f"{self.path}/{self.mark}"))
            if self._absent_mark in listing.names:
                changes.append(Delete(f"{self.path}/{self._absent_mark}"))
        elif self.creator is not None and not any(each.startswith(GUARD) for each in listing.names):
            changes.append(Create(f"{self.path}/{self._absent_mark}"))
        if living:
            changes.append(Check(f"{self.path}/{living[0]}"))  # its session may end in this moment
        else:
            changes += [Delete(f"{self.path}/{each}") for each in gone]
        is_kept = any(each.startswith(CREATOR) and each not in gone for each in listing.names)
        is_same = objects is not None and (bool(living) or is_kept or objects.czxid == self.began)
        if objects is None:
            changes.append(Create(self.objects))
        elif not is_same:
            self.is_sweeping = True
            changes.append(Create(self._sweeper(name), ephemeral=True, own_cleanup=True))
        counted, *_ = await Multi(tuple(changes))
        return int(counted.mzxid) if objects is None else objects.czxid if is_same else None

    async def _joined(self, session_id: int, began: int) -> None:
        """Note the membership, if all requests were executed in this session."""
        if (await Connected()).session_id == session_id:
            self.session_id, self.began, self.is_sweeping = session_id, began, False

    async def _wait_for_sweep(self) -> None:
        """Wait until the children change, unless no process sweeps any more."""
        watch = Watch()
        try:
            listing = await read(Children(self.path, watch))
        except NoNodeError:
            return
        if any(each.startswith(SWEEP) and not self._is_gone(each) for each in listing.names):
            if await Wait(watch, limit=SWEEP_CHECK_S) is WakeReason.DEADLINE:
                raise DeadlineError(f"joining {self.path}")

    async def _sweep(self, name: str, guards: Sequence[Check | Create] = ()) -> None:
        """Delete the objects, and then the znode that keeps all others from joining.

        Each transaction requires that znode: another process may join as soon as its session has ended.
        With ``guards``, delete the path too.
        """
        sweeper = self._sweeper(name)
        while True:
            try:
                await delete_tree(self.objects, guard=Check(sweeper))
            except NotEmptyError:  # by requests that members had sent before they were gone
                continue
            except NoNodeError:
                pass
            break
        if guards:
            with suppress(NoNodeError, NotEmptyError, *INTERRUPTED):
                await Multi((*(Delete(each.path) for each in (Check(sweeper), *guards)), Delete(self.path)))
                return
        await delete_guaranteed(sweeper)

    def _is_gone(self, name: str) -> bool:
        """Return whether a child is a znode of a process that provably does not run any more."""
        return name.startswith((MEMBER, SWEEP, CREATOR)) and self.is_dead(name[2:].rpartition("_")[0])

    @property
    def _absent_mark(self) -> str:
        """Name of the znode that stands for a creator which has not joined yet."""
        return f"{CREATOR}{self.creator}_0"

    async def _guards(self, listing: Listing) -> list[Check | Create]:
        """Return what a transaction requires in addition to the version, if ``path`` may be deleted."""
        if self.creator is None:
            return []
        found = [Check(f"{self.path}/{each}") for each in listing.names if each.startswith(GUARD)]
        return [*found] or [Create(f"{self.path}/{GUARD}{await Guid()}")]

    async def leave(self) -> None:
        """End the membership. The last member deletes the objects of the generation."""
        session_id, self.session_id, self.began = self.session_id, None, 0
        if session_id is None or (await Connected()).session_id != session_id:
            return
        name, mark, self.mark = self.names[session_id], self.mark, ""
        deletions = [Delete(self._member(name)), *([Delete(f"{self.path}/{mark}")] if mark else [])]
        left, listing = await Pipeline(Multi((*deletions, SetData(self.path, b""))), Children(self.path))
        if isinstance(left, BaseException) or not isinstance(listing, Listing):
            return
        if self.creator is not None or OBJECTS in listing.names:
            await self._sweep_if_unused(name, listing)

    async def sweep_if_unused(self, version: int | None = None) -> int | None:
        """Delete the objects if no process uses them, and their creator does not come back.

        Args:
            version: If the path still has this version, a creator without a member counts as gone.

        Returns:
            The version of the path if only a creator that may come back keeps them; otherwise None.
        """
        name = f"{self.process}_{await Guid()}"
        try:
            listing = await read(Children(self.path))
        except NoNodeError:
            return None
        return await self._sweep_if_unused(name, listing, listing.stat.version == version)

    async def _sweep_if_unused(self, name: str, listing: Listing, is_absent: bool = False) -> int | None:
        gone = [each for each in listing.names if self._is_gone(each) or (is_absent and each.startswith(CREATOR))]
        kept = [each for each in listing.names if each.startswith((MEMBER, SWEEP, CREATOR)) and each not in gone]
        if kept:
            return listing.stat.version if all(each.startswith(CREATOR) for each in kept) else None
        guards = await self._guards(listing)
        deletions = [Delete(f"{self.path}/{each}") for each in gone]
        create = Create(self._sweeper(name), ephemeral=True, own_cleanup=True)
        try:
            with suppress(*INTERRUPTED):  # it may have been executed
                await Multi((SetData(self.path, b"", listing.stat.version), *guards, *deletions, create))
            await self._sweep(name, guards)
        except (BadVersionError, NoNodeError, NodeExistsError):
            return None  # another process joins or sweeps
        except BaseException:
            await Background(partial(self._sweep, name, guards))
            raise
        return None


async def as_member(
    generation: GenerationCore, protocol: Coroutine[Any, Any, ResultT], is_nested: bool = False
) -> ResultT:
    """Join, and then run a protocol that uses objects of the module.

    ``is_nested`` says whether this interrupts another call in the same thread. At the deadline, the protocol ends as
    it does if there is no connection.
    """
    try:
        await generation.join(is_nested)
    except BaseException as error:
        if isinstance(error, DeadlineError) and not is_interrupt(error):
            return await at_deadline(protocol, error)
        protocol.close()
        raise
    return await protocol


@types.coroutine
def at_deadline(protocol: Coroutine[Any, Any, ResultT], error: DeadlineError) -> Generator[Step[Any], Any, ResultT]:
    """Run a protocol whose first request, or wait, reaches its deadline."""
    reply: Any = None
    is_over = False
    while True:
        try:
            step = protocol.send(reply)
            while not is_over and isinstance(step, (Connected, Request, Pipeline, Wait)):
                is_over = True
                step = protocol.throw(error)
        except StopIteration as stop:
            result: ResultT = stop.value
            return result
        reply = yield step
