"""Fixtures of the session tests: a proxy that breaks, and small protocols."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers import ServerProcess
from timing import PATIENCE

from distsync.session.steps import Connected, Create, SessionInfo
from distsync.testing.proxy import Proxy


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with Proxy(server.hosts) as made:
        yield made


@pytest.fixture
def proxied(make_client: Callable[..., Any], proxy: Proxy, namespace: str) -> Iterator[Any]:
    """A connected client behind the proxy, with a short session; its namespace is there."""
    made = make_client(hosts=proxy.hosts, session_timeout=2.0)
    made.run(found(namespace))
    yield made
    made.close()


@pytest.fixture
def near(make_client: Callable[..., Any], namespace: str) -> Any:
    """A connected client; its namespace is there."""
    made = make_client()
    made.run(found(namespace))
    return made


async def found(namespace: str) -> SessionInfo:
    session = await Connected()
    await Create(namespace)
    return session


class Thread(threading.Thread):
    """A thread whose result, or error, is asked for."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._function, self._args = function, args
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function(*self._args)
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = PATIENCE) -> Any:
        self.join(timeout)
        assert not self.is_alive(), "the call has not ended"
        if self._error is not None:
            raise self._error
        return self._result


@pytest.fixture
def in_thread() -> Callable[..., Thread]:
    return Thread
