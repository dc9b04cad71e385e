"""``patch``: in the named modules, and only there, names of the standard library mean distsync's."""

from __future__ import annotations

import builtins
import importlib
import multiprocessing
import queue
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.timing import PATIENCE
from helpers.worker_processes import Peer

import distsync
import distsync.multiprocessing
import distsync.queue
import distsync.threading
from distsync import PatchError, UsageError
from distsync._client.client import Client
from distsync.patch import check, patch, report, unpatch

STDLIB = {module: {**vars(module), "excepthook": None} for module in (threading, queue, multiprocessing)}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Yield a function that writes importable modules; afterwards they are removed, and nothing is
    patched.
    """
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(**modules: str) -> None:
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True, parents=True)
            for folder in path.parents:
                if folder == tmp_path:
                    break
                (folder / "__init__.py").touch()
            path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()

    before = set(sys.modules)
    yield write
    unpatch()
    for name in [name for name in set(sys.modules) - before if name.partition(".")[0] in ("jobs", "app", "other")]:
        del sys.modules[name]
    assert builtins.__import__.__class__ is types.BuiltinFunctionType
    for module, names in STDLIB.items():
        assert {
            name: value for name, value in names.items() if value and getattr(module, name, None) is not value
        } == {}


def load(name: str) -> Any:
    return importlib.import_module(name)


ALL_WAYS = """
import threading, queue as q, multiprocessing
import threading as t
from threading import Lock, RLock as R, Thread, current_thread
from queue import *
import json, collections.abc

lock = Lock()
made = (q.Queue, multiprocessing.Event)

class Worker(Thread):
    guard = R()
    import queue as inner

class Mine(q.Queue):
    pass

def default(factory=threading.Semaphore):
    return factory

def late():
    import queue
    from threading import Condition
    return queue.Queue, Condition
"""


def test_module_patched_before_its_import_sees_distsync_from_its_first_line(write: Callable[..., None]) -> None:
    write(jobs=ALL_WAYS, other=ALL_WAYS)
    assert patch("jobs").waiting == ("jobs",)
    jobs, other = load("jobs"), load("other")
    assert jobs.threading is jobs.t is distsync.threading
    assert jobs.q is jobs.Worker.inner is distsync.queue
    assert jobs.multiprocessing is distsync.multiprocessing
    assert (jobs.Lock, jobs.R, jobs.Queue, jobs.LifoQueue) == (
        distsync.Lock, distsync.RLock, distsync.Queue, distsync.LifoQueue,
    )  # fmt: skip
    assert (jobs.lock.name, jobs.Worker.guard.name) == ("jobs.lock", "jobs.Worker.guard")
    assert jobs.Thread is threading.Thread
    assert issubclass(jobs.Mine, distsync.Queue)
    assert jobs.default() is distsync.Semaphore
    assert jobs.late() == (distsync.Queue, distsync.Condition)
    assert other.threading is threading
    assert other.late() == (queue.Queue, threading.Condition)
    assert (other.Lock, other.Queue) == (threading.Lock, queue.Queue)


REBOUND = """
import threading as t, queue, multiprocessing
from threading import Lock as L, Thread
from queue import Queue, Empty
from multiprocessing import Event

factory = t.RLock

class Worker(Thread):
    Lock = L

    def lock(self):
        return t.Lock, L, self.Lock, factory

def late():
    from threading import Barrier
    return Barrier
