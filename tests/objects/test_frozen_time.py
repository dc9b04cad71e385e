"""Sessions, waits and deadlines use real time while a test freezes or shifts the time of its process."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from helpers.timing import PATIENCE, UNIT

from distsync import Lock, Queue
from distsync._client import default_client
from distsync._client.client import Client
from distsync._client.clocks import wait_clock
from distsync.queue import Empty

Freeze = Callable[[], AbstractContextManager[Any]]
PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
FUTURE = datetime.datetime(2111, 1, 1, tzinfo=datetime.timezone.utc)


def frozen_by_freezegun(at: datetime.datetime) -> Freeze:
    return lambda: pytest.importorskip("freezegun").freeze_time(at)  # type: ignore[no-any-return]


def frozen_by_time_machine(at: datetime.datetime) -> Freeze:
    return lambda: pytest.importorskip("time_machine").travel(at, tick=False)  # type: ignore[no-any-return]


FREEZES = {
    "freezegun, past": frozen_by_freezegun(PAST),
    "freezegun, future": frozen_by_freezegun(FUTURE),
    "time-machine, past": frozen_by_time_machine(PAST),
    "time-machine, future": frozen_by_time_machine(FUTURE),
}

pytestmark = pytest.mark.slow("needs freezegun and time-machine")


@pytest.fixture(params=FREEZES)
def freeze(request: pytest.FixtureRequest) -> Freeze:
    return FREEZES[request.param]


@pytest.fixture(params=[True, False], ids=["fast wire", "kazoo's wire"])
def client(make_client: Callable[..., Client], request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client with a short session, the default one as long as the test runs."""
    made = make_client(session_timeout=2.0, fast_wire=request.param)
    default_client.set_default(made)
    yield made
    default_client.set_default(None)


def test_timeouts_end_while_time_is_frozen(client: Client, other: Client, freeze: Freeze) -> None:
    lock, queue = Lock(name="lock"), Queue(name="queue")
    with Lock(name="lock", client=other, linger=0):
        before = wait_clock()
        with freeze():
            assert not lock.acquire(timeout=2 * UNIT)
            with pytest.raises(Empty):
                queue.get(timeout=2 * UNIT)
        assert wait_clock() - before >= 4 * UNIT
    assert lock.acquire(timeout=PATIENCE)
    lock.release()


def test_session_and_holds_outlive_a_freeze(client: Client, freeze: Freeze) -> None:
    with Lock(name="lock") as _, freeze():
        session = client.session_id
        lock = Lock(name="lock")
        until = wait_clock() + 2 * client.settings.session_timeout
        while wait_clock() < until:
            assert lock.held
            time.sleep(UNIT)
    for _ in range(3):  # the connection's thread lives on
        time.sleep(client.settings.session_timeout / 2)
        client.sync(timeout=PATIENCE)
    assert (client.session_id, client.state) == (session, "connected")


def test_client_connects_while_time_is_frozen_and_reconnects_afterwards(
    make_client: Callable[..., Client], proxy: Any, freeze: Freeze
) -> None:
    with freeze():
        client = make_client(hosts=proxy.hosts, session_timeout=2.0)
        client.sync(timeout=PATIENCE)
        session = client.session_id
        proxy.cut()
        client.sync(timeout=PATIENCE)  # on the next connection
    proxy.cut()
    client.sync(timeout=PATIENCE)
    assert client.session_id == session
