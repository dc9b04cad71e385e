"""Raw connections for the tests of the protocol, and clients of kazoo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.kazoo_clients import Kazoos
from helpers.raw_client import Speaker
from helpers.servers import ServerProcess

from distsync._wire import records as r


@pytest.fixture
def connect(server: ServerProcess, namespace: str) -> Iterator[Callable[..., Speaker]]:
    """Return a function that opens a session, which is closed after the test."""
    made: list[Speaker] = []

    def speaker(**hello: Any) -> Speaker:
        made.append(Speaker(server.port, namespace, r.ConnectRequest(**hello)))
        return made[-1]

    yield speaker
    for one in made:
        one.close()


@pytest.fixture
def me(connect: Callable[..., Speaker], root: str) -> Speaker:
    """Return a session with its own root znode."""
    speaker = connect()
    speaker.body(r.CreateRequest(root))
    return speaker


@pytest.fixture
def newer(server: ServerProcess) -> bool:
    """Whether the server is ZooKeeper 3.9 or later, which differs in some details; the embedded server
    behaves as 3.8.
    """
    return server.version >= (3, 9)


@pytest.fixture
def root(namespace: str) -> str:
    return namespace


@pytest.fixture
def kazoo(server: ServerProcess, namespace: str) -> Iterator[Kazoos]:
    """Return a function that creates clients of kazoo."""
    made = Kazoos(server, namespace)
    yield made
    made.close()
