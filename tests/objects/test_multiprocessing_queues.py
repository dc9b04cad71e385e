"""Queues of distsync.multiprocessing, beyond what CPython's own tests check.

Two processes stand for two machines: they share only the server and a name.
"""

from __future__ import annotations

import copy
import logging.config
import multiprocessing.queues
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Full
from queue import SimpleQueue as Buffered
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions.pool import ExitsWhenPickled
from helpers.servers import ServerProcess
from helpers.subprocesses import Shells
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Peer, Running, waiting_calls

import distsync.queue
from distsync._client.client import Client
from distsync.errors import PayloadRefusedError, PayloadTooLargeError
from distsync.multiprocessing import JoinableQueue, Queue, SimpleQueue, _feeder_thread, get_context
from distsync.multiprocessing import queues as face
from distsync.testing.faulty_proxy import Proxy

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

MakeClient = Callable[..., Client]


def drain(queue: Any) -> list[Any]:
    found = []
    while True:
        try:
            found.append(queue.get(False))
        except Empty:
            return found


class Reporting(face.Queue[Any]):
    """A queue that collects what its feeder reports as not sendable."""

    reported: list[tuple[type[BaseException], Any]] = []

    @staticmethod
    def _on_queue_feeder_error(e: BaseException, obj: Any) -> None:
        Reporting.reported.append((type(e), obj))


class ReportingJoinable(Reporting, face.JoinableQueue[Any]):
    """The same as a JoinableQueue."""


class Unpicklable:
    """An object that raises when it is pickled."""

    def __reduce__(self) -> Any:
        raise LookupError("not this one")


@pytest.fixture
def reported() -> list[tuple[type[BaseException], Any]]:
    Reporting.reported.clear()
    return Reporting.reported


# ---- the feeder


def test_put_returns_at_once_while_no_server_can_be_reached(far: Client, proxy: Proxy, client: Client) -> None:
    queue: Any = face.Queue(name="q", client=far)
    queue.put(-1)
    queue.qsize()
    proxy.refuse()
    proxy.cut()
    for number in range(250):
        queue.put(number)
    assert face.Queue(name="q", client=client).get() == -1
    assert face.Queue(name="q", client=client).empty()
    before = far.statistics().requests["Multi"]
    proxy.heal()
    assert queue.qsize() == 250
    # three batches, and retries when their counter is created
    assert far.statistics().requests["Multi"] - before <= 10
    assert drain(queue) == list(range(250))


def test_own_items_are_available_right_after_put(client: Client) -> None:
    queue = Queue(name="q")
    for number in range(10):
        queue.put(number)
        assert not queue.empty()
        assert queue.get_nowait() == number
    assert queue.qsize() == 0


