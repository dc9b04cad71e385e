"""Fixtures for tests of the public objects: further clients, clients behind a proxy, peer processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.pools import running_worker
from helpers.servers import ServerProcess
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Peer

from distsync._client import default_client
from distsync._client.client import Client
from distsync._client.lease import holds
from distsync._protocols.state import election
from distsync.multiprocessing._pool.pool_worker import Worker
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Event

MakeClient = Callable[..., Client]

POOL = 3
SESSION_S = 4.0
#: That of other processes: a busy one is not to be overtaken by a backup of the first waiter of a queue.
PEER_SESSION_S = 400 * UNIT
SHORT_SESSION_S = 20 * UNIT


@pytest.fixture(scope="session")
def pool() -> Iterator[list[Peer]]:
    """Yield processes shared by many tests: starting one takes longer than most tests."""
    made = [Peer() for _ in range(POOL)]
    yield made
    for peer in made:
        peer.end()


@contextmanager
def working(pool: list[Peer], count: int, *settings: Any) -> Iterator[list[Peer]]:
    """Yield ``count`` peers with their own clients, and then replace those that a failed test left
    busy.
    """
    yield [peer.use(*settings) for peer in pool[:count]]
    for place, peer in enumerate(pool[:count]):
        if peer.is_busy:
            peer.kill()
            pool[place] = Peer()
        else:
            peer.leave()


@pytest.fixture
def peers(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[list[Peer]]:
    """Yield three other processes."""
    with working(pool, POOL, server.hosts, namespace, PEER_SESSION_S) as them:
        yield them


@pytest.fixture
def peer(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[Peer]:
    """Yield another process."""
    with working(pool, 1, server.hosts, namespace, PEER_SESSION_S) as (one,):
        yield one


@pytest.fixture
def make_mortal(server: ServerProcess, namespace: str) -> Iterator[Callable[..., Peer]]:
    """Yield a function that starts a process to be killed or stopped.

    Its session timeout is short, but longer than a busy machine delays the process.
    """
    made: list[Peer] = []

    def make(session_timeout: float = SHORT_SESSION_S) -> Peer:
        made.append(Peer())
        return made[-1].use(server.hosts, namespace, session_timeout)

    yield make
    for peer in made:
        peer.end()


@pytest.fixture
def mortal(make_client: MakeClient) -> Iterator[Client]:
    """Yield a default client with a short session timeout, which its children have too."""
    made = make_client(session_timeout=SHORT_SESSION_S)
    default_client.set_default(made)
    yield made
    default_client.set_default(None)


@pytest.fixture
def worker(client: Client) -> Iterator[Worker]:
    """Yield a worker of the pool ``p`` that runs in a thread of this process."""
    with running_worker(client, "p") as made:
        yield made


@pytest.fixture
def other(make_client: MakeClient) -> Client:
    """Return a second client."""
    return make_client()


@pytest.fixture
def make_far(make_client: MakeClient, proxy: Proxy) -> Iterator[MakeClient]:
    """Yield a function that creates clients behind the proxy; they are closed before it."""
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
    """Return a connected client behind the proxy."""
    return make_far()


@pytest.fixture
def unreachable() -> Iterator[Client]:
    """Yield a default client whose server does not exist."""
    client = Client(hosts="127.0.0.1:1", connect_timeout=0.1, namespace="/nowhere")
    default_client.set_default(client)
    yield client
    default_client.set_default(None)
    client.close()


@pytest.fixture
def no_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the request made after GUARD_AFTER_S for a held lock, which on a slow machine would be
    counted.
    """
    for module in (holds, election):
        monkeypatch.setattr(module, "GUARD_AFTER_S", 1e9)
