"""The automatically started server on a full disk: the errors of callers, that nothing is lost, and that all
continue once there is space again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.full_disks import FileLimit, FullDisk, SmallDisk, drafts
from helpers.subprocesses import Home
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running

import distsync
from distsync import multiprocessing
from distsync._client import embedded_locator
from distsync._client.client import Client
from distsync._server.autostart import find_or_start
from distsync.errors import DeadlineError, OutcomeUnknownError, ServerStartError
from distsync.queue import Empty, Full, PriorityQueue, Queue
from distsync.recipes import Counter, JoinableQueue, SharedLock
from distsync.threading import Event, Lock, Semaphore

LARGE = bytes(100_000)
"""More than the unused rest of the last page of a file."""


@pytest.fixture(params=[SmallDisk, FileLimit])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    made: FullDisk = request.param(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def home(disk: FullDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A user whose server has its folders on the disk."""
    made = Home(disk.folder)
    monkeypatch.setenv("DISTSYNC_RUNTIME_DIR", str(made.runtime))
    monkeypatch.setenv("DISTSYNC_STATE_DIR", str(made.state))
    yield made
    disk.free()
    made.close()


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with Client() as made:
        made.sync()
        yield made


@pytest.fixture
def full(home: Home, disk: FullDisk, client: Client) -> FullDisk:
    """The disk is full, the server has ended, and the client knows why there is none."""
    disk.fill(home.server_pid())
    Running(Queue(name="fills", client=client).put, LARGE)
    eventually(lambda: client._outage() is not None)
    return disk


def test_server_that_cannot_start_says_why_and_where_in_one_line(home: Home, disk: FullDisk) -> None:
    """It started, failed at the address file or at the first write, and left a draft and a traceback each time."""
    first = find_or_start.find_or_start()
    home.kill_server()
    disk.fill()
    for _ in range(2):
        with pytest.raises(ServerStartError, match=rf"{home.state}/data/journal\.log \(.*{disk.error}\)"):
            find_or_start.find_or_start()
    assert drafts(disk.folder) == []
    assert "Traceback" not in (home.state / "server.log").read_text()
    disk.free()
    assert find_or_start.find_or_start().port == first.port


def test_first_start_on_a_full_disk_says_so(home: Home, disk: FullDisk) -> None:
    disk.fill()
    with pytest.raises(ServerStartError, match=rf"{home.state}.*{disk.error}|{disk.error}.*{home.state}"):
        find_or_start.find_or_start()
    assert drafts(disk.folder) == []
    disk.free()
    find_or_start.find_or_start()


def test_address_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It may be on another disk than the data."""
    disk = SmallDisk(tmp_path / "disk")
    request.addfinalizer(disk.close)
    home = Home(tmp_path / "home")
    request.addfinalizer(home.close)
    monkeypatch.setenv("DISTSYNC_RUNTIME_DIR", str(disk.folder))
    monkeypatch.setenv("DISTSYNC_STATE_DIR", str(home.state))
    disk.fill()
    with pytest.raises(ServerStartError, match=f"{disk.error}.*{disk.folder}/address"):
        find_or_start.find_or_start()
    assert drafts(tmp_path) == []
    assert "Traceback" not in (home.state / "server.log").read_text()
    disk.free()
    find_or_start.find_or_start()


@pytest.mark.parametrize("disk", [FileLimit], indirect=True)
def test_error_of_a_new_program_names_the_full_disk(home: Home, disk: FullDisk) -> None:
    """Its session was the write for which there was no space. The error spoke of connection limits and TLS."""
    find_or_start.find_or_start()
    disk.fill(home.server_pid())
    with Client() as client, pytest.raises(ServerStartError, match=rf"{home.state}/.*{disk.error}"):
        client.sync()


def test_failed_restarts_are_logged_once_and_repeated_until_there_is_space(
    client: Client, home: Home, disk: FullDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each was logged, twice a second."""
    started: list[Path] = []
    start = find_or_start._start

    def record(state: Path, deadline: float) -> Any:
        started.append(state)
        return start(state, deadline)

    monkeypatch.setattr(find_or_start, "_start", record)
    monkeypatch.setattr(embedded_locator, "PAUSE_S", UNIT)
    monkeypatch.setattr(embedded_locator, "MAX_PAUSE_S", UNIT)
    disk.fill(home.server_pid())
    waiting = Running(Queue(name="items", client=client).put, LARGE)
    eventually(lambda: len(started) == 3)
    assert drafts(disk.folder) == []
    disk.free()
    waiting.result()
    logged = [record.getMessage() for record in caplog.records]
    assert sum("cannot restart the embedded server" in line for line in logged) == 1


