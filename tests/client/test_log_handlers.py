"""Log handlers are the program's code: they may use distsync, raise, or never return."""

from __future__ import annotations

import logging
import logging.handlers
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import ServerProcess
from helpers.subprocesses import LIMIT, Shells
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running

from distsync import Lock, Queue
from distsync._client.client import Client
from distsync._client.transport.kazoo_client import RepeatedAttempts
from distsync.errors import ClientClosedError
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]
Handle = Callable[[logging.Handler], None]


def _is_of_client_or_program(record: logging.LogRecord) -> bool:
    return record.name in ("distsync.client", "program")


class Calling(logging.Handler):
    """Passes each message to a function."""

    def __init__(self, emit: Callable[[str], object]) -> None:
        super().__init__()
        self._emit = emit
        self.addFilter(_is_of_client_or_program)

    def emit(self, record: logging.LogRecord) -> None:
        self._emit(record.getMessage())


@pytest.fixture
def handle() -> Iterator[Handle]:
    """Adds a handler to the root logger, whose level is INFO during the test."""
    root, added = logging.getLogger(), list[logging.Handler]()
    level = root.level

    def add(handler: logging.Handler) -> None:
        added.append(handler)
        root.addHandler(handler)

    root.setLevel(logging.INFO)
    yield add
    root.setLevel(level)
    for handler in added:
        root.removeHandler(handler)


def test_first_use_of_a_client_in_a_queue_handler_connects(make_client: MakeClient, handle: Handle) -> None:
    """The connection's thread logged that it was connected, and waited for the handler, which waited for it."""
    client = make_client(connect_timeout=40 * UNIT)
    records: Queue[Any] = Queue(name="records", client=client)
    handler = logging.handlers.QueueHandler(records)
    handler.addFilter(_is_of_client_or_program)
    handle(handler)
    logging.getLogger("program").warning("the program's own")
    told = [records.get(timeout=PATIENCE).getMessage() for _ in range(2)]
    assert told[0] == "the program's own"
    assert told[1].startswith("connected to")


def test_handler_may_take_a_lock_at_its_first_line(make_client: MakeClient, handle: Handle) -> None:
    client, seen = make_client(connect_timeout=40 * UNIT), list[str]()

    def emit(message: str) -> None:
        with Lock(name="lines", client=client):
            seen.append(message)

    handle(Calling(emit))
    logging.getLogger("program").warning("the program's own")
    assert seen[0] == "the program's own"
    eventually(lambda: len(seen) == 2)


def test_reason_why_a_client_cannot_connect_is_logged_once_in_a_minute(
    make_client: MakeClient, proxy: Proxy, handle: Handle
) -> None:
    """An outage logged two lines a second for each server."""
    client, attempts, reasons = make_client(hosts=proxy.hosts), list[str](), list[str]()

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "distsync.client.kazoo":
                (attempts if record.getMessage().startswith("Connecting to") else reasons).append(record.getMessage())

    client.sync()
    handle(Collecting())
    proxy.refuse()
    eventually(lambda: len(attempts) > 3)
    # none if an earlier test has had the same reasons
    dropped = [reason for reason in reasons if reason.startswith("Connection dropped")]
    assert len(dropped) == len(set(dropped))
    proxy.heal()


def test_same_reason_is_logged_again_after_a_minute_and_another_one_at_once() -> None:
    repeated = RepeatedAttempts()

    def is_logged(seconds: float, message: str, *arguments: str) -> bool:
        record = logging.LogRecord("distsync.client.kazoo", logging.WARNING, "", 0, message, arguments, None)
        record.created = seconds
        return repeated.filter(record)

    assert is_logged(0, "Connection dropped: %s", "refused")
    assert not is_logged(59, "Connection dropped: %s", "refused")
    assert is_logged(59, "Connection dropped: %s", "reset")
    assert is_logged(60, "Connection dropped: %s", "refused")
    assert is_logged(5, "Connection dropped: %s", "refused")  # the clock was set back
    assert is_logged(5, "Transition to CONNECTING")
    assert is_logged(5, "Transition to CONNECTING")


def test_client_reconnects_while_a_handler_waits_for_a_lock(
    make_client: MakeClient, proxy: Proxy, handle: Handle
) -> None:
    """The connection's thread waited for the handler's lock, which the waiting thread held, and never reconnected."""
    client, other = make_client(hosts=proxy.hosts), make_client()
    taken, seen = Lock(name="lines", client=other), list[str]()

    def emit(message: str) -> None:
        with suppress(ClientClosedError), Lock(name="lines", client=client):  # its last line is of the closed client
            seen.append(message)

    taken.acquire()
    client.sync()
    handle(Calling(emit))
    program = Running(logging.getLogger("program").warning, "the program's own")
    eventually(lambda: taken.waiters())
    for _ in range(2):
        proxy.refuse()
        eventually(lambda: client.state != "connected")
        proxy.heal()
        eventually(lambda: client.state == "connected")
    taken.release()
    program.result()
    eventually(lambda: len(seen) > 2)
    assert next(line for line in seen if str(other.hosts) not in line) == "the program's own"
    client.close()


