"""CountDownLatch: wait until a number of steps were counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import ParametrizedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int, validate_on_mismatch, validate_timeout
from distsync._protocols.state.count_down_latch import LatchCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class CountDownLatch(ParametrizedObject):
    """A latch that opens when it has been counted down ``count`` times, by any processes.

    Args:
        count: Number of steps until the latch opens. All processes that use the name at the same
            time must use the same one.
        name: Name of the latch, shared by all processes that use it. Without a name, a latch
            assigned at module or class level is named after its variable; any other latch gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the latch's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another count: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses theirs. If none does, ours is taken over in each case.

    Raises:
        TypeError: Both a name and a path are given, or ``count`` is not an integer.
        ValueError: ``count`` is negative.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        `wait` costs 2 requests in 1 round trip, and 2 more when the latch opens. `count_down` costs
        2 and `count` costs 1.

        The first call of a process, or of a session, costs 2 more in 1 round trip if the latch has a
        name. A changed count is taken over then if no running process uses the old one, and the
        latch begins again with it.

        Znodes: ``<namespace>/latch/<name>``, whose data is the number of steps left;
        ``.../closed``, which exists until none are left;
        ``<namespace>/users/latch/<name>/u_<process>_<guid>``, ephemeral, one for each process that
        uses a latch with a name.

        Source: ZooKeeper recipes, "Barriers"; Java's ``CountDownLatch``; Redisson's
        ``RCountDownLatch``.

    Example:
        >>> done = CountDownLatch(2, name="parts")
        >>> done.count_down()
        1
        >>> done.count_down()
        0
        >>> done.wait()
        True
    """

    __module__ = "distsync.recipes"
    _kind = "latch"

    def __init__(
        self,
        count: int,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_mismatch: str = "error",
    ) -> None:
        self._count = validate_int("count", count, least=0, or_name=True)
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self._parameters = {"count": self._count}
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._count,)

    @property
    def _core(self) -> LatchCore:
        core: LatchCore = self._agreed_state(partial(LatchCore, **self._parameters, receipts=self._receipts))
        return core

    @property
    def count(self) -> int:
        """The number of steps left.

        Raises:
            MismatchError: Other processes use the latch with another count.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 1 request.
        """
        core = self._core
        return int(self._ask(self._using(core, core.tally)).remaining)

    def count_down(self, n: int = 1, *, timeout: float | None = None) -> int:
        """Count down, and open the latch if no steps are left.

        Args:
            n: Number of steps, at least 1. The count does not fall below zero.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The number of steps left.

        Raises:
            TypeError: ``n`` is not an integer.
            ValueError: ``n`` is less than 1.
            MismatchError: Other processes use the latch with another count.
            OutcomeUnknownError: The session ended before the reply, and the steps may or may not
                have been counted.
            DeadlineError: No server answered in time, and the steps may or may not be counted.
                Subclass of TimeoutError.

        Note:
            Costs 2 requests, and 2 more for each time that another process was faster. If the latch
            was open before, it costs 3 requests in 2 round trips. The step that opens the latch
            sends 1 event to each client that waits.
        """
        core, steps = self._core, validate_int("n", n, least=1)
        return int(self._ask(self._using(core, lambda: core.count_down(steps)), timeout))

    def try_set_count(self, count: int, *, timeout: float | None = None) -> bool:
        """Close the latch again with a new number of steps, if it is open.

        Args:
            count: Number of steps until the latch opens, at least 1.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the latch was closed. False if it was not open, and nothing was changed.

        Raises:
            TypeError: ``count`` is not an integer.
            ValueError: ``count`` is less than 1.
            MismatchError: Other processes use the latch with another count.
            OutcomeUnknownError: The session ended before the reply, and the count may or may not
                have been set.
            DeadlineError: No server answered in time, and the count may or may not be set. Subclass
                of TimeoutError.

        Note:
            Costs 2 requests, and 3 requests in 2 round trips if the latch is not open.

            Source: Redisson's ``trySetCount``.
        """
        core, steps = self._core, validate_int("count", count, least=1)
        return bool(self._ask(self._using(core, lambda: core.try_set_count(steps)), timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open, or has been open since the call began.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if the latch has been open; False on timeout.

        Raises:
            MismatchError: Other processes use the latch with another count.

        Note:
            Costs 2 requests in 1 round trip and 1 watch, and 2 more when the latch opens. Steps
            before the last one cost none.

            A step of another process is seen as soon as the server of this client knows it, as by
            Gate.wait.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ZooKeeper recipes, "Barriers".
        """
        seconds = validate_timeout(timeout)
        core = self._core
        return bool(self._run(self._using(core, core.wait), seconds)) or self._late()

    def __repr__(self) -> str:
        tally = repr_state(self, lambda: self._core.tally())
        count = getattr(tally, "remaining", tally)
        return f"<{type_name(self)} at {id(self):#x}: count={count}>"
