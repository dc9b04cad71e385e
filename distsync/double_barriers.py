"""DoubleBarrier.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync.checked import validate_int
from distsync.errors import MismatchError
from distsync.named import SharedObject, current_owner, exit_context, validate_condition_timeout
from distsync.protocols.double_barrier import DoubleBarrierCore
from distsync.session.whoami import describe

if TYPE_CHECKING:
    from distsync.session.client import Client


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

    __module__ = "distsync"
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
        seconds = validate_condition_timeout(timeout)
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
            seconds = validate_condition_timeout(timeout)
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
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: parties={self._parties}>"
