"""The pytest plugin: fixtures for tests of programs that use distsync.

pytest imports this file in every run in which distsync is installed. The file therefore imports
nothing of distsync before a fixture is requested. It has no options, hooks or autouse fixtures.

* ``distsync_server``: an ``EmbeddedServer``, one for the whole run, or for each worker of xdist.
* ``distsync_namespace``: a namespace that no other test uses.
* ``distsync_client``: a client of both, the default client of the test and of
  processes that it starts.
* ``distsync_shared``: a client of the server that parallel runs share, as environments of tox
  and workers of xdist do.
* ``distsync_ensemble``: an ``Ensemble`` of Java's ZooKeeper, one for the whole run, healed after
  each test. It has three participants and two observers by default.
* ``distsync_ensemble_size``: numbers of participants and observers of the ensemble. A
  conftest.py may override it.
* ``distsync_faults``: faults of the test's client and server, healed after the test.
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
    """Provide an embedded server in a thread, the same for all tests of the run.

    Yields:
        EmbeddedServer: The running server.
    """
    from distsync.testing.embedded_server import EmbeddedServer

    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def distsync_namespace() -> str:
    """Provide a namespace that no other test uses.

    Returns:
        The path of the namespace.
    """
    return f"/test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def distsync_client(
    distsync_server: EmbeddedServer, distsync_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Provide the default client of the test, for the embedded server and the test's namespace.

    The environment variables ``DISTSYNC_HOSTS`` and ``DISTSYNC_NAMESPACE`` are set during the test,
    so that processes that it starts use the same server and namespace.

    Args:
        distsync_server: The server that the client uses.
        distsync_namespace: The namespace of the client.
        monkeypatch: pytest's fixture that restores the environment after the test.

    Yields:
        Client: The client.
    """
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
    """Provide a client for objects that parallel test runs share.

    It connects to the server of ``DISTSYNC_HOSTS``, otherwise to the embedded one that all
    processes of the user share. Its namespace is ``DISTSYNC_NAMESPACE``, otherwise one for all runs
    in the same folder. Named objects outlive the run.

    Args:
        pytestconfig: pytest's fixture that knows the folder of the run.

    Yields:
        Client: The client, one for the whole run.
    """
    from distsync._client.client import Client

    folder = hashlib.sha256(str(pytestconfig.rootpath).encode()).hexdigest()[:12]
    with Client(namespace=os.environ.get("DISTSYNC_NAMESPACE", f"/shared-{folder}")) as client:
        yield client


class Faults:
    """Faults of the test's server, and of its client unless another one is given.

    Args:
        server: The server of the test.
        client: The client of the test. It connects before its first fault.
    """

    def __init__(self, server: EmbeddedServer, client: Client) -> None:
        self._server = server
        self._client = client

    def expire(self, client: object = None) -> None:
        """End the client's session, as if it had timed out.

        The locks that it held are free at once. The client learns of it when it reconnects.

        Args:
            client: A client of distsync or kazoo, or the id of a session. None takes the test's
                client.
        """
        self._server.expire(self._or_mine(client))

    def drop_connection(self, client: object = None) -> None:
        """Break the client's connection. The client reconnects and keeps its session.

        Args:
            client: A client of distsync or kazoo, or the id of a session. None takes the test's
                client.
        """
        self._server.drop_connection(self._or_mine(client))

    def drop_next_reply(self, opcode: int | None = None, client: object = None) -> threading.Event:
        """Lose the reply to the client's next request, and the connection with it.

        The request is executed.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            client: A client of distsync or kazoo, or the id of a session. None takes the test's
                client.

        Returns:
            An event that is set when the reply has been lost.
        """
        return self._server.drop_next_reply(opcode, self._or_mine(client))

    def drop_next_request(self, opcode: int | None = None, client: object = None) -> threading.Event:
        """Lose the client's next request, and the connection with it.

        The request is not executed.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            client: A client of distsync or kazoo, or the id of a session. None takes the test's
                client.

        Returns:
            An event that is set when the request has been lost.
        """
        return self._server.drop_next_request(opcode, self._or_mine(client))

    def pause(self) -> None:
        """Suspend the server until ``resume()``. Connections stay open, and no session expires."""
        self._server.pause()

    def resume(self) -> None:
        """Let a paused server continue."""
        self._server.resume()

    def paused(self) -> AbstractContextManager[None]:
        """Suspend the server during a ``with`` block.

        Returns:
            A context manager that pauses the server on entry, and resumes it on exit.
        """
        return self._server.paused()

    def restart(self) -> None:
        """Stop the server cleanly and start it again, with its data and sessions."""
        self._server.restart()

    def refuse_connections(self) -> None:
        """Break all connections, and refuse new ones, until ``heal()``."""
        self._server.refuse_connections()

    def heal(self) -> None:
        """End all faults, pending ones too."""
        self._server.heal()

    def _or_mine(self, client: object) -> object:
        """Return ``client``, or the test's client.

        The test's client connects first if it has no session yet, because there is none to break.
        """
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
    """Provide faults of the test's client and server. They end before the client is closed.

    Args:
        distsync_server: The server of the test.
        distsync_client: The client of the test.

    Yields:
        Faults: The faults.
    """
    yield Faults(distsync_server, distsync_client)
    distsync_server.heal()


@pytest.fixture(scope="session")
def distsync_ensemble_size() -> tuple[int, int]:
    """Provide the size of the ensemble. Override this fixture in a conftest.py.

    Returns:
        The numbers of participants and observers.
    """
    return 3, 2


@pytest.fixture(scope="session")
def _distsync_ensemble(distsync_ensemble_size: tuple[int, int]) -> Iterator[Ensemble]:
    from distsync.testing.ensemble import Ensemble

    with Ensemble(*distsync_ensemble_size) as ensemble:
        yield ensemble


@pytest.fixture
def distsync_ensemble(_distsync_ensemble: Ensemble) -> Iterator[Ensemble]:
    """Provide an ensemble of Java's ZooKeeper, the same for all tests of the run.

    It is healed after each test. Java and ZooKeeper must be installed.

    Args:
        _distsync_ensemble: The ensemble of the run.

    Yields:
        Ensemble: The running ensemble.
    """
    yield _distsync_ensemble
    _distsync_ensemble.heal()
