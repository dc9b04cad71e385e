"""Transactions whose outcome is always known, because each writes a receipt.

Source: ZooKeeper recipes, "Important Note About Error Handling". The receipt is not from the
recipe.

Each transaction also writes a fresh GUID into a receipt, a znode of this process that only one
transaction uses at a time. If the reply is lost, even with the session, the receipt tells whether
the transaction was executed. A transaction that creates ephemeral znodes also checks that it runs
in the session that created the receipt.

A receipt is a container with an ephemeral child: the server deletes it some time after the end of
the session. A receipt belongs to the process, not to the call that created it. A process keeps as
many as it has had transactions in flight at once lately; later transactions delete the surplus.

The version of a znode does not identify its data once the servers have been wiped or restored, which
ends the connection, or once the znode was deleted by ``destroy()`` and created again. So a write that
requires a remembered version also requires its `Basis`.

Znodes:
``<namespace>/receipts``                 version: the number of ``destroy()`` of objects whose versions
                                         are remembered
``<namespace>/receipts/r_<guid>``        container, data = GUID of the last transaction
``<namespace>/receipts/r_<guid>/alive``  ephemeral
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

from distsync._protocols.retries import BATCH, INTERRUPTED, ensure, read, read_all
from distsync._protocols.steps import (
    AtClose,
    Background,
    Check,
    Connected,
    Create,
    Created,
    Delete,
    Exists,
    GetData,
    Guid,
    Multi,
    Pipeline,
    Protocol,
    Request,
    SessionAlive,
    SessionInfo,
    SetData,
    Signal,
    Sync,
    Wait,
    WakeReason,
)
from distsync._signal_handlers import is_interrupt
from distsync.errors import BadVersionError, DeadlineError, NoNodeError, NotEmptyError, OutcomeUnknownError, ZnodeError


class Receipt(NamedTuple):
    """Receipt znode, and the session that created it."""

    path: str
    session_id: int


class Basis(NamedTuple):
    """What a remembered version depends on.

    Attributes:
        session: The connection over which it was read.
        destroyed: The version of the receipts' parent before it was read.
    """

    session: SessionInfo
    destroyed: int


class CommitOutcome(NamedTuple):
    """Outcome of a transaction that was executed.

    Attributes:
        results: Results of its operations, or None if the reply was lost.
        replies: Replies to the requests sent with it; a failed one has its exception in its place.
        session_id: The session that owns the ephemeral znodes that it created.
        zxid: Its zxid, or 0 if unknown.
    """

    results: tuple[Any, ...] | None
    replies: tuple[Any, ...]
    session_id: int
    zxid: int = 0


Operation = Create | Delete | SetData | Check

#: Number of transactions after which half of the receipts that none of them has used are deleted.
TRIM_PERIOD = 1000

#: Whether a transaction should still be sent.
StillNeeded = Callable[[], bool]


def always() -> bool:
    """Never abandon the transaction."""
    return True


class Abandoned(Exception):
    """The transaction was not executed, and is no longer needed."""


class Unsettled:
    """Transactions of calls that ended before the reply, whose effects are being undone."""

    def __init__(self) -> None:
        self._signals: list[Signal] = []

    def add(self, settled: Signal) -> None:
        """Record a transaction until ``settled`` fires."""
        self._signals.append(settled)

    async def wait_until_settled(self) -> None:
        """Wait until all that was recorded is undone, so that this call does not see its effects.

        Raises DeadlineError.
        """
        while self._signals:
            settled = self._signals[0]
            if not settled.fired and await Wait(settled, allow_grace=True) is WakeReason.DEADLINE:
                raise DeadlineError("the return of what an interrupted call had taken")
            if settled in self._signals:
                self._signals.remove(settled)


class Receipts:
    """Receipts of one process, for reuse."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.free: list[Receipt] = []
        #: Receipts of commit_ahead, with the versions of their znodes.
        self.chains: list[tuple[Receipt, int]] = []
        self._basis: Basis | None = None
        #: The latest session in which receipts were created, and the paths of these, unused or not.
        self._session_id = 0
        self._existing: set[str] = set()
        #: The smallest number of unused receipts during the present period, and the transactions left of it.
        self._fewest_unused = 0
        self._until_trim = TRIM_PERIOD

    async def basis(self) -> Basis:
        """Return the basis of what is read from now on, as far as known: `commit` checks it."""
        while (basis := self._basis) is None or basis.session != await Connected():
            session = await Connected()
            stat = await read(Exists(self.directory))
            if stat is None:
                await ensure(self.directory)
            else:
                self._basis = Basis(session, stat.version)
        return basis

    def known_basis(self, session: SessionInfo) -> Basis | None:
        """Return the basis of what is read from now on over this connection; None if it is not known."""
        return self._basis if self._basis is not None and self._basis.session == session else None

    async def is_destroyed_since(self, basis: Basis) -> bool:
        """Return whether an object was destroyed after ``basis`` was read, over the same connection."""
        stat = await read(Exists(self.directory))
        self.forget_basis(basis)
        return stat is not None and stat.version != basis.destroyed and basis.session == await Connected()

    def checks(self, basis: Basis | None) -> tuple[Check, ...]:
        """Return what a transaction that depends on ``basis`` requires, as its last operations."""
        return () if basis is None else (Check(self.directory, basis.destroyed),)

    def forget_basis(self, basis: Basis) -> None:
        """Read the basis again before its next use, because a transaction found another one."""
        self._basis = None if self._basis == basis else self._basis

    def destruction(self) -> SetData:
        """Return what the transaction that deletes an object with remembered versions also does."""
        return SetData(self.directory)

    async def commit(
        self,
        *operations: Operation,
        reads: tuple[Request[Any], ...] = (),
        on_unknown_outcome: Callable[[bool | None], Protocol[None]] | None = None,
        still_needed: StillNeeded = always,
        basis: Basis | None = None,
        unsettled: Unsettled | None = None,
    ) -> CommitOutcome:
        """Execute all of ``operations``, or none.

        Args:
            *operations: Operations of the transaction.
            reads: Requests to send right after the transaction.
            on_unknown_outcome: Called in the background if the wait for the reply is interrupted, or
                ended by the deadline, as soon as the receipt was read. Its argument is whether the
                transaction was executed; None if that is unknown because the receipt was deleted.
            still_needed: Asked each time before the transaction is sent.
            basis: What the versions in ``operations`` depend on; None repeats the transaction over
                any connection.
            unsettled: Where to record that ``on_unknown_outcome`` is due, until it has ended. An
                interrupted call waits for that, as long as its clean-up may last.

        Returns:
            The results, and the replies to ``reads``.

        Raises:
            ZnodeError: An operation failed, so that none was executed.
            Abandoned: The transaction is no longer needed, or ``basis`` has changed, and it was not
                executed.
            DeadlineError: The transaction was not executed.
            OutcomeUnknownError: The deadline passed before the reply, or the receipt was deleted.
        """
        receipt: Receipt | None = None
        refusal: BaseException | None = None
        in_flight = in_doubt = False
        session = None if basis is None else basis.session
        try:
            nonce = (await Guid()).encode()
            receipt = await self._receipt(session)
            while True:
                if not still_needed():
                    self.free.append(receipt)
                    raise Abandoned
                checks = (*_in_session(receipt, operations), *self.checks(basis))
                multi = Multi((*operations, SetData(receipt.path, nonce), *checks))
                in_flight = in_doubt = True
                reply, *rest = await Pipeline(multi, *reads)
                in_flight = False
                if isinstance(reply, tuple):
                    count = len(operations)
                    session_id = await _session_of(receipt, operations, reply[:count], reply[count].mzxid)
                    self.free.append(receipt)
                    return CommitOutcome(reply[:count], tuple(rest), session_id, reply[count].mzxid)
                if isinstance(reply, INTERRUPTED):
                    done, zxid = await executed(receipt, nonce) if getattr(reply, "sent", True) else (False, 0)
                    if done is None:
                        self._existing.discard(receipt.path)
                        raise OutcomeUnknownError("a transaction", operations[0].path, "session")
                    if done:
                        session_id = await _session_of(receipt, operations, (), zxid)
                        self.free.append(receipt)
                        return CommitOutcome(None, tuple(rest), session_id)
                    in_doubt = False
                    present = await Connected()
                    if session not in (None, present):
                        self.free.append(receipt)
                        raise Abandoned
                    if present.session_id != receipt.session_id:
                        receipt = await self._receipt(session)
                elif basis and isinstance(reply, BadVersionError) and getattr(reply, "index", -1) >= len(operations):
                    self.forget_basis(basis)
                    self.free.append(receipt)
                    raise Abandoned
                elif isinstance(reply, NoNodeError) and getattr(reply, "index", -1) >= len(operations):
                    self._existing.discard(receipt.path)
                    receipt = await self._receipt(session)
                elif isinstance(reply, DeadlineError):
                    raise reply
                else:
                    refusal = reply
                    self.free.append(receipt)
                    raise refusal
        except (ZnodeError, Abandoned):
            raise
        except BaseException as error:
            if error is refusal:
                raise
            if receipt in self.free:  # an interrupt right after it was put back; its outcome is read first
                self.free.remove(receipt)
            if receipt is None:
                if on_unknown_outcome is not None and is_interrupt(error):
                    await Background(on_unknown_outcome(False))
                raise
            late = error if isinstance(error, DeadlineError) and not is_interrupt(error) else None
            if late is not None and (not in_doubt or (in_flight and not late.sent)):
                self.free.append(receipt)
                raise
            settled = Signal()
            await Background(self._settle(receipt, nonce, on_unknown_outcome, settled))
            if unsettled is not None:
                unsettled.add(settled)
                if late is None:
                    await Wait(settled)
            if late is not None:
                raise OutcomeUnknownError("a transaction", operations[0].path, "deadline") from error
            raise

    async def commit_ahead(self, transactions: Sequence[Sequence[Operation]]) -> list[CommitOutcome]:
        """Execute transactions up to the first one that fails, without waiting in between.

        They must not create ephemeral znodes. All are sent together. Each expects the version of
        the receipt that its predecessor leaves, so none is executed after a failed one. Must not be
        interrupted.

        Args:
            transactions: The operations of each transaction.

        Returns:
            One outcome for each transaction that was executed.

        Raises:
            OutcomeUnknownError: The receipt was deleted. Any number of transactions was executed.
            DistsyncError: Another error that is not a ZnodeError; the same is true.
        """
        receipt, version = await self._chain()
        multis = [
            Multi((*operations, SetData(receipt.path, b"", version + index)))
            for index, operations in enumerate(transactions)
        ]
        replies = await Pipeline(*multis)
        outcomes = [
            CommitOutcome(reply[:-1], (), receipt.session_id)
            for reply in takewhile(lambda reply: isinstance(reply, tuple), replies)
        ]
        failed = replies[len(outcomes)] if len(outcomes) < len(replies) else None
        if isinstance(failed, INTERRUPTED):
            _, node = await read_all(Sync(receipt.path), GetData(receipt.path))
            if isinstance(node, NoNodeError):
                self._existing.discard(receipt.path)
                raise OutcomeUnknownError("a transaction", multis[0].path, "session")
            executed_count = node.stat.version - version - len(outcomes)
            outcomes += [CommitOutcome(None, (), receipt.session_id)] * executed_count
        elif failed is not None and not isinstance(failed, ZnodeError):
            await Background(self._discard([receipt]))
            raise failed
        if isinstance(failed, NoNodeError):  # the receipt itself may be missing
            await Background(self._discard([receipt]))
        else:
            self.chains.append((receipt, version + len(outcomes)))
        return outcomes

    async def _chain(self) -> tuple[Receipt, int]:
        """Return an unused receipt of the current session, and its version."""
        session_id = (await Connected()).session_id
        self.chains = [chain for chain in self.chains if chain[0].session_id == session_id and chain[1] < 2**30]
        if self.chains:
            return self.chains.pop()
        await self._create_receipt()
        return self.free.pop(), 0

    async def _receipt(self, required: SessionInfo | None = None) -> Receipt:
        """Return an unused receipt of the current session. Raise Abandoned if the connection is not
        the required one.
        """
        session = await Connected()
        if required not in (None, session):
            raise Abandoned
        self.free = [receipt for receipt in self.free if receipt.session_id == session.session_id]
        await self._trim()
        while not self.free:
            await self._create_receipt()
            if required is not None and required != await Connected():
                raise Abandoned
        return self.free.pop()

    async def _trim(self) -> None:
        """Delete some receipts that were not used for a whole period, as after a burst of transactions."""
        self._fewest_unused = min(self._fewest_unused, len(self.free))
        self._until_trim -= 1
        if self._until_trim <= 0:
            surplus = self._fewest_unused // 2
            unused, self.free = self.free[:surplus], self.free[surplus:]
            self._fewest_unused, self._until_trim = len(self.free), TRIM_PERIOD
            if unused:
                await Background(self._discard(unused))

    async def _create_receipt(self) -> None:
        """Add a receipt of the current session to the unused ones."""
        while True:
            await Connected()
            path = f"{self.directory}/r_{await Guid()}"
            create_alive = Create(f"{path}/alive", ephemeral=True, own_cleanup=True)
            try:
                created, alive = await Pipeline(Create(path, container=True), create_alive)
                if isinstance(alive, Created) and alive.stat is not None:
                    await self._add_receipt(Receipt(path, alive.stat.ephemeral_owner))
                    return
            except BaseException:
                await Background(partial(discard, path))
                raise
            if isinstance(created, NoNodeError):
                await ensure(self.directory)
            elif isinstance(created, INTERRUPTED) or isinstance(alive, INTERRUPTED):
                await Background(discard(path))
            else:
                raise created if isinstance(created, BaseException) else alive

    async def _add_receipt(self, receipt: Receipt) -> None:
        if receipt.session_id != self._session_id:  # the others end with their sessions
            self._session_id, self._existing = receipt.session_id, set()
            await AtClose(self._discard_all, key=self)
        self._existing.add(receipt.path)
        self.free.append(receipt)

    async def _discard(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            self._existing.discard(receipt.path)
            await discard(receipt.path)

    async def _discard_all(self) -> None:
        """Delete all receipts, when the client closes."""
        self.free, self.chains = [], []
        while self._existing:
            paths = [self._existing.pop() for _ in range(min(BATCH, len(self._existing)))]
            await Pipeline(*(Delete(f"{path}{child}") for child in ("/alive", "") for path in paths))

    async def _settle(
        self,
        receipt: Receipt,
        nonce: bytes,
        on_unknown_outcome: Callable[[bool | None], Protocol[None]] | None,
        settled: Signal,
    ) -> None:
        """Find out the outcome.

        Then nothing is in flight any more, and the receipt can be reused.
        """
        try:
            done, _ = await executed(receipt, nonce)
            self.free.append(receipt)
            if on_unknown_outcome is not None:
                await on_unknown_outcome(done)
        finally:
            settled.fire()


def _in_session(receipt: Receipt, operations: Sequence[Operation]) -> tuple[Check, ...]:
    """Return a check that ephemeral znodes are created in the session of the receipt.

    A new session may have begun unnoticed before the transaction is sent.
    """
    ephemeral = any(isinstance(operation, Create) and operation.ephemeral for operation in operations)
    return (Check(f"{receipt.path}/alive", 0),) if ephemeral else ()


async def _session_of(receipt: Receipt, operations: Sequence[Operation], results: Sequence[Any], zxid: int) -> int:
    """Return the session that owns the ephemeral znodes created by a transaction.

    An earlier session that was reported as ended may live on, and its receipt with it (see
    delete_guaranteed). A znode with another czxid than ``zxid`` was not created by this
    transaction. If no name is known, because of a sequence number and a lost reply, the caller
    finds the session when it looks for the znode.
    """
    paths = [
        result.path if result else operation.path
        for operation, result in zip_longest(operations, results)
        if isinstance(operation, Create) and operation.ephemeral and (result or not operation.sequence)
    ]
    if not paths or await SessionAlive(receipt.session_id):
        return receipt.session_id
    stat = await read(Exists(paths[0]))
    return stat.ephemeral_owner if stat is not None and stat.czxid == zxid else receipt.session_id


async def executed(receipt: Receipt, nonce: bytes) -> tuple[bool | None, int]:
    """Return whether the transaction was executed, and its zxid. None: the receipt was deleted.

    The server executes requests in the order in which they were sent, and none of an earlier
    connection after the first one of the next. So after a sync the receipt does not change any
    more.
    """
    _, reply = await read_all(Sync(receipt.path), GetData(receipt.path))
    return (None, 0) if isinstance(reply, NoNodeError) else (bool(reply.data == nonce), reply.stat.mzxid)


def raise_deadline(unknown: OutcomeUnknownError) -> None:
    """Raise the DeadlineError that caused ``unknown``, if one did."""
    if isinstance(unknown.__cause__, DeadlineError):
        raise unknown.__cause__ from None


async def discard(path: str) -> None:
    """Delete a receipt."""
    for each in (f"{path}/alive", path):
        try:
            await read(Delete(each))
        except (NoNodeError, NotEmptyError):
            continue
