"""Lock and RLock: the first in the line holds; the threads of one process share one contender.

Source: recipes.txt, "Locks". The hand-over inside a process is ours, and so is that a lock is kept (keep.py).

Rules for this file: pure; who calls is an opaque ``owner`` (any object that compares by identity); the state of a
LockCore is shared by the threads of one process, and changes only between two awaits.

Picture: ``<path>/_c_<guid>-lock-<sequence>``, ephemeral, one for each process that holds or waits.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple

from distsync.errors import DeadlineError, LockLostError, NotHeldError
from distsync.protocols import line
from distsync.protocols.grant import Grant, Keeping, hold
from distsync.protocols.guard import leave, remove
from distsync.protocols.keep import is_taken, tend
from distsync.protocols.kept import KeptCore, Ticket
from distsync.session.steps import Background, Proven, Signal, Unhold, Wait, Woke

__all__ = ["LOCAL_TURNS", "Grant", "Holding", "LockCore", "Ticket", "hold"]

#: So many times in a row threads of one process hand the lock to each other before it goes back to the line:
#: a waiter in another process waits for at most so many critical sections per process ahead of it.
LOCAL_TURNS = 32


class Holding(NamedTuple):
    """The state of a lock between two lines of its owner; ``untold``: who has to be told of which loss; ``taken``: how
    often the lock had been taken before, and with this."""

    grant: Grant | None
    owner: object
    depth: int
    untold: tuple[tuple[object, Grant], ...] = ()
    taken: int = 0


class LockCore(KeptCore):
    """What the threads of one process know together about one lock."""

    def __init__(self, path: str, mark: str = line.LOCK, rule: line.Rule = line.exclusive) -> None:
        super().__init__()
        self.path = path
        self.mark = mark
        self.rule = rule
        self.contending = False
        self.turns = 0

    @property
    def busy(self) -> bool:
        """Somebody of this process holds the lock or stands in the line for it."""
        self._settle()
        return self.contending or self.grant is not None

    @property
    def idle(self) -> bool:
        """Nothing is held or waited for, and nobody has to be told of a loss."""
        kept = self.kept is not None and not self.kept.loss.fired
        return not (self.grant or kept or self.contending or self.tickets or self.lost)

    async def acquire(
        self, owner: object, data: bytes, wait: bool = True, *, keep: float = 0.0, brief: bool = False
    ) -> bool:
        """``owner`` holds the lock. False: not at once if he does not ``wait``, or not before the deadline, which is
        near if it is ``brief``. What is free is kept for ``keep`` seconds after its release, as ``data`` then says."""
        try:
            while self.busy or self.kept is not None or self._next_ticket():
                if self.kept is not None:
                    if await self._take_kept(owner):
                        return True
                    continue
                if not wait:
                    return False
                ticket = await self._queue(owner)
                if not ticket.served:
                    return False
                if ticket.grant is None:
                    break
                if self._still_held(ticket):
                    self._take(ticket.grant, owner)
                    return True
        except DeadlineError:
            return False
        self.contending = True
        try:
            if (brief or not wait) and await self.occupied() and not wait:
                return False
            return await self._contend(owner, data, keep)
        except DeadlineError:
            return False
        finally:
            self.contending = False
            if self.grant is None:
                self._pass_turn()

    async def occupied(self) -> bool:
        """Reads instead of a create and a delete: who only tries does not stand in the way of others."""
        return await is_taken(self.path)

    def has_lost(self, owner: object) -> bool:
        """Whether ``owner`` held the lock when it was lost, and was not told yet. Changes nothing."""
        grant = self.grant
        is_losing = grant is not None and grant.loss.fired and self.owner is owner
        return is_losing or any(entry[0] is owner for entry in tuple(self.lost))

    async def locked(self) -> bool:
        """Whether anybody holds it. What we keep nobody does, as long as our session is proven to live: a process that
        stood still does not know yet that it keeps nothing."""
        if self.busy:
            return True
        kept = self.kept
        if kept is not None and kept.may_be_kept and await Proven(kept.place.session_id):
            return False
        return await self.occupied()

    async def _contend(self, owner: object, data: bytes, keep: float = 0.0) -> bool:
        place = await line.acquire(self.path, self.mark, data, self.rule)
        if place is None:
            return False
        try:
            grant = await hold(place)
            if keep and place.alone:
                grant.keeping = Keeping(keep)
                await Background(tend(grant, grant.keeping, lambda: self.let_kept_go(grant)))
        except BaseException:
            await Background(remove(place.path, place.session_id))
            raise
        self.turns = 0
        grant.loss.subscribe(self._hint)
        self._take(grant, owner)
        return True

    async def _queue(self, owner: object) -> Ticket:
        """Waits inside the process: FIFO."""
        ticket = Ticket(owner)
        self.tickets.append(ticket)
        try:
            while not ticket.served:
                ticket.signal = Signal()
                self._settle()
                if self.kept is not None and await self._take_kept(owner):
                    ticket.grant = self.grant
                if self.grant is None and self.kept is None:
                    self._pass_turn()
                if ticket.served or await Wait(ticket.signal) is Woke.DEADLINE:
                    break
        except BaseException:
            await self._pass_on(ticket)
            raise
        finally:
            if ticket in self.tickets:
                self.tickets.remove(ticket)
            if self.kept is not None:
                self._nudge()
        return ticket

    async def _pass_on(self, ticket: Ticket) -> None:
        """Who was served and cannot use it gives it to the next one."""
        if ticket.grant is not None:
            if self._still_held(ticket) and not self._hand_over():
                await self._let_go_soon(ticket.grant)
        elif ticket.turn:
            self.contending = False
            self._pass_turn()

    def _still_held(self, ticket: Ticket) -> bool:
        """Whether what was handed to ``ticket`` is still his: somebody may have released it again before he woke. If
        it was lost, nobody needs to be told."""
        self._settle()
        self.lost = [entry for entry in self.lost if entry[1] is not ticket.grant or entry[0] is not ticket.owner]
        return self.grant is ticket.grant and self.owner is ticket.owner

    def _take(self, grant: Grant, owner: object) -> None:
        self.taken += 1
        self.owner, self.depth, self.grant = owner, 1, grant
        self.lost = [entry for entry in self.lost if entry[0] is not owner]

    def _hint(self) -> None:
        """The keeper says that the grant is lost: whoever waits inside the process looks again."""
        for ticket in tuple(self.tickets):
            ticket.signal.fire()

    def _settle(self) -> None:
        """A grant that was lost makes way; its owner learns of it at his release."""
        if self.grant is not None and self.grant.loss.fired:
            self.lost.append((self.owner, self.grant))
            self.grant, self.owner, self.depth = None, None, 0
            self._pass_turn()
        if self.kept is not None and self.kept.loss.fired:
            self.kept = None
            self._pass_turn()

    def _pass_turn(self) -> None:
        """The next one inside the process stands in the line, if nobody of it does."""
        ticket = None if self.contending else self._next_ticket()
        if ticket is not None:
            ticket.turn = self.contending = True
            ticket.signal.fire()

    def _hand_over(self) -> bool:
        """The next one inside the process holds the lock; False if there is none, or others have waited enough."""
        ticket = self._next_ticket()
        if ticket is None or self.grant is None or self.turns >= LOCAL_TURNS or self.grant.plea.fired:
            return False
        if not self.grant.may_be_kept:  # others wait, as far as we know
            self.turns += 1
        self.overtaken = 0
        ticket.grant = self.grant
        self.owner = ticket.owner
        ticket.signal.fire()
        return True

    async def release(self, owner: object, keep: bool = True) -> None:
        """The lock goes to the next one, or, if nobody wants it, is kept. Raises LockLostError if it was lost,
        NotHeldError if free."""
        self._settle()
        self._claim_loss(owner)
        grant = self.grant
        if grant is None:
            raise NotHeldError(f"release of {self.path}, which this process does not hold")
        try:
            proven = await Proven(grant.place.session_id)
        except BaseException:
            await self._let_go_soon(grant)
            raise
        self._settle()
        self._claim_loss(owner)
        if proven and self.grant is grant and ((keep and self.put_by()) or self._hand_over()):
            return
        if not await self._let_go(grant) or not proven:
            raise LockLostError(self.path, grant.loss.reason or ("znode deleted" if proven else "lease ran out"))

    async def drop(self, grant: Grant | None, owner: object) -> None:
        """A call of ``owner``'s was interrupted anywhere: what it was to let go is let go, to the end."""
        self.lost = [entry for entry in self.lost if entry[1] is not grant]
        if grant is not None and self.grant is grant and self.owner is owner:
            await self._let_go(grant)
        elif grant is not None and self.grant is not grant:
            self.kept = None if self.kept is grant else self.kept
            await self._erase(grant)
        if self.grant is None:
            self._pass_turn()
        self._hint()  # who was served, and was not told

    def revert(self, owner: object, before: Holding, stranger: object) -> Coroutine[Any, Any, None]:
        """What ``owner`` acquired since ``before`` is not his any more, and what is returned lets go of it. May be done
        twice, with the same ``stranger``: who has it until then, so that ``owner`` does not find himself the owner."""
        grant, mine = self.grant, before.grant if before.owner is owner else None
        old = (*before.untold, (owner, mine))
        self.lost = [each for each in self.lost if each[0] is not owner or each in old]
        if grant is None or not (self.owner is owner or self.owner is stranger):
            return self.drop(None, owner)
        if grant is mine:
            self.depth = before.depth
            return self.drop(None, owner)
        self.owner = stranger
        return self.drop(grant, stranger)

    def give_up(self, was: Holding, caller: object) -> Coroutine[Any, Any, None]:
        """The release that ``caller`` began when the lock was held so is over, however far it came; what is returned
        ends it. Who had lost it before has been told, and others may hold it. May be done twice."""
        owner = was.owner
        if self.grant is was.grant and self.taken != was.taken:  # kept, and taken again since
            return self.drop(None, owner)
        if owner is not caller and any(entry[0] is caller for entry in was.untold):
            self.lost = [entry for entry in self.lost if entry[0] is not caller or entry not in was.untold]
            return self.drop(None, caller)
        if self.grant is was.grant is not None and self.owner is owner:
            self.depth = was.depth - 1
            if was.depth <= 1:
                self.owner = owner = object()  # nobody's, so that who held does not find himself the owner
        else:
            owner = object()  # it was let go of already: who has taken it since, he himself perhaps, has it rightly
        return self.drop(was.grant if was.depth <= 1 else None, owner)

    @property
    def holding(self) -> Holding:
        """What is held now, by whom, how deep."""
        return Holding(self.grant, self.owner, self.depth, tuple(self.lost), self.taken)

    async def _let_go(self, grant: Grant) -> bool:
        """Locks, the unlock protocol: delete our znode. The next one inside the process stands in line meanwhile."""
        self._vacate(grant)
        return await self._erase(grant)

    async def _let_go_soon(self, grant: Grant) -> None:
        """It is not held any more from now on; its znode goes apart from this call."""
        self._vacate(grant)
        await Background(self._erase(grant))

    def _vacate(self, grant: Grant) -> None:
        self.kept = None if self.kept is grant else self.kept
        if self.grant is grant:
            self.grant, self.owner, self.depth = None, None, 0
            self._pass_turn()

    async def _erase(self, grant: Grant) -> bool:
        try:
            grant.end()
            await Unhold(grant.loss)
            return await leave(grant.place.path, grant.place.session_id)
        except BaseException:
            await Background(remove(grant.place.path, grant.place.session_id))
            raise

    def _claim_loss(self, owner: object) -> None:
        """Who held a lock that was lost is told so, once, and does not release what somebody else holds now."""
        if not self.lost or (self.grant is not None and self.owner is owner):
            return
        mine = [entry for entry in self.lost if entry[0] is owner] or ([] if self.grant else self.lost[:1])
        if not mine:
            return
        self.lost.remove(mine[0])
        raise LockLostError(self.path, mine[0][1].loss.reason or "session expired")
