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

from distsync import (
    BoundedSemaphore,
    Condition,
    DoubleBarrier,
    Election,
    Group,
    Lock,
    RLock,
    Semaphore,
    SharedLock,
)
from distsync import multiprocessing as mp
from distsync._client.client import Client
from distsync._protocols.steps import Exists
from distsync.errors import OverReleaseError

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


def waited(condition: Any) -> Any:
    with condition:
        condition.notify()
        condition.wait(0)
    return condition


def met(barrier: DoubleBarrier) -> DoubleBarrier:
    assert barrier.enter(PATIENCE)
    assert barrier.leave(PATIENCE)
    return barrier


def signalled(signal: Semaphore) -> Semaphore:
    assert not signal.acquire(blocking=False)
    signal.release()
    assert signal.acquire(timeout=PATIENCE)
    return signal


def counted(semaphore: Semaphore) -> Semaphore:
    assert semaphore.get_value() == 2
    return semaphore


def joined(group: Group) -> Group:
    group.join()
    group.leave()
    return group


USES: dict[str, Callable[[Client], Any]] = {
    "Lock": lambda client: held(Lock(name="l", client=client)),
    "RLock": lambda client: held(RLock(name="l", client=client)),
    "Semaphore": lambda client: held(Semaphore(2, name="s", client=client)),
    "Semaphore that is not acquired": lambda client: counted(Semaphore(2, name="counted", client=client)),
    "BoundedSemaphore": lambda client: held(BoundedSemaphore(2, name="b", client=client)),
    "multiprocessing.Semaphore": lambda client: held(mp.Semaphore(2, name="m", client=client)),
    "reader": lambda client: held(SharedLock(name="s", client=client).reader),
    "writer": lambda client: held(SharedLock(name="s", client=client).writer),
    "Condition": lambda client: waited(Condition(name="c", client=client)),
    "Election": lambda client: held(Election(name="e", client=client)),
    "Election, as a condition": lambda client: waited(Election(name="ec", client=client)),
    "Condition with a lock": lambda client: waited(Condition(Lock(name="cl", client=client), name="cc", client=client)),
    "multiprocessing.Condition": lambda client: waited(mp.Condition(name="mc", client=client)),
    "DoubleBarrier": lambda client: met(DoubleBarrier(1, name="d", client=client)),
    "Group": lambda client: joined(Group(name="g", client=client)),
}


def is_deleted(client: Client, path: str) -> bool:
    return client.run(ask(Exists(path))) is None


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("use", [*USES, "Semaphore(0)"])
def test_object_can_be_used_again_after_its_container_was_reaped(clients: list[Client], use: str) -> None:
    client, _ = clients
    uses = {**USES, "Semaphore(0)": lambda client: signalled(Semaphore(0, name="signal", client=client))}
    for _ in range(3):
        path = uses[use](client).path
        eventually(lambda: is_deleted(client, path), f"{path} stays")  # noqa: B023


@pytest.mark.slow_on("zookeeper")
def test_permits_that_were_added_outlive_the_holders(clients: list[Client]) -> None:
    """The server does not delete the znode that counts them."""
    client, other = clients
    for semaphore in (Semaphore(1, name="more", client=client), mp.Semaphore(1, name="even more", client=client)):
        semaphore.release()
        semaphore.release()
        held(semaphore)
        later = held(Lock(name="later", client=client))
        eventually(lambda: is_deleted(client, later.path))  # noqa: B023
        assert type(semaphore)(1, name=semaphore.name, client=other).get_value() == 3
        semaphore.destroy()


@pytest.mark.slow_on("zookeeper")
def test_permits_of_a_signal_outlive_the_processes(clients: list[Client]) -> None:
    client, other = clients
    Semaphore(0, name="given", client=client).release(2)
    later = held(Lock(name="later", client=client))
    eventually(lambda: is_deleted(client, later.path))
    given = Semaphore(0, name="given", client=other)
    assert [given.acquire(blocking=False) for _ in range(3)] == [True, True, False]
    eventually(lambda: is_deleted(client, given.path))


@pytest.mark.slow_on("zookeeper")
def test_semaphore_is_deleted_when_the_added_permits_are_gone(clients: list[Client]) -> None:
    ours, theirs = (BoundedSemaphore(1, name="refused", client=client) for client in clients)
    ours.acquire()
    theirs.release()
    with pytest.raises(OverReleaseError):
        ours.release()
    eventually(lambda: is_deleted(clients[0], ours.path))


def test_semaphore_is_deleted_after_a_change_of_its_number(reaping: ServerProcess, clients: list[Client]) -> None:
    client = Client(reaping.hosts, namespace="/reaped")
    Semaphore(1, name="changed", client=client).release()
    client.close()
    semaphore = Semaphore(2, name="changed", client=clients[0])
    assert semaphore.get_value() == 2
    eventually(lambda: is_deleted(clients[0], semaphore.path))


@pytest.mark.slow_on("zookeeper")
def test_waiter_for_a_signal_gets_a_permit_after_its_container_was_reaped(clients: list[Client]) -> None:
    ours, theirs = (Semaphore(0, name="awaited", client=each) for each in clients)
    for _ in range(3):
        waiting = Running(ours.acquire, True, PATIENCE)
        eventually(lambda: bool(theirs.waiters()))
        theirs.release()
        assert waiting.result()
        eventually(lambda: is_deleted(clients[0], ours.path))


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
