"""GuardedTransaction: a transaction that the ensemble refuses once the lock is no longer held.

The names of the operations are those of kazoo's own transaction.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.naming.paths import check_path
from distsync._objects.base import ask_timeout_of, raise_if_late
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
from distsync.errors import DeadlineError, LockLostError, NoNodeError, OutcomeUnknownError

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

    Add operations, then call `commit`. As a context manager, it commits at the end of the block,
    unless the block raises. It is created by the ``transaction()`` of a lock or semaphore.

    Args:
        client: The client of the lock.
        receipts: Where the outcome of the transaction is recorded.
        grant: The grant by which the lock is held.
        is_valid: Returns whether the lock is still held as it was. It is needed because a znode may
            outlive a release, and because a writer that becomes a reader has another znode for the
            same ``grant``. By default, the grant alone decides.

    Note:
        Costs 1 request, at its commit.

        If the session ends before the reply and the outcome cannot be determined, `commit` raises
        OutcomeUnknownError.

        Source: a ZooKeeper multi with a check of the holder's own znode.

    Example:
        >>> from distsync import Lock  # doctest: +SKIP
        >>> lock = Lock(name="ledger")  # doctest: +SKIP
        >>> with lock, lock.transaction() as change:  # doctest: +SKIP
        ...     change.set_data("/ledger", b"paid")
    """

    def __init__(
        self, client: Client, receipts: Receipts, grant: Grant, is_valid: Callable[[], bool] = lambda: True
    ) -> None:
        self._client = client
        self._stands = is_valid
        self._receipts = receipts
        self._grant, self._pid = grant, os.getpid()
        self._operations: list[Operation] = []
        self.committed = False

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Add the creation of a znode.

        Args:
            path: Path of the znode.
            value: Data of the znode, at most 1 MiB for all operations together.
            ephemeral: Whether the znode is deleted when the session ends.
            sequence: Whether the server appends a sequence number to the path.

        Raises:
            TypeError: ``path`` is not a str, or ``value`` is not bytes.
            ValueError: ``path`` is not a valid path.
        """
        self._operations.append(Create(check_path(path), _checked(value), ephemeral=ephemeral, sequence=sequence))

    def delete(self, path: str, version: int = -1) -> None:
        """Add the deletion of a znode.

        Args:
            path: Path of the znode.
            version: Version that the znode must have; -1 accepts any.

        Raises:
            TypeError: ``path`` is not a str, or ``version`` is not an int.
            ValueError: ``path`` is not a valid path.
        """
        self._operations.append(Delete(check_path(path), _version(version)))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """Add a write of a znode's data.

        Args:
            path: Path of the znode.
            value: New data of the znode, at most 1 MiB for all operations together.
            version: Version that the znode must have; -1 accepts any.

        Raises:
            TypeError: ``path`` is not a str, ``value`` is not bytes, or ``version`` is not an int.
            ValueError: ``path`` is not a valid path.
        """
        self._operations.append(SetData(check_path(path), _checked(value), _version(version)))

    def check(self, path: str, version: int) -> None:
        """Add a check that a znode has a version.

        Args:
            path: Path of the znode.
            version: Version that the znode must have; -1 accepts any.

        Raises:
            TypeError: ``path`` is not a str, or ``version`` is not an int.
            ValueError: ``path`` is not a valid path.
        """
        self._operations.append(Check(check_path(path), _version(version)))

    def commit(self, *, timeout: float | None = None) -> tuple[Any, ...] | None:
        """Execute all operations in one transaction.

        If this raises, nothing was done, unless it raises OutcomeUnknownError or DeadlineError. If the ensemble
        refuses an operation, this raises the error of that operation, for example NoNodeError,
        NodeExistsError or BadVersionError.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            One result for each operation; None if the transaction was executed, but its reply was
            lost.

        Raises:
            RuntimeError: The transaction was committed before.
            LockLostError: The lock is no longer held.
            PayloadTooLargeError: The operations are larger than 1 MiB in all.
            OutcomeUnknownError: The session ended before the reply, and the operations may or may
                not have been executed.
            DeadlineError: No server answered in time, and the operations may or may not be
                executed. Subclass of TimeoutError.

        Note:
            Costs 1 request.
        """
        if self.committed:
            raise RuntimeError("this transaction was committed before: make another one")
        seconds = ask_timeout_of(self._client, timeout)
        self.committed = True
        try:
            return self._client.run(self._commit(), seconds)
        except OutcomeUnknownError as unknown:
            raise_if_late(unknown)
            raise

    async def _commit(self) -> tuple[Any, ...] | None:
        if self._pid != os.getpid():
            raise LockLostError(self._grant.entry.directory, "forked")
        if not self._stands():
            raise LockLostError(self._grant.entry.directory, "released")
        while True:
            entry = self._grant.entry
            try:
                outcome = await self._receipts.commit(Check(entry.path), *self._operations)
                break
            except NoNodeError as error:
                if getattr(error, "index", None) != 0:
                    raise
                downgrading = self._grant.downgrading  # read first: once it is None, the new place is known
                if self._grant.entry is not entry:
                    continue
                # A forked child has another session, and nothing there completes a downgrade in progress.
                if downgrading is None or (await Connected()).session_id != entry.session_id:
                    await ReportLoss(entry.path)
                    raise LockLostError(entry.directory, ZNODE_DELETED) from error
                if await Wait(downgrading) is WakeReason.DEADLINE:
                    raise DeadlineError(f"downgrading {entry.directory}") from None
        return None if outcome.results is None else outcome.results[1:]

    def __enter__(self) -> GuardedTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.committed:
            self.commit()
