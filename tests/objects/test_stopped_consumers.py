"""A consumer that is killed or stopped while it waits delays the others for a moment only.

Its session lasts far longer than a test, so that its end is not what helps.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Credentials, Peer, Running, credentials, expire

import distsync
import distsync.multiprocessing as mp
from distsync._client.client import Client
from distsync._protocols.queues.blocking_get import _wait_as_backup
from distsync._protocols.steps import Watch
from distsync._protocols.wait_queue import LOCK, enqueue

MakeClient = Callable[..., Client]

#: Session timeout in seconds of a consumer that is killed or stopped.
LONG_S = 4 * PATIENCE
#: That of the others, which give it less than a tenth of this.
SESSION_S = 20 * UNIT

KINDS: dict[str, Callable[..., Any]] = {
    "Queue": distsync.Queue,
    "bounded Queue": partial(distsync.Queue, 5),
    "SimpleQueue": distsync.SimpleQueue,
    "LifoQueue": distsync.LifoQueue,
    "PriorityQueue": distsync.PriorityQueue,
    "JoinableQueue": distsync.JoinableQueue,
    "multiprocessing.Queue": mp.Queue,
    "multiprocessing.JoinableQueue": mp.JoinableQueue,
    "multiprocessing.SimpleQueue": mp.SimpleQueue,
    "Semaphore": partial(distsync.Semaphore, 0),
}


@pytest.fixture
def client(make_client: MakeClient) -> Client:
    return make_client(session_timeout=SESSION_S)


def take_of(queue: Any) -> Callable[[], Any]:
    return queue.acquire if isinstance(queue, distsync.Semaphore) else queue.get


def put(queue: Any, item: str) -> None:
    if isinstance(queue, distsync.Semaphore):
        queue.release()
    else:
        queue.put(item)


def close(queue: Any) -> None:
    if hasattr(queue, "join_thread"):
        queue.close()
        queue.join_thread()


def waiters(queue: Any, observer: Observer) -> int:
    folder = "takers" if isinstance(queue, distsync.Semaphore) else "getters"
    return len(observer.tree(f"{queue.path}/{folder}"))


def wait_in(peer: Peer, queue: Any, observer: Observer, place: int) -> Credentials:
    """Let the process wait in the ``place``th place, and return its session."""
    peer.do(distsync.Event(name="e", client=queue.client).is_set)  # connects
    session: Credentials = peer.do(credentials)
    peer.start(take_of(queue))
    eventually(lambda: waiters(queue, observer) == place)
    return session


@pytest.mark.parametrize("kind", KINDS)
def test_item_reaches_the_next_consumer_while_the_first_one_is_stopped(
    kind: str, client: Client, peer: Peer, server: ServerProcess, namespace: str, observer: Observer
) -> None:
    """It waited until the session of the first one had ended."""
    queue = KINDS[kind](name="q", client=client)
    wait_in(peer.use(server.hosts, namespace, LONG_S), queue, observer, 1)
    waiting = Running(take_of(queue))
    eventually(lambda: waiters(queue, observer) == 2)
    peer.signal(signal.SIGSTOP)
    put(queue, "first")
    assert waiting.result() in ("first", True)
    assert peer.is_busy
    remote.finish(queue)
    peer.signal(signal.SIGCONT)
    put(queue, "second")
    assert peer.result() in ("second", True)
    peer.do(remote.finish, queue)
    close(queue)


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "multiprocessing.Queue"])
def test_items_reach_those_behind_consumers_that_were_killed_and_stopped(
    kind: str,
    client: Client,
    make_client: MakeClient,
    make_mortal: Callable[..., Peer],
    peer: Peer,
    server: ServerProcess,
    namespace: str,
    observer: Observer,
) -> None:
    queue = KINDS[kind](name="q", client=client)
    mortal = make_mortal(LONG_S)
    session = wait_in(mortal, queue, observer, 1)
    wait_in(peer.use(server.hosts, namespace, LONG_S), queue, observer, 2)
    others = [KINDS[kind](name="q", client=make_client(session_timeout=SESSION_S)) for _ in range(2)]
    waiting = []
    for each in others:
        waiting.append(Running(each.get))
        eventually(lambda: waiters(queue, observer) == 2 + len(waiting))
    mortal.kill()
    peer.signal(signal.SIGSTOP)
    for number in range(2):
        queue.put(number)
    assert sorted(each.result() for each in waiting) == [0, 1]
    eventually(lambda: waiters(queue, observer) == 0)
    peer.signal(signal.SIGCONT)
    queue.put(2)
    assert peer.result() == 2
    expire(session)
    for each in others:
        remote.finish(each)
    peer.do(remote.finish, queue)
    for each in (queue, *others):
        close(each)


class Arrivals:
    """A source that shows one item after another, and then none."""

    poll_interval = None

    def __init__(self, *items: str) -> None:
        self.items = list(items)

    async def watch_arrivals(self, watch: Watch) -> str | None:
        return self.items.pop(0) if self.items else None


@pytest.mark.parametrize(("items", "left"), [(("a", "b", "c"), 2), (("a", "b", "b"), 1)])
def test_backup_removes_a_waiter_only_if_it_leaves_the_same_item(
    items: tuple[str, ...], left: int, client: Client, namespace: str, observer: Observer
) -> None:
    source: Any = Arrivals(*items)

    async def wait() -> None:
        first, _ = await enqueue(f"{namespace}/line", LOCK, b"{}")
        mine, _ = await enqueue(f"{namespace}/line", LOCK, b"{}")
        await _wait_as_backup(source, 1e-4, mine, first.name)

    client.run(wait(), 4 * UNIT)
    assert source.items == []
    assert len(observer.tree(f"{namespace}/line")) == left
    client.close()
