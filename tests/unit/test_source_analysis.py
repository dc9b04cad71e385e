"""Analysis of a module's source for the swapped names: text in, findings out."""

from __future__ import annotations

import textwrap

import pytest

from distsync.patch.module_lookup import SWAPPED
from distsync.patch.source_analysis import Source


def source(text: str) -> Source:
    return Source(textwrap.dedent(text), "jobs.py", SWAPPED)


def refused(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in source(text).findings() if each.refused]


def kept(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in source(text).findings() if not each.refused]


FINE = """
import threading as t, queue, multiprocessing.pool
from threading import *
from typing import TYPE_CHECKING
import _thread, logging

if TYPE_CHECKING:
    from _thread import allocate_lock

class Worker(t.Thread):
    pass

class State(t.local):
    pass

class Items(queue.Queue):
    def put(self, item, block=True, timeout=None):
        super().put(item, block, timeout)

class Logged(queue.Queue):
    def _put(self, item):
        super()._put(item)

class Handler(logging.Handler):
    def createLock(self):
        self.lock = None

def executors():
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    return ProcessPoolExecutor(2), ThreadPoolExecutor(2), ProcessPoolExecutor(initializer=ident)

def ident():
    return _thread.get_ident(), t.Condition(t.RLock())

class Pool:
    def __init__(self):
        self.mutex = t.Lock()
        self.queue = []
        with self.mutex:
            self.queue.append(1)
"""


def test_supported_code_is_not_reported() -> None:
    assert source(FINE).findings() == []


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import _thread\nx = _thread.allocate_lock()", 2, "_thread.allocate_lock is a lock of the interpreter itself"),
        ("\nfrom _thread import RLock as R", 2, "_thread.RLock is a lock of the interpreter itself"),
        ("import _thread as t\nclass L(t.RLock):\n  pass", 2, "_thread.RLock is a lock of the interpreter itself"),
        (
            "import concurrent.futures as f, multiprocessing as m\nf.ProcessPoolExecutor(2, m.get_context('spawn'))",
            2,
            "makes the standard library's queues of mp_context",
        ),
        (
            "from concurrent.futures import ProcessPoolExecutor as P\nP(mp_context=context)",
            2,
            "makes the standard library's queues of mp_context",
        ),
        ("from _queue import SimpleQueue", 1, "_queue.SimpleQueue is a queue in C"),
        ("import threading\nclass L(threading._RLock):\n  pass", 2, "threading._RLock is a private lock"),
        ("import _multiprocessing as m\nm.SemLock", 2, "_multiprocessing.SemLock is a semaphore in C"),
        ("def f():\n  import _imp\n  _imp.acquire_lock()", 3, "_imp.acquire_lock is the lock of the import system"),
        ("import os\nos.register_at_fork(after_in_child=x._at_fork_reinit)", 2, "has no _at_fork_reinit"),
        ("import queue\nq = queue.Queue()\nwith q.mutex:\n  pass", 3, "q.mutex is the inside of a queue.Queue"),
        ("from queue import Queue as Q\nq: Q = Q(3)\nq.queue.clear()", 3, "q.queue is the inside of a queue.Queue"),
        (
            "import queue as q\nclass C:\n  def f(self):\n    self.q = q.LifoQueue()\n  def g(self):\n    self.q.queue",
            6,
            "self.q.queue is the inside of a queue.LifoQueue",
        ),
        ("import queue\nclass U(queue.Queue):\n  def _init(self, n):\n    self.queue = set()", 3, "of its own (_init)"),
        (
            "import queue\nclass U(queue.Queue):\n  def _init(self, n):\n    super()._init(n)\n    self.seen = set()",
            3,
            "of its own (_init)",
        ),
        ("from queue import *\nclass U(Queue):\n  def _put(self, i):\n    self.queue.add(i)", 3, "of its own (_put)"),
        (
            "import threading\nlock = threading.Lock()\nclass Finder:\n  def find_spec(self, name, path):\n    pass",
            3,
            "Finder imports modules, and distsync does so while it waits",
        ),
        (
            "import threading\nclass H:\n  def createLock(self):\n    self.lock = threading.RLock()",
            3,
            "createLock locks a log, and distsync logs while it waits",
        ),
    ],
)
def test_unsupported_code_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    found = refused(text)
    assert [where for where, _ in found] == [line]
    assert what in found[0][1]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import multiprocessing as m\na, b = m.Pipe()", 2, "multiprocessing.Pipe stays on this machine"),
        ("from multiprocessing import shared_memory", 1, "multiprocessing.shared_memory stays on this machine"),
        ("import multiprocessing.connection", 1, "multiprocessing.connection stays on this machine"),
        ("from multiprocessing.connection import Client", 1, "multiprocessing.connection.Client stays on this machine"),
        ("from multiprocessing.dummy import Pool", 1, "multiprocessing.dummy.Pool stays in this process"),
        ("from _thread import LockType", 1, "_thread.LockType is the type of the interpreter's own locks"),
        ("import importlib\nimportlib.import_module('queue')", 2, "gives the standard library's module"),
        ("t = __import__('threading')", 1, "__import__('threading') gives the standard library's module"),
        ("import sys\nsys.modules['threading'].Lock", 2, "sys.modules['threading'] is the standard library's module"),
    ],
)
def test_code_that_stays_unchanged_is_reported_with_its_line(text: str, line: int, what: str) -> None:
    assert refused(text) == []
    found = kept(text)
    assert found[0][0] == line
    assert what in found[0][1]


