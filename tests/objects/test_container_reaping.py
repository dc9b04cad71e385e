"""Objects on servers that delete empty containers at once, between calls and during calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.custom_server import TunedProcess
from helpers.sample_protocols import ask
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Running, results

from distsync import Condition, DoubleBarrier, Election, Group, Lock, RLock, Semaphore, SharedLock
from distsync._client.client import Client
from distsync._protocols.steps import Exists

REAPING_MS = 50


class ReapingZooKeeper(ZooKeeperProcess):
    def command(self) -> list[str]:
        java, *others = super().command()
        options = [other for other in others if "checkIntervalMs" not in other]
        return [java, f"-Dznode.container.checkIntervalMs={REAPING_MS}", *options]


@pytest.fixture(scope="module")
def reaping(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("reaping")
    if server_kind == "zookeeper":
        need_zookeeper()
    made = {
        "embedded": lambda: TunedProcess(folder, reaping_seconds=REAPING_MS / 1000),
        "zookeeper": lambda: ReapingZooKeeper(folder),
    }[server_kind]()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def clients(reaping: ServerProcess) -> Iterator[list[Client]]:
    made = [Client(reaping.hosts, namespace="/reaped") for _ in range(2)]
    yield made
    for client in made:
        client.close()


def held(lock: Any) -> Any:
    with lock:
        return lock


def waited(condition: Condition) -> Condition:
    with condition:
        condition.notify()
        condition.wait(0)
    return condition


def met(barrier: DoubleBarrier) -> DoubleBarrier:
    assert barrier.enter(PATIENCE)
    assert barrier.leave(PATIENCE)
    return barrier


def joined(group: Group) -> Group:
    group.join()
    group.leave()
    return group


USES: dict[str, Callable[[Client], Any]] = {
    "Lock": lambda client: held(Lock(name="l", client=client)),
    "RLock": lambda client: held(RLock(name="l", client=client)),
    "Semaphore": lambda client: held(Semaphore(2, name="s", client=client)),
    "reader": lambda client: held(SharedLock(name="s", client=client).reader),
    "writer": lambda client: held(SharedLock(name="s", client=client).writer),
    "Condition": lambda client: waited(Condition(name="c", client=client)),
    "Election": lambda client: held(Election(name="e", client=client)),
    "DoubleBarrier": lambda client: met(DoubleBarrier(1, name="d", client=client)),
    "Group": lambda client: joined(Group(name="g", client=client)),
}


@pytest.mark.slow_on("zookeeper")
# these two are not deleted
@pytest.mark.parametrize("use", [use for use in USES if use not in ("Semaphore", "Condition")])
def test_object_can_be_used_again_after_its_container_was_reaped(clients: list[Client], use: str) -> None:
    client, _ = clients
    for _ in range(3):
        path = USES[use](client).path
        eventually(lambda: client.run(ask(Exists(path))) is None, f"{path} stays")  # noqa: B023


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("use", USES)
def test_object_can_be_used_by_two_clients_while_its_container_is_reaped_repeatedly(
    clients: list[Client], use: str
) -> None:
    def often(client: Client) -> None:
        rng = random.Random(use)
        for _ in range(8):
            USES[use](client)
            time.sleep(rng.random() * 2 * REAPING_MS / 1000)

    results([Running(often, client) for client in clients], 3 * PATIENCE)
