"""The driver with scripted answers: no socket, no thread, and a number as the clock."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from distsync._client.deadlines import CLEAN_UP_S, GRACE_S, NONBLOCKING_GRACE_S
from distsync._client.driver import blocking_driver
from distsync._client.driver.blocking_driver import ProtocolRun, drive
from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.driver.driver_context import ProtocolCoroutine
from distsync._client.transport.reply_futures import Batch, Outcome, ReplyFuture
from distsync._client.wait_log import WaitProgress
from distsync._protocols.steps import (
    Background,
    Call,
    Connected,
    Create,
    Created,
    Delete,
    Exists,
    GetData,
    Guid,
    Hold,
    KeepResults,
    Loss,
    Multi,
    Pipeline,
    Request,
    SessionAlive,
    SessionInfo,
    Signal,
    StopHolding,
    Sync,
    Wait,
    WakeReason,
)
from distsync.errors import ClientClosedError, DeadlineError, DisconnectedError, NoNodeError

SESSION = SessionInfo(7, 10_000)
LATE = object()
"""A script's answer that does not come by itself."""


class Script:
    """A DriverContext with a scripted server: a value or exception per path; other requests get None."""

    def __init__(self, **answers: Any) -> None:
        self.mutex = contextlib.nullcontext()
        self.answers = {f"/{name}": answer for name, answer in answers.items()}
        self.clock = 0.0
        self.sent: list[tuple[Request[Any], ...]] = []
        self.late: list[Batch] = []
        self.withdrawn: list[Batch] = []
        self.info: SessionInfo | None = SESSION
        self.changes = Signal()
        self.held: dict[Loss, str] = {}
        self.unlocked = 0
        self.in_background: list[ProtocolCoroutine] = []
        self.leftovers: list[LeftoverNode] = []
        self.lost: list[Loss] = []
        self.told: list[str] = []

    def unlock(self) -> None:
        self.unlocked += 1

    def now(self) -> float:
        return self.clock

    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch:
        batch = Batch(requests, wake)
        self.sent.append(tuple(requests))
        for reply in batch.replies:
            answer = self.answers.get(reply.request.path)
            if answer is LATE:
                self.late.append(batch)
            elif isinstance(answer, BaseException):
                reply.settle(Outcome(error=answer))
            else:
                reply.settle(Outcome(answer))
        return batch

    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        """There are no replies to read."""

    def withdraw(self, batch: Batch) -> None:
        self.withdrawn.append(batch)

    def session(self) -> SessionInfo | None:
        return self.info

    def session_changes(self) -> Signal:
        return self.changes

    def is_proven(self, session_id: int, fresh: bool = False) -> bool:
        return session_id == SESSION.session_id

    def hold(self, step: Hold) -> None:
        self.held[step.loss] = step.path

    def watch_hold(self, loss: Loss, on_data: Callable[[bytes], object]) -> None:
        raise NotImplementedError

    def mark_lost(self, path: str) -> None:
        raise NotImplementedError

    def unhold(self, loss: Loss) -> None:
        self.held.pop(loss, None)

    def is_active(self, loss: Loss) -> bool:
        return loss in self.held

    def background(self, protocol: ProtocolCoroutine | Callable[[], ProtocolCoroutine]) -> None:
        protocol = protocol() if callable(protocol) else protocol
        self.in_background.append(protocol)
        protocol.close()

    def on_long_wait(self, progress: WaitProgress) -> None:
        self.told.append(progress.text(self.clock))

    def abandon_results(self, leftovers: list[LeftoverNode], losses: list[Loss]) -> None:
        self.leftovers += leftovers
        self.lost += losses

    def at_close(self, protocol: Callable[[], ProtocolCoroutine], key: object = None) -> None:
        self.in_background.append(protocol())
        self.in_background[-1].close()

    def guid(self) -> str:
        return "guid"


def task_of(work: ProtocolCoroutine, script: Script, deadline: float | None = None) -> tuple[ProtocolRun, list[int]]:
    woken: list[int] = []
    return ProtocolRun(work, script, deadline, lambda: woken.append(1)), woken


def run(work: ProtocolCoroutine, script: Script, deadline: float | None = None) -> Any:
    woken: SimpleQueue[None] = SimpleQueue()
    task = ProtocolRun(work, script, deadline, lambda: woken.put(None))
    try:
        return drive(task, woken)
    except BaseException as error:
        task.abandon_results(error)
        raise


