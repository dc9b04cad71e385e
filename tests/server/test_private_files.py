"""Files of a server can be read only by its user, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.servers import EmbeddedProcess
from helpers.timing import PATIENCE

START = "from distsync._server.autostart.find_or_start import find_or_start; print(find_or_start().pid)"


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return the files of the folder, and the folder itself, that other users can access."""
    wanted = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o600}
    found = [(path, path.stat().st_mode) for path in (folder, *folder.rglob("*"))]
    return [f"{path} {mode:o}" for path, mode in found if stat.S_IMODE(mode) != wanted[stat.S_IFMT(mode)]]


@pytest.mark.usefixtures("umask")
def test_files_of_a_manually_started_server_are_private(tmp_path: Path) -> None:
    server, data = EmbeddedProcess(tmp_path), str(tmp_path / "new" / "data")
    server.command = lambda: [*EmbeddedProcess.command(server), "--data-dir", data]  # type: ignore[method-assign]
    server.start()
    try:
        assert {path.name for path in (tmp_path / "new" / "data").iterdir()} >= {"lock", "address", "journal.log"}
        assert open_to_others(tmp_path / "new") == []
    finally:
        server.stop()
    assert open_to_others(tmp_path / "new") == []


@pytest.mark.usefixtures("umask")
def test_files_of_an_automatically_started_server_are_private(tmp_path: Path) -> None:
    folders = {"DISTSYNC_RUNTIME_DIR": str(tmp_path / "a" / "run"), "DISTSYNC_STATE_DIR": str(tmp_path / "b" / "state")}
    settings = {**os.environ, **folders, "DISTSYNC_IDLE_EXIT": "1"}
    (tmp_path / "b").mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", START], env=settings, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert int(done.stdout) > 0
    names = {path.name for path in (tmp_path / "b").rglob("*")}
    assert names >= {"server.log", "start.lock", "secret", "data", "lock", "journal.log"}
    assert open_to_others(tmp_path / "a") + open_to_others(tmp_path / "b") == []


@pytest.mark.usefixtures("umask")
def test_files_of_an_older_version_become_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "lock").touch()
    server = EmbeddedProcess(tmp_path)
    server.start()
    try:
        assert open_to_others(tmp_path / "data") == []
    finally:
        server.stop()