"""


def test_module_patched_after_its_import_has_its_names_rebound(write: Callable[..., None]) -> None:
    write(jobs=REBOUND, other="import jobs\nfrom jobs import L")
    jobs, other = load("jobs"), load("other")
    before = dict(vars(jobs))
    done = patch("jobs")
    assert {each.name: each.stood_for for each in done.swapped} == {
        "t": "threading",
        "queue": "queue",
        "multiprocessing": "multiprocessing",
        "L": "threading.Lock",
        "Queue": "queue.Queue",
        "Event": "multiprocessing.Event",
        "factory": "threading.RLock",
        "Worker.Lock": "threading.Lock",
    }
    assert jobs.t is distsync.threading
    assert jobs.Worker().lock() == (distsync.Lock, distsync.Lock, distsync.Lock, distsync.RLock)
    assert jobs.late() is distsync.Barrier
    assert (jobs.Thread, jobs.Empty) == (threading.Thread, queue.Empty)
    assert other.L is threading.Lock
    unpatch("jobs")
    assert {name: value for name, value in vars(jobs).items() if before[name] is not value} == {}
    assert jobs.Worker().lock() == (threading.Lock, threading.Lock, threading.Lock, threading.RLock)
    assert jobs.late() is threading.Barrier


def test_unpatch_restores_imported_names_and_nothing_else(write: Callable[..., None]) -> None:
    write(jobs="from threading import Lock as L\nimport queue\nfrom distsync import Lock as shared\nlock = L()")
    patch("jobs")
    jobs = load("jobs")
    unpatch("jobs")
    assert (jobs.L, jobs.queue) == (threading.Lock, queue)
    assert jobs.shared is distsync.Lock
    assert isinstance(jobs.lock, distsync.Lock)
    assert report().modules == ()


def test_patch_and_unpatch_are_idempotent(write: Callable[..., None]) -> None:
    write(jobs="import threading\nlock = threading.Lock()")
    patch("jobs")
    jobs = load("jobs")
    assert patch("jobs", jobs) == patch("jobs")
    assert [str(each) for each in report().swapped] == ["jobs.threading is distsync's threading"]
    unpatch("jobs")
    unpatch("jobs")
    assert jobs.threading is threading


def test_reloaded_module_stays_patched_until_it_is_unpatched(write: Callable[..., None]) -> None:
    write(jobs="import threading\nlock = threading.Lock()")
    patch("jobs")
    jobs = load("jobs")
    importlib.reload(jobs)
    assert jobs.threading is distsync.threading
    assert jobs.lock.name == "jobs.lock"
    unpatch("jobs")
    importlib.reload(jobs)
    assert jobs.threading is threading


def test_package_with_a_star_covers_its_submodules(write: Callable[..., None]) -> None:
    lock = "from threading import Lock"
    write(app__sub__deep=lock, app__jobs=f"from .sub import deep\nfrom . import sub\n{lock}", application=lock)
    patch("app.*")
    assert load("app.jobs").Lock is load("app.sub.deep").Lock is distsync.Lock
    assert load("application").Lock is threading.Lock
    assert report().modules == ("app.*",)
    unpatch("app.*")
    assert load("app.jobs").Lock is load("app.sub.deep").Lock is threading.Lock
    patch("app.sub")
    assert load("app.sub.deep").Lock is threading.Lock
    del sys.modules["application"]


def test_own_modules_named_like_library_modules_are_not_patched(write: Callable[..., None]) -> None:
    write(app__threading="mine = 1", app__queue="Lock = 2")
    write(app__jobs="from . import threading\nfrom .queue import Lock\nimport app.threading as again")
    patch("app.jobs")
    jobs = load("app.jobs")
    assert (jobs.threading.mine, jobs.Lock, jobs.again.mine) == (1, 2, 1)


def test_module_loaded_under_two_names_is_patched_only_under_the_given_one(
    write: Callable[..., None], tmp_path: Path
) -> None:
    write(jobs="import threading")
    patch("jobs")
    spec = importlib.util.spec_from_file_location("other", tmp_path / "jobs.py")
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    assert load("jobs").threading is distsync.threading
    assert other.threading is threading


def test_submodules_that_are_not_replaced_remain_importable(write: Callable[..., None]) -> None:
    write(
        jobs="import multiprocessing.connection as c, multiprocessing.shared_memory\nfrom multiprocessing import util"
    )
    patch("jobs")
    jobs = load("jobs")
    assert jobs.c is multiprocessing.connection
    assert jobs.multiprocessing is distsync.multiprocessing
    assert jobs.multiprocessing.shared_memory.SharedMemory is sys.modules["multiprocessing.shared_memory"].SharedMemory
    assert jobs.util is multiprocessing.util


def test_import_of_an_unknown_name_raises_import_error(write: Callable[..., None]) -> None:
    write(jobs="from threading import Lok")
    patch("jobs")
    with pytest.raises(ImportError, match="cannot import name 'Lok'"):
        load("jobs")


def test_module_may_patch_itself(write: Callable[..., None]) -> None:
    write(
        jobs="""
        import queue
        from distsync.patch import patch
        patch(__name__)
        from threading import Lock
        lock = Lock()
    """
    )
    jobs = load("jobs")
    assert (jobs.queue, jobs.Lock) == (distsync.queue, distsync.Lock)
    assert jobs.lock.name == "jobs.lock"


@pytest.mark.parametrize("name", ["pool", "queues", "managers", "sharedctypes", "synchronize"])
def test_submodules_of_multiprocessing_are_replaced_however_they_are_imported(
    write: Callable[..., None], name: str
) -> None:
    write(
        jobs=f"""
        import multiprocessing, multiprocessing.{name}, multiprocessing.{name} as a
        from multiprocessing import {name} as b
        from multiprocessing.{name} import *
        c = multiprocessing.{name}
    """
    )
    patch("jobs")
    jobs = load("jobs")
    assert jobs.a is jobs.b is jobs.c
    assert jobs.a.__name__.startswith("distsync.multiprocessing.")
    public = importlib.import_module(f"multiprocessing.{name}").__all__
    assert [each for each in public if not hasattr(jobs.a, each) and each != "copy"] == []


def test_attribute_set_through_a_patched_name_is_set_in_the_library_module(
    write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(jobs="import threading\ndef hook(args):\n    pass\nthreading.excepthook = hook")
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    patch("jobs")
    jobs = load("jobs")
    assert threading.excepthook is jobs.threading.excepthook is jobs.hook
    before = threading.Thread
    with mock.patch("jobs.threading.Thread") as thread, mock.patch("jobs.threading.Lock") as lock:
        assert threading.Thread is jobs.threading.Thread is thread
        assert jobs.threading.Lock is lock
        assert threading.Lock is not lock
    assert threading.Thread is jobs.threading.Thread is before
    assert jobs.threading.Lock is distsync.Lock


IN_PYTEST = {
    "conftest": "from distsync.patch import patch\npatch('jobs', 'test_patched')",
    "jobs": "from threading import Lock as L\nlock = L()",
    "test_patched": """
        import queue, threading
        import distsync, jobs, helper

        def test_swapped_here_and_there():
            import queue as again
            assert again.Queue is queue.Queue is distsync.Queue
            assert jobs.L is threading.Lock is distsync.Lock
            assert helper.threading.Lock is not distsync.Lock
            assert jobs.lock.name == "jobs.lock"
    """,
    "helper": "import threading",
}


def test_pytest_modules_and_the_modules_they_test_can_be_patched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in IN_PYTEST.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode"]
    for mode in ("prepend", "importlib"):
        done = subprocess.run([*command, mode], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "1 passed" in done.stdout, done.stdout + done.stderr


# ---- what cannot be patched


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import _thread\nlock = _thread.allocate_lock()", 2, "a lock of the interpreter itself"),
        ("import queue\nq = queue.Queue()\nq.mutex.acquire", 3, "the inside of a queue.Queue"),
    ],
)
def test_unsupported_use_is_refused_with_its_line(
    write: Callable[..., None], tmp_path: Path, text: str, line: int, what: str
) -> None:
    write(jobs=text, other="import threading")
    with pytest.raises(PatchError, match=what) as caught:
        patch("other", "jobs")
    assert caught.value.args[0] == f"{tmp_path / 'jobs.py'}:{line}"
    assert report().modules == ()
    assert load("other").threading is threading
    patch("jobs", strict=False)
    assert [each.line for each in report().kept] == [line]


MADE_BEFORE = {
    "lock = threading.Lock()": "lock was made by the standard library before",
    "locks = [threading.RLock() for _ in range(3)]": "locks was made by the standard library before",
    "table = {1: multiprocessing.Event()}": "table was made by the standard library before",
    "class A:\n  cond = threading.Condition()": "A.cond was made by the standard library before",
    "class Q(queue.Queue):\n  pass": "Q is a class made of queue.Queue",
    "def f(items=queue.SimpleQueue()):\n  pass": "f has a default argument of the standard library",
    "def f(*, make=threading.Lock):\n  pass": "f has a default argument of the standard library",
    "class A:\n  @staticmethod\n  def f(make=threading.Lock):\n    pass": "A.f has a default argument",
    "def g(lock):\n  def f():\n    lock.acquire()\n  return f\nf = g(threading.Lock())": "f uses something of",
}


@pytest.mark.parametrize("text", MADE_BEFORE)
def test_object_made_before_the_patch_is_refused_with_its_line(write: Callable[..., None], text: str) -> None:
    write(jobs=f"import threading, queue, multiprocessing\n\n{text}")
    jobs = load("jobs")
    with pytest.raises(PatchError, match=MADE_BEFORE[text]) as caught:
        patch("jobs")
    assert int(caught.value.args[0].rpartition(":")[2]) >= 3
    assert "before it is imported" in str(caught.value)
    assert jobs.threading is threading
    patch("jobs", strict=False)
    assert jobs.threading is distsync.threading


FINE_BEFORE = """
import threading
from other import lock, Base
from distsync import Lock