def test_driver_answers_local_steps() -> None:
    async def work() -> list[Any]:
        return [await Guid(), await SessionAlive(7), await SessionAlive(8), await Connected(), await Pipeline()]

    assert run(work(), Script()) == ["guid", True, False, SESSION, ()]


def test_driver_answers_a_request_with_its_value() -> None:
    async def work() -> Any:
        return await GetData("/a")

    script = Script(a="data")
    assert run(work(), script) == "data"
    assert script.sent == [(GetData("/a"),)]


def test_driver_throws_the_error_of_a_request() -> None:
    async def work() -> str:
        try:
            await GetData("/a")
        except NoNodeError:
            return "caught"
        return "not thrown"

    assert run(work(), Script(a=NoNodeError("/a"))) == "caught"


def test_driver_sends_together_at_once_and_returns_errors_in_place() -> None:
    gone = NoNodeError("/b")

    async def work() -> Any:
        return await Pipeline(GetData("/a"), GetData("/b"), Sync("/c"))

    script = Script(a=1, b=gone)
    assert run(work(), script) == (1, gone, None)
    assert len(script.sent) == 1


def test_driver_waits_until_all_of_together_are_answered() -> None:
    async def work() -> Any:
        return await Pipeline(GetData("/a"), GetData("/b"))

    script = Script(a=1, b=LATE)
    task, woken = task_of(work(), script)
    assert not task.resume()
    assert not woken
    script.late[0].replies[1].settle(Outcome(2))
    assert woken
    assert task.resume()
    assert task.result() == (1, 2)


def test_wait_for_a_signal_that_has_fired_does_not_wait() -> None:
    signal = Signal()
    signal.fire()

    async def work() -> WakeReason:
        return await Wait(signal)

    assert run(work(), Script()) is WakeReason.SIGNAL


def test_wait_ends_with_the_first_signal_and_leaves_no_waker() -> None:
    one, other = Signal(), Signal()

    async def work() -> WakeReason:
        return await Wait(one, other)

    task, woken = task_of(work(), Script())
    assert not task.resume()
    assert task.is_idle
    other.fire()
    assert woken
    assert task.resume()
    assert task.result() is WakeReason.SIGNAL
    assert not one._wakers
    assert not other._wakers


@pytest.mark.parametrize(
    ("limit", "deadline", "until", "why"),
    [
        (2.0, None, 2.0, WakeReason.LIMIT),
        (None, 3.0, 3.0, WakeReason.DEADLINE),
        (2.0, 3.0, 2.0, WakeReason.LIMIT),
        (5.0, 3.0, 3.0, WakeReason.DEADLINE),
        (0.0, 0.0, 0.0, WakeReason.LIMIT),
    ],
)
def test_wait_ends_at_its_limit_or_at_the_deadline(
    limit: float | None, deadline: float | None, until: float, why: WakeReason
) -> None:
    async def work() -> WakeReason:
        return await Wait(Signal(), limit=limit)

    script = Script()
    task, _ = task_of(work(), script, deadline)
    if until:
        assert not task.resume()
    assert until in (task.wait_until, 0.0)
    script.clock = until
    assert task.resume()
    assert task.result() is why


def test_deadline_is_not_extended_by_a_wakeup() -> None:
    first = Signal()

    async def work() -> tuple[WakeReason, WakeReason]:
        return await Wait(first), await Wait(Signal())

    script = Script()
    task, _ = task_of(work(), script, 10.0)
    task.resume()
    script.clock = 9.0
    first.fire()
    task.resume()
    assert task.wait_until == 10.0


def test_request_past_the_deadline_gets_its_grace() -> None:
    async def work() -> Any:
        return await GetData("/a")

    script = Script(a=LATE)
    task, _ = task_of(work(), script, 0.0)
    assert not task.resume()
    assert task.wait_until == GRACE_S
    script.late[0].replies[0].settle(Outcome("in time"))
    assert task.resume()
    assert task.result() == "in time"


def test_request_without_answer_ends_with_deadline_error_and_is_withdrawn() -> None:
    async def work() -> Any:
        await GetData("/a")

    script = Script(a=LATE)
    task, _ = task_of(work(), script, 1.0)
    task.resume()
    script.clock = 1.0 + GRACE_S
    assert task.resume()
    with pytest.raises(DeadlineError, match="GetData /a"):
        task.result()
    assert script.withdrawn == script.late


