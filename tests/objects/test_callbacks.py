"""Callbacks of objects that do not return: other callbacks are called all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.timing import UNIT, eventually

from distsync._client import callback_thread
from distsync._client.client import Client
from distsync.recipes import Config, Election, Group, Partitioner
from distsync.threading import Event, Lock, Semaphore

MakeClient = Callable[..., Client]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Yield a callback that does not return before the end of the test."""
    monkeypatch.setattr(callback_thread, "CALLBACK_S", 2 * UNIT)
    over = threading.Event()

    def never_returns(*_: Any) -> None:
        over.wait()

    yield never_returns
    over.set()


def set_on_change(client: Client, name: str, callback: Callable[..., object]) -> Callable[[], object]:
    config = Config(name=name, client=client, on_change=callback)
    return lambda: config.update(a=len(config) + 1, b=config.get("a"))


def set_on_join(client: Client, name: str, callback: Callable[..., object]) -> Callable[[], object]:
    return Group(name=name, client=client, on_join=callback).join


def set_on_elected(client: Client, name: str, callback: Callable[..., object]) -> Callable[[], object]:
    return Election(name=name, client=client, on_elected=callback).acquire


def set_on_revoke(client: Client, name: str, callback: Callable[..., object]) -> Callable[[], object]:
    lock = Lock(name=name, client=client, on_revoke=callback, linger=0)
    lock.acquire()
    return lock.revoke


def set_on_lost(client: Client, name: str, callback: Callable[..., object]) -> Callable[[], object]:
    lock = Lock(name=name, client=client, on_lost=callback, linger=0)
    lock.acquire()
    return lambda: lock.revoke(0)


EVENTS = {
    "on_change": set_on_change,
    "on_join": set_on_join,
    "on_elected": set_on_elected,
    "on_revoke": set_on_revoke,
    "on_lost": set_on_lost,
}


@pytest.mark.parametrize("event", EVENTS)
def test_callback_that_never_returns_stops_no_callback_of_any_kind(
    make_client: MakeClient, stuck: Callable[..., None], caplog: pytest.LogCaptureFixture, event: str
) -> None:
    client, called = make_client(), set[str]()
    cause = EVENTS[event](client, "stuck", stuck)
    causes = [make(client, kind, lambda *_, kind=kind: called.add(kind)) for kind, make in EVENTS.items()]
    for each in (cause, *causes):
        each()
    eventually(lambda: called == set(EVENTS))
    eventually(lambda: any("never_returns of the module" in record.getMessage() for record in caplog.records))
    client.close()


def test_all_objects_that_held_a_lock_are_notified_even_if_the_callback_of_the_first_never_returns(
    make_client: MakeClient, stuck: Callable[..., None]
) -> None:
    client, lost = make_client(), []
    slots = [
        Semaphore(3, name="s", client=client, on_lost=callback)
        for callback in (lambda _: lost.append(1), stuck, lambda _: lost.append(2))
    ]
    for each in slots:
        each.acquire()
    client.close()
    eventually(lambda: len(lost) == 2)
    assert lost == [1, 2]


def test_later_changes_and_other_objects_of_one_name_are_notified_while_a_callback_does_not_return(
    make_client: MakeClient, stuck: Callable[..., None]
) -> None:
    client, other, seen, joined = make_client(), make_client(), [], []
    Config(name="c", client=other)["n"] = 0
    first = Config(name="c", client=client, on_change=stuck)
    second = Config(name="c", client=client, on_change=lambda before, now: seen.append(now["n"]))
    group = Group(name="g", client=client, on_join=lambda member: joined.append(member.data) or stuck())
    assert first["n"] == second["n"] == len(group)
    Event(name="e", client=client).set()
    for number in (1, 2, 3):
        Config(name="c", client=other)["n"] = number
        Group(name="g", client=other).join(number)
        eventually(lambda: seen[-1:] == [number])  # noqa: B023
        eventually(lambda: joined[-1:] == [number])  # noqa: B023
    assert seen == joined == [1, 2, 3]
    client.close()
    other.close()


def test_share_is_not_given_up_before_its_callback_has_returned(
    make_client: MakeClient, stuck: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client()
    shares = Partitioner(["a"], name="p", client=client, on_release=stuck)
    shares.join()
    eventually(lambda: "a" in shares)
    with pytest.raises(TimeoutError):
        shares.leave(timeout=4 * UNIT)
    eventually(lambda: "never_returns of the module" in caplog.text)
    assert "a" in shares
    client.close()
