"""Fixtures: ``curator``, the real Curator on the same server, one process for all tests; ``make_curator`` makes more.

Both servers are tried: Curator's client speaks to the embedded one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.servers import ServerProcess
from helpers.worker_processes import Peer

SESSION_MS = 10_000


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    from helpers.curator_process import compiled  # skips modules that import it if there are no jars

    return compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def curator(classpath: str, server: ServerProcess) -> Iterator[Any]:
    from helpers.curator_process import Curator

    made = Curator(classpath, server.hosts, SESSION_MS)
    yield made
    made.stop()


@pytest.fixture
def make_curator(classpath: str, server: ServerProcess) -> Iterator[Callable[..., Any]]:
    from helpers.curator_process import Curator

    made: list[Curator] = []

    def make(session_ms: int = SESSION_MS) -> Curator:
        made.append(Curator(classpath, server.hosts, session_ms))
        return made[-1]

    yield make
    for one in made:
        if one.is_alive:
            one.stop()


@pytest.fixture
def mortal(server: ServerProcess, namespace: str) -> Iterator[Peer]:
    """A process of ours, to be killed."""
    made = Peer().use(server.hosts, namespace, 2.0)
    yield made
    made.end()
