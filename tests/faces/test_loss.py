"""Who is told of a loss, and when: whatever can be held says so without a server's help."""

from __future__ import annotations

from typing import Any

from leaks import Observer
from timing import eventually

from distsync import LockLostError
from distsync.session.client import Client
from distsync.threading import Lock


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
