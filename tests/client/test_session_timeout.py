"""The session time-out: how long by itself, and that what the server grants is what counts, whatever was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.custom_server import TunedProcess
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper
from helpers.timing import eventually

import distsync
from distsync._client.client import Client
from distsync._client.settings import read_settings
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Event, Lock

MakeClient = Callable[..., Client]

HOUR = 3600.0
GRANTED_S = 4.0
"""By a server that grants less than by itself."""

TUNED = f"""
from functools import partial
serve.EngineConfig = partial(serve.EngineConfig, max_session_timeout_ms={round(GRANTED_S * 1000)})
"""


class Brief(ZooKeeperProcess):
    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "maxSessionTimeout": round(GRANTED_S * 1000)}


@pytest.fixture
def brief(server_kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that grants GRANTED_S at most."""
    if server_kind == "zookeeper":
        need_zookeeper()
    made = Brief(tmp_path) if server_kind == "zookeeper" else TunedProcess(tmp_path, before=TUNED)
    made.start()
    yield made
    made.kill()


def test_default_session_timeout_is_10_to_15_seconds() -> None:
    assert 10 <= read_settings({}).session_timeout <= 15


def test_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_SESSION_TIMEOUT", "3.5")
    assert Client("a:1").settings.session_timeout == 3.5
    assert Client("a:1", session_timeout=2.5).settings.session_timeout == 2.5
    assert distsync.connect("a:1", session_timeout=2.5, default=False).settings.session_timeout == 2.5


@pytest.mark.parametrize("asked", [0.001, 4.0, 1000 * HOUR / 2])
def test_client_shows_what_the_server_has_granted(make_client: MakeClient, asked: float) -> None:
    client = make_client(session_timeout=asked)
    assert client.session_timeout is None
    client.sync()
    granted = client.session_timeout
    assert granted is not None
    assert min(max(asked, 1.0), 10.0) <= granted <= max(min(asked, 60.0), 1.0)
    assert client._runtime is not None
    assert client._runtime.lease.timeout == granted
    assert client._runtime.lease.valid_until - client._runtime.lease.proven_at < granted


@pytest.mark.slow
def test_holds_live_and_are_lost_by_the_timeout_granted_by_the_server(brief: ServerProcess) -> None:
    """By the one that was asked for there would be neither a beat nor a loss within an hour."""
    with Proxy(brief.hosts) as proxy, Client(proxy.hosts, session_timeout=HOUR) as client:
        lock = Lock(name="l", client=client)
        lock.acquire()
        assert client.session_timeout == GRANTED_S
        assert not Event(name="e", client=client).wait(0.75 * GRANTED_S)
        assert lock.held
        proxy.blackhole()
        eventually(lambda: not lock.held, "its lease continues")
        proxy.heal()
