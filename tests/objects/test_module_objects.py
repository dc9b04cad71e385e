"""Objects bound at module or class level without a name: shared by all processes that live at the same time, and fresh
for those that come later."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.evaluating_programs import Program
from helpers.leak_census import Observer
from helpers.request_counts import counted
from helpers.servers import ServerProcess
from helpers.subprocesses import Home, Shells
from helpers.timing import eventually
from helpers.worker_processes import expire

from distsync import Event
from distsync._client.client import Client

MODULE = """
from distsync.threading import Condition, Event, Lock, Semaphore
from distsync.queue import Queue
from distsync import Counter, SharedLock

stop, jobs, total, table, changed = Event(), Queue(), Counter(), SharedLock(), Condition()

class Worker:
    slots = Semaphore(2)
"""

PROGRAM = """
import json, os, sys
import shop
from shop import *

for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace, "DISTSYNC_SESSION_TIMEOUT": "4"}
    made = Shells(tmp_path, environment)
    yield made
    made.close()


@pytest.fixture
def start(shells: Shells, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that starts ``program.py``, or another file with arguments."""
    (tmp_path / "shop.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    programs: list[Program] = []

    def start(file: str = "program.py", *arguments: str) -> Program:
        programs.append(Program(shells.start(tmp_path / file, *arguments)))
        return programs[-1]

    yield start
    for each in programs:
        if each.process.poll() is None:
            each.exit()


CHANGES = ["stop.set()", "jobs.put(1)", "total.add(3)", "Worker.slots.acquire()"]
STATE = "[stop.is_set(), jobs.qsize(), total.get(), Worker.slots.acquire(False), table.reader.acquire()]"
FRESH = [False, 0, 0, True, True]


def test_program_that_is_started_again_finds_fresh_objects(start: Callable[..., Program]) -> None:
    first = start()
    for change in CHANGES:
        first(change)
    first.exit()
    assert start()(STATE) == FRESH


def test_program_that_is_started_after_a_killed_one_finds_fresh_objects_at_once(start: Callable[..., Program]) -> None:
    """Its session lasts on, but its process provably does not run any more."""
    first = start()
    for change in CHANGES:
        first(change)
    first.kill()
    assert start()(STATE) == FRESH


def test_programs_that_live_at_the_same_time_share_the_objects(start: Callable[..., Program]) -> None:
    first, second = start(), start()
    for change in CHANGES:
        first(change)
    assert second("[stop.is_set(), jobs.qsize(), total.get()]") == [True, 1, 3]
    first.exit()
    third = start()
    assert third("[stop.is_set(), jobs.get(), total.get()]") == [True, 1, 3]


def test_objects_that_another_program_destroyed_are_fresh(start: Callable[..., Program]) -> None:
    first, second, third = start(), start(), start()
    for change in CHANGES:
        first(change)
    for each in ("stop", "jobs", "total", "Worker.slots", "table"):
        second(f"{each}.destroy()")
    assert third(STATE) == FRESH
    third("table.reader.release()")
    third("Worker.slots.release()")
    assert first("total.add(1)") == 1


def test_programs_started_at_once_share_fresh_objects(start: Callable[..., Program]) -> None:
    first = start()
    for change in CHANGES:
        first(change)
    first.kill()
    programs = [start() for _ in range(4)]
    for each in programs:  # all of them use an object for the first time at the same time
        assert each.process.stdin is not None
        each.process.stdin.write("total.add(1)\n")
        each.process.stdin.flush()
    for each in programs:
        assert each.process.stdout is not None
        assert json.loads(each.process.stdout.readline()) in (1, 2, 3, 4)
    assert [each("[stop.is_set(), total.get()]") for each in programs] == [[False, 4]] * 4


def test_last_program_leaves_no_znodes_of_the_objects(
    start: Callable[..., Program], observer: Observer, namespace: str
) -> None:
    first, second = start(), start()
    for change in CHANGES:
        first(change)
        second(change)
    first.exit()
    second.exit()
    eventually(lambda: observer.tree(f"{namespace}/module/shop") == {})


def test_forked_child_keeps_the_objects_that_it_uses_beyond_the_end_of_its_parent(
    start: Callable[..., Program],
) -> None:
    first = start()
    first("stop.set()")
    # the child uses an object, says so, and lives on
    child = first(
        "(lambda r, w: (os.read(r, 1), pid)[1] if (pid := os.fork()) else "
        "(stop.is_set(), os.write(w, b'.'), __import__('time').sleep(60), os._exit(0)))(*os.pipe())"
    )
    first.kill()
    try:
        assert start()("stop.is_set()")
    finally:
        os.kill(child, signal.SIGKILL)


def test_object_that_was_pickled_is_the_same_one_for_its_receiver(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    (tmp_path / "receiver.py").write_text(
        "import json, pickle, sys\n"
        "stop, changed = (pickle.loads(bytes.fromhex(each)) for each in sys.argv[1:])\n"
        "for line in sys.stdin: print(json.dumps(eval(line)), flush=True)\n"
    )
    first = start()
    first("stop.set()")
    pickles = first("[__import__('pickle').dumps(each).hex() for each in (stop, changed)]")
    receiver = start("receiver.py", *pickles)
    assert receiver("stop.is_set()")
    first.kill()
    assert start()("stop.is_set()"), "the receiver is a member, too"
    assert receiver("[changed.acquire(), changed.release()]") == [True, None]


def test_process_whose_session_expired_keeps_the_objects_that_only_it_used(
    start: Callable[..., Program], server: ServerProcess
) -> None:
    first = start()
    first("stop.set()")
    session, password = first(
        "(lambda session, password: (session, password.hex()))(*stop.client._runtime.zk_session.client_id)"
    )
    expire((server.hosts, (session, bytes.fromhex(password))))
    eventually(lambda: first("stop.client.session_id") not in (None, session))
    assert first("stop.is_set()")
    assert start()("stop.is_set()")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.kill_server()
    made.close()


SHARED = """
import json, sys
from distsync.threading import Event

class Job:
    stop = Event()

def main():
    for line in sys.stdin:
        print(json.dumps(eval(line)), flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def start_at_home(home: Home) -> Iterator[Callable[..., Program]]:
    """Return a function that starts a program which uses the embedded server."""
    programs: list[Program] = []

    def start(*command: object) -> Program:
        programs.append(Program(home.start(*command)))
        return programs[-1]

    yield start
    for each in programs:
        each.exit()


def written(file: Path, source: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


def test_scripts_of_one_file_name_have_their_own_objects_on_the_embedded_server(
    start_at_home: Callable[..., Program], tmp_path: Path
) -> None:
    one, two = (start_at_home(written(tmp_path / folder / "main.py", SHARED)) for folder in ("one", "two"))
    one("Job.stop.set()")
    assert [each("Job.stop.is_set()") for each in (one, two)] == [True, False]


def test_programs_have_their_own_objects_in_modules_of_one_name_on_the_embedded_server(
    start_at_home: Callable[..., Program], tmp_path: Path
) -> None:
    programs = []
    for folder in ("one", "two"):
        written(tmp_path / folder / "utils.py", SHARED)
        main = written(tmp_path / folder / f"{folder}.py", "from utils import Job, main; main()")
        programs.append(start_at_home(main))
    one, two = programs
    one("Job.stop.set()")
    assert [each("Job.stop.is_set()") for each in (one, two)] == [True, False]


def test_script_and_programs_that_import_it_share_its_objects_on_the_embedded_server(
    start_at_home: Callable[..., Program], tmp_path: Path
) -> None:
    """It has other names as well: that of a module of a package, and a path with a link."""
    script = written(tmp_path / "package" / "jobs.py", SHARED)
    (tmp_path / "link").symlink_to(tmp_path / "package")
    paths = {"as_jobs": tmp_path / "package", "as_link": tmp_path / "link", "as_package": tmp_path}
    programs = [start_at_home(script)]
    for name, path in paths.items():
        module = "package.jobs" if name == "as_package" else "jobs"
        source = f"import sys; sys.path.insert(0, {str(path)!r}); from {module} import Job, main; main()"
        programs.append(start_at_home(written(tmp_path / "programs" / f"{name}.py", source)))
    programs[0]("Job.stop.set()")
    assert [each("Job.stop.is_set()") for each in programs] == [True] * 4


def test_module_of_a_package_shares_its_objects_if_it_is_run_by_m_and_if_it_is_imported(
    start_at_home: Callable[..., Program], tmp_path: Path
) -> None:
    written(tmp_path / "package" / "__init__.py", "")
    written(tmp_path / "package" / "jobs.py", SHARED)
    importer = written(tmp_path / "importer.py", "from package.jobs import Job, main; main()")
    run, imported = start_at_home("-m", "package.jobs"), start_at_home(importer)
    run("Job.stop.set()")
    assert imported("Job.stop.is_set()")


def test_module_in_a_long_path_shares_its_objects_on_the_embedded_server(
    start_at_home: Callable[..., Program], tmp_path: Path
) -> None:
    """As the name of a znode, its path would take more than 1,000 bytes."""
    script = written(tmp_path.joinpath(*["\u00e4" * 80] * 3) / "jobs.py", SHARED)
    importer = written(script.with_name("importer.py"), "from jobs import Job, main; main()")
    run, imported = start_at_home(script), start_at_home(importer)
    run("Job.stop.set()")
    assert imported("Job.stop.is_set()")


def test_script_and_its_importer_share_its_objects_on_a_configured_server(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    written(tmp_path / "jobs.py", SHARED)
    written(tmp_path / "elsewhere" / "jobs.py", SHARED)
    written(tmp_path / "importer.py", "from jobs import Job, main; main()")
    programs = [start(file) for file in ("jobs.py", "importer.py", "elsewhere/jobs.py")]
    programs[0]("Job.stop.set()")
    assert [each("Job.stop.is_set()") for each in programs] == [True] * 3


def test_first_use_costs_4_requests_more_in_2_round_trips_and_any_other_none(
    client: Client, make_client: Callable[..., Client]
) -> None:
    """Three read the members and the objects, and the transaction joins."""
    source = compile("bound, other = Event(client=client), Event(client=client)", "shop.py", "exec")
    costs = []
    for each in (make_client(), client):  # the first one creates the parents
        module: dict[str, Any] = {"__name__": "shop", "Event": Event, "client": each}
        exec(source, module)
        with counted(each) as joining:
            module["bound"].is_set()
        with counted(each) as later:
            module["other"].is_set()
        with counted(each) as named:
            Event(name="x", client=each).is_set()
        costs.append((joining, later, named))
    joining, later, named = costs[-1]
    assert (joining.requests - later.requests, joining.round_trips - later.round_trips) == (4, 2)
    assert later == named


TWICE = """
from distsync.multiprocessing import get_context
from distsync.queue import Queue

jobs = Queue()
first = jobs
jobs = Queue()

def put(item):
    first.put(item)
    jobs.put(item)

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        child = get_context(method).Process(target=put, args=(method,))
        child.start()
        child.join()
    print([first.get(timeout=10) for _ in range(2)], [jobs.get(timeout=10) for _ in range(jobs.qsize())])
"""


def test_only_the_first_object_of_a_variable_is_shared_with_a_child_that_imports_the_module(
    shells: Shells, tmp_path: Path
) -> None:
    """Both queues were one. A forked child inherits the second one, too."""
    shells.environment["DISTSYNC_UNNAMED"] = "ignore"
    (tmp_path / "twice.py").write_text(TWICE)
    assert shells.run(tmp_path / "twice.py") == "['fork', 'spawn'] ['fork']\n"


def test_object_of_a_reloaded_module_is_the_one_from_before(start: Callable[..., Program]) -> None:
    program = start()
    program("stop.set()")
    assert program("__import__('importlib').reload(shop).stop.is_set()")
    assert not program("shop.stop is stop")


PARENT = """
from distsync.multiprocessing import get_context
from distsync.queue import Queue

answers = Queue()

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        child = get_context(method).Process(target=answers.put, args=(method,))
        child.start()
        child.join()
    print(answers.get(timeout=10), answers.get(timeout=10))
"""


def test_what_a_child_leaves_is_there_for_a_parent_that_has_not_used_it_before(shells: Shells, tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    assert shells.run(tmp_path / "parent.py") == "fork spawn\n"
