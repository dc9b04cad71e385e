"""A process has one connection, whatever it uses; a server with a connection limit reports it to
further clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES
from helpers.custom_server import TunedProcess
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, results

import distsync.asyncio
from distsync import Lock, UnreachableError
from distsync._client import default_client as default
from distsync._client.client import Client
from distsync.testing.faulty_proxy import Proxy

THREADS = 4
OWN_PROCESSES = {"multiprocessing.Pool", "multiprocessing.SyncManager"}
"""They begin processes, each of which has a connection."""

USES = {kind: use for kind, use in {**KINDS, **PROCESSES}.items() if kind not in OWN_PROCESSES}


class Narrow(ZooKeeperProcess):
    """It takes one connection of each address."""

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "maxClientCnxns": 1}


@pytest.fixture(autouse=True)
def own_default() -> Iterator[None]:
    yield
    default.set_default(None)


@pytest.fixture
def narrow(server_kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that takes one connection."""
    if server_kind == "zookeeper":
        need_zookeeper()
    made = Narrow(tmp_path) if server_kind == "zookeeper" else TunedProcess(tmp_path, limits={"connections": 1})
    made.start()
    yield made
    made.kill()


def connections(server: ServerProcess) -> int:
    """That which asks is one of them."""
    return int(server.figures()["zk_num_alive_connections"])


@pytest.mark.slow_on("zookeeper")
def test_process_with_objects_of_all_kinds_in_many_threads_has_one_connection(own_server: ServerProcess) -> None:
    """Most objects are held, or waited for, when the connections are counted; none has an explicit
    client.
    """
    before, there, counted = connections(own_server), Barrier(THREADS + 1), Barrier(THREADS + 1)

    def use(kinds: list[str]) -> None:
        with ExitStack() as stack:
            for kind in kinds:
                make, use_it = USES[kind]
                use_it(make(name=f"the {kind}"), default.default_client(), stack)
            there.wait(6 * PATIENCE)
            counted.wait(6 * PATIENCE)

    async def count() -> int:
        async with distsync.asyncio.Lock(name="one more"):
            return connections(own_server) - before

    assert len(USES) > 40
    with Proxy(own_server.hosts) as proxy, Client(proxy.hosts) as client:
        default.set_default(client)
        running = [Running(use, [*USES][n::THREADS]) for n in range(THREADS)]
        there.wait(6 * PATIENCE)
        assert asyncio.run(count()) == 1
        counted.wait(6 * PATIENCE)
        results(running, 6 * PATIENCE)
        assert (connections(own_server) - before, proxy.connections) == (1, 1)


@pytest.mark.slow
def test_client_above_the_connection_limit_gets_an_error_and_connects_when_there_is_room(narrow: ServerProcess) -> None:
    with Client(narrow.hosts) as first, Client(narrow.hosts, connect_timeout=6 * PATIENCE) as waits:
        lock = Lock(name="l", client=first)
        lock.acquire()
        with (
            Client(narrow.hosts, connect_timeout=40 * UNIT) as late,
            pytest.raises(UnreachableError, match="connection closed by the server .is maxClientCnxns reached"),
        ):
            Lock(name="other", client=late).acquire()
        acquiring = Running(Lock(name="l", client=waits).acquire)
        eventually(lambda: waits._runtime is not None and "maxClientCnxns" in waits._runtime.zk_session.problem)
        assert lock.held
        first.close()
        assert acquiring.result(6 * PATIENCE)
