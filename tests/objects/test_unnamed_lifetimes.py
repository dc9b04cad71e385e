"""Objects without a name live as long as any process uses them, whichever process that is."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.interrupt_every_line import OURS, HandlerCall
from helpers.leak_census import Observer
from helpers.request_counts import counted
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, is_quiet, results

import distsync
from distsync import JoinableQueue
from distsync import asyncio as distsync_asyncio
from distsync._client import default_client
from distsync._client.client import Client
from distsync._client.naming.inference import Module
from distsync._objects.aio.base import async_object
from distsync._protocols.state import process_objects
from distsync.errors import UsageError
from distsync.multiprocessing import Manager
from distsync.queue import Queue
from distsync.threading import Condition, Event

SESSION_S = 4.0

#: What a process of `start_peer` uses between two commands.
kept: dict[str, Any] = {}


@pytest.fixture
def start_peer(server: ServerProcess, namespace: str) -> Iterator[Callable[[], Peer]]:
    """Return a function that starts another process, with its own client."""
    made: list[Peer] = []

    def start() -> Peer:
        made.append(Peer())
        return made[-1].use(server.hosts, namespace, SESSION_S)

    yield start
    for each in made:
        each.end()


@pytest.fixture
def left(observer: Observer, namespace: str) -> Callable[[], list[str]]:
    """Return a function that returns the znodes of objects without a name."""
    return lambda: [path for path in observer.tree(f"{namespace}/process") if "/objects/" in path]


def keep(name: str, value: Any) -> None:
    kept[name] = value


def make_queue() -> bytes:
    kept["queue"] = Queue()
    kept["queue"].put("first")
    return pickle.dumps(kept["queue"])


def use_queue(data: bytes) -> Any:
    kept["queue"] = pickle.loads(data)
    return kept["queue"].get(timeout=PATIENCE)


def put(item: Any) -> None:
    kept["queue"].put(item)


def get() -> Any:
    return kept["queue"].get(timeout=PATIENCE)


def drop() -> None:
    kept.clear()
    gc.collect()


def be_quick_to_leave() -> None:
    process_objects.LINGER_S = 0.1


def answer_requests(name: str, count: int) -> None:
    """Put an answer into the queue that each request contains."""
    requests: Queue[Any] = Queue(name=name)
    for _ in range(count):
        number, replies = requests.get(timeout=PATIENCE)
        replies.put(-number)


def ask(requests: Queue[Any], count: int, look: Callable[[int], object] = lambda number: None) -> None:
    for number in range(count):
        replies: Queue[int] = Queue()
        requests.put((number, replies))
        assert replies.get(timeout=PATIENCE) == -number
        look(number)


def test_reply_queues_of_requests_are_deleted_while_both_processes_run(
    client: Client, start_peer: Callable[[], Peer], left: Callable[[], list[str]]
) -> None:
    peer, most = start_peer(), 0
    peer.start(answer_requests, "requests", 60)

    def look(number: int) -> None:
        nonlocal most
        if number % 10 == 9:
            most = max(most, len(left()))

    ask(Queue(name="requests"), 60, look)
    peer.result()
    peer.do(drop)
    gc.collect()
    assert most < 60, most
    eventually(lambda: {each.count("/") for each in left()} <= {5})  # only the folders of kinds are left
    assert most


@pytest.mark.slow("2,000 requests")
def test_two_thousand_reply_queues_leave_no_znode(
    client: Client, start_peer: Callable[[], Peer], left: Callable[[], list[str]], observer: Observer, namespace: str
) -> None:
    peer, most = start_peer(), 0
    peer.start(answer_requests, "requests", 2000)

    def look(number: int) -> None:
        nonlocal most
        if number % 100 == 99:
            most = max(most, len(left()))

    ask(Queue(name="requests"), 2000, look)
    peer.result(10 * PATIENCE)
    assert most < 500, most
    peer.do(drop)
    gc.collect()
    eventually(lambda: len(left()) <= 3, limit=5 * PATIENCE)
    peer.leave()
    client.close()
    assert observer.tree(f"{namespace}/process") == {}


def test_object_whose_creator_was_killed_stays_for_its_user_and_is_deleted_with_it(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator, user = start_peer(), start_peer()
    assert user.do(use_queue, creator.do(make_queue)) == "first"
    creator.kill()
    user.do(put, "second")
    other = start_peer()
    other.do(make_queue)  # it looks for what killed processes have left
    assert user.do(get) == "second"
    other.leave()
    user.leave()
    assert observer.tree(f"{namespace}/process") == {}


def test_object_whose_creator_has_closed_its_client_stays_for_its_user_and_is_deleted_with_it(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator, user = start_peer(), start_peer()
    assert user.do(use_queue, creator.do(make_queue)) == "first"
    creator.leave()
    user.do(put, "second")
    assert user.do(get) == "second"
    user.leave()
    assert observer.tree(f"{namespace}/process") == {}


def test_user_that_drops_its_last_object_of_a_process_that_was_killed_deletes_it(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator, user = start_peer(), start_peer()
    user.do(be_quick_to_leave)
    user.do(use_queue, creator.do(make_queue))
    creator.kill()
    user.do(drop)
    eventually(lambda: observer.tree(f"{namespace}/process") == {})


def make_queues(count: int) -> None:
    kept["queues"] = [Queue() for _ in range(count)]
    for each in kept["queues"]:
        each.put(1)
        pickle.dumps(each)


@pytest.mark.slow("1,200 queues")
def test_what_a_client_had_no_time_to_delete_is_deleted_by_the_next_process(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator = start_peer()
    creator.start(make_queues, 1200)
    creator.result(5 * PATIENCE)
    creator.leave()
    user = start_peer()
    user.do(make_queue)
    eventually(lambda: len(observer.kazoo.get_children(f"{namespace}/process")) == 1, limit=5 * PATIENCE)
    user.leave()
    assert observer.tree(f"{namespace}/process") == {}


def test_objects_of_a_killed_process_are_deleted_by_the_next_process_that_creates_one(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator, other = start_peer(), start_peer()
    creator.do(make_queue)
    creator.kill()
    other.do(make_queue)
    eventually(lambda: len(observer.kazoo.get_children(f"{namespace}/process")) == 1)


def make_managed() -> None:
    kept["manager"] = Manager()
    kept["dict"] = kept["manager"].dict(a=1)
    kept["queue"] = kept["manager"].Queue()
    kept["queue"].put(1)


def test_objects_of_a_manager_whose_process_was_killed_are_deleted_by_the_next_process(
    observer: Observer, namespace: str, start_peer: Callable[[], Peer]
) -> None:
    creator, other = start_peer(), start_peer()
    creator.do(make_managed)
    creator.kill()
    other.do(make_queue)
    eventually(lambda: len(observer.kazoo.get_children(f"{namespace}/process")) == 1)
    assert not observer.tree(f"{namespace}/manager")


def test_process_whose_session_ended_keeps_its_objects(client: Client, start_peer: Callable[[], Peer]) -> None:
    queue = Queue[int]()
    queue.put(1)
    expire(client)
    start_peer().do(make_queue)
    assert queue.get(timeout=PATIENCE) == 1


def test_second_use_of_objects_without_a_name_costs_no_join(client: Client, observer: Observer) -> None:
    first, second = Queue[int](), Queue[int]()
    first.put(1)
    second.put(1)
    with counted(client) as cost:
        second.put(2)
    assert cost.requests == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copied_object_is_deleted_with_its_last_copy(
    copied: Callable[[Any], Any], client: Client, observer: Observer
) -> None:
    queues = [Queue[int]()]
    queues.append(copied(queues[0]))
    queues[0].put(1)
    path = queues[0].path
    del queues[0]
    gc.collect()
    assert queues[0].get(timeout=PATIENCE) == 1
    queues.clear()
    gc.collect()
    eventually(lambda: observer.tree(path) == {} and not observer.kazoo.exists(path))


def test_object_in_a_container_is_kept(client: Client, start_peer: Callable[[], Peer]) -> None:
    with Manager() as manager:
        shared = manager.dict()
        shared["q"] = Queue()
        shared["q"].put(1)
        gc.collect()
        time.sleep(0.2)  # dropping an object is not announced
        assert shared["q"].get(timeout=PATIENCE) == 1


def forward(source: Queue[Any], target: str) -> None:
    """Get an object from a queue, and put it into another one."""
    Queue(name=target).put(source.get(timeout=PATIENCE))
    gc.collect()


def test_object_that_was_forwarded_is_deleted_with_its_last_user(
    client: Client, start_peer: Callable[[], Peer], observer: Observer
) -> None:
    first, second, queues = start_peer(), start_peer(), [Queue[int]()]
    path = queues[0].path
    queues[0].put(1)
    Queue(name="a").put(queues[0])
    queues.clear()
    gc.collect()
    first.do(forward, Queue(name="a"), "b")
    second.do(get_queue, "b")
    assert second.do(get) == 1
    second.do(put, 2)
    assert second.do(get) == 2
    assert observer.kazoo.exists(path)
    second.do(drop)
    eventually(lambda: not observer.kazoo.exists(path))


def get_queue(name: str) -> None:
    kept["queue"] = Queue(name=name).get(timeout=PATIENCE)


def test_object_in_a_queue_is_kept_after_its_creator_dropped_it(client: Client, start_peer: Callable[[], Peer]) -> None:
    queue: Queue[int] = Queue()
    queue.put(1)
    Queue(name="a").put(queue)
    del queue
    gc.collect()
    peer = start_peer()
    peer.do(get_queue, "a")
    assert peer.do(get) == 1


def arrive() -> None:
    """Interrupt the first arrival of an item."""
    if kept.pop("interrupts", False):
        signal.raise_signal(signal.SIGINT)


class Arrival:
    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, ()


def test_object_in_an_item_that_an_interrupted_get_puts_back_is_kept(client: Client, observer: Observer) -> None:
    queue: Queue[int] = Queue()
    path, items = queue.path, Queue[Any](name="a")
    queue.put(1)
    items.put((queue, Arrival()))
    del queue
    gc.collect()
    kept["interrupts"] = True
    with pytest.raises(KeyboardInterrupt):
        items.get(timeout=PATIENCE)
    gc.collect()
    eventually(lambda: is_quiet(client))
    received = items.get(timeout=PATIENCE)[0]
    assert received.get(timeout=PATIENCE) == 1
    del received
    gc.collect()
    eventually(lambda: not observer.kazoo.exists(path))


def test_object_with_two_receivers_is_deleted_with_the_last_one(
    client: Client, start_peer: Callable[[], Peer], observer: Observer
) -> None:
    peers, queue = [start_peer(), start_peer()], Queue[int]()
    path = queue.path
    Queue(name="a").put_many([queue, queue])
    del queue
    gc.collect()
    for each in peers:
        each.do(get_queue, "a")
    peers[0].do(put, 1)
    peers[0].do(drop)
    assert peers[1].do(get) == 1
    peers[1].do(put, 2)
    assert observer.kazoo.exists(path)
    peers[1].do(drop)
    eventually(lambda: not observer.kazoo.exists(path))


def test_object_in_a_queue_whose_items_are_delivered_again_is_kept(client: Client, observer: Observer) -> None:
    queues = [Queue[int]()]
    path = queues[0].path
    queues[0].put(1)
    jobs: JoinableQueue[Any] = JoinableQueue(name="jobs")
    jobs.put(queues.pop())
    delivery = jobs.claim(timeout=PATIENCE)
    received = weakref.ref(delivery.item)
    delivery.nack()
    del delivery
    gc.collect()
    eventually(lambda: received() is None)
    again = jobs.claim(timeout=PATIENCE)
    assert again.item.get(timeout=PATIENCE) == 1
    again.done()
    assert observer.kazoo.exists(path)


def test_asyncio_queue_in_a_queue_is_deleted_with_its_last_user(client: Client, observer: Observer) -> None:
    async def main() -> str:
        requests: distsync_asyncio.Queue[Any] = distsync_asyncio.Queue(name="requests")
        replies: distsync_asyncio.Queue[int] = distsync_asyncio.Queue()
        await requests.put(replies)
        received = await requests.get()
        await received.put(1)
        assert await replies.get() == 1
        return replies.path

    path = asyncio.run(main())
    gc.collect()
    eventually(lambda: not observer.kazoo.exists(path))


def test_lock_of_a_condition_in_a_process_is_deleted_with_it(
    client: Client, observer: Observer, namespace: str
) -> None:
    with Condition():
        pass
    gc.collect()
    eventually(lambda: not [each for each in observer.tree(f"{namespace}/process") if "/lock" in each])


def child(queue: Any, lock: Any) -> None:
    with lock:
        queue.put(1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_object_of_a_child_stays_for_it(method: str, client: Client, observer: Observer, namespace: str) -> None:
    context = distsync.multiprocessing.get_context(method)
    queue, lock = context.Queue(), context.Lock()
    process = context.Process(target=child, args=(queue, lock))
    process.start()
    assert queue.get(timeout=PATIENCE) == 1
    process.join()
    queue.close()
    queue.join_thread()
    client.close()
    assert observer.tree(f"{namespace}/process") == {}


def test_object_that_only_a_child_has_used_and_left_stays_for_its_parent(
    client: Client, observer: Observer, namespace: str
) -> None:
    context = distsync.multiprocessing.get_context("fork")
    queue, lock = context.Queue(), context.Lock()
    process = context.Process(target=child, args=(queue, lock))
    process.start()
    process.join()
    assert queue.get(timeout=PATIENCE) == 1
    queue.close()
    queue.join_thread()
    client.close()
    assert observer.tree(f"{namespace}/process") == {}


def settle(client: Client) -> None:
    """Wait until the background work that exists now has sent its first requests, and been replied to."""
    done = threading.Event()

    async def last() -> None:
        done.set()

    client.background(last())
    assert done.wait(PATIENCE)
    client.sync(timeout=PATIENCE)


def in_a_thread(use: Callable[[], object]) -> Callable[[], None]:
    """Return a function that lets another thread call ``use``, and waits for it unless it needs a lock of ours."""
    return lambda: Running(use).join(4 * UNIT)


def in_a_handler(use: Callable[[], object]) -> Callable[[], None]:
    """Return a signal handler that calls ``use``, unless it interrupts a step of a call, which may hold locks."""

    def handler(*_: object) -> None:
        with contextlib.suppress(UsageError):
            use()

    return handler


def test_object_whose_first_uses_are_in_many_threads_at_once_is_not_deleted(client: Client, observer: Observer) -> None:
    """One of two references that were made at the same time was collected, and the object deleted in use."""
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(60):
            event, barrier = Event(), threading.Barrier(8)

            def use(event: Event = event, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(PATIENCE)
                event.set()

            results([Running(use) for _ in range(8)])
            settle(client)
            assert observer.kazoo.exists(event.path)
    finally:
        sys.setswitchinterval(interval)


def use_in_a_loop(event: Event) -> None:
    """Use the twin of ``event`` for asyncio."""

    async def main() -> None:
        made = async_object(distsync_asyncio.Event, event)
        made.set()
        await made.wait()

    asyncio.run(main())


@pytest.mark.parametrize("use", [Event.set, use_in_a_loop])
@pytest.mark.parametrize("other", [in_a_thread, in_a_handler])
def test_object_whose_first_use_another_one_interrupts_is_not_deleted(
    use: Callable[[Event], None], other: Callable[[Any], Any], client: Client, observer: Observer
) -> None:
    """As above, at each place of the first use."""
    which, place = 0, ""
    while place is not None:
        which += 1
        event = Event()
        place = HandlerCall(which, other(event.set), (os.path.join(OURS, "_objects"),)).during(partial(use, event))
        settle(client)
        assert observer.kazoo.exists(event.path), f"deleted after another use at {place}"
    assert which > 10


def test_object_whose_first_use_a_timer_interrupts_is_not_deleted(client: Client, observer: Observer) -> None:
    event, former = Event(), signal.signal(signal.SIGALRM, in_a_handler(lambda: event.set()))
    try:
        for number in range(200):
            event = Event()
            signal.setitimer(signal.ITIMER_REAL, UNIT * (number % 20 + 1) / 2000)
            event.set()
            signal.setitimer(signal.ITIMER_REAL, 0)
            settle(client)
            assert observer.kazoo.exists(event.path), number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def test_object_that_two_threads_use_with_a_new_default_client_at_once_is_not_deleted(
    client: Client, make_client: Callable[..., Client], observer: Observer, namespace: str
) -> None:
    """The reference of a former client is replaced."""
    which, place = 0, ""
    while place is not None:
        which += 1
        default_client.set_default(client)
        event = Event()
        event.set()
        other = make_client(namespace=f"{namespace}/other")
        default_client.set_default(other)
        other.start()
        place = HandlerCall(which, in_a_thread(event.set), (os.path.join(OURS, "_objects"),)).during(event.set)
        settle(other)
        assert observer.kazoo.exists(event.path), f"deleted after another use at {place}"
        other.close()
    assert which > 10


def bound_queue(client: Client) -> Queue[int]:
    made: Queue[int] = Queue(name="shop.jobs", client=client)
    made._bind(Module("shop"))
    return made


def put_in_a_loop(queue: Queue[int]) -> None:
    """Use the twin of ``queue`` for asyncio."""

    async def main() -> None:
        await async_object(distsync_asyncio.Queue, queue).put(1)

    asyncio.run(main())


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("put", [lambda queue: queue.put(1), put_in_a_loop], ids=["threading", "asyncio"])
@pytest.mark.parametrize("make", [lambda client: Queue(client=client), bound_queue], ids=["unnamed", "bound"])
def test_signal_handler_that_interrupts_a_first_use_can_use_the_same_objects(
    make: Callable[[Client], Queue[int]],
    put: Callable[[Queue[int]], None],
    make_client: Callable[..., Client],
    observer: Observer,
    namespace: str,
) -> None:
    """It waited for the join that it had interrupted."""
    which, place, handled, again = 1, "", 0, set[int]()
    while place is not None:
        client = make_client()
        client.sync(timeout=PATIENCE)
        queue, done = make(client), list[int]()

        def use(queue: Queue[int] = queue, done: list[int] = done) -> None:
            queue.put(2, timeout=20 * UNIT)
            done.append(2)

        parts = tuple(os.path.join(OURS, each) for each in ("_objects", os.path.join("_client", "driver")))
        place = HandlerCall(which, in_a_handler(use), parts).during(partial(put, queue))
        assert sorted([queue.get(timeout=PATIENCE) for _ in (1, *done)]) == [1, *done], place
        paths = [path for path in observer.tree(namespace) if "/m_" in path]
        assert len(paths) == 1, f"{paths} after a handler at {place}"
        client.close()
        if any("/objects/" in path for path in observer.tree(namespace)):
            assert which not in again, f"objects are left after a handler at {place}"
            again.add(which)  # a close has a limited time
            continue
        handled += len(done)
        which += 5
    assert handled > 10


def test_call_that_blocks_the_loop_of_another_first_use_can_use_the_same_object(
    make_client: Callable[..., Client],
) -> None:
    """It waited for the join of a task, which went on only afterwards."""

    async def main(queue: Any, turns: int) -> None:
        task = asyncio.create_task(queue.put(1))
        for _ in range(turns):
            await asyncio.sleep(0)
        queue.twin.put(2, timeout=20 * UNIT)
        await task

    for turns in range(12):
        client = make_client()
        client.sync(timeout=PATIENCE)
        queue: Any = distsync_asyncio.Queue(client=client)
        asyncio.run(main(queue, turns))
        assert {queue.twin.get(timeout=PATIENCE) for _ in range(2)} == {1, 2}, turns
        client.close()


FIRST_USE = """
import sys
from distsync.queue import Queue

jobs = Queue()
Queue(name="other").put(1)
before = set(sys.modules)
{use}
print(sorted(each for each in set(sys.modules) - before if each.startswith("distsync")))
"""


@pytest.mark.parametrize("use", ["jobs.put(1)", "(lambda: Queue())().put(1)"], ids=["bound", "unnamed"])
def test_first_use_imports_nothing(use: str, server: ServerProcess, namespace: str, tmp_path: Path) -> None:
    """A signal handler that interrupted an import there, and used the object too, got an ImportError."""
    (tmp_path / "program.py").write_text(FIRST_USE.format(use=use))
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace, "DISTSYNC_UNNAMED": "ignore"}
    command = [sys.executable, str(tmp_path / "program.py")]
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")
