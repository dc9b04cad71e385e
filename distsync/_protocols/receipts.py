"""A transaction whose outcome is always known: it writes a receipt.

Source: recipes.txt, "Important Note About Error Handling"; the receipt is ours.

Rules for this file: pure; it knows no recipe.

Each transaction also writes a fresh GUID into a znode of ours that no other transaction uses at the same time; one that
makes ephemerals checks that it is made in the session that we know of.
When the answer is lost, even with the session, the receipt says whether it was executed. The receipt is a container
that an ephemeral child keeps alive: the server reaps it some time after our session has ended.

Picture: ``<namespace>/receipts/r_<guid>``, container, data = GUID of the last transaction
         ``<namespace>/receipts/r_<guid>/alive``, ephemeral
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

from distsync._protocols.retries import INTERRUPTED, ensure, read, read_all
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
    Protocol,
    Proven,
    Request,
    SetData,
    Sync,
    Together,
)
from distsync.errors import DeadlineError, NoNodeError, NotEmptyError, OutcomeUnknownError, ZnodeError


class Receipt(NamedTuple):
    """A znode of ours that settles whether a transaction of ours was executed."""

    path: str
    session_id: int


class CommitOutcome(NamedTuple):
    """The transaction was executed, in the session ``session_id``: its ephemerals are of that one. ``results`` is None
    where its answer was lost; ``answers`` are those of the requests sent with it (exceptions in their place); ``zxid``
    is its own, 0 where it is not known."""

    results: tuple[Any, ...] | None
    answers: tuple[Any, ...]
    session_id: int
    zxid: int = 0


Operation = Create | Delete | SetData | Check

#: Whether a transaction is to be sent, still.
StillNeeded = Callable[[], bool]


def always() -> bool:
    """Nobody can give it up."""
    return True


class Abandoned(Exception):
    """It was not executed, and nobody wants it any more."""


class Receipts:
    """The receipts of one process; each is used by one transaction at a time."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.free: list[Receipt] = []
        #: Of commit_ahead, with their versions.
        self.chains: list[tuple[Receipt, int]] = []

    async def commit(
        self,
        *operations: Operation,
        reads: tuple[Request[Any], ...] = (),
        on_unknown_outcome: Callable[[bool | None], Protocol[None]] | None = None,
        still_needed: StillNeeded = always,
    ) -> CommitOutcome:
        """All of ``operations`` are done, or none, in which case the error of the one that failed is raised; Abandoned
        if they are not ``still_needed`` any more when they are to be sent, or sent again.

        ``reads`` are sent right after the transaction. DeadlineError means that it was not executed. Whatever else
        interrupts the wait for the answer (a deadline becomes OutcomeUnknownError), ``on_unknown_outcome`` is then
        called, apart from this call, with what the receipt says at last: whether the transaction was executed (None:
        nobody can know).
        """
        receipt: Receipt | None = None
        asking = in_doubt = False
        try:
            nonce = (await Guid()).encode()
            receipt = await self._receipt()
            while True:
                if not still_needed():
                    self.free.append(receipt)
                    raise Abandoned
                multi = Multi((*operations, SetData(receipt.path, nonce), *_in_session(receipt, operations)))
                asking = in_doubt = True
                answer, *rest = await Together(multi, *reads)
                asking = False
                if isinstance(answer, tuple):
                    number = len(operations)
                    session_id = await _made_in(receipt, operations, answer[:number], answer[number].mzxid)
                    self.free.append(receipt)
                    return CommitOutcome(answer[:number], tuple(rest), session_id, answer[number].mzxid)
                if isinstance(answer, INTERRUPTED):
                    done, zxid = await executed(receipt, nonce) if getattr(answer, "sent", True) else (False, 0)
                    if done is None:
                        raise OutcomeUnknownError("a transaction", operations[0].path, "session")
                    if done:
                        session_id = await _made_in(receipt, operations, (), zxid)
                        self.free.append(receipt)
                        return CommitOutcome(None, tuple(rest), session_id)
                    in_doubt = False
                    if (await Connected()).session_id != receipt.session_id:
                        receipt = await self._receipt()
                elif isinstance(answer, NoNodeError) and getattr(answer, "index", -1) >= len(operations):
                    receipt = await self._receipt()
                elif isinstance(answer, DeadlineError):
                    raise answer
                else:
                    break
        except (ZnodeError, Abandoned):
            raise
        except BaseException as error:
            if receipt is None:
                if on_unknown_outcome is not None and not isinstance(error, Exception):
                    await Background(on_unknown_outcome(False))
                raise
            if isinstance(error, DeadlineError) and (not in_doubt or (asking and not error.sent)):
                self.free.append(receipt)
                raise
            await Background(self._settle(receipt, nonce, on_unknown_outcome))
            if isinstance(error, DeadlineError):
                raise OutcomeUnknownError("a transaction", operations[0].path, "deadline") from error
            raise
        self.free.append(receipt)
        raise answer

    async def commit_ahead(self, transactions: Sequence[Sequence[Operation]]) -> list[CommitOutcome]:
        """As many of these as there are outcomes are done, the first ones, and none of the others. They make no
        ephemerals, and are sent together, so that none waits for an answer to another; each expects the version of the
        receipt that the one before
        leaves. Raises what is no answer about a znode, and OutcomeUnknownError; then nobody is told which were done.
        Not for callers who are interrupted.
        """
        receipt, version = await self._chain()
        multis = [
            Multi((*operations, SetData(receipt.path, b"", version + place)))
            for place, operations in enumerate(transactions)
        ]
        answers = await Together(*multis)
        outcomes = [
            CommitOutcome(answer[:-1], (), receipt.session_id)
            for answer in takewhile(lambda answer: isinstance(answer, tuple), answers)
        ]
        failed = answers[len(outcomes)] if len(outcomes) < len(answers) else None
        if isinstance(failed, INTERRUPTED):
            _, node = await read_all(Sync(receipt.path), GetData(receipt.path))
            if isinstance(node, NoNodeError):
                raise OutcomeUnknownError("a transaction", multis[0].path, "session")
            lost = node.stat.version - version - len(outcomes)
            outcomes += [CommitOutcome(None, (), receipt.session_id)] * lost
        elif failed is not None and not isinstance(failed, ZnodeError):
            raise failed
        if not isinstance(failed, NoNodeError):  # it may be the receipt that is not there
            self.chains.append((receipt, version + len(outcomes)))
        return outcomes

    async def _chain(self) -> tuple[Receipt, int]:
        """A receipt of the present session whose version is known, and that."""
        session_id = (await Connected()).session_id
        self.chains = [chain for chain in self.chains if chain[0].session_id == session_id and chain[1] < 2**30]
        return self.chains.pop() if self.chains else (await self._made(), 0)

    async def _receipt(self) -> Receipt:
        """A receipt of the present session that no other transaction uses."""
        session = await Connected()
        self.free = [receipt for receipt in self.free if receipt.session_id == session.session_id]
        return self.free.pop() if self.free else await self._made()

    async def _made(self) -> Receipt:
        while True:
            await Connected()
            path = f"{self.directory}/r_{await Guid()}"
            made, alive = await Together(Create(path, container=True), Create(f"{path}/alive", ephemeral=True))
            if isinstance(alive, Created) and alive.stat is not None:
                await AtClose(partial(discard, path))
                return Receipt(path, alive.stat.ephemeral_owner)
            if isinstance(made, NoNodeError):
                await ensure(self.directory)
            elif isinstance(made, INTERRUPTED) or isinstance(alive, INTERRUPTED):
                await Background(discard(path))
            else:
                raise made if isinstance(made, BaseException) else alive

    async def _settle(
        self, receipt: Receipt, nonce: bytes, on_unknown_outcome: Callable[[bool | None], Protocol[None]] | None
    ) -> None:
        """The receipt may be used again once nothing can be executed on it any more."""
        done, _ = await executed(receipt, nonce)
        self.free.append(receipt)
        if on_unknown_outcome is not None:
            await on_unknown_outcome(done)


