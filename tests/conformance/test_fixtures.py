"""The fixtures themselves: servers start, stop and come back; what remains after a test is found."""

from __future__ import annotations

import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers.leak_census import FIGURES, Census, Observer
from helpers.servers import ServerProcess
from kazoo.client import KazooClient


@contextmanager
def session(server: ServerProcess) -> Iterator[KazooClient]:
    client = KazooClient(server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def test_server_tells_the_figures_that_the_leak_check_needs(server: ServerProcess) -> None:
    assert set(FIGURES) <= set(server.figures())


@pytest.mark.slow
def test_server_killed_and_restarted_has_what_it_acknowledged(own_server: ServerProcess) -> None:
    with session(own_server) as client:
        client.create("/kept", b"yes")
    port = own_server.port
    own_server.restart(kill=True)
    assert own_server.port == port
    with session(own_server) as client:
        assert client.get("/kept")[0] == b"yes"


def test_server_stopped_refuses_and_paused_is_silent(own_server: ServerProcess) -> None:
    own_server.pause()
    assert own_server.ask("ruok") == ""
    own_server.resume()
    assert own_server.ask("ruok") == "imok"
    own_server.stop()
    assert own_server.ask("ruok") == ""


def test_census_finds_session_watch_and_ephemeral(server: ServerProcess) -> None:
    before = Census.take(server)
    with session(server) as client:
        client.create("/seen", ephemeral=True)
        client.exists("/not-there", watch=print)
        more = "\n".join(Census.take(server).more_than(before))
    for name in FIGURES:
        assert f"server's {name}" in more
    assert "socket:" in more
    assert "thread" in more


def test_observer_finds_orphans_but_no_named_state(observer: Observer, namespace: str) -> None:
    guid = str(uuid.uuid4())
    for path in (f"{namespace}/queue/named/item", f"{namespace}/queue/{guid}/item"):
        observer.kazoo.create(path, makepath=True)
    observer.kazoo.create(f"{namespace}/lock/named", makepath=True)
    held = observer.kazoo.create(f"{namespace}/lock/named/c-", ephemeral=True, sequence=True)
    assert set(observer.orphans(namespace)) == {
        f"{namespace}/queue/{guid}",
        f"{namespace}/queue/{guid}/item",
        held,
    }
    assert observer.ephemerals(namespace) == [held]
    observer.wipe(namespace)
    assert observer.tree(namespace) == {}


def test_census_finds_thread_file_and_child() -> None:
    before = Census.take(None)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left over")
    thread.start()
    read, write = os.pipe()
    child = subprocess.Popen(["sleep", "60"])
    more = "\n".join(Census.take(None).more_than(before))
    child.kill()
    child.wait()
    os.close(read)
    os.close(write)
    stop.set()
    thread.join()
    assert "thread 'left over'" in more
    assert "open pipe:" in more
    assert f"child process {child.pid}:" in more


@pytest.mark.parametrize("name", ["DISTSYNC_HOSTS", "DISTSYNC_NAMESPACE"])
def test_environment_of_the_tests_configures_nothing(name: str) -> None:
    assert name not in os.environ
