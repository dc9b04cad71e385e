"""Reports of losses: objects that can be held notice them without the help of a server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Peer, Running, waiting_calls

from distsync import LockLostError
from distsync._client.client import Client
from distsync.threading import Lock

SESSION_S = 1.0


def only_contender(lock: Lock) -> str:
    return lock.holders()[0].path


def test_callback_that_is_set_while_held_is_called(client: Client, observer: Observer) -> None:
    lock = Lock(name="told later", client=client)
    told: list[Any] = []
    lock.acquire()
    lock.on_lost = told.append
    observer.wipe(only_contender(lock))
    eventually(lambda: told)
    assert isinstance(told[0], LockLostError)
    assert "deleted" in str(told[0])


def test_release_is_no_loss(client: Client) -> None:
    told: list[Any] = []
    with Lock(name="released", client=client, on_lost=told.append) as held:
        assert held
    client.close()
    assert told == []


def test_nothing_is_held_with_a_closed_client(client: Client) -> None:
    lock = Lock(name="closed", client=client)
    assert not lock.held
    lock.acquire()
    assert lock.held
    client.close()
    assert not lock.held


STARVED = {
    "no thread has the GIL": (remote.held_after_the_gil_was_taken, lambda mortal: None),
    "stopped": (remote.held_after_standing_still, lambda mortal: mortal.signal(signal.SIGSTOP)),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STARVED)
def test_first_look_of_a_process_that_had_no_time_says_lost(
    how: str, client: Client, make_mortal: Callable[..., Peer], tmp_path: Path
) -> None:
    """Before any other thread of it has had a chance to hear of the loss."""
    deed, begin = STARVED[how]
    mortal, lock, holds = make_mortal(SESSION_S), Lock(name="a"), tmp_path / "holds"
    mortal.start(deed, lock, holds, 2 * SESSION_S)
    eventually(holds.exists)
    begin(mortal)
    assert lock.acquire(timeout=PATIENCE)
    if how == "stopped":
        time.sleep(2 * SESSION_S)
        mortal.signal(signal.SIGCONT)
    assert mortal.result() is False
    lock.release()


def test_callback_that_takes_long_keeps_nobody_waiting(client: Client, make_client: Callable[..., Client]) -> None:
    slow, began, over = make_client(), threading.Event(), threading.Event()
    slow.on_state(lambda state: began.set() or over.wait(PATIENCE))
    lock = Lock(name="a", client=slow)
    with Lock(name="a"):
        acquiring = Running(lock.acquire)
        eventually(lambda: waiting_calls(slow))
        assert began.wait(PATIENCE)
    assert acquiring.result()
    assert not over.is_set()
    over.set()
    lock.release()
