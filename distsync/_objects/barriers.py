"""Barrier and DoubleBarrier.

Rules for this file: no znode; each method checks its arguments, Barrier's as the stdlib does, and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe
from distsync._objects.base import SharedObject, current_owner, exit_context, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int, validate_timeout
from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.barriers.double import DoubleBarrierCore
from distsync.errors import MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client


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

    __module__ = "distsync.threading"
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
        seconds = validate_timeout(self._timeout if timeout is None else timeout)
        return int(self._run(self._core.wait(describe(), self._action), seconds))

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
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {waiting}>"


class DoubleBarrier(SharedObject):
    """A place where ``parties`` threads, of any processes, begin together and end together; again and again.

    A thread that has entered has to leave; who comes too many waits for the next time.

    On loss: of the session while waiting: it stands there anew. While inside: leave raises LockLostError, and the
        others do not wait for it.
    On cancel: nothing is left behind.
    Cost: enter 4 requests, 1 round trip, 2 more when all are there; the last one to arrive sends 1 instead. leave 6.
    Fair: who comes too many: in the order of their arrival.
    Source: recipes.txt, Double Barriers.

    Znodes: ``<namespace>/double_barrier/<name>``, data: parties and who is inside; ``.../_c_<guid>-lock-<sequence>``,
        ephemeral, a member; ``.../ready``, while somebody is inside.

    >>> with DoubleBarrier(1, name="step"):
    ...     print("all are here")
    all are here
    """

    __module__ = "distsync.recipes"
    _kind = "double_barrier"

    def __init__(
        self,
        parties: int,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._parties = validate_int("parties", parties, least=1)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._parties,)

    @property
    def parties(self) -> int:
        """How many it takes."""
        return self._parties

    @property
    def _core(self) -> DoubleBarrierCore:
        core = self._shared_state(partial(DoubleBarrierCore, parties=self._parties))
        if core.parties != self._parties:
            raise MismatchError("the number of parties", self.path, core.parties, self._parties)
        return core

    @property
    def n_waiting(self) -> int:
        """How many wait to enter, those of the next time too. Cost: 2 requests, 1 round trip."""
        return int(self._read(self._core.state())[0])

    @property
    def n_inside(self) -> int:
        """How many have entered and not left. Cost: 2 requests, 1 round trip."""
        return int(self._read(self._core.state())[1])

    def enter(self, timeout: float | None = None) -> bool:
        """All parties have come, and this thread is inside.

        Units: seconds; None: without end.
        Returns: True; False if not in time, and then it does not count any more.
        Raises: MismatchError where others ask for another number of parties; UsageError if this thread is inside.
            LockLostError if its znode went with its session, or was deleted, just when the others entered with it.
        On loss: of the session: it stands there anew.
        On cancel: its znode goes; others who entered with it do not wait for it when they leave.
        Cost: 4 requests, 1 round trip, 1 watch; 2 more when all are there; the last one to arrive sends 1 instead. The
            first time of a process 1 more.
        Fair: in the order of arrival, where more come than it takes.
        Source: recipes.txt, Double Barriers, Enter, steps 1 to 5.
        """
        core, owner = self._core, current_owner()
        seconds = validate_timeout(timeout)
        core.check_outside(owner)
        try:
            return bool(self._run(core.enter(describe(), owner), seconds))
        except BaseException:
            self._give_up()  # it had come in, and was interrupted on its way here
            raise

    def leave(self, timeout: float | None = None) -> bool:
        """All who entered with this thread have come to their end, or died; it is outside.

        Units: seconds; None: without end.
        Returns: True; False if not all in time. It is outside in any case, and nobody waits for it.
        Raises: LockLostError when its session had ended or its znode was deleted while it was inside: the others did
            not wait for it; NotHeldError if this thread is not inside.
        On loss: of the session while waiting: it goes on waiting for the others.
        On cancel: its znode goes, in the background.
        Cost: 6 requests, 4 of them before the wait; the lowest one 3, and 3 more for each time that the highest one
            leaves after it.
        Source: recipes.txt, Double Barriers, Leave, steps 1 to 6.
        """
        try:
            seconds = validate_timeout(timeout)
            return bool(self._run(self._core.leave(current_owner()), seconds))
        except Exception:
            raise
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Interrupted: this thread is not inside, and its znode goes soon."""
        going = self._core.give_up(current_owner())
        if going is not None:
            self.client.background(going)

    def __enter__(self) -> DoubleBarrier:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It leaves; when the body has failed, it does not wait for the others."""
        try:
            exit_context(partial(self._end_block, None if kind is None else 0.0), error)
        except Exception:
            raise
        except BaseException:
            self._give_up()
            raise

    def _end_block(self, timeout: float | None) -> None:
        self.leave(timeout)

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: parties={self._parties}>"
