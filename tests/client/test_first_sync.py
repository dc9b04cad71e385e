"""The first request of each connection is a sync: behind it may be a server that knows less than the last one.

Source: kazoo forgets what it has seen when a session ends; recipes.txt, "sync".
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.timing import eventually
from helpers.worker_processes import expire

from distsync._client.client import Client
from distsync._protocols.retries import ensure, read
from distsync._protocols.steps import Exists
from distsync._wire.codes import OpCode
from distsync.testing import faulty_proxy as proxies
from distsync.testing.faulty_proxy import Proxy


class Listener(proxies._DropRule):
    """A rule that records each request, and drops this many syncs."""

    def __init__(self, syncs_to_drop: int = 0) -> None:
        super().__init__(None, None, before=True)
        self._left = syncs_to_drop
        self.heard: dict[int, list[int]] = {}

    def matches(self, opcode: int, session_id: int, *, before: bool) -> bool:
        if before and opcode not in (OpCode.PING, OpCode.AUTH, OpCode.CLOSE_SESSION):
            self.heard.setdefault(session_id, []).append(opcode)
            self._left -= opcode == OpCode.MULTI
            return opcode == OpCode.MULTI and self._left >= 0
        return False


MakeListening = Callable[..., tuple[Client, Listener]]


@pytest.fixture
def listening(make_client: Callable[..., Client], proxy: Proxy) -> MakeListening:
    """A client behind the proxy, not connected yet, and a record of its requests."""

    def make(syncs_to_drop: int = 0) -> tuple[Client, Listener]:
        proxy._drop_rule = listener = Listener(syncs_to_drop)
        return make_client(hosts=proxy.hosts, session_timeout=4.0), listener

    return make


def test_first_request_of_each_connection_is_a_sync_and_no_other(
    listening: MakeListening, proxy: Proxy, namespace: str
) -> None:
    client, listener = listening()
    client.run(ensure(namespace))
    first = client.session_id
    proxy.cut()
    eventually(lambda: client.state == "connected" and proxy.connections > 1)
    client.run(read(Exists(namespace)))
    expire(client)
    eventually(lambda: client.session_id not in (None, first))
    client.run(read(Exists(namespace)))
    second = client.session_id
    client.close()
    assert [*listener.heard] == [first, second]
    before, after = listener.heard.values()
    assert before[0] == before[-2] == after[0] == OpCode.MULTI
    assert (before.count(OpCode.MULTI), after.count(OpCode.MULTI)) == (2, 1)


def test_what_is_asked_while_the_connection_breaks_comes_after_the_sync(
    listening: MakeListening, proxy: Proxy, namespace: str
) -> None:
    """kazoo tells of each lost answer before it says that the connection is gone, and keeps what is asked then."""
    client, listener = listening()
    client.run(ensure(namespace))
    zk_session = client._runtime.zk_session  # type: ignore[union-attr]
    notify = zk_session._kazoo._notify_pending  # type: ignore[union-attr]

    def notify_and_ask(state: str) -> None:
        notify(state)
        zk_session.submit((Exists(namespace),), lambda: None)

    zk_session._kazoo._notify_pending = notify_and_ask  # type: ignore[union-attr]
    proxy.cut()
    eventually(lambda: client.state == "connected" and proxy.connections > 1)
    client.run(read(Exists(namespace)))
    (heard,) = listener.heard.values()
    client.close()
    assert heard[-3:] == [OpCode.MULTI, OpCode.EXISTS, OpCode.EXISTS]


def test_sync_that_was_lost_with_its_connection_is_sent_again(
    listening: MakeListening, proxy: Proxy, namespace: str
) -> None:
    client, listener = listening(syncs_to_drop=2)
    client.run(ensure(namespace))
    client.run(read(Exists(namespace)))
    session = client.session_id
    client.close()
    assert session is not None
    heard = listener.heard[session]
    assert heard[:3] == [OpCode.MULTI] * 3
    assert OpCode.MULTI not in heard[3:]
