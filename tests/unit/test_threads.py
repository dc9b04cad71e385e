"""Threads of our own."""

from __future__ import annotations

import threading

from distsync.session.threads import OwnThread


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


def test_thread_that_has_ended_is_not_taken_for_one_that_got_its_identifier() -> None:
    own, seen = ended(OwnThread(target=lambda: None)), []
    for _ in range(100):
        later = ended(threading.Thread(target=lambda: seen.append(own.is_current())))
        if later.ident == own.ident:
            break
    assert not any(seen)