def test_several_findings_come_in_the_order_of_their_lines() -> None:
    text = "import queue, _thread\nq = queue.Queue()\nq.mutex\nx = _thread.RLock\nq.queue"
    assert [line for line, _ in refused(text)] == [3, 4, 5]


def test_name_that_is_also_assigned_something_else_is_left_alone() -> None:
    assert refused("import queue\nq = queue.Queue()\nq = Mine()\nq.mutex") == []


def test_finding_states_the_place_the_problem_and_the_remedy() -> None:
    (finding,) = source("from _queue import SimpleQueue").findings()
    assert str(finding) == (
        "jobs.py:1: _queue.SimpleQueue is a queue in C, which cannot be shared: "
        "use the names of threading, queue and multiprocessing, or leave this in a module that is not patched"
    )


def test_bindings_are_those_of_absolute_imports() -> None:
    text = """
    import threading, queue as q, multiprocessing.pool, multiprocessing.pool as p
    from threading import Lock as L, Event
    from queue import *
    from . import threading as mine
    from .queue import Queue as own
    from distsync import Lock as shared
    """
    named = {each.name: each.means for each in source(text).bindings}
    assert (
        named.items()
        >= {
            "threading": "threading",
            "q": "queue",
            "multiprocessing": "multiprocessing",
            "p": "multiprocessing.pool",
            "L": "threading.Lock",
            "Event": "threading.Event",
            "LifoQueue": "queue.LifoQueue",
        }.items()
    )
    assert not {"mine", "own"} & named.keys()
    assert "shared" not in source(text).swapped_names()
    assert {"L", "LifoQueue", "threading"} <= source(text).swapped_names()


def test_line_of_a_name_is_where_the_module_or_class_binds_it() -> None:
    text = (
        "import queue\n\nlock = other = 1\nclass A:\n    x = 1\n    class B:\n        y: int = 2\ndef f():\n    z = 3"
    )
    of = source(text)
    lines = [of.line_of("lock"), of.line_of("other"), of.line_of("x", "A"), of.line_of("y", "A.B"), of.line_of("f")]
    assert lines == [3, 3, 5, 7, 8]
    assert of.line_of("nowhere") == of.line_of("x", "Nowhere") == 1
