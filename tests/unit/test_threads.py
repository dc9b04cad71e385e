"""Our own threads, and the thread of the callbacks."""

from __future__ import annotations

import threading

import pytest
from helpers.timing import PATIENCE

from distsync._client.callback_thread import Dispatcher
from distsync._client.own_threads import OwnThread


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
    assert repr(raised) in caplog.text
