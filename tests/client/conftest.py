"""Fixtures of the client's tests: a proxy that breaks, and small protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.worker_processes import Running

from distsync._protocols.steps import Connected, Create, SessionInfo
from distsync.testing.faulty_proxy import Proxy


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


@pytest.fixture
def in_thread() -> Callable[..., Running]:
    return Running
