"""Functions of ``__main__``: workers of other programs load that program, and never call a namesake of their own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.subprocesses import LIMIT, Shells

PROGRAM = """
import sys, time
from distsync.multiprocessing import Pool

def power(number):
    time.sleep(0.02)
    return number ** {exponent}

if __name__ == "__main__":
    with Pool(int(sys.argv[1]), name="p") as pool:
        if "wait" in sys.argv:
            print("begun", flush=True)
            input()
        print(pool.map(power, range(30), chunksize=1) == [number ** {exponent} for number in range(30)])
        pool.close()
        pool.join()
"""


def write(shells: Shells, name: str, exponent: int) -> Path:
    path = shells.folder / name
    path.write_text(PROGRAM.format(exponent=exponent))
    return path


@contextmanager
def worker(shells: Shells) -> Iterator[None]:
    """Start one worker, and stop it at the end."""
    process = shells.start("-m", "distsync", "worker", "p", "--processes", 1)
    yield
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 0


@pytest.mark.slow("starts several programs")
def test_worker_of_the_command_line_loads_the_program(shells: Shells) -> None:
    program = write(shells, "cubes.py", 3)
    with worker(shells):
        assert shells.run(program, 0) == "True\n"


@pytest.mark.slow_on("zookeeper")
def test_two_programs_with_functions_of_one_name_get_each_its_own(shells: Shells) -> None:
    programs = [write(shells, "cubes.py", 3), write(shells, "squares.py", 2)]
    assert shells.together(*[(program, 2) for program in programs]) == ["True\n"] * 2


@pytest.mark.slow_on("zookeeper")
def test_program_that_a_worker_cannot_load_is_named_to_the_caller(shells: Shells) -> None:
    with worker(shells):
        process = shells.start("-c", PROGRAM.format(exponent=2), 0)
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "PayloadRefusedError" in errors
    assert "a prompt, or -c" in errors


@pytest.mark.slow("starts several programs")
def test_worker_that_loaded_a_program_before_it_was_changed_runs_the_new_version(shells: Shells) -> None:
    with worker(shells):
        for exponent in (2, 3, 2):
            assert shells.run(write(shells, "powers.py", exponent), 0) == "True\n"


def test_pool_whose_program_was_changed_runs_the_new_version_for_a_caller_that_has_it(shells: Shells) -> None:
    old = start_waiting(shells, write(shells, "powers.py", 2), 1)
    assert shells.run(write(shells, "powers.py", 3), 0) == "True\n"
    assert old.communicate("\n", timeout=LIMIT)[0] == "True\n"


@pytest.mark.slow("starts several programs")
def test_worker_refuses_tasks_of_a_program_that_was_changed_while_it_runs(shells: Shells) -> None:
    old = start_waiting(shells, write(shells, "powers.py", 2), 0)
    write(shells, "powers.py", 3)
    with worker(shells):
        _, errors = old.communicate("\n", timeout=LIMIT)
    assert old.returncode == 1
    assert "PayloadRefusedError" in errors
    assert "its file differs from that of the caller" in errors


def start_waiting(shells: Shells, program: Path, processes: int) -> subprocess.Popen[str]:
    """Start a program that has created its pool, and waits for a line of input."""
    process = shells.start(program, processes, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process
