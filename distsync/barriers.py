"""Barrier.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync.errors import MismatchError
from distsync.held import repr_state
from distsync.named import SharedObject, validate_condition_timeout
from distsync.protocols.barrier import BarrierCore
from distsync.session.whoami import describe

if TYPE_CHECKING:
    from distsync.session.client import Client


class Barrier(SharedObject):
    """A place where ``parties`` threads, of any processes, wait for each other; again and again.

    On loss: of the session while waiting: the barrier breaks, for it and for the others. Who times out while no server
        can be reached breaks it when one can be; until then he may be counted, as long as his session lives.
    On cancel: the barrier breaks.
    Cost: before the wait 3 requests, 1 round trip, 1 watch; the last one to arrive sends 1 more.
    Source: recipes.txt, Double Barriers; ``threading.Barrier``.

    Znodes: ``<namespace>/barrier/<name>``, data: the turn, ``.../_c_<guid>-lock-<sequence>``, ephemeral, who waits;
        for a moment ``.../_r_<guid>-reset-<sequence>``, ephemeral, the mark of a reset.

    >>> start = Barrier(1, name="start")
    >>> start.wait()
    0
    """

    __module__ = "distsync"
    _kind = "barrier"

    def __init__(
        self,
        parties: int,
        action: Callable[[], Any] | None = None,
        timeout: float | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        if parties < 1:
            raise ValueError("parties must be >= 1")
        self._parties = parties
        self._action = action
        self._timeout = timeout
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._parties, self._action, self._timeout)

    @property
    def _core(self) -> BarrierCore:
        core = self._shared_state(partial(BarrierCore, parties=self._parties, receipts=self._receipts))
        if core.parties != self._parties:
            raise MismatchError("the number of parties", self.path, core.parties, self._parties)
        return core

    def wait(self, timeout: float | None = None) -> int:
        """All parties have arrived.

        Units: seconds; None: the barrier's own time-out, and if it has none, without end.
        Returns: 0 to parties - 1, another number for each.
        Raises: BrokenBarrierError if the barrier is or becomes broken, or is reset; a time-out breaks it for all.
        On loss: BrokenBarrierError, for all.
        On cancel: the barrier is broken, no znode is left.
        Cost: to stand there 3 requests, 1 round trip, 1 watch; to look again 2 at the end and at half of each
            session time-out; the last one to arrive sends 1 instead. The first time of a
            process 1 more.
        Source: recipes.txt, Double Barriers, Enter.
        """
        seconds = self._timeout if timeout is None else timeout
        return int(self._run(self._core.wait(describe(), self._action), validate_condition_timeout(seconds)))

    def reset(self) -> None:
        """The barrier is empty and whole; who waits gets BrokenBarrierError.

        Cost: 3 requests, 2 round trips; 3 more in the background. 5, 2 round trips, if nobody has come to it yet.
        """
        self._run(self._core.reset())

    def abort(self) -> None:
        """The barrier is broken; who waits, and who comes, gets BrokenBarrierError.

        Cost: 2 requests; 3, 2 round trips, if it was broken.
        """
        self._run(self._core.abort())

    @property
    def parties(self) -> int:
        """How many it takes."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """How many wait now. Cost: 2 requests, 1 round trip."""
        return int(self._read(self._core.state())[0])

    @property
    def broken(self) -> bool:
        """Whether it is broken. Cost: 2 requests, 1 round trip."""
        return bool(self._read(self._core.state())[1])

    def __repr__(self) -> str:
        state = repr_state(self, lambda: self._core.state())
        waiting = "broken" if state[1] is True else f"waiters={state[0]}/{self._parties}"
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {waiting}>"
