"""Fixtures of the faces' tests: other clients, also behind a proxy, and other processes, each with its client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.servers import ServerProcess
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Peer

from distsync._client import background_thread
from distsync._client.client import Client
from distsync._protocols.state import election
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Event

MakeClient = Callable[..., Client]

POOL = 3
SESSION_S = 4.0
SHORT_SESSION_S = 20 * UNIT


@pytest.fixture(scope="session")
def pool() -> Iterator[list[Peer]]:
    """Processes that serve many tests: starting one takes longer than most tests."""
    made = [Peer() for _ in range(POOL)]
    yield made
    for peer in made:
        peer.end()


@contextmanager
def working(pool: list[Peer], count: int, *settings: Any) -> Iterator[list[Peer]]:
    """So many of them, with clients of their own. One that a failed test left at work is replaced."""
    yield [peer.use(*settings) for peer in pool[:count]]
    for place, peer in enumerate(pool[:count]):
        if peer.is_busy:
            peer.kill()
            pool[place] = Peer()
        else:
            peer.leave()


@pytest.fixture
def peers(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[list[Peer]]:
    """Three other processes."""
    with working(pool, POOL, server.hosts, namespace, SESSION_S) as them:
        yield them


@pytest.fixture
def peer(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[Peer]:
    """Another process."""
    with working(pool, 1, server.hosts, namespace, SESSION_S) as (one,):
        yield one


@pytest.fixture
def make_mortal(server: ServerProcess, namespace: str) -> Iterator[Callable[..., Peer]]:
    """A function that makes a process to be killed or stopped, with a short session, which outlasts what the machine
    keeps it waiting."""
    made: list[Peer] = []

    def make(session_timeout: float = SHORT_SESSION_S) -> Peer:
        made.append(Peer())
        return made[-1].use(server.hosts, namespace, session_timeout)

    yield make
    for peer in made:
        peer.end()


@pytest.fixture
def other(make_client: MakeClient) -> Client:
    """Another client than the test's own."""
    return make_client()


@pytest.fixture
def make_far(make_client: MakeClient, proxy: Proxy) -> Iterator[MakeClient]:
    """A function that makes clients behind the proxy; they close before it does."""
    made: list[Client] = []

    def make(session_timeout: float = SESSION_S) -> Client:
        made.append(make_client(hosts=proxy.hosts, session_timeout=session_timeout))
        Event(name="connected", client=made[-1]).set()
        return made[-1]

    yield make
    proxy.heal()
    for client in made:
        eventually(lambda: client.closed or client.state == "connected")  # noqa: B023
        client.close()


@pytest.fixture
def far(make_far: MakeClient) -> Client:
    """A client behind the proxy, connected."""
    return make_far()


@pytest.fixture
def no_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: the one request for what is held longer than that is not counted."""
    for module in (background_thread, election):
        monkeypatch.setattr(module, "GUARD_AFTER_S", 1e9)