def _in_session(receipt: Receipt, operations: Sequence[Operation]) -> tuple[Check, ...]:
    """Ephemerals are made in the session of the receipt, or not at all: another one may have begun, unnoticed, before
    the transaction is sent."""
    ephemeral = any(isinstance(operation, Create) and operation.ephemeral for operation in operations)
    return (Check(f"{receipt.path}/alive", 0),) if ephemeral else ()


async def _made_in(receipt: Receipt, operations: Sequence[Operation], results: Sequence[Any], zxid: int) -> int:
    """The session that the ephemerals are of. The servers may let an earlier one of ours, and its receipt, live on that
    we were told has ended. What was made after ``zxid`` is not ours; who looks for a name unknown to us finds out."""
    made = [
        result.path if result else operation.path
        for operation, result in zip_longest(operations, results)
        if isinstance(operation, Create) and operation.ephemeral and (result or not operation.sequence)
    ]
    if not made or await Proven(receipt.session_id):
        return receipt.session_id
    stat = await read(Exists(made[0]))
    return stat.ephemeral_owner if stat is not None and stat.czxid == zxid else receipt.session_id


async def executed(receipt: Receipt, nonce: bytes) -> tuple[bool | None, int]:
    """Whether the transaction was executed, and its zxid; None when the receipt is gone, and nobody can know.

    Our requests are executed in the order in which we sent them, and none of an earlier connection after the
    first of the next one: what the receipt says after a sync will not change any more.
    """
    _, answer = await read_all(Sync(receipt.path), GetData(receipt.path))
    return (None, 0) if isinstance(answer, NoNodeError) else (bool(answer.data == nonce), answer.stat.mzxid)


def raise_deadline(unknown: OutcomeUnknownError) -> None:
    """Raises the DeadlineError that this is of; where it is of the end of a session, the caller looks again."""
    if isinstance(unknown.__cause__, DeadlineError):
        raise unknown.__cause__ from None


async def discard(path: str) -> None:
    """The receipt is gone."""
    for gone in (f"{path}/alive", path):
        try:
            await read(Delete(gone))
        except (NoNodeError, NotEmptyError):
            continue