class Worker(threading.Thread):
    pass

class Child(Base):
    pass

class State(threading.local):
    pass

mine = Lock(name="mine")
workers = [Worker()]
"""


def test_classes_and_distsync_objects_may_be_made_before_the_patch(write: Callable[..., None]) -> None:
    write(jobs=FINE_BEFORE, other="import threading\nlock = threading.Lock()\nclass Base:\n  pass")
    load("jobs")
    assert check("jobs") == []
    patch("jobs")


def test_error_states_the_number_of_further_findings(write: Callable[..., None]) -> None:
    write(jobs="from _queue import SimpleQueue\nimport _thread\n_thread.RLock\n_thread.allocate_lock")
    with pytest.raises(PatchError, match=r"and 2 more: distsync.patch.check\('jobs'\)"):
        patch("jobs")
    assert [each.line for each in check("jobs")] == [1, 3, 4]


def test_report_lists_uses_that_are_not_replaced(write: Callable[..., None]) -> None:
    write(app__jobs="import multiprocessing as m\nends = m.Pipe", other="pass")
    done = patch("app.*", "other")
    assert [(each.line, each.refused) for each in done.kept] == [(2, False)]
    text = str(done)
    assert "app.jobs will be patched when it is imported" in text
    assert "multiprocessing.Pipe stays on this machine" in text
    assert patch("other").kept == ()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("not_there_at_all", "there is no such module"),
        ("jobs.inside", "there is no such module"),
        ("not_there_at_all.*", "there is no such module"),
        ("jobs.*", "jobs is not a package"),
        ("threading", "belongs to the standard library"),
        ("logging.handlers", "belongs to the standard library"),
        ("distsync.queue", "distsync itself is made of this"),
        ("kazoo.*", "distsync itself is made of this"),
        ("", "is not the name of a module"),
        ("*", "is not the name of a module"),
        ("jobs.py/x", "is not the name of a module"),
        (".jobs", "is not the name of a module"),
        ("other", "invalid syntax"),
    ],
)
def test_module_that_cannot_be_patched_is_refused(write: Callable[..., None], name: str, what: str) -> None:
    write(jobs="import threading", other="x = = 1")
    for function in (patch, check):
        with pytest.raises(PatchError, match=what) as caught:
            function("jobs", name)
        assert isinstance(caught.value, UsageError)
        assert isinstance(caught.value, ValueError)
    assert report().modules == ()


@pytest.mark.parametrize("bad", [None, 5, b"jobs", ["jobs"]])
def test_argument_that_is_no_module_raises_type_error(bad: object) -> None:
    with pytest.raises(TypeError, match="a module, or its name"):
        patch(bad)  # type: ignore[arg-type]


def test_module_without_source_is_refused_unless_strict_is_false(write: Callable[..., None], tmp_path: Path) -> None:
    import py_compile

    write(jobs="import threading\nfrom queue import Queue")
    py_compile.compile(str(tmp_path / "jobs.py"), cfile=str(tmp_path / "jobs.pyc"))
    (tmp_path / "jobs.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(PatchError, match="there is no source"):
        patch("jobs")
    patch("jobs", strict=False)
    jobs = load("jobs")
    assert (jobs.threading, jobs.Queue) == (distsync.threading, distsync.Queue)
    unpatch()
    assert (jobs.threading, jobs.Queue) == (threading, queue.Queue)


def test_patch_does_not_import_parent_packages(write: Callable[..., None]) -> None:
    write(app____init__="raise RuntimeError('imported')", app__jobs="import threading")
    assert patch("app.jobs").waiting == ("app.jobs",)
    assert "app" not in sys.modules


# ---- use


def test_object_of_a_patched_module_excludes_another_process(
    write: Callable[..., None], client: Client, peer: Peer
) -> None:
    write(jobs="import threading\nlock = threading.Lock()\n\ndef work():\n    with lock:\n        return lock.name")
    patch("jobs")
    jobs = load("jobs")
    assert jobs.work() == "jobs.lock"
    with jobs.lock:
        assert peer.do(jobs.lock.acquire, False) is False
    assert peer.do(jobs.lock.acquire, True, PATIENCE) is True
    assert jobs.lock.acquire(False) is False
    peer.do(jobs.lock.release)


def test_concurrent_patch_and_import_see_all_names_replaced_or_none(write: Callable[..., None]) -> None:
    write(jobs="def late():\n    from threading import Lock, RLock\n    return Lock, RLock")
    jobs = load("jobs")

    def patches(number: int) -> None:
        patch("jobs") if number % 2 else unpatch("jobs")

    allowed = {(threading.Lock, threading.RLock), (distsync.Lock, distsync.RLock)}
    with ThreadPoolExecutor(4) as threads:
        changes = [threads.submit(patches, number) for number in range(100)]
        seen = {jobs.late() for _ in range(1000)}
        for change in changes:
            change.result()
    assert seen <= allowed


def test_patch_works_while_another_library_wraps_the_import_function(write: Callable[..., None]) -> None:
    write(jobs="def late():\n    import threading\n    return threading")
    patch("jobs")
    jobs, ours, seen = load("jobs"), builtins.__import__, []

    def theirs(name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return ours(name, *args, **kwargs)

    builtins.__import__ = theirs
    try:
        assert jobs.late() is distsync.threading
        unpatch()
        assert jobs.late() is threading
        patch("jobs")
        assert jobs.late() is distsync.threading
    finally:
        builtins.__import__ = ours
    assert "threading" in seen
