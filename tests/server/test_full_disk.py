"""The automatically started server on a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.full_disks import FileLimit, FullDisk, SmallDisk, drafts
from helpers.subprocesses import Home
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running

from distsync._client import embedded_locator
from distsync._client.client import Client
from distsync._server.autostart import find_or_start
from distsync.errors import ServerStartError
from distsync.queue import Queue

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
