"""Our own threads, and the thread of the callbacks."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from helpers.timing import PATIENCE, UNIT, eventually

from distsync._client import callback_thread
from distsync._client.callback_thread import Dispatcher
from distsync._client.own_threads import OwnThread
from distsync._protocols.steps import Several


def ended(thread: threading.Thread) -> threading.Thread:
    thread.start()
    thread.join()
    return thread


def test_thread_is_current_in_itself_only() -> None:
    seen: list[bool] = []
    own = OwnThread(target=lambda: seen.append(own.is_current()))
    assert not own.is_current()
    ended(own)
    ended(threading.Thread(target=lambda: seen.append(own.is_current())))
    assert seen == [True, False]


def test_ended_thread_is_not_confused_with_one_that_reuses_its_identifier() -> None:
    own, seen = ended(OwnThread(target=lambda: None)), []
    for _ in range(100):
        later = ended(threading.Thread(target=lambda: seen.append(own.is_current())))
        if later.ident == own.ident:
            break
    assert not any(seen)


@pytest.mark.parametrize("raised", [SystemExit(1), RuntimeError("the hook")], ids=repr)
def test_callback_is_called_even_if_the_hook_for_the_previous_ones_exception_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    def hook(args: threading.ExceptHookArgs) -> None:
        raise raised

    monkeypatch.setattr(threading, "excepthook", hook)
    dispatcher, called = Dispatcher("callbacks"), threading.Event()
    dispatcher.call(lambda: 1 // 0)
    dispatcher.call(called.set)
    dispatcher.prepare()
    dispatcher.stop(PATIENCE)
    assert called.is_set()
    eventually(lambda: repr(raised) in caplog.text)


def wait_for(event: threading.Event) -> None:
    event.wait()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give callbacks a short time."""
    monkeypatch.setattr(callback_thread, "CALLBACK_S", 2 * UNIT)


@pytest.mark.usefixtures("hasty")
def test_callbacks_that_never_return_stop_no_other_and_callbacks_begin_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher, over, begun = Dispatcher("callbacks"), threading.Event(), list[int]()

    def begin(number: int) -> None:
        begun.append(number)
        if number % 3 == 0:
            wait_for(over)

    dispatcher.prepare()
    for number in range(8):
        dispatcher.call(partial(begin, number))
    eventually(lambda: len(begun) == 8)
    assert begun == [*range(8)]
    eventually(lambda: len(caplog.records) >= 2)
    for record in caplog.records:
        assert record.levelname == "WARNING"
        assert f"begin of the module {__name__} ({__file__}, line " in record.getMessage()
    threads = tuple(dispatcher._callers)
    over.set()
    dispatcher.stop(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert not dispatcher._callers


@pytest.mark.usefixtures("hasty")
def test_each_of_several_callbacks_of_one_event_has_its_own_time_and_comes_before_later_events() -> None:
    dispatcher, over, called = Dispatcher("callbacks"), threading.Event(), list[str]()
    dispatcher.call(lambda: Several([lambda: wait_for(over), lambda: called.append("second")]))
    dispatcher.call(lambda: called.append("later"))
    dispatcher.prepare()
    eventually(lambda: len(called) == 2)
    assert called == ["second", "later"]
    over.set()
    dispatcher.stop(PATIENCE)


@pytest.mark.usefixtures("hasty")
def test_callback_that_is_late_is_still_in_a_thread_of_callbacks() -> None:
    dispatcher, over, current = Dispatcher("callbacks"), threading.Event(), list[bool]()

    def late() -> None:
        over.wait()
        current.append(dispatcher.is_current())

    dispatcher.call(late)
    dispatcher.call(over.set)
    dispatcher.prepare()
    eventually(lambda: current)
    assert current == [True]
    assert not dispatcher.is_current()
    dispatcher.stop(PATIENCE)
