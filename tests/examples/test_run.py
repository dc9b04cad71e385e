"""``python -m distsync run``: programs that know nothing of distsync."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pytest
from helpers.subprocesses import LIMIT, ROOT, Home, Shells
from helpers.timing import eventually

RUN = ("-m", "distsync", "run")

WAITS = """\
import time
from pathlib import Path

Path("ready").touch()
while True:
    time.sleep(0.05)
"""
"""Ctrl-C ends it. It would be lost in the finalizer of a file that is left open, and late right before a long sleep."""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(textwrap.dedent(text))
    return path


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=LIMIT)
    return process.returncode, output, errors


def without_runpy(errors: str) -> str:
    """A traceback without the frames of Python's own ``-m``."""
    return re.sub(r'  File "[^"]*runpy[^"]*", line \d+, in \w+\n(    .*\n)?', "", errors)


def both(shells: Shells, *command: object) -> list[tuple[int, str, str]]:
    """What Python and ``distsync run`` make of the same command line."""
    return [ended(process) for process in (shells.start(*command), shells.start(*RUN, *command))]


COUNTS = """
    import sys
    from threading import Lock, Thread

    lock = Lock()

    def count(path, times):
        for _ in range(times):
            with lock:
                number = int(open(path).read() or 0)
                open(path, "w").write(str(number + 1))

    if __name__ == "__main__":
        open(sys.argv[1], "a")
        threads = [Thread(target=count, args=(sys.argv[1], 10)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
"""


def test_two_shells_share_the_objects_of_a_script(shells: Shells, tmp_path: Path) -> None:
    script, number = written(tmp_path, "counts.py", COUNTS), tmp_path / "number"
    number.touch()
    shells.together(*[(*RUN, script, number)] * 2)
    assert number.read_text() == "40"


CHILDREN = """
    import multiprocessing, queue, sys, threading
    import helper

    lock = threading.Lock()
    answers = queue.SimpleQueue()

    def child(method):
        with lock, helper.guard:
            answers.put((method, __name__, lock.name, type(helper.guard).__module__))

    if __name__ == "__main__":
        for method in ("fork", "spawn", "forkserver"):
            process = multiprocessing.get_context(method).Process(target=child, args=(method,))
            process.start()
            process.join()
        for _ in range(3):
            print(*answers.get(timeout=10))
"""


@pytest.mark.slow("starts several programs")
def test_children_of_each_start_method_are_swapped_too(shells: Shells, tmp_path: Path) -> None:
    written(tmp_path, "helper.py", "import threading\nguard = threading.RLock()")
    script = written(tmp_path, "parent.py", CHILDREN)
    assert shells.run(*RUN, "--swap", "helper", script).splitlines() == [
        "fork __main__ parent.lock distsync.threading",
        "spawn __mp_main__ parent.lock distsync.threading",
        "forkserver __mp_main__ parent.lock distsync.threading",
    ]


@pytest.mark.slow("starts several programs")
def test_program_of_the_demo_in_its_stdlib_version_shares_its_work(shells: Shells, tmp_path: Path) -> None:
    program, files = ROOT / "examples" / "wordcount" / "wordcount_stdlib.py", ("--files", 8)
    together, alone = tmp_path / "together.json", tmp_path / "alone.json"
    shells.together(*[(*RUN, program, "--parties", 2, "--result", together, *files)] * 2)
    shells.run(program, "--threads", 2, "--parties", 2, "--result", alone, *files)
    results = [json.loads(path.read_text()) for path in (together, alone)]
    assert [len(result.pop("workers")) for result in results] == [2, 2]
    assert results[0] == results[1]


MODULE = """
    import multiprocessing, threading

    lock = threading.Lock()

    def child():
        print(__name__, lock.name)

    if __name__ == "__main__":
        for method in ("spawn", "forkserver"):
            process = multiprocessing.get_context(method).Process(target=child)
            process.start()
            process.join()
"""


def test_children_of_a_module_are_swapped_too(home: Home, tmp_path: Path) -> None:
    written(tmp_path, "package/__init__.py", "")
    written(tmp_path, "package/parent.py", MODULE)
    assert home.run(*RUN, "-m", "package.parent").splitlines() == ["__mp_main__ package.parent.lock"] * 2


def test_script_may_patch_itself_and_its_children_with_it(home: Home, tmp_path: Path) -> None:
    script = written(
        tmp_path, "itself.py", "from distsync.patch import patch\npatch(__name__)\n" + textwrap.dedent(MODULE)
    )
    assert home.run(script).splitlines() == ["__mp_main__ itself.lock"] * 2


SHOWS = """
    import os, sys
    print(__name__, __file__, __package__, __spec__ and __spec__.name, type(__loader__).__name__, __doc__)
    print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals(), sorted(globals()))
    print(sys.stdin.read(), __annotations__ if "__annotations__" in globals() else {})
    import beside
    def fails():
        raise ValueError(beside.name)
    if "fail" in sys.argv:
        fails()
    if "status" in sys.argv:
        sys.exit(7)
    if "text" in sys.argv:
        sys.exit("said at the end")
    if "eof" in sys.argv:
        raise EOFError
"""


@pytest.fixture
def shows(tmp_path: Path) -> Path:
    written(tmp_path, "beside.py", "name = 'beside'")
    return written(tmp_path, "shows.py", SHOWS)


@pytest.mark.parametrize("ending", ["well", "fail", "status", "text", "eof"])
def test_script_finds_all_as_python_gives_it(home: Home, shows: Path, ending: str) -> None:
    python, ours = both(home, shows, "--swap", "-m", ending)
    assert ours == python
    assert python[0] == {"well": 0, "status": 7}.get(ending, 1)
    assert "shows.py" in python[1]