def test_clean_up_after_the_deadline_has_a_deadline_of_its_own() -> None:
    async def work() -> Any:
        try:
            await GetData("/a")
        finally:
            await Delete("/mine")

    script = Script(a=LATE, mine=LATE)
    task, _ = task_of(work(), script, 0.0)
    task.resume()
    script.clock = GRACE_S
    assert not task.resume()
    assert task.wait_until == GRACE_S + CLEAN_UP_S
    script.late[1].replies[0].settle(Outcome())
    assert task.resume()
    with pytest.raises(DeadlineError):
        task.result()


def test_protocol_whose_clean_up_never_ends_is_abandoned() -> None:
    async def work() -> Any:
        while True:
            with contextlib.suppress(DeadlineError):
                await GetData("/a")

    script = Script(a=LATE)
    task, _ = task_of(work(), script, 0.0)
    script.clock = 100.0
    assert not task.resume()
    script.clock = 200.0
    assert task.resume()
    with pytest.raises(DeadlineError):
        task.result()


def test_connected_waits_through_changes_until_there_is_a_session() -> None:
    async def work() -> SessionInfo:
        return await Connected()

    script = Script()
    script.info = None
    task, woken = task_of(work(), script)
    assert not task.resume()
    before, script.changes = script.changes, Signal()
    before.fire()
    assert woken
    assert not task.resume()
    script.info = SESSION
    script.changes.fire()
    assert task.resume()
    assert task.result() == SESSION
    assert not script.changes._wakers


def test_connected_does_not_miss_a_session_that_begins_while_it_starts_to_wait() -> None:
    class Late(Script):
        def session_changes(self) -> Signal:
            self.info = SESSION  # the signal of this change has fired before
            return super().session_changes()

    async def work() -> SessionInfo:
        return await Connected()

    script = Late()
    script.info = None
    task, _ = task_of(work(), script)
    assert task.resume()
    assert task.result() == SESSION
    assert not script.changes._wakers


def test_call_runs_the_function_and_throws_what_it_raises() -> None:
    def fails() -> None:
        raise KeyError("mine")

    async def work() -> Any:
        first = await Call(lambda: 5)
        try:
            await Call(fails)
        except KeyError:
            return first
        return None

    assert run(work(), Script()) == 5


def test_user_function_that_outlasts_the_deadline_leaves_time_to_publish_its_result() -> None:
    script = Script(a=LATE)

    def takes_long() -> None:
        script.clock = 60.0

    async def work() -> Any:
        await Call(takes_long)
        return await GetData("/a"), await Wait(Signal())

    task, _ = task_of(work(), script, 1.0)
    assert not task.resume()
    assert task.wait_until == 60.0 + NONBLOCKING_GRACE_S
    script.late[0].replies[0].settle(Outcome("told"))
    assert task.resume()
    assert task.result() == ("told", WakeReason.DEADLINE)


def test_user_function_that_starts_after_the_deadline_leaves_no_more_time() -> None:
    script = Script(a=LATE)

    async def work() -> Any:
        first = await GetData("/a")
        await Call(lambda: None)
        return first, await GetData("/a")

    task, _ = task_of(work(), script, 1.0)
    assert not task.resume()
    script.clock = 1.0 + GRACE_S / 2
    script.late[0].replies[0].settle(Outcome("in time"))
    assert not task.resume()
    assert task.wait_until == 1.0 + GRACE_S


def test_interrupt_is_thrown_into_the_protocol_which_cleans_up() -> None:
    async def work() -> None:
        try:
            await Wait(Signal())
        finally:
            await Delete("/mine")

    script = Script()
    task, woken = task_of(work(), script)
    task.resume()
    task.interrupt(KeyboardInterrupt())
    assert woken
    assert task.resume()
    with pytest.raises(KeyboardInterrupt):
        task.result()
    assert script.sent == [(Delete("/mine"),)]


def test_second_interrupt_aborts_the_clean_up() -> None:
    async def work() -> None:
        try:
            await Wait(Signal())
        finally:
            await Delete("/mine")

    script = Script(mine=LATE)
    task, _ = task_of(work(), script)
    task.resume()
    task.interrupt(KeyboardInterrupt())
    assert not task.resume()
    task.interrupt(ClientClosedError("a call"))
    assert task.resume()
    with pytest.raises(ClientClosedError):
        task.result()


