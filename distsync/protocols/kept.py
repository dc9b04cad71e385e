"""A lock that is kept: taken again, and put by, without a request; and the threads that wait for it inside the process.

Source: none of the recipes; ours. How it is known that others want it stands in keep.py.

Rules for this file: pure; it changes the state of a LockCore, between two awaits, and asks for nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from distsync.protocols.grant import Grant
from distsync.protocols.guard import remove
from distsync.session.steps import Background, Proven, Signal, Unhold

#: So many times in a row a thread that comes just then may take a kept lock before those of its process that wait for
#: it: to wake one costs more than the lock. Then the first of them has it.
OVERTAKINGS = 32


@dataclass(eq=False)
class Ticket:
    """A thread that waits inside the process. It is woken with the lock, or with the turn to stand in the line."""

    owner: object
    signal: Signal = field(default_factory=Signal)
    grant: Grant | None = None
    turn: bool = False

    @property
    def served(self) -> bool:
        return self.turn or self.grant is not None


class KeptCore:
    """The state of a lock in one process. ``grant`` while somebody of it holds, ``kept`` while nobody does and its
    znode stays; ``taken`` counts its holders."""

    def __init__(self) -> None:
        self.grant: Grant | None = None
        self.kept: Grant | None = None
        self.owner: object = None
        self.depth = 0
        self.taken = 0
        self.overtaken = 0
        self.tickets: deque[Ticket] = deque()
        self.lost: list[tuple[object, Grant]] = []

    def _next_ticket(self) -> Ticket | None:
        """The first who was not served. It stays in the queue until it wakes: whoever is interrupted between choosing
        it and telling it has taken nobody out of the queue."""
        return next((ticket for ticket in self.tickets if not ticket.served), None)

    def retake(self, owner: object) -> bool:
        """Who comes while the lock is kept, and its lease is proven, holds it. No request."""
        grant = self.kept
        keeping = None if grant is None else grant.keeping
        if grant is None or keeping is None or self.grant is not None:
            return False
        if keeping.wanted or grant.plea.fired or grant.loss.fired:
            return False
        self.owner, self.depth, self.grant = owner, 1, grant
        keeping.idle, self.kept = False, None  # last: whoever is interrupted has it, and lets it go
        self.taken += 1
        keeping.uses += 1
        if self.lost:
            self.lost = [entry for entry in self.lost if entry[0] is not owner]
        return True

    def put_by(self) -> bool:
        """What is held, and proven, is kept, or the next one inside the process holds it; False if it has to go. No
        request."""
        grant = self.grant
        keeping = None if grant is None else grant.keeping
        if grant is None or keeping is None or keeping.wanted or grant.plea.fired or grant.loss.fired:
            return False
        if self.tickets and self._next_ticket() is not None:
            if self.overtaken >= OVERTAKINGS:
                return self._hand_over()
            self.overtaken += 1
        self.kept, keeping.idle = grant, True
        self.grant, self.owner, self.depth = None, None, 0
        if self.tickets:
            self._nudge()
        if keeping.doze is not None:
            keeping.doze.fire()
        return True

    def _nudge(self) -> None:
        """The first who waits inside the process looks whether the lock is kept."""
        ticket = self._next_ticket()
        if ticket is not None and not ticket.signal.fired:
            ticket.signal.fire()

    async def _take_kept(self, owner: object) -> bool:
        """As retake, where nobody knows whether it is proven. What can be kept no more goes."""
        grant = self.kept
        if grant is None:
            return False
        proven = await Proven(grant.place.session_id)
        if self.kept is grant and not (proven and self.retake(owner)):
            await self.let_kept_go(grant)
        return self.grant is grant and self.owner is owner

    async def let_kept_go(self, grant: Grant | None) -> None:
        """This is kept no more. Raises DeadlineError where its znode goes only later."""
        if grant is not None and self.kept is grant and self.grant is None:
            try:
                self.kept = None
                self._pass_turn()
                grant.end()
                await Unhold(grant.loss)
                await remove(grant.place.path, grant.place.session_id)
            except BaseException:  # nobody else knows of it any more
                await Background(self._erase(grant))
                raise

    # ---- what the lock does

    def _hand_over(self) -> bool:
        """The next one inside the process holds the lock; False if he may not."""
        raise NotImplementedError

    def _pass_turn(self) -> None:
        """The next one inside the process stands in the line, if nobody of it does."""
        raise NotImplementedError

    async def _erase(self, grant: Grant) -> bool:
        """Its znode goes. False: it was gone before."""
        raise NotImplementedError