@pytest.mark.parametrize(
    ("error", "runs"), [(RuntimeError, False), (KeyboardInterrupt, False), (KeyboardInterrupt, True)]
)
def test_feeder_that_failed_to_start_is_started_by_the_next_put(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], runs: bool
) -> None:
    started, start = [], threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name != "QueueFeederThread" or started:
            start(thread)
            return
        started.append(thread)
        if runs:
            start(thread)
        raise error("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    queue: Any = Queue(name="q")
    with pytest.raises(error):
        queue.put(1)
    queue.put(2)
    queue.put(3)
    assert Running(queue.qsize).result() == 2
    eventually(lambda: started[0] is queue._feeder._thread or not started[0].is_alive(), "two feeders")
    assert drain(queue) == [2, 3]


def test_put_that_reaches_the_feeder_after_a_concurrent_close_is_refused(client: Client) -> None:
    class Closed(face.Queue[Any]):
        """A queue that another thread closes when a put reaches the feeder."""

        closes = False

        @property
        def _sender(self) -> Any:
            if self.closes:
                Running(self.close).result()
                Running(self.join_thread).result()
            return super()._sender

    queue = Closed(name="q")
    queue.put(0)
    queue.closes = True
    with pytest.raises(ValueError, match="is closed"):
        queue.put(1)
    assert Running(queue.qsize).result() == 1


class Buffer:
    """A feeder's buffer: another thread closes the queue during a put, and the feeder sees the end
    first.
    """

    def __init__(self, queue: Any) -> None:
        self._queue, self._items = queue, Buffered[Any]()
        self._learned = threading.Event()
        self.closes = False

    def put(self, item: Any) -> None:
        if self.closes:
            self.closes = False
            Running(self._queue.close).result()
            assert self._learned.wait(PATIENCE)
        self._items.put(item)

    def get(self) -> Any:
        item = self._items.get()
        if item is _feeder_thread._END:
            self._learned.set()
        return item

    def empty(self) -> bool:
        return self._items.empty()


def test_put_that_was_in_the_feeder_during_a_concurrent_close_is_sent(client: Client) -> None:
    queue: Any = face.Queue(name="q")
    queue._feeder._buffer = buffer = Buffer(queue)
    queue.put(0)
    assert queue.qsize() == 1
    buffer.closes = True
    queue.put(1)
    queue.join_thread()
    assert drain(face.Queue(name="q")) == [0, 1]


@pytest.mark.slow_on("zookeeper")
def test_items_sent_by_the_feeder_of_a_killed_process_are_in_order(
    client: Client, make_mortal: Callable[..., Peer]
) -> None:
    queue, mortal = Queue(name="q"), make_mortal()
    assert mortal.do(remote.put_all_and_count, queue, "first", 50) == 50
    mortal.start(remote.put_all, queue, "then", 10**9)
    eventually(lambda: queue.qsize() > 300)
    mortal.kill()
    found = drain(queue)
    assert found[:50] == [("first", number) for number in range(50)]
    assert [number for producer, number in found[50:]] == list(range(len(found) - 50))


@pytest.mark.parametrize("maxsize", [0, 5])
@pytest.mark.parametrize("kind", [Reporting, ReportingJoinable])
def test_item_that_cannot_be_sent_is_reported_and_not_counted(
    client: Client, reported: list[tuple[type[BaseException], Any]], kind: Any, maxsize: int
) -> None:
    queue, unpicklable, large = kind(maxsize, name="q"), Unpicklable(), bytes(1_100_000)
    for item in (unpicklable, 1, large, 2):
        queue.put(item)
    assert queue.qsize() == 2
    assert [queue.get(), queue.get()] == [1, 2]
    assert reported == [(LookupError, unpicklable), (PayloadTooLargeError, large)]
    if kind is ReportingJoinable:
        queue.task_done()
        queue.task_done()
        queue.join()


def test_error_of_an_unpicklable_item_is_printed_to_stderr(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(name="q")
    queue.put(Unpicklable())
    queue.qsize()
    assert "LookupError: not this one" in capsys.readouterr().err


def test_item_whose_pickling_calls_sys_exit_does_not_end_the_feeder(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(name="q")
    queue.put(ExitsWhenPickled())
    queue.put("b")
    assert queue.get(timeout=PATIENCE) == "b"
    assert "SystemExit: 7" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("make", [lambda: Queue(5), JoinableQueue, SimpleQueue], ids=["bounded", "joinable", "simple"])
def test_interrupt_while_an_item_is_pickled_is_raised(client: Client, make: Callable[[], Any], number: int) -> None:
    """It was printed as the error of the item, which was lost, and put returned."""

    def interrupt(*_: object) -> None:
        raise InterruptedPutError

    handler = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else interrupt)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else InterruptedPutError):
            make().put(InterruptsWhenPickled(number))
    finally:
        signal.signal(number, handler)


class InterruptedPutError(Exception):
    """What the handler of a signal raises."""


class InterruptsWhenPickled:
    """An item during whose pickling a signal arrives."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        signal.raise_signal(self._number)
        return InterruptsWhenPickled, (self._number,)


def test_forked_child_has_an_empty_buffer_and_an_open_queue(far: Client, proxy: Proxy, client: Client) -> None:
    """The parent's items are sent once, although the child has a copy of the unsent ones."""
    queue: Any = face.Queue(name="q", client=far)
    queue.put("connected")
    assert queue.get() == "connected"
    proxy.refuse()
    proxy.cut()
    for number in range(20):
        queue.put(number)
    queue.close()
    child = get_context("fork").Process(target=queue.put, args=("child",))
    child.start()
    proxy.heal()
    child.join()
    queue.join_thread()
    here = face.Queue(name="q", client=client)
    assert sorted(drain(here), key=str) == sorted([*range(20), "child"], key=str)
    assert child.exitcode == 0


# ---- process exit


PROGRAM = """
from distsync.multiprocessing import Queue
queue = Queue(name="q")
for number in range(300):
    queue.put(number)
"""


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Any:
    made = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace})
    yield made
    made.close()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("before", ["", "import multiprocessing.util\n"])
