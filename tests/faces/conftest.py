"""Fixtures of the faces' tests: other processes, each with a client of the test's own server and namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
    """A function that makes a process to be killed or stopped, with a short session."""
    made: list[Peer] = []

    def make(session_timeout: float = 1.0) -> Peer:
        made.append(Peer())
        return made[-1].use(server.hosts, namespace, session_timeout)

    yield make
    for peer in made:
        peer.end()
