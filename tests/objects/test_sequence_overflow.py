"""Overflow of sequence numbers, from 2147483647 to -2147483648: waiters and items keep their order."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import ZooKeeperProcess, need_zookeeper
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Running, results, waiting_calls
from kazoo.client import KazooClient

from distsync._client.client import Client
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._server.journal.journal import Journal
from distsync.errors import SequenceExhaustedError
from distsync.multiprocessing import Semaphore as PermitSemaphore
from distsync.queue import LifoQueue, PriorityQueue, Queue
from distsync.recipes import Election, JoinableQueue, SharedLock
from distsync.testing import EmbeddedServer, OpCode, Proxy
from distsync.threading import Condition, Lock, Semaphore

LAST = 2**31 - 1
LEFT = 3
"""How many numbers are left before the last one."""

NAMESPACE = "/aged"
CONTENDERS = 2 * LEFT + 3
COUNTERS = ("/puts", "/gets", "/dones")
"""Znodes whose version is a counter."""

WAIT_QUEUES: dict[str, Callable[..., Any]] = {
    "lock": Lock,
    "semaphore": lambda name, client: Semaphore(1, name=name, client=client),
    "shared": lambda name, client: SharedLock(name=name, client=client).writer,
    "election": Election,
}
QUEUES: dict[str, Callable[..., Any]] = {
    "fifo": Queue,
    "bounded": lambda name, client: Queue(100, name=name, client=client),
    "joinable": JoinableQueue,
    "lifo": LifoQueue,
    "priority": PriorityQueue,
}
EXHAUSTED = {
    "lock": Lock,
    "semaphore": WAIT_QUEUES["semaphore"],
    "shared": WAIT_QUEUES["shared"],
    "election": Election,
    "permits": lambda name, client: PermitSemaphore(1, name=name, client=client),
}
Clients = list[Client]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data of a server on which each parent has had nearly as many children as there are
    numbers.
    """
    folder = tmp_path_factory.mktemp("aged") / "data"
    with EmbeddedServer(folder) as server, connected(server, 1) as (client,):
        use_all(client)
    age(folder)
    return folder


