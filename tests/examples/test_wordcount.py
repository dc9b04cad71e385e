"""The main program: the same in both versions, and right whatever happens to the server."""

from __future__ import annotations

import difflib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import ServerProcess
from helpers.subprocesses import LIMIT, Home, Shells
from helpers.timing import eventually

ROOT = Path(__file__).parents[2]
WORDCOUNT = ROOT / "examples" / "wordcount"
SHIPPED = ROOT / "distsync" / "cli" / "programs"
SHARED, ALONE = "wordcount/wordcount.py", "wordcount/wordcount_stdlib.py"
PROCESSES = 3
FILES = ("--files", 40, "--most", 4)
MORE_FILES = ("--files", 300, "--most", 1)


def test_the_two_versions_differ_in_imports_only() -> None:
    versions = [(WORDCOUNT / name).read_text().splitlines() for name in ("wordcount_stdlib.py", "wordcount.py")]
    changed = [line for line in difflib.ndiff(*versions) if line[:2] in ("- ", "+ ")]
    assert sorted(changed) == [
        "+ from distsync.queue import Queue",
        "+ from distsync.threading import Barrier, Lock, Thread, get_ident",
        "- from queue import Queue",
        "- from threading import Barrier, Lock, Thread, get_ident",
    ]


@pytest.mark.parametrize("name", ["wordcount.py", "wordcount_stdlib.py"])
def test_the_package_has_the_program_of_the_examples(name: str) -> None:
    assert (SHIPPED / name).read_bytes() == (WORDCOUNT / name).read_bytes()


def share(shells: Shells, *options: object) -> list[subprocess.Popen[str]]:
    """As many processes as work together, started."""
    command = (SHARED, "--parties", PROCESSES, "--result", shells.folder / "together.json", *options)
    return [shells.start(*command) for _ in range(PROCESSES)]


def counted(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def wait_for_parts(process: subprocess.Popen[str], number: int) -> None:
    """Read lines of the process until it has counted this number of parts more."""
    assert process.stdout is not None
    for _ in range(number):
        assert process.stdout.readline().endswith("parts\n")


def result(path: Path) -> dict[str, Any]:
    """Return what all workers found together."""
    found: dict[str, Any] = json.loads(path.read_text())
    assert len(found.pop("workers")) in (PROCESSES, 2 * PROCESSES)
    return found


def alone(shells: Shells, *options: object) -> dict[str, Any]:
    path = shells.folder / "alone.json"
    shells.run(ALONE, "--threads", PROCESSES, "--result", path, *options)
    return result(path)


@pytest.mark.slow_on("zookeeper")
def test_processes_together_find_what_one_alone_finds(shells: Shells) -> None:
    printed = [counted(process) for process in share(shells, *FILES)]
    totals = {output[output.index("40 files") :] for output in printed}
    assert len(totals) == 1
    assert result(shells.folder / "together.json") == alone(shells, *FILES)


@pytest.mark.slow("starts several programs")
def test_each_of_several_processes_may_have_several_threads(shells: Shells) -> None:
    command = (SHARED, "--threads", 3, "--parties", 6, "--result", shells.folder / "together.json", *FILES)
    shells.together(command, command)
    assert result(shells.folder / "together.json") == alone(shells, *FILES)


@pytest.mark.slow("starts several programs")
def test_second_run_with_the_same_names_starts_from_scratch(shells: Shells) -> None:
    for files in (20, 10):
        assert all(f"{files} files" in counted(process) for process in share(shells, "--files", files))


@pytest.mark.slow("starts several programs")
def test_folder_with_no_files_and_with_a_link_that_leads_nowhere(shells: Shells, tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    for linked in (False, True):
        if linked:
            (folder / "broken.py").symlink_to("nowhere")
        assert all("0 files" in counted(process) for process in share(shells, "--folder", folder))


@pytest.mark.slow("starts several programs")
def test_run_survives_a_server_that_is_killed_and_restarted_by_its_clients(home: Home) -> None:
    processes = share(home, *MORE_FILES)
    for parts in (3, 7):
        wait_for_parts(processes[0], parts)
        killed = home.kill_server()
        eventually(lambda killed=killed: home.server_pid() != killed, "nobody started the server again", LIMIT)
    for process in processes:
        counted(process)
    assert result(home.folder / "together.json") == alone(home, *MORE_FILES)


@pytest.mark.slow("starts several programs")
def test_run_survives_a_server_that_is_killed_and_restarted_manually(
    own_server: ServerProcess, own_shells: Shells
) -> None:
    processes = share(own_shells, *MORE_FILES)
    wait_for_parts(processes[0], 3)
    own_server.restart(kill=True)
    for process in processes:
        counted(process)
    assert result(own_shells.folder / "together.json") == alone(own_shells, *MORE_FILES)
