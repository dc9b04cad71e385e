"""Fixtures of the faces' tests: other processes, each with a client of the test's own server and namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from peers import Peer
from servers import ServerProcess

POOL = 3
SESSION_S = 4.0


@pytest.fixture(scope="session")
def pool() -> Iterator[list[Peer]]:
    """Processes that serve many tests: starting one takes longer than most tests."""
    made = [Peer() for _ in range(POOL)]
    yield made
    for peer in made:
        peer.end()


@pytest.fixture
def peers(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[list[Peer]]:
    """Three other processes."""
    yield [peer.use(server.hosts, namespace, SESSION_S) for peer in pool]
    for peer in pool:
        peer.leave()


@pytest.fixture
def peer(pool: list[Peer], server: ServerProcess, namespace: str) -> Iterator[Peer]:
    """Another process."""
    yield pool[0].use(server.hosts, namespace, SESSION_S)
    pool[0].leave()


@pytest.fixture
def make_mortal(server: ServerProcess, namespace: str) -> Iterator[Callable[..., Peer]]:
    """A function that makes a process to be killed or stopped, with a short session."""
    made: list[Peer] = []

    def make(session_timeout: float = 1.0) -> Peer:
        made.append(Peer())
        return made[-1].use(server.hosts, namespace, session_timeout)

    yield make
    for peer in made:
        peer.end()
