"""The default client: one per process, created at first use. No client here connects."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from distsync._client import default_client as default
from distsync._client.client import Client
from distsync._client.default_client import close_default, connect, default_client, set_default
from distsync.errors import ConfigurationError

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def own_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DISTSYNC_HOSTS", NOWHERE)
    set_default(None)
    yield
    close_default()


def test_default_client_is_created_once_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_NAMESPACE", "/from/environment")
    client = default_client()
    assert client is default_client()
    assert (client.hosts, client.namespace) == (NOWHERE, "/from/environment")


def test_threads_that_ask_at_once_get_the_same_client() -> None:
    begin, got = threading.Barrier(8), []

    def ask() -> None:
        begin.wait()
        got.append(default_client())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(map(id, got))) == 1


def test_connect_sets_the_default_client_unless_default_is_false() -> None:
    first = connect(NOWHERE, namespace="/first")
    other = connect(namespace="/other", default=False)
    assert default_client() is first
    assert (first.namespace, other.namespace, other.hosts) == ("/first", "/other", NOWHERE)
    assert connect(NOWHERE) is default_client() is not first
    assert not first.closed
    first.close()
    other.close()


def test_bad_setting_raises_and_keeps_the_default_client() -> None:
    client = default_client()
    with pytest.raises(ConfigurationError, match="^session_timeout=-1"):
        connect(session_timeout=-1)
    assert default_client() is client


def test_bad_variable_raises_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_CODEC", "yaml")
    with pytest.raises(ConfigurationError, match="^DISTSYNC_CODEC='yaml'"):
        default_client()


def test_closed_default_client_stays_until_it_is_replaced_explicitly() -> None:
    client = default_client()
    close_default()
    assert client.closed
    again = default_client()
    again.close()
    assert default_client() is again
    close_default()
    assert default_client() is not again
    close_default()
    close_default()


def test_client_can_be_made_the_default_one() -> None:
    client = Client(NOWHERE)
    set_default(client)
    assert default_client() is client


def test_child_forked_while_a_thread_creates_the_default_client_can_create_its_own() -> None:
    with default.current.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if default_client().hosts == NOWHERE else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
