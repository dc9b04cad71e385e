"""Ensembles of Java's ZooKeeper, each the same for all tests, healed after each; and what may not remain on them.

``big`` has three participants and two observers, ``small`` two and one. All tests here run in one worker of xdist
(helpers/scheduling.py). They end with the last of these tests: their links are in the process of the tests, and come
and go by themselves, so that they would be counted by whatever test comes next.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers.leak_census import nothing_more, place_of
from helpers.servers import need_zookeeper

from distsync._client.client import Client
from distsync.testing import Ensemble, EnsembleServer

SESSION_S = 2.0
FIGURES = ("zk_global_sessions", "zk_ephemerals_count")

MakeClient = Callable[..., Client]


def figures(server: EnsembleServer) -> dict[str, int]:
    """What ``mntr`` tells."""
    told = (line.split("\t", 1) for line in server.ask("mntr").splitlines() if "\t" in line)
    return {name: int(value) for name, value in told if name in FIGURES}


class Standing:
    """The ensembles that run, by size."""

    def __init__(self) -> None:
        self._running: dict[tuple[int, int], Ensemble] = {}
        self._stack = ExitStack()

    def start(self, participants: int, observers: int) -> Ensemble:
        """The one of this size."""
        need_zookeeper()
        size = participants, observers
        if size not in self._running:
            self._running[size] = self._stack.enter_context(Ensemble(*size, tick_ms=200))
        return self._running[size]

    def end(self) -> None:
        self._running.clear()
        self._stack.close()


STANDING = Standing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of ensembles none runs."""
    try:
        yield
    finally:
        if nextitem is None or "ensemble" not in nextitem.path.parts:
            STANDING.end()


@pytest.fixture(scope="session")
def ensembles() -> Iterator[Callable[[int, int], Ensemble]]:
    """A function that answers the running ensemble of a size."""
    yield STANDING.start
    STANDING.end()


@pytest.fixture
def big(ensembles: Callable[[int, int], Ensemble]) -> Iterator[Ensemble]:
    yield from _lent(ensembles(3, 2))


@pytest.fixture
def small(ensembles: Callable[[int, int], Ensemble]) -> Iterator[Ensemble]:
    yield from _lent(ensembles(2, 1))


def _lent(ensemble: Ensemble) -> Iterator[Ensemble]:
    threads = frozenset(threading.enumerate())
    yield ensemble
    ensemble.heal()
    leader = ensemble.wait_for_leader()
    remains = nothing_more(lambda: [f"{count} {name}" for name, count in figures(leader).items() if count])
    assert not remains, "remains on the ensemble: " + ", ".join(remains)
    left = nothing_more(lambda: [f"{one.name} {place_of(one)}" for one in frozenset(threading.enumerate()) - threads])
    assert not left, "threads remain: " + ", ".join(left)


@pytest.fixture
def connected() -> Iterator[MakeClient]:
    """A function that makes clients of one namespace, at the hosts given; they are closed before the ensemble heals."""
    namespace = f"/test-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:

        def connect(hosts: str, **settings: Any) -> Client:
            return stack.enter_context(
                Client(hosts, **{"namespace": namespace, "session_timeout": SESSION_S, **settings})
            )

        yield connect


@pytest.fixture(autouse=True)
def nothing_remains() -> None:
    """Servers come and go here, so that their processes and wires are not counted; see `_lent`."""