def test_program_exits_after_all_items_were_sent(client: Client, shells: Shells, before: str) -> None:
    shells.run("-c", before + PROGRAM)
    assert drain(Queue(name="q")) == list(range(300))


@pytest.mark.slow
def test_program_that_cancels_join_thread_does_not_wait_for_its_feeder(
    client: Client, shells: Shells, proxy: Proxy
) -> None:
    """The server is unreachable from the first item until the program has exited."""
    program = f"""
import distsync
{PROGRAM.strip().splitlines()[0]}
queue = Queue(name="q")
queue.put("here")
queue.qsize()
print("ready", flush=True)
print(input())
for number in range(300):
    queue.put(number)
queue.cancel_join_thread()
"""
    shells.environment |= {"DISTSYNC_HOSTS": proxy.hosts, "DISTSYNC_SESSION_TIMEOUT": "2"}
    running = shells.start("-c", program)
    queue = Queue(name="q")
    assert queue.get() == "here"
    assert running.stdout.readline() == "ready\n"  # until then it waits for the server
    proxy.refuse()
    proxy.cut()
    output, errors = running.communicate("continue\n")
    assert (output, running.returncode) == ("continue\n", 0), errors
    assert "Traceback" not in errors
    proxy.heal()
    assert queue.empty()


# ---- two machines


def test_queue_is_shared_by_its_name_alone(client: Client, peer: Peer) -> None:
    peer.do(remote.put_by_name, "q", 1, 2)
    assert [Queue(name="q").get(), distsync.queue.Queue(name="q").get()] == [1, 2]


def test_queues_can_be_sent_through_a_queue(client: Client, peer: Peer) -> None:
    outer, inner = Queue(name="outer"), Queue()
    outer.put((inner, JoinableQueue(3), SimpleQueue()))
    there = peer.do(outer.get)
    peer.do(there[0].put, "through the inner one")
    assert inner.get() == "through the inner one"
    assert there[1]._maxsize == 3
    peer.do(there[2].put, "simple")
    assert there[2].get() == "simple"


def test_maxsize_applies_to_all_processes(client: Client, peers: list[Peer]) -> None:
    queue = Queue(2, name="q")
    peers[0].do(queue.put, 1)
    peers[1].do(queue.put, 2)
    assert queue.full()
    with pytest.raises(Full):
        queue.put(3, False)
    with pytest.raises(Full):
        peers[0].do(queue.put, 3, True, 0.01)
    with pytest.raises(Full):
        queue.put(3, timeout=-1)
    putting = Running(queue.put, 3)
    eventually(lambda: waiting_calls(client) == 1)
    assert peers[2].do(queue.get) == 1
    putting.result()
    assert drain(queue) == [2, 3]


def test_close_of_a_queue_affects_only_the_calling_process(client: Client, peer: Peer) -> None:
    queue = Queue(name="q")
    with pytest.raises(AssertionError, match="not closed"):
        queue.join_thread()
    queue.put(1)
    queue.close()
    queue.join_thread()
    for call in (lambda: queue.put(2), queue.get, queue.get_nowait):
        with pytest.raises(ValueError, match=r"^Queue <.*Queue object at .*> is closed$"):
            call()
    with pytest.raises(OSError, match="is closed"):
        queue.empty()
    assert peer.do(queue.get) == 1
    peer.do(queue.put, 2)
    eventually(lambda: queue.qsize() == 1)


