"""A fork beside another thread's first use of distsync leaves a child that works."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.forked_children import in_child
from helpers.servers import ServerProcess
from helpers.subprocesses import LIMIT, ROOT
from helpers.timing import PATIENCE, UNIT, eventually

from distsync import _import_gate
from distsync._import_gate import importing
from distsync._server.file_lock import LockedByAnotherError, locked

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FIRST_USE = """
import multiprocessing, os, sys, threading, time
import distsync

def use(name):
    lock = distsync.Lock(name=name)
    with lock:
        return lock.held

def fork_beside_first_use(seconds, way):
    "What a process does in which nothing was used before. Return the exit status of its child."
    thread = threading.Thread(target=use, args=(f"parent-{os.getpid()}",))
    thread.start()
    time.sleep(seconds)
    if way == "os.fork":
        child = os.fork()
        if child == 0:
            os._exit(0 if use(f"child-{os.getpid()}") else 1)
        status = os.waitstatus_to_exitcode(waited(child))
    else:
        process = multiprocessing.get_context("fork").Process(target=use, args=(f"child-{os.getpid()}",))
        process.start()
        process.join(LIMIT)
        status = process.exitcode
        process.kill()
    thread.join()
    return status

def waited(child):
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    return os.waitpid(child, 0)[1]

LIMIT = float(sys.argv[1])
for seconds in (0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05):
    for way in ("os.fork", "multiprocessing"):
        parent = os.fork()
        if parent == 0:
            os._exit(fork_beside_first_use(seconds, way) != 0)
        if os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]):
            print("the child failed or hung:", seconds, way)
            sys.exit()
print("all children work")
"""


@pytest.mark.slow("starts 28 processes")
def test_child_forked_beside_another_threads_first_use_works(server: ServerProcess) -> None:
    environment = {**os.environ, "DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": f"/first-use-{os.getpid()}"}
    environment["DISTSYNC_SESSION_TIMEOUT"] = "4"  # the sessions of its children end with the test
    command = [sys.executable, "-W", "ignore", "-c", FIRST_USE, str(100 * UNIT)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout == "all children work\n", done.stderr


OUTSIDE = """
import sys, threading
import {modules}
from distsync._import_gate import importing

class Finder:
    def find_spec(name, path=None, target=None):
        if threading.get_ident() not in importing()._importing:
            outside.append(name)

outside = []
sys.meta_path.insert(0, Finder)
lock, queue = distsync.Lock(name="lock"), distsync.Queue(name="queue")
with lock:
    queue.put(lock.held)
print(queue.get(), repr(lock), distsync.default_client().ensemble()[0].role.value)
sys.meta_path.remove(Finder)
print(outside)
"""


@pytest.mark.parametrize("modules", ["distsync", "distsync.threading, distsync.queue, distsync.recipes"])
def test_calls_import_nothing_for_which_a_fork_does_not_wait(server: ServerProcess, modules: str) -> None:
    environment = {**os.environ, "DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": f"/imports-{os.getpid()}"}
    command = [sys.executable, "-c", OUTSIDE.format(modules=modules)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


HOOKS = """
import asyncio, os, threading
import distsync, distsync.asyncio, distsync.futures, distsync.multiprocessing
from distsync._import_gate import importing

def record(**hooks):
    if threading.get_ident() in importing()._importing and hooks.keys() & {"before", "after_in_parent"}:
        paired.append({name: hook.__module__ for name, hook in hooks.items()})
    register(**hooks)

paired, register, os.register_at_fork = [], os.register_at_fork, record

async def use():
    async with distsync.asyncio.Lock(name="awaited"):
        pass

with distsync.Lock(name="lock"):
    print(distsync.default_client().ensemble()[0].role.value, distsync.find_embedded_server())
asyncio.run(use())
with distsync.futures.Executor(1, distsync.multiprocessing.get_context("fork")) as executor:
    print(executor.submit(abs, -1).result(), *distsync.multiprocessing.Manager().list([2]))
print(paired)
"""


def test_imports_for_which_a_fork_waits_register_no_pairs_of_hooks_for_forks(
    server: ServerProcess, tmp_path: Path
) -> None:
    """The fork ran only the second half of those of filelock and of ThreadPoolExecutor, which failed."""
    folders = {f"DISTSYNC_{folder}_DIR": str(tmp_path / folder) for folder in ("RUNTIME", "STATE")}
    names = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": f"/hooks-{os.getpid()}"}
    command = [sys.executable, "-W", "ignore", "-c", HOOKS]
    environment = {**os.environ, **folders, **names}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.splitlines()[-2:] == ["1 2", "[]"], done.stdout + done.stderr


def test_child_does_not_keep_a_file_lock_that_its_parent_held(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        return [link for each in os.listdir("/proc/self/fd") if (link := _readlink(each)).endswith("start.lock")]

    def child() -> None:
        assert open_files() == []
        with pytest.raises(LockedByAnotherError), locked(tmp_path / "start.lock", 0):
            pass

    with locked(tmp_path / "start.lock", 0):
        assert len(open_files()) == 1
        assert in_child(child) == 0
    with locked(tmp_path / "start.lock", 0):
        pass


def _readlink(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # that of the listing
        return ""


def test_fork_waits_for_an_import_in_another_thread_and_later_imports_wait_for_the_fork() -> None:
    began, finish = threading.Event(), threading.Event()
    steps: list[str] = []

    def work() -> None:
        with importing():
            began.set()
            finish.wait()
            steps.append("imported")

    importer = threading.Thread(target=work)
    importer.start()
    began.wait()
    timer = threading.Timer(2 * UNIT, finish.set)
    timer.start()

    def child() -> None:
        steps.append("forked")
        assert steps == ["imported", "forked"]
        with importing():
            pass

    with importing():  # a fork inside an import
        assert in_child(child) == 0
    with importing():
        pass
    for thread in (importer, timer):
        thread.join()


def test_import_does_not_wait_forever_for_an_interrupted_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_import_gate, "IMPORT_S", UNIT)
    gate = _import_gate.ImportGate()
    gate.close(UNIT)  # and nothing opens it
    imported = threading.Event()

    def work() -> None:
        with gate:
            imported.set()

    threading.Thread(target=work, daemon=True).start()
    assert imported.wait(PATIENCE)


def test_fork_does_not_wait_forever_for_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_import_gate, "IMPORT_S", UNIT)
    began, finish = threading.Event(), threading.Event()

    def work() -> None:
        with importing():
            began.set()
            finish.wait()

    importer = threading.Thread(target=work)
    importer.start()
    began.wait()
    try:
        assert in_child(lambda: importing().__enter__()) == 0
    finally:
        finish.set()
        importer.join()
    eventually(lambda: not importing()._importing)