CALLS: dict[str, Callable[[Client], object]] = {
    "Lock.acquire": lambda client: Lock(name="x", client=client).acquire(timeout=UNIT),
    "Semaphore.acquire": lambda client: Semaphore(2, name="x", client=client).acquire(timeout=UNIT),
    "SharedLock.acquire": lambda client: SharedLock(name="x", client=client).reader.acquire(timeout=UNIT),
    "Event.wait": lambda client: Event(name="x", client=client).wait(UNIT),
    "Queue.get": lambda client: Queue(name="items", client=client).get(timeout=UNIT),
    "Queue.get_many": lambda client: Queue(name="items", client=client).get_many(2, timeout=UNIT),
    "Queue.put": lambda client: Queue(name="items", client=client).put(1, timeout=UNIT),
    "Queue.put with a bound": lambda client: Queue(20, name="items", client=client).put(1, timeout=UNIT),
    "PriorityQueue.get": lambda client: PriorityQueue(name="x", client=client).get(timeout=UNIT),
    "JoinableQueue.get": lambda client: JoinableQueue(name="x", client=client).get(timeout=UNIT),
    "multiprocessing.Lock": lambda client: multiprocessing.Lock(name="x", client=client).acquire(timeout=UNIT),
}


def test_calls_that_end_by_their_timeout_say_that_the_disk_is_full(home: Home, client: Client, full: FullDisk) -> None:
    """`get` raised Empty though items were there, and `put` an empty Full."""
    refused = {}
    for name, running in {name: Running(call, client) for name, call in CALLS.items()}.items():
        try:
            refused[name] = f"returned {running.result()}"
        except (Empty, Full) as error:
            refused[name] = repr(error)
        except ServerStartError as error:
            refused[name] = str(error)
    where = f"{home.state}/data/journal.log"
    assert {name: text for name, text in refused.items() if where not in text or full.error not in text} == {}


def test_calls_that_only_ask_the_server_say_so_too(client: Client, full: FullDisk) -> None:
    counter, queue = Counter(name="c", client=client), Queue(name="items", client=client)
    with pytest.raises(DeadlineError, match=full.error):
        counter.add(1, timeout=UNIT)
    with distsync.timeout(UNIT), pytest.raises(DeadlineError, match=full.error):
        queue.put(1)


@pytest.mark.slow
def test_put_whose_outcome_is_unknown_says_so_too(home: Home, disk: FullDisk, client: Client) -> None:
    queue = Queue(name="items", client=client)
    queue.put(1)
    disk.fill(home.server_pid())
    with pytest.raises(OutcomeUnknownError, match=rf"{home.state}/.*{disk.error}"):
        queue.put(LARGE, timeout=PATIENCE / 2)


def test_nothing_is_lost_and_all_continues_once_there_is_space(
    home: Home, disk: FullDisk, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither items whose put has returned, nor the one whose put waits."""
    monkeypatch.setattr(embedded_locator, "PAUSE_S", UNIT)
    monkeypatch.setattr(embedded_locator, "MAX_PAUSE_S", UNIT)
    queue: Queue[Any] = Queue(name="items", client=client)
    for number in range(11):
        queue.put(number)
    session = client.session_id
    disk.fill(home.server_pid())
    waiting = Running(queue.put, LARGE)
    eventually(lambda: client._outage() is not None)
    with pytest.raises(ServerStartError, match=disk.error):
        queue.get(timeout=UNIT)
    disk.free()
    waiting.result()
    assert [queue.get() for _ in range(12)] == [*range(11), LARGE]
    assert queue.empty()
    assert client._outage() is None
    assert client.session_id == session