def test_close_of_a_simple_queue_affects_only_the_calling_process(client: Client, peer: Peer) -> None:
    queue = SimpleQueue(name="q")
    queue.put(1)
    queue.close()
    queue.close()
    for call in (lambda: queue.put(2), queue.get, queue.empty):
        with pytest.raises(OSError, match="'q' is closed"):
            call()
    assert peer.do(queue.get) == 1
    assert peer.do(queue.empty)


# ---- join


def test_join_waits_for_the_task_done_of_other_processes(client: Client, peers: list[Peer]) -> None:
    """The process that calls ``task_done`` need not be the one that got the item."""
    queue = JoinableQueue(name="q")
    queue.put(1)
    peers[0].do(queue.put, 2)
    assert {peers[1].do(queue.get), queue.get()} == {1, 2}
    joining = Running(queue.join)
    eventually(lambda: waiting_calls(client) == 1)
    peers[2].do(queue.task_done)
    eventually(lambda: waiting_calls(client) == 1)
    assert joining.is_alive()
    peers[2].do(queue.task_done)
    joining.result()
    with pytest.raises(ValueError, match="too many times"):
        peers[0].do(queue.task_done)


def test_item_is_counted_before_put_returns(client: Client, peers: list[Peer]) -> None:
    """A process that learns of the put in another way, and then calls ``join``, waits for the item."""
    queue = JoinableQueue(name="q")
    for number in range(20):
        peers[0].do(queue.put, number)
        peers[1].start(queue.join)
        assert queue.get() == number
        assert peers[1].is_busy
        queue.task_done()
        peers[1].result()


@pytest.mark.slow
def test_items_of_large_batches_are_all_counted(client: Client, peer: Peer) -> None:
    """A hundred items put at once have a counter of their own."""
    queue, here = distsync.queue.Queue[int](name="q"), JoinableQueue(name="q")
    for count in (99, 100, 101, 250):
        peer.do(queue.put_many, list(range(count)))
        assert (here.qsize(), queue.unfinished_tasks) == (count, count)
        for _ in range(count):
            here.get()
            here.task_done()
        here.join()
        with pytest.raises(ValueError, match="too many times"):
            here.task_done()


# ---- signatures, namespaces and unnamed queues


def test_unsigned_item_is_refused_and_the_next_one_is_delivered(make_client: MakeClient) -> None:
    signed, plain = make_client(authkey=b"secret"), make_client()
    ours, theirs = face.Queue[Any](name="q", client=signed), face.Queue[Any](name="q", client=plain)
    theirs.put("unsigned")
    theirs.qsize()
    ours.put("signed")
    ours.qsize()
    with pytest.raises(PayloadRefusedError, match="the item at .*/queue/q: it is unsigned"):
        ours.get()
    assert ours.get() == "signed"


def test_queues_of_one_name_in_two_namespaces_are_independent(make_client: MakeClient, namespace: str) -> None:
    ours = face.Queue[Any](name="q", client=make_client())
    theirs = face.Queue[Any](name="q", client=make_client(namespace=f"{namespace}/other"))
    ours.put(1)
    assert (ours.qsize(), theirs.qsize()) == (1, 0)


def test_unnamed_queue_leaves_no_znode_behind(make_client: MakeClient, namespace: str, observer: Observer) -> None:
    client = make_client()
    queue: Any = face.Queue(client=client)
    path = queue.path
    for number in range(200):
        queue.put(number)
    eventually(lambda: bool(observer.tree(path)))
    del queue
    eventually(lambda: not observer.tree(path))


@pytest.mark.parametrize("name", ["Queue", "JoinableQueue"])
def test_queue_is_one_of_multiprocessing_to_isinstance_and_logging_config(client: Client, name: str) -> None:
    """logging.config of Python 3.13 refused it as the queue of a QueueHandler."""
    kind: Any = getattr(face, name)
    queue = kind(name="q", client=client)
    assert isinstance(queue, kind)
    assert isinstance(queue, getattr(multiprocessing.queues, name))
    assert type(pickle.loads(pickle.dumps(queue))) is kind
    assert type(copy.copy(queue)) is kind
    if sys.version_info >= (3, 13):
        logging.config.dictConfig(
            {"version": 1, "handlers": {"q": {"class": "logging.handlers.QueueHandler", "queue": queue}}}
        )