def test_handler_that_raises_harms_no_call_and_is_reported(
    make_client: MakeClient, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []

    def emit(message: str) -> None:
        raise SystemExit(message)

    monkeypatch.setattr(threading, "excepthook", reported.append)
    handle(Calling(emit))
    client = make_client(connect_timeout=40 * UNIT)
    with Lock(name="any", client=client):
        eventually(lambda: reported)
    assert [str(each.exc_value) for each in reported] == [
        f"connected to {client.settings.hosts}, session 0x{client.session_id:x}"
    ]


def test_record_keeps_thread_time_and_line_and_is_made_by_the_programs_factory(
    make_client: MakeClient, handle: Handle
) -> None:
    factory, seen = logging.getLogRecordFactory(), list[logging.LogRecord]()

    def make(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = factory(*arguments, **options)
        record.color = "green"
        return record

    handler = logging.Handler()
    handler.addFilter(_is_of_client_or_program)
    handler.emit = seen.append  # type: ignore[method-assign]
    handle(handler)
    logging.setLogRecordFactory(make)
    try:
        make_client().sync()
        eventually(lambda: seen)
    finally:
        logging.setLogRecordFactory(factory)
    record = seen[0]
    assert (record.name, record.funcName, record.module) == ("distsync.client", "log_state", "wait_log")
    assert record.threadName != "distsync-log"
    assert record.thread != threading.get_ident()
    assert getattr(record, "color", None) == "green"


ENDS = """
import logging, logging.handlers
from distsync.multiprocessing.queues import Queue

queue = Queue(name="q")
logging.getLogger().setLevel(logging.INFO)
logging.getLogger().addHandler(logging.handlers.QueueHandler(queue))
logging.info("the program's own")
print(queue.get().getMessage())
print("connect" in queue.get().getMessage().lower())
"""


CHILDREN_END = """
import logging, logging.handlers
from distsync.multiprocessing import get_context

def work(queue):
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(logging.handlers.QueueHandler(queue))
    logging.info("a child's own")

if __name__ == "__main__":
    fork = get_context("fork")
    queue, received = fork.Queue(), []
    children = [fork.Process(target=work, args=(queue,)) for _ in range(3)]
    for child in children:
        child.start()
    while received.count("a child's own") < len(children):
        received.append(queue.get().getMessage())
    for child in children:
        child.join()
    print(len(children))
"""


WORKERS_END = """
import logging, sys
from distsync.multiprocessing import Pool
from distsync.threading import Lock

class Handler(logging.Handler):
    def emit(self, record):
        with lock:
            pass

lock = Lock(name="log-lock")

def begin():
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger().addHandler(Handler())

def work(number):
    with Lock(name="work"):
        return number

if __name__ == "__main__":
    for _ in range(3):
        with Pool(3, begin, name=sys.argv[1] or None) as pool:
            print(sum(pool.imap_unordered(work, range(30))))
"""


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    made = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace})
    yield made
    made.close()


def test_program_whose_queue_handler_gets_distsyncs_records_ends_in_silence(shells: Shells) -> None:
    """Records of the end reached the handler after its queue and client were closed."""
    program = shells.start("-c", ENDS)
    assert program.communicate(timeout=LIMIT) == ("the program's own\nTrue\n", "")


def test_children_whose_queue_handler_gets_distsyncs_records_end_in_silence(shells: Shells) -> None:
    """A record of the first connection came after the end of the queue's feeder, which connects: ValueError."""
    program = shells.start("-W", "ignore", "-c", CHILDREN_END)
    assert program.communicate(timeout=LIMIT) == ("3\n", "")


@pytest.mark.parametrize("name", ["", "p"], ids=["pipes", "shared"])
def test_terminated_workers_whose_log_handler_takes_a_lock_end_in_silence(
    shells: Shells, tmp_path: Path, name: str
) -> None:
    """The handler got records of the end, and its lock raised ClientClosedError, which was printed."""
    source = tmp_path / "workers_end.py"
    source.write_text(WORKERS_END)
    program = shells.start("-W", "ignore", str(source), name)
    assert program.communicate(timeout=LIMIT) == ("435\n" * 3, "")
