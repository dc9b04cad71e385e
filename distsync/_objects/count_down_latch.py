"""CountDownLatch.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

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
    """Closed until it was counted down ``count`` times, by anybody.

    Units: ``count``: steps; the first one who uses the name sets it, the others must say the same.
    Cost: wait 2 requests, 1 round trip, and 2 more when it opens; count_down 2; count 1.
    Source: recipes.txt, Barriers; Java's ``CountDownLatch``, Redisson's ``RCountDownLatch``.

    Znodes: ``<namespace>/latch/<name>``, data: how many are left; ``.../closed``, until none are.

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
        self._count = validate_int("count", count, least=0)
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
        """How many steps are left.

        Cost: 1 request.
        """
        return int(self._read(self._core.tally()).remaining)

    def count_down(self, n: int = 1) -> int:
        """It is ``n`` steps further down, not below zero; at zero all who wait go on.

        Returns: how many steps are left.
        Raises: MismatchError where others made it with another count; OutcomeUnknownError when the session ended in
            this moment and nobody can know.
        Cost: 2 requests, 2 more each time that others were faster; at zero 1 event to each client that waits. If it was
            at zero before 3 requests, 2 round trips.
        """
        return int(self._run(self._core.count_down(validate_int("n", n, least=1))))

    def try_set_count(self, count: int) -> bool:
        """It is closed again, with ``count`` steps to go, if it was open.

        Returns: True; False if it was not at zero, and then nothing is changed.
        Raises: as count_down.
        Cost: 2 requests; 3, 2 round trips, if it was not at zero.
        Source: Redisson's ``trySetCount``.
        """
        return bool(self._run(self._core.try_set_count(validate_int("count", count, least=1))))

    def wait(self, timeout: float | None = None) -> bool:
        """It is at zero, or was since the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        Raises: MismatchError where others made it with another count.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        What others have done shows as soon as our server knows it: see Gate.wait.
        Cost: 2 requests, 1 round trip, 1 watch; 2 more when it opens, none for the steps before.
        Source: recipes.txt, Barriers.
        """
        seconds = validate_timeout(timeout)
        return bool(self._run(self._core.wait(), seconds))

    def __repr__(self) -> str:
        tally = repr_state(self, lambda: self._core.tally())
        count = getattr(tally, "remaining", tally)
        return f"<{type_name(self)} at {id(self):#x}: count={count}>"