def test_generator_that_threw_the_interrupt_in_is_not_closed_when_the_frames_of_the_call_are_cleared() -> None:
    """Awaitables of some frameworks catch what is thrown into them, and throw it on."""

    def rethrowing() -> Generator[BaseException | None, None, None]:
        try:
            yield None
        except BaseException as error:
            yield error

    async def work() -> None:
        await Wait(Signal())

    task, _ = task_of(work(), Script())
    task.resume()
    generator = rethrowing()
    next(generator)
    error = generator.throw(KeyboardInterrupt())
    assert error is not None
    task.interrupt(error)
    assert task.resume()
    task.break_traceback_cycles()
    assert inspect.getgeneratorstate(generator) == inspect.GEN_SUSPENDED


class InterruptedQueue(SimpleQueue[Any]):
    """A queue in which Ctrl-C arrives while the driver waits."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


def test_interrupt_of_the_wait_itself_ends_the_call_after_its_clean_up() -> None:
    async def work() -> None:
        try:
            await Wait(Signal())
        finally:
            await Delete("/mine")

    script = Script()
    with pytest.raises(KeyboardInterrupt):
        drive(ProtocolRun(work(), script, None, lambda: None), InterruptedQueue())
    assert script.sent == [(Delete("/mine"),)]


class Struck:
    """A mutex that raises a signal when it is released for the ``which``-th time."""

    def __init__(self, which: int) -> None:
        self.left = which

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("which", [1, 2])
def test_interrupt_between_two_steps_lets_the_protocol_clean_up(which: int) -> None:
    script, seen = Script(), []
    script.mutex = Struck(which)

    async def work() -> None:
        try:
            await Guid()
            await Guid()
        finally:
            seen.append(await Exists("/cleaned"))

    with pytest.raises(KeyboardInterrupt):
        run(work(), script)
    assert script.sent == [(Exists("/cleaned"),)]
    assert seen == [None]


def test_unknown_step_is_an_error_of_the_protocol() -> None:
    class Odd:
        def __await__(self) -> Any:
            return (yield "no step")

    async def work() -> None:
        await Odd()

    with pytest.raises(TypeError, match="no step"):
        run(work(), Script())


def test_background_passes_the_work_on() -> None:
    async def other() -> None: ...

    async def work() -> None:
        await Background(other())

    script = Script()
    run(work(), script)
    assert len(script.in_background) == 1


def test_driver_stops_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()

    def fork() -> None:
        monkeypatch.setattr(blocking_driver, "getpid", lambda: 0)

    async def work() -> None:
        await Call(fork)
        await Delete("/mine")

    with pytest.raises(ClientClosedError, match="fork"):
        run(work(), script)
    assert not script.sent


# ---- the leftovers of a failed call

MINE = Create("/line/_c_guid-lock-", ephemeral=True, sequence=True)
MADE = Created("/line/_c_guid-lock-0000000007", None)


async def stand(*then: Any) -> None:
    await MINE
    for step in then:
        await step
    raise LookupError


def left_behind(work: ProtocolCoroutine, script: Script) -> list[LeftoverNode]:
    with pytest.raises((LookupError, DisconnectedError)):
        run(work, script)
    return script.leftovers


def scripted(answer: Any, **answers: Any) -> Script:
    script = Script(**answers)
    script.answers |= {MINE.path: answer}
    return script


def test_ephemeral_of_a_failed_call_is_left_to_the_clean_up() -> None:
    assert left_behind(stand(), scripted(MADE)) == [LeftoverNode(MADE.path, True)]


def test_call_that_fails_after_deleting_its_ephemeral_leaves_none() -> None:
    assert left_behind(stand(Delete(MADE.path)), scripted(MADE)) == []


def test_ephemeral_deleted_by_another_client_is_no_orphan() -> None:
    async def work() -> None:
        await MINE
        with contextlib.suppress(NoNodeError):
            await Delete(MADE.path)
        raise LookupError

    script = scripted(MADE)
    script.answers[MADE.path] = NoNodeError(MADE.path)
    assert left_behind(work(), script) == []


def test_ephemeral_whose_reply_was_lost_is_searched_for() -> None:
    assert left_behind(stand(), scripted(DisconnectedError(MINE.path))) == [LeftoverNode(MINE.path, False)]


def test_ephemeral_found_by_its_guid_and_deleted_is_not_searched_for() -> None:
    async def work() -> None:
        with contextlib.suppress(DisconnectedError):
            await MINE
        await Delete(MADE.path)
        raise LookupError

    assert left_behind(work(), scripted(DisconnectedError(MINE.path))) == []


def test_ephemeral_of_a_transaction_is_remembered_too() -> None:
    async def work() -> None:
        await Multi((Create("/receipt", ephemeral=True), Delete("/item")))
        raise LookupError

    assert left_behind(work(), Script(receipt=(Created("/receipt", None), None))) == [LeftoverNode("/receipt", True)]


def test_refused_ephemeral_is_no_orphan() -> None:
    async def work() -> None:
        with contextlib.suppress(NoNodeError):
            await MINE
        raise LookupError

    assert left_behind(work(), scripted(NoNodeError(MINE.path))) == []


def test_node_that_a_protocol_holds_on_purpose_stays() -> None:
    assert left_behind(stand(Hold(MADE.path, 7, Loss())), scripted(MADE)) == []


def test_results_that_a_protocol_keeps_stay_and_are_recorded_no_longer() -> None:
    loss = Loss()
    work = stand(Hold(MADE.path, 7, loss), KeepResults(), StopHolding(loss))
    script = scripted(MADE)
    task, _ = task_of(work, script)
    assert task.resume()
    assert (task.created_nodes.created_paths, task.created_nodes.holds) == ([], [])
    task.abandon_results(LookupError())
    assert (script.leftovers, script.lost) == ([], [])


def test_node_acquired_after_an_interrupt_stays_if_earlier_results_are_kept() -> None:
    async def work() -> None:
        try:
            await Hold("/earlier", 7, Loss())
            await Wait(Signal())
        finally:
            await KeepResults()
            await MINE
            await Hold(MADE.path, 7, Loss())

    script = scripted(MADE)
    task, _ = task_of(work(), script)
    task.resume()
    error = KeyboardInterrupt()
    task.interrupt(error)
    assert task.resume()
    task.abandon_results(error)
    assert (script.leftovers, script.lost) == ([], [])


def test_node_held_before_the_interrupt_is_an_orphan() -> None:
    loss = Loss()
    script = scripted(MADE)
    task, _ = task_of(stand(Hold(MADE.path, 7, loss), Wait(Signal())), script)
    task.resume()
    error = KeyboardInterrupt()
    task.interrupt(error)
    assert task.resume()
    task.abandon_results(error)
    assert (script.leftovers, script.lost) == ([LeftoverNode(MADE.path, True)], [loss])


def test_node_acquired_in_the_clean_up_after_the_interrupt_stays() -> None:
    """A Condition re-acquires its lock after any interrupt of its wait."""

    async def work() -> None:
        try:
            await Wait(Signal())
        finally:
            await MINE
            await Hold(MADE.path, 7, Loss())

    script = scripted(MADE)
    task, _ = task_of(work(), script)
    task.resume()
    error = KeyboardInterrupt()
    task.interrupt(error)
    assert task.resume()
    task.abandon_results(error)
    assert (script.leftovers, script.lost) == ([], [])


def test_node_that_a_protocol_stopped_holding_is_an_orphan() -> None:
    loss = Loss()
    assert left_behind(stand(Hold(MADE.path, 7, loss), StopHolding(loss)), scripted(MADE)) == [
        LeftoverNode(MADE.path, True)
    ]


def test_result_that_never_reached_the_caller_is_undone() -> None:
    """Ctrl-C arrives after the protocol has ended, and before the call returns."""
    loss = Loss()

    async def work() -> None:
        await MINE
        await Hold(MADE.path, 7, loss)

    script = scripted(MADE)
    task, _ = task_of(work(), script)
    assert task.resume()
    task.abandon_results(KeyboardInterrupt())
    assert script.leftovers == [LeftoverNode(MADE.path, True)]
    assert script.lost == [loss]


def test_successful_call_keeps_its_nodes() -> None:
    async def work() -> Any:
        await MINE
        return await Exists(MADE.path)

    script = scripted(MADE)
    run(work(), script)
    assert script.leftovers == []
