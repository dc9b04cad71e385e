"""Loss of held objects: callbacks and ``held`` report it, even if no server can be reached."""

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


def test_on_lost_that_is_set_while_held_is_called(client: Client, observer: Observer) -> None:
    lock = Lock(name="callback set later", client=client)
    losses: list[Any] = []
    lock.acquire()
    lock.on_lost = losses.append
    observer.wipe(only_contender(lock))
    eventually(lambda: losses)
    assert isinstance(losses[0], LockLostError)
    assert "deleted" in str(losses[0])


def test_release_and_close_call_no_loss_callback(client: Client) -> None:
    losses: list[Any] = []
    with Lock(name="released", client=client, on_lost=losses.append) as held:
        assert held
    client.close()
    assert losses == []


def test_lock_of_a_closed_client_is_not_held(client: Client) -> None:
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
def test_held_is_false_right_after_a_pause_longer_than_the_session(
    how: str, client: Client, make_mortal: Callable[..., Peer], tmp_path: Path
) -> None:
    """Even before any other thread of the process could learn of the loss."""
    function, begin = STARVED[how]
    mortal, lock, holds = make_mortal(SESSION_S), Lock(name="a"), tmp_path / "holds"
    mortal.start(function, lock, holds, 2 * SESSION_S)
    eventually(holds.exists)
    begin(mortal)
    assert lock.acquire(timeout=PATIENCE)
    if how == "stopped":
        time.sleep(2 * SESSION_S)
        mortal.signal(signal.SIGCONT)
    assert mortal.result() is False
    lock.release()


def test_slow_callback_does_not_delay_an_acquire(client: Client, make_client: Callable[..., Client]) -> None:
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