def test_module_package_folder_and_archive_find_all_as_python_gives_it(home: Home, shows: Path, tmp_path: Path) -> None:
    main = shows.read_text()
    written(tmp_path, "package/__init__.py", "")
    written(tmp_path, "package/__main__.py", main)
    written(tmp_path, "folder/__main__.py", main)
    written(tmp_path, "folder/beside.py", "name = 'inside'")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", main)
        archive.writestr("beside.py", "name = 'zipped'")
    for command in (("-m", "shows"), ("-m", "package"), ("folder",), ("archive.zip",)):
        python, ours = both(home, *command, "-x", "fail")
        assert ours == (*python[:2], without_runpy(python[2]))
        assert python[0] == 1


def test_syntax_error_is_shown_as_python_shows_it(home: Home, tmp_path: Path) -> None:
    status, output, errors = ended(home.start(*RUN, written(tmp_path, "wrong.py", "x = 1\ny = = 2\n")))
    assert (status, output) == (2, "")
    assert re.fullmatch(r"run: \S+/wrong.py:2: invalid syntax: fix the syntax error\n", errors)


def test_interrupt_ends_it_as_it_ends_python(home: Home, tmp_path: Path) -> None:
    script = written(tmp_path, "waits.py", WAITS)
    process = home.start(*RUN, script)
    eventually((tmp_path / "ready").exists, limit=LIMIT)
    process.send_signal(signal.SIGINT)
    status, _, errors = ended(process)
    assert status == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
    assert "distsync" not in errors


def test_only_what_is_named_is_swapped(home: Home, tmp_path: Path) -> None:
    for name in ("one", "app/two", "app/__init__", "three"):
        written(tmp_path, f"{name}.py", "import threading")
    script = written(
        tmp_path, "main.py", "import one, app.two, three\nfor m in one, app.two, three: print(m.threading.__name__)"
    )
    assert home.run(*RUN, "--swap", "one", "--swap=app.*", script).split() == [
        "distsync.threading", "distsync.threading", "threading",
    ]  # fmt: skip


def test_report_tells_what_is_kept(home: Home, tmp_path: Path) -> None:
    script = written(tmp_path, "pipes.py", "import multiprocessing\nends = multiprocessing.Pipe()\nprint('ran')")
    status, output, errors = ended(home.start(*RUN, "--report", script))
    assert (status, output) == (0, "ran\n")
    assert re.fullmatch(r"run: kept: \S+/pipes.py:2: multiprocessing.Pipe stays on this machine: .*\n", errors)


CREATES = """
    import multiprocessing, os, pickle, threading
    import distsync
    from distsync import asyncio

    lock = threading.Lock()
    changed = threading.Condition()

    class App:
        def __init__(self):
            self.lock, self.sent = threading.Lock(), threading.Event()
            pickle.dumps(self.sent)

    apps = [App() for _ in range(3)]
    def main():
        counter = distsync.Counter(name="hits")
        side = distsync.SharedLock(path="/a/side")
        inside = asyncio.Lock()
        manager = multiprocessing.Manager()
        manager.dict()

    main()
    with changed:
        changed.notify()
    if os.fork() == 0:
        threading.Lock()
        raise SystemExit
    os.wait()
    late = [threading.Lock()]
"""


def test_report_lists_created_objects_with_kind_place_name_and_whether_they_are_shared(
    shells: Shells, tmp_path: Path
) -> None:
    script = written(tmp_path, "creates.py", CREATES)
    shells.environment["PYTHONWARNINGS"] = "ignore"  # of the fork
    status, _, errors = ended(shells.start(*RUN, "--report", script))
    assert status == 0, errors
    named = "shared with all processes that use this name"
    passed = "shared with the processes that inherited or unpickled it"
    assert errors.splitlines() == [
        f"run: created: {script}:{line}"
        for line in (
            f"6: distsync.threading.Lock 'creates.lock', {named}",
            f"7: distsync.threading.Condition 'creates.changed', {named}",
            f"11: 3 distsync.threading.Lock without a name, {passed}",
            f"11: 3 distsync.threading.Event without a name, {passed}",
            f"16: distsync.recipes.Counter 'hits', {named}",
            "17: distsync.recipes.SharedLock at path '/a/side', shared with all processes that use this path",
            "18: distsync.asyncio.Lock without a name, private to this process",
            "19: distsync.multiprocessing.managers.SyncManager without a name, private to this process",
            "29: distsync.threading.Lock without a name, private to this process",
        )
    ]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((), r"Error: name a script, or a module with -m\n"),
        (("--unknown",), r"Error: No such option:? .*--unknown.*\n"),
        (("nowhere",), r"run: there is no file nowhere\n"),
        (("-m", "nowhere"), r"run: there is no module nowhere\n"),
        (("-m", "nowhere.inside"), r"run: there is no module nowhere.inside \(No module named 'nowhere'\)\n"),
        (("-m", "json"), r"run: there is no module json.__main__\n"),
        (("empty",), r"run: there is no __main__.py in empty\n"),
        (("--swap", "nowhere", "-m", "fine"), r"run: nowhere: there is no such module: .*\n"),
        (("--swap", "queue", "-m", "fine"), r"run: queue: belongs to the standard library, .*\n"),
        (("-m", "wrong"), r"run: \S+/wrong.py:2: _thread.allocate_lock is a lock of the interpreter itself, .*\n"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_status_2(
    home: Home, tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    written(tmp_path, "fine.py", "print('ran')")
    written(tmp_path, "wrong.py", "import _thread\nlock = _thread.allocate_lock()\nprint('ran')")
    status, output, errors = ended(home.start(*RUN, *command))
    assert (status, output) == (2, "")
    assert re.search(rf"(^|\n){said}$", errors)
    assert "Traceback" not in errors
