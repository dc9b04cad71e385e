"""The pytest plugin, there for everybody who has distsync and pytest: fixtures, and nothing else.

Rules for this file: pytest imports it in every run of everybody, so it imports nothing of distsync until a fixture is
asked for; it has no options, hooks or autouse fixtures.

``distsync_server``     an `EmbeddedServer`, one for the whole run (with xdist: for each worker)
``distsync_namespace``  a path that no other test has
``distsync_client``     a client of both; the default one of this test, and of the processes that it starts
``distsync_shared``     a client of the server that all runs share: other tox environments, other xdist workers
``distsync_ensemble``   an `Ensemble` of Java's ZooKeeper, one for the whole run: three participants and two observers,
                        or what a fixture ``distsync_ensemble_size`` of yours says; all is well again after the test
``distsync_faults``     what can happen to them: expire, drop, pause, restart; all is well again after the test
"""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync.testing.embedded_server import EmbeddedServer
    from distsync.testing.ensemble import Ensemble


@pytest.fixture(scope="session")
def distsync_server() -> Iterator[EmbeddedServer]:
    """A server in a thread of the tests, the same for all of them."""
    from distsync.testing.embedded_server import EmbeddedServer

    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def distsync_namespace() -> str:
    """A namespace of this test alone."""
    return f"/test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def distsync_client(
    distsync_server: EmbeddedServer, distsync_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """The default client during the test; processes that the test starts find server and namespace by themselves."""
    from distsync._client.client import Client
    from distsync._client.default_client import set_default

    monkeypatch.setenv("DISTSYNC_HOSTS", distsync_server.hosts)
    monkeypatch.setenv("DISTSYNC_NAMESPACE", distsync_namespace)
    with Client() as client:
        before = set_default(client)
        yield client
        set_default(before)


@pytest.fixture(scope="session")
def distsync_shared(pytestconfig: pytest.Config) -> Iterator[Client]:
    """A client of your own server (DISTSYNC_HOSTS, else the embedded one), where runs that go on beside this one meet:
    in the namespace of DISTSYNC_NAMESPACE, else in one that all runs in the same folder have. What has a name stays."""
    from distsync._client.client import Client

    folder = hashlib.sha256(str(pytestconfig.rootpath).encode()).hexdigest()[:12]
    with Client(namespace=os.environ.get("DISTSYNC_NAMESPACE", f"/shared-{folder}")) as client:
        yield client


class Faults:
    """What can happen to the server, and to a client: the test's own, unless another one, or a session's id, is
    given."""

    def __init__(self, server: EmbeddedServer, client: Client) -> None:
        self._server = server
        self._client = client

    def expire(self, client: object = None) -> None:
        """The client's session is over, as if it had timed out; what it held is free, and it does not know it yet."""
        self._server.expire(self._or_mine(client))

    def drop_connection(self, client: object = None) -> None:
        """The client's connection is broken; it connects again, in its session."""
        self._server.drop_connection(self._or_mine(client))

    def drop_next_reply(self, opcode: int | None = None, client: object = None) -> threading.Event:
        """The client's next request (of this kind, an ``OpCode``) will be executed, but its reply lost, and the
        connection with it. Returns: an event that is set when it has happened."""
        return self._server.drop_next_reply(opcode, self._or_mine(client))

    def drop_next_request(self, opcode: int | None = None, client: object = None) -> threading.Event:
        """As `drop_next_reply`, but the request is not executed."""
        return self._server.drop_next_request(opcode, self._or_mine(client))

    def pause(self) -> None:
        """The server does nothing until `resume`."""
        self._server.pause()

    def resume(self) -> None:
        """The server goes on."""
        self._server.resume()

    def paused(self) -> AbstractContextManager[None]:
        """The server does nothing while the block runs."""
        return self._server.paused()

    def restart(self) -> None:
        """The server has ended and serves again, with the data and the sessions it had."""
        self._server.restart()

    def refuse_connections(self) -> None:
        """No client reaches the server until `heal`."""
        self._server.refuse_connections()

    def heal(self) -> None:
        """All is well again, and no fault is to come."""
        self._server.heal()

    def _or_mine(self, client: object) -> object:
        """The test's own client connects first if it has not yet: there is no session to break otherwise."""
        if client is not None:
            return client
        if self._client.session_id is None:
            self._client.run(_first_request())
        return self._client


async def _first_request() -> None:
    from distsync._protocols.steps import Exists

    await Exists("/")


@pytest.fixture
def distsync_faults(distsync_server: EmbeddedServer, distsync_client: Client) -> Iterator[Faults]:
    """Faults for the test's client and server; all is well again before the client closes."""
    yield Faults(distsync_server, distsync_client)
    distsync_server.heal()


@pytest.fixture(scope="session")
def distsync_ensemble_size() -> tuple[int, int]:
    """How many participants and observers: override it in a conftest.py."""
    return 3, 2


@pytest.fixture(scope="session")
def _distsync_ensemble(distsync_ensemble_size: tuple[int, int]) -> Iterator[Ensemble]:
    from distsync.testing.ensemble import Ensemble

    with Ensemble(*distsync_ensemble_size) as ensemble:
        yield ensemble


@pytest.fixture
def distsync_ensemble(_distsync_ensemble: Ensemble) -> Iterator[Ensemble]:
    """An ensemble of Java's ZooKeeper, the same for all tests; it needs Java and ZooKeeper here."""
    yield _distsync_ensemble
    _distsync_ensemble.heal()
