"""A guarded write: a transaction that the ensemble refuses when the lock is not held any more.

Rules for this file: no kazoo; the names of the operations are those of kazoo's own transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.naming.paths import check_path
from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Check,
    Connected,
    Create,
    Delete,
    ReportLoss,
    SetData,
    Wait,
    WakeReason,
)
from distsync.errors import DeadlineError, LockLostError, NoNodeError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._protocols.locks.grant import Grant


def _checked(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a znode's data must be bytes, not {type(value).__name__}")
    return value


def _version(version: object) -> int:
    if not isinstance(version, int):
        raise TypeError(f"a version must be an int, not {type(version).__name__}")
    return version


class GuardedTransaction:
    """Operations on znodes that are executed together, and only while the lock is held.

    Units: versions are integers, -1 means any.
    Raises: TypeError, ValueError for a path, data or version that cannot be used. At ``commit``, and nothing was done:
        LockLostError if the lock was lost; PayloadTooLargeError for more than 1 MiB in all; the error of the operation
        that the ensemble refused (NoNodeError, NodeExistsError, BadVersionError, ...).
    On loss: OutcomeUnknownError if the session ends before the answer comes and nobody can say.
    Cost: 1 request.
    Source: ZooKeeper's multi with a check of the holder's own znode.
    """

    def __init__(
        self, client: Client, receipts: Receipts, grant: Grant, is_valid: Callable[[], bool] = lambda: True
    ) -> None:
        """``is_valid()``: whether it is held as it was, for a znode may outlive its release. Who wrote, reads too and
        goes on reading has another znode then, for the same ``grant``."""
        self._client = client
        self._stands = is_valid
        self._receipts = receipts
        self._grant = grant
        self._operations: list[Operation] = []
        self.committed = False

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create a znode."""
        self._operations.append(Create(check_path(path), _checked(value), ephemeral=ephemeral, sequence=sequence))

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode."""
        self._operations.append(Delete(check_path(path), _version(version)))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """Write a znode's data."""
        self._operations.append(SetData(check_path(path), _checked(value), _version(version)))

    def check(self, path: str, version: int) -> None:
        """Demand that a znode has this version."""
        self._operations.append(Check(check_path(path), _version(version)))

    def commit(self) -> tuple[Any, ...] | None:
        """All operations are done. Returns one result for each; None when the answer was lost on its way."""
        if self.committed:
            raise RuntimeError("this transaction was committed before: make another one")
        self.committed = True
        return self._client.run(self._commit())

    async def _commit(self) -> tuple[Any, ...] | None:
        if not self._stands():
            raise LockLostError(self._grant.place.directory, "released")
        while True:
            place = self._grant.place
            try:
                outcome = await self._receipts.commit(Check(place.path), *self._operations)
                break
            except NoNodeError as error:
                if getattr(error, "index", None) != 0:
                    raise
                turning = self._grant.turning  # read first: once it is None the new place is known
                if self._grant.place is not place:
                    continue
                # In a forked child, whose session is another one, nothing ends what was under way.
                if turning is None or (await Connected()).session_id != place.session_id:
                    await ReportLoss(place.path)
                    raise LockLostError(place.directory, ZNODE_DELETED) from error
                if await Wait(turning) is WakeReason.DEADLINE:
                    raise DeadlineError(f"the downgrade in {place.directory}") from None
        return None if outcome.results is None else outcome.results[1:]

    def __enter__(self) -> GuardedTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.committed:
            self.commit()
