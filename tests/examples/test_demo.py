"""``python -m distsync demo``: what it prints, and its exit status."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.leak_census import Observer, children, command_of
from helpers.subprocesses import LIMIT, Home, Shells
from helpers.timing import eventually

from distsync.cli import demo as demo_module

DEMO = ("-m", "distsync", "demo")
DEMO_WITH = """
import pathlib, sys
from distsync.cli import demo as demo_command
demo_command.ALONE = pathlib.Path(sys.argv.pop(1))
demo_command.demo_command()
"""
"""The demo with another program for the one that works alone."""


def demo(shells: Shells, *options: object) -> tuple[int, str, str]:
    """Exit status, and what it printed on its output and on stderr."""
    process = shells.start(*DEMO, *options)
    output, errors = process.communicate(timeout=LIMIT)
    return process.returncode, output, errors


@pytest.mark.slow("starts several programs")
def test_demo_finds_that_both_agree_and_leaves_nothing(shells: Shells, observer: Observer) -> None:
    status, output, errors = demo(shells, "--files", 24)
    assert (status, errors) == (0, "")
    assert re.search(r"both agree: [\d.]+ s together, [\d.]+ s alone", output)
    assert re.fullmatch(r"gain: 4 processes counted [\d.]+ times as fast as one process", output.splitlines()[-1])
    assert len(output.splitlines()) <= 40
    assert re.search(r"files +│ +24 │ +24", output)
    assert [name for name in observer.kazoo.get_children("/") if name.startswith("distsync-demo")] == []


@pytest.mark.slow("starts several programs")
def test_demo_starts_the_embedded_server_where_none_is_configured_and_keeps_what_it_should(home: Home) -> None:
    home.environment["TMPDIR"] = str(home.folder)
    status, output, errors = demo(home, "--files", 12, "--processes", 2, "--keep")
    assert (status, errors) == (0, "")
    assert "the embedded one of this user" in output
    assert "both agree" in output
    folder = Path(re.search(r"kept: folder (\S+), ", output)[1])
    assert {"together.json", "alone.json", "wordcount-1.log"} <= {path.name for path in folder.iterdir()}


def test_demo_says_that_no_server_answers_and_nothing_else(home: Home) -> None:
    home.environment.update(DISTSYNC_HOSTS="127.0.0.1:1", DISTSYNC_CONNECT_TIMEOUT="0.5", TMPDIR=str(home.folder))
    status, output, errors = demo(home)
    assert (status, output) == (1, "")
    assert re.fullmatch(r"demo: no ZooKeeper server answered at 127.0.0.1:1 .*\n", errors)
    assert list(home.folder.glob("distsync-demo*")) == []


def test_demo_ends_the_others_when_a_process_fails(home: Home) -> None:
    process = home.start(*DEMO, "--processes", 3)
    eventually(lambda: len(workers_of(process)) == 3, limit=LIMIT)
    workers = workers_of(process)
    os.kill(workers[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "gain" not in output
    assert f"process 2 (pid {workers[1]}) was killed by signal 9" in errors
    assert "agree" not in output
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that it has started, in this order."""
    return sorted(pid for pid in children(process.pid) if "wordcount.py" in command_of(pid))


@pytest.mark.slow("starts several programs")
def test_demo_shows_where_the_two_differ(shells: Shells, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    program = demo_module.ALONE.read_text()
    wrong.write_text(program.replace("len(text.splitlines())", "1").replace("token.string for", '"odd" for'))
    process = shells.start("-c", DEMO_WITH, wrong, "--files", 8, "--processes", 2)
    output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (1, "")
    assert re.search(r"they differ: lines: [\d,]+ together, 8 alone", output)
    assert re.search(r"they differ: names: [\d,]+ are counted differently, such as", output)
    assert "words:" not in output


def test_folder_that_does_not_exist_is_refused(home: Home) -> None:
    status, _, errors = demo(home, "--folder", home.folder / "nowhere")
    assert status == 2
    assert "does not exist" in errors


def test_help_of_the_group_names_each_command(home: Home) -> None:
    printed = home.run("-m", "distsync", "--help")
    assert re.search(r"demo +Run one program as four processes", printed)
    assert re.search(r"serve +Run a server", printed)
    assert "DISTSYNC_HOSTS" in printed
