"""Receipts with scripted answers: each is used by one transaction at a time, and none is lost."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from helpers.interrupt_every_line import Strike

from distsync._protocols.receipts import TRIM_PERIOD, Receipts
from distsync._protocols.steps import (
    AtClose,
    Background,
    Connected,
    Create,
    Created,
    Delete,
    Exists,
    GetData,
    Guid,
    Multi,
    Node,
    Pipeline,
    SessionAlive,
    SessionInfo,
    SetData,
    Stat,
)
from distsync.errors import AccessDeniedError, DeadlineError, DisconnectedError, PayloadTooLargeError

SESSION = 7
STAT = Stat(1, 1, 0, 0, 0, 0, 0, SESSION, 0, 0, 1)


class Script:
    """Answers each transaction with the next of ``answers``; a transaction without one is not
    executed.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked_of: list[str] = []
        self.guids = count()
        self.owner = SESSION
        """Of what is made: another session may have begun, and the earlier one live on beside it."""
        self.made_at = STAT.czxid

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        answer = None
        while True:
            try:
                answer = self._answer(work.send(answer))
            except StopIteration as stop:
                return stop.value

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Connected):
            return SessionInfo(SESSION, 10_000)
        if isinstance(step, Guid):
            return str(next(self.guids))
        if isinstance(step, Background):
            self.run(step.coroutine())
        if isinstance(step, Pipeline):
            return tuple(map(self._reply, step.requests))
        if isinstance(step, SessionAlive):
            return step.session_id == self.owner
        return STAT._replace(ephemeral_owner=self.owner, czxid=self.made_at) if isinstance(step, Exists) else None

    def _reply(self, request: Any) -> Any:
        if isinstance(request, Multi):
            self.asked_of.append(request.operations[-1].path)
            return self.answers.pop(0)
        return Node(b"", STAT) if isinstance(request, GetData) else Created(request.path, STAT)


@pytest.mark.parametrize("refusal", [AccessDeniedError("/a", "DELETE"), PayloadTooLargeError("it", 2, 1)])
def test_refused_transaction_frees_its_receipt_once(refusal: Exception) -> None:
    script, receipts = Script(refusal), Receipts("/receipts")
    with pytest.raises(type(refusal)):
        script.run(receipts.commit(Delete("/a")))
    assert len(receipts.free) == 1


@pytest.mark.parametrize("owner", [SESSION, SESSION + 1])
def test_ephemeral_belongs_to_the_session_that_created_it(owner: int) -> None:
    script, receipts = Script((Created("/a-1", None), STAT, None)), Receipts("/receipts")
    script.owner = owner
    assert script.run(receipts.commit(Create("/a-", ephemeral=True, sequence=True))).session_id == owner
    assert len(receipts.free) == 1


class Done(Script):
    """The receipt shows that the transaction was executed."""

    def _reply(self, request: Any) -> Any:
        written = [each.data for each in getattr(request, "operations", ()) if isinstance(each, SetData)]
        self.nonce = next(iter(written), getattr(self, "nonce", b""))
        return Node(self.nonce, STAT) if isinstance(request, GetData) else super()._reply(request)


@pytest.mark.parametrize("owner", [SESSION, SESSION + 1])
def test_ephemeral_whose_reply_was_lost_belongs_to_the_session_that_created_it(owner: int) -> None:
    script, receipts = Done(DisconnectedError("/a")), Receipts("/receipts")
    script.owner = owner
    outcome = script.run(receipts.commit(Create("/a", ephemeral=True)))
    assert (outcome.results, outcome.session_id) == (None, owner)


def test_ephemeral_created_again_since_is_not_ours() -> None:
    """Ours has ended with its session, and another thread of this process has created it again."""
    script, receipts = Done(DisconnectedError("/a")), Receipts("/receipts")
    script.owner, script.made_at = SESSION + 1, STAT.mzxid + 1
    assert script.run(receipts.commit(Create("/a", ephemeral=True))).session_id == SESSION


def test_lost_transaction_is_sent_again_with_the_same_receipt() -> None:
    script, receipts = Script(DisconnectedError("/a"), (None, STAT)), Receipts("/receipts")
    assert script.run(receipts.commit(Delete("/a"))).results == (None,)
    assert len(set(script.asked_of)) == len(receipts.free) == 1


@pytest.mark.parametrize(
    "answers", [((None, STAT),), (AccessDeniedError("/a", "DELETE"),), (DisconnectedError("/a"), (None, STAT))]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, DeadlineError])
def test_interrupted_transaction_puts_its_receipt_back_once_and_tells_its_outcome(
    answers: tuple[Any, ...], error: type[BaseException]
) -> None:
    """Otherwise two transactions share it, and each takes the other's outcome for its own."""
    which, where = 0, ""
    while where is not None:
        which += 1
        script, receipts = Script(*answers), Receipts("/receipts")

        told: list[bool | None] = []

        async def tell(done: bool | None) -> None:
            told.append(done)  # noqa: B023

        def commit() -> None:
            with suppress(AccessDeniedError):
                script.run(receipts.commit(Delete("/a"), on_unknown_outcome=tell))  # noqa: B023

        where = Strike(which, error).during(commit)
        assert len(receipts.free) == len(set(receipts.free)), where
        assert len(told) == (where is not None), where
    assert which > 10


class Closing(Script):
    """Records the close hooks, and executes each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[object] = []

    def _answer(self, step: Any) -> Any:
        if isinstance(step, AtClose):
            self.hooks.append(step.key)
        return super()._answer(step)

    def _reply(self, request: Any) -> Any:
        return (None, STAT) if isinstance(request, Multi) else super()._reply(request)


async def create_receipts(receipts: Receipts, count: int) -> None:
    for _ in range(count):
        await receipts._create_receipt()


def test_receipts_of_a_burst_are_deleted_when_they_are_not_used_any_more() -> None:
    script, receipts = Closing(), Receipts("/receipts")
    script.run(create_receipts(receipts, 100))
    for _ in range(8 * TRIM_PERIOD):
        script.run(receipts.commit(Delete("/a")))
    assert len(receipts.free) == len(receipts._existing) == 1


def test_receipts_that_are_used_together_are_kept() -> None:
    script, receipts = Closing(), Receipts("/receipts")
    script.run(create_receipts(receipts, 4))
    for _ in range(2 * TRIM_PERIOD):
        taken = [script.run(receipts._receipt()) for _ in range(4)]
        receipts.free += taken
    assert len(receipts.free) == 4


def test_receipts_of_a_session_have_one_close_hook() -> None:
    script, receipts = Closing(), Receipts("/receipts")
    script.run(create_receipts(receipts, 3))
    assert script.hooks == [receipts]
    script.run(receipts._discard_all())
    assert (receipts.free, receipts._existing) == ([], set())
