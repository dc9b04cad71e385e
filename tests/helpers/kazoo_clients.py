"""Kazoo's own clients, for the tests of what programs that use kazoo directly see of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from distsync._wire import records as r
from distsync.testing.faulty_proxy import Proxy
from helpers.frame_client import linked
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import expire


class Kazoos:
    """Clients in one namespace, whose connections can be broken and sessions expired."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._server = server
        self._namespace = namespace
        self._proxy = Proxy(server.hosts)
        self._made: list[KazooClient] = []
        with linked(server.port) as link:
            link.ask(1, r.CreateRequest(namespace))

    def __call__(self, **settings: Any) -> KazooClient:
        """A started one."""
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.2}
        hosts = self._proxy.hosts + self._namespace
        client = KazooClient(**{"hosts": hosts, "timeout": 10.0, "connection_retry": retry, **settings})
        self._made.append(client)
        client.start(PATIENCE)
        return client

    def break_connection(self, client: KazooClient) -> None:
        """It has another one, in the same session."""
        connected = self._states(client)
        self._proxy.cut(client.client_id[0])
        eventually(lambda: connected[-1:] == ["CONNECTED"])

    def refuse(self) -> None:
        self._proxy.refuse()

    def heal(self) -> None:
        self._proxy.heal()

    def expire(self, client: KazooClient) -> None:
        """Its session is over, it knows, and it has another one."""
        states = self._states(client)
        self.end_session(client.client_id)
        eventually(lambda: "LOST" in states and states[-1] == "CONNECTED")

    def end_session(self, credentials: tuple[int, bytes]) -> None:
        """Somebody else closes the session of this id and password."""
        expire((self._server.hosts, credentials))

    def close(self) -> None:
        for client in self._made:
            client.stop()
            client.close()
        self._proxy.close()

    @staticmethod
    def _states(client: KazooClient) -> list[str]:
        """All that it is in from now on."""
        states: list[str] = []
        client.add_listener(states.append)
        return states


class Told:
    """A callback that records its arguments, and returns ``answer``."""

    def __init__(self, answer: Callable[..., Any] = lambda *_: None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answer = answer

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return self._answer(*args)

    def waits_for(self, found: Callable[[Any], object]) -> None:
        """One of the calls is such a one."""
        eventually(lambda: any(found(call) for call in list(self.calls)), f"told only {self.calls}")
