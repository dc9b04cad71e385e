"""CountDownLatch: wait until a number of steps were counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int, validate_timeout
from distsync._protocols.state.count_down_latch import LatchCore
from distsync.errors import MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client


class CountDownLatch(SharedObject):
    """A latch that opens when it has been counted down ``count`` times, by any processes.

    Args:
        count: Number of steps until the latch opens. The first process that uses the name sets it,
            and the others must use the same one.
        name: Name of the latch, shared by all processes that use it. Without a name, a latch
            assigned at module or class level is named after its variable; any other latch gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the latch's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given, or ``count`` is not an integer.
        ValueError: ``count`` is negative.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `wait` costs 2 requests in 1 round trip, and 2 more when the latch opens. `count_down` costs
        2 and `count` costs 1.

        Znodes: ``<namespace>/latch/<name>``, whose data is the number of steps left;
        ``.../closed``, which exists until none are left.

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
    ) -> None:
        self._count = validate_int("count", count, least=0, or_name=True)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._count,)

    @property
    def _core(self) -> LatchCore:
        core = self._shared_state(partial(LatchCore, count=self._count, receipts=self._receipts))
        if core.count != self._count:
            raise MismatchError("the count", self.path, core.count, self._count)
        return core

    @property
    def count(self) -> int:
        """The number of steps left.

        Raises:
            MismatchError: Other processes made the latch with another count.

        Note:
            Costs 1 request.
        """
        return int(self._read(self._core.tally()).remaining)

    def count_down(self, n: int = 1) -> int:
        """Count down, and open the latch if no steps are left.

        Args:
            n: Number of steps, at least 1. The count does not fall below zero.

        Returns:
            The number of steps left.

        Raises:
            TypeError: ``n`` is not an integer.
            ValueError: ``n`` is less than 1.
            MismatchError: Other processes made the latch with another count.
            OutcomeUnknownError: The session ended before the reply, and the steps may or may not
                have been counted.

        Note:
            Costs 2 requests, and 2 more for each time that another process was faster. If the latch
            was open before, it costs 3 requests in 2 round trips. The step that opens the latch
            sends 1 event to each client that waits.
        """
        return int(self._run(self._core.count_down(validate_int("n", n, least=1))))

    def try_set_count(self, count: int) -> bool:
        """Close the latch again with a new number of steps, if it is open.

        Args:
            count: Number of steps until the latch opens, at least 1.

        Returns:
            True if the latch was closed. False if it was not open, and nothing was changed.

        Raises:
            TypeError: ``count`` is not an integer.
            ValueError: ``count`` is less than 1.
            MismatchError: Other processes made the latch with another count.
            OutcomeUnknownError: The session ended before the reply, and the count may or may not
                have been set.

        Note:
            Costs 2 requests, and 3 requests in 2 round trips if the latch is not open.

            Source: Redisson's ``trySetCount``.
        """
        return bool(self._run(self._core.try_set_count(validate_int("count", count, least=1))))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open, or has been open since the call began.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if the latch has been open; False on timeout.

        Raises:
            MismatchError: Other processes made the latch with another count.

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
        return bool(self._run(self._core.wait(), seconds))

    def __repr__(self) -> str:
        tally = repr_state(self, lambda: self._core.tally())
        count = getattr(tally, "remaining", tally)
        return f"<{type_name(self)} at {id(self):#x}: count={count}>"