@pytest.fixture
def aged(data: Path, tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(shutil.copytree(data, tmp_path / "data")) as server:
        yield server


@contextmanager
def connected(server: EmbeddedServer, count: int) -> Iterator[Clients]:
    """Connect ``count`` clients that do not cache released locks."""
    with ExitStack() as stack:
        yield [stack.enter_context(Client(server.hosts, namespace=NAMESPACE, linger=0)) for _ in range(count)]


@pytest.fixture
def clients(aged: EmbeddedServer) -> Iterator[Clients]:
    with connected(aged, CONTENDERS) as them:
        yield them


def use_all(client: Client) -> None:
    """Create all parent znodes."""
    for kind, make in WAIT_QUEUES.items():
        with make(name=kind, client=client):
            pass
    for kind, make in QUEUES.items():
        for queue in (make(name=kind, client=client), make(name=f"{kind}-filled", client=client)):
            getting = Running(queue.get)
            eventually(lambda: waiting_calls(client) == 1)
            queue.put(0)
            getting.result()
            queue.task_done()
    condition = Condition(name="condition", client=client)
    with condition:
        condition.wait(0.01)


def age(folder: Path) -> None:
    with closing(Journal(folder)) as journal:
        engine, contents = Engine(EngineConfig()), journal.load()
        engine.restore(contents.snapshot)
        for _, payload in contents.records:
            engine.replay(payload)
        for path, node in engine.tree.nodes.items():
            if path.startswith(NAMESPACE):
                node.creates = LAST - LEFT
                node.version = LAST - LEFT if path.endswith(COUNTERS) else node.version
        journal.compact(engine.snapshot())


@contextmanager
def overflows(server: EmbeddedServer, path: str) -> Iterator[None]:
    """Check that the sequence numbers of the parent at ``path`` overflow within the block."""
    kazoo = KazooClient(server.hosts)
    kazoo.start()
    try:
        # cversion is twice the creates minus the children, in 32 bits: it passes 0 when the creates
        # become negative.
        assert kazoo.exists(path).cversion < 0
        yield
        assert 0 < kazoo.exists(path).cversion < 100 * LEFT
    finally:
        kazoo.stop()
        kazoo.close()


def start_in_order(clients: Clients, work: Callable[[int], object]) -> list[Running]:
    """Start a call for each client except the first; each starts when the previous one waits."""
    running = []
    for number, client in enumerate(clients[1:], 1):
        call = Running(work, number)
        running.append(call)
        eventually(lambda call=call, client=client: not call.is_alive() or waiting_calls(client))
        assert call.is_alive(), call.result()
    return running


@pytest.mark.parametrize("kind", WAIT_QUEUES)
def test_contenders_hold_one_at_a_time_in_fifo_order(aged: EmbeddedServer, clients: Clients, kind: str) -> None:
    contenders = [WAIT_QUEUES[kind](name=kind, client=client) for client in clients]
    inside: list[int] = []
    tokens: list[tuple[int, int]] = []

    def hold(number: int) -> None:
        with contenders[number]:
            inside.append(number)
            tokens.append((contenders[number].fencing_token, number))
            assert contenders[number].held
            assert inside == [number]
            inside.remove(number)

    with overflows(aged, contenders[0].path):
        contenders[0].acquire()
        running = start_in_order(clients, hold)
        assert contenders[0].held
        assert not tokens
        contenders[0].release()
        results(running)
    assert [number for _, number in tokens] == list(range(1, CONTENDERS))
    assert tokens == sorted(tokens)


def test_condition_waiters_are_notified_in_fifo_order(aged: EmbeddedServer, clients: Clients) -> None:
    conditions = [Condition(name="condition", client=client) for client in clients]
    notified: list[int] = []

    def wait(number: int) -> None:
        with conditions[number]:
            conditions[number].wait()
            notified.append(number)

    with overflows(aged, f"{conditions[0].path}/waiters"):
        running = start_in_order(clients, wait)
        for count in range(1, CONTENDERS):
            with conditions[0]:
                conditions[0].notify()
            eventually(lambda count=count: len(notified) == count)
        results(running)
    assert notified == list(range(1, CONTENDERS))


@pytest.mark.parametrize("kind", QUEUES)
def test_items_reach_waiting_getters_once_in_fifo_order(aged: EmbeddedServer, clients: Clients, kind: str) -> None:
    queues = [QUEUES[kind](name=kind, client=client) for client in clients]
    path = f"{queues[0].path}/getters"
    got: list[tuple[int, int]] = []

    def get(number: int) -> None:
        got.append((number, queues[number].get()))
        queues[number].task_done()

    with overflows(aged, path):
        running = start_in_order(clients, get)
        for item in range(1, CONTENDERS):
            queues[0].put(item)
            eventually(lambda item=item: len(got) == item)
        results(running)
    assert got == [(number, number) for number in range(1, CONTENDERS)]
    Running(queues[0].join).result()


@pytest.mark.parametrize("kind", QUEUES)
def test_available_items_are_returned_once_in_order(aged: EmbeddedServer, clients: Clients, kind: str) -> None:
    putter, getter = (QUEUES[kind](name=f"{kind}-filled", client=client) for client in clients[:2])
    items = list(range(CONTENDERS))
    for item in items:
        putter.put(item)
    assert putter.qsize() == getter.qsize() == len(items)
    assert [getter.get(timeout=PATIENCE) for _ in items] == (items[::-1] if kind == "lifo" else items)
    assert getter.qsize() == 0
    for _ in items:
        getter.task_done()
    Running(putter.join).result()


# ---- servers that do not count beyond the last number


@pytest.fixture(scope="module")
def exhausted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Yield a ZooKeeper server that has one number left for each parent."""
    need_zookeeper()
    server = ZooKeeperProcess(tmp_path_factory.mktemp("exhausted"))
    server.start()
    try:
        with Client(server.hosts, namespace=NAMESPACE, linger=0) as client:
            objects = [make(name=kind, client=client) for kind, make in EXHAUSTED.items()]
            for one in objects:
                one.acquire()
                one.release()
            server.restart()  # it writes a snapshot when it starts
        server.stop()
        exhaust(server.folder / "data" / "version-2", [one.path for one in objects])
        server.start()
        yield server
    finally:
        server.kill()


def exhaust(folder: Path, paths: list[str]) -> None:
    """Let these znodes have had all children but one, in the latest snapshot, and correct its
    checksum.
    """
    *older, latest = sorted(folder.glob("snapshot.*"), key=zxid_of)
    for file in (*older, *(file for file in folder.glob("log.*") if zxid_of(file) <= zxid_of(latest))):
        file.unlink()
    before = latest.read_bytes()
    after = bytearray(before)
    for path in paths:
        name = path.encode()
        at = before.index(len(name).to_bytes(4, "big") + name) + 4 + len(name)
        at += 4 + max(0, int.from_bytes(before[at : at + 4], "big", signed=True)) + 8  # skip its data and ACL
        after[at + 36 : at + 40] = (LAST - 1).to_bytes(4, "big")  # after czxid, mzxid, ctime, mtime, version
    for end in (match.start() for match in re.finditer(re.escape(b"\0\0\0\1/"), before)):
        if before[end - 8 : end] == zlib.adler32(before[: end - 8]).to_bytes(8, "big"):
            after[end - 8 : end] = zlib.adler32(after[: end - 8]).to_bytes(8, "big")
    latest.write_bytes(after)


def zxid_of(file: Path) -> int:
    return int(file.suffix[1:], 16)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXHAUSTED)
def test_contender_with_a_number_that_is_assigned_repeatedly_raises_sequence_exhausted(
    exhausted: ZooKeeperProcess, kind: str
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(exhausted.hosts, namespace=NAMESPACE, linger=0)) for _ in range(4)]
        first, *others = (EXHAUSTED[kind](name=kind, client=client) for client in clients)
        assert first.acquire()
        for other in others:
            with pytest.raises(SequenceExhaustedError, match=first.path):
                other.acquire()
        proxy = stack.enter_context(Proxy(exhausted.hosts))
        proxied = stack.enter_context(Client(proxy.hosts, namespace=NAMESPACE, linger=0))
        last = EXHAUSTED[kind](name=kind, client=proxied)
        proxied.sync()
        proxy.drop_next_reply(OpCode.MULTI if kind == "permits" else OpCode.CREATE2)
        with pytest.raises(SequenceExhaustedError):
            last.acquire()
        assert proxy.connections == 2
        eventually(lambda: not first.waiters(), "a waiter is left")
        first.release()
        kazoo = KazooClient(exhausted.hosts)
        kazoo.start()
        kazoo.delete(first.path, recursive=True)
        kazoo.stop()
        kazoo.close()
        assert others[0].acquire()
        others[0].release()
