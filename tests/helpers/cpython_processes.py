"""CPython's ``test._test_multiprocessing``, against ``multiprocessing`` and against ``distsync.multiprocessing``.

CPython makes the classes that run from a family (``_TestLock``) and a mixin with the functions under test. So does this
file, at its import, since spawned children find the classes here by their names. One test method is one case.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import forkserver
from types import ModuleType
from typing import Any

import pytest
from test import _test_multiprocessing as cpythons
from test import support

import distsync.multiprocessing
from helpers.cpython import assert_ours, changed, problems_of
from helpers.timing import eventually

METHODS = ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver"))]
"""Start methods, as parameters of tests."""

_numbers = itertools.count()


def named_pool(*arguments: Any, **keywords: Any) -> Any:
    """Return a new pool with a name, whose tasks are in a queue of the server. With a name, 0 workers are allowed."""
    name = None if arguments[:1] == (0,) else f"pool-{os.getpid()}-{next(_numbers)}"
    return distsync.multiprocessing.Pool(*arguments, **keywords, name=name)


def with_named_pools() -> ModuleType:
    """Return ``distsync.multiprocessing`` whose pools have names."""
    face = ModuleType(distsync.multiprocessing.__name__)
    vars(face).update({name: getattr(distsync.multiprocessing, name) for name in dir(multiprocessing)})
    vars(face)["Pool"] = named_pool
    return face


FACES = {"Stdlib": multiprocessing, "StdlibManaged": multiprocessing, "Named": with_named_pools()} | dict.fromkeys(
    ("Distsync", "Managed", "Shared", "Election"), distsync.multiprocessing
)
SHARED = "Shared"
"""The name of the classes that have a SharedLock in place of each RLock, alone or as the lock of a Condition."""
ELECTION = "Election"
"""The name of the class that has an Election in place of each Condition."""

FUNCTIONS = (
    "Pool Pipe Queue JoinableQueue Lock RLock Semaphore BoundedSemaphore Condition Event Barrier Value Array RawValue"
    " RawArray current_process parent_process active_children set_executable"
).split()
OF_THE_STDLIB = {
    "connection": "pipes are those of the standard library",
    "Pipe": "pipes are those of the standard library",
    **dict.fromkeys(
        ("current_process", "parent_process", "active_children", "set_executable"),
        "processes are registered with the standard library",
    ),
}
"""Attributes of the classes that are the standard library's also when they test distsync, each with the reason."""

FAMILIES = ("_TestLock", "_TestSemaphore", "_TestCondition", "_TestEvent", "_TestBarrier")
POOLS = ("_TestPool", "_TestPoolWorkerErrors", "_TestPoolWorkerLifetime")
"""Each of them as a whole is one case: its methods share one pool, or start several."""

DATA = ("_TestQueue", "_TestValue", "_TestArray")
MANAGED = ("_TestContainers",)
BOTH = (*FAMILIES, "_TestQueue", "_TestPool")
"""These families run with the functions of a manager, too, as ``StdlibManaged`` and ``Managed``."""
COMPLETE = ("TestSimpleQueue", "TestInitializers", "TestSyncManagerTypes", "TestPoolNotLeakOnFailure")
"""These are classes of CPython's as they run, which find the functions under test in its ``multiprocessing``."""

ALL = os.environ.get("DISTSYNC_TEST_START_METHODS") == "all"
"""Each start method on each server. Else fork on both, spawn on the embedded one, forkserver on ZooKeeper."""

USUAL = {("fork", "embedded"), ("fork", "zookeeper"), ("spawn", "embedded"), ("forkserver", "zookeeper")}
CHILDLESS = set(
    "test_qsize test_timeout test_no_import_lock_contention test_queue_feeder_donot_stop_onexc"
    " test_queue_feeder_on_queue_feeder_error test_closed_queue_put_get_exceptions test_getobj_getlock"
    " test_getobj_getlock_obj test_array_from_size".split()
)
"""What starts no process, and so runs once on each server."""


def is_chosen(start_method: str, server: str, method: str) -> bool:
    return ALL or ((start_method, server) in USUAL and (start_method == "fork" or method not in CHILDLESS))


FEWER = {"test_thousand": (1000, 100)}
"""Methods that do something so often that over a network it takes minutes. On distsync they do it the second number of
times. DISTSYNC_TEST_MANY=1 leaves them the first."""


class Idle:
    """What CPython's test looks up in private semaphores of its Condition, asked of ours."""

    TYPE: str

    def check_invariant(self, cond: Any) -> None:
        if self.TYPE == "processes":
            assert repr(cond).endswith(", 0)>"), f"a process waits: {cond!r}"


class Woken(Idle):
    """CPython's test sleeps 0.1 s, and then counts the woken waiters; here it also waits until the
    expected number was woken.
    """

    def assertReturnsIfImplemented(self, value: Any, function: Callable[..., Any], *args: Any) -> None:
        eventually(lambda: function(*args) == value)


def mixin(face: ModuleType) -> type:
    """The functions under test, as CPython's own ProcessesMixin has them."""
    functions = {name: staticmethod(getattr(face, name)) for name in FUNCTIONS}
    of_others = {"connection": multiprocessing.connection, "Process": face.Process, "TYPE": "processes"}
    return type("Functions", (cpythons.BaseMixin,), {**functions, **of_others})


def managers(face: ModuleType) -> type:
    """The functions under test as methods of a manager, as CPython's own ManagerMixin has them."""

    def begin(cls: Any) -> None:
        super(made, cls).setUpClass()
        cls.manager = face.Manager()

    def end(cls: Any) -> None:
        cls.manager.shutdown()
        cls.manager.join()
        cls.manager = None
        super(made, cls).tearDownClass()

    names = [name for name, value in vars(cpythons.ManagerMixin).items() if isinstance(value, property)]
    functions = {name: vars(cpythons.ManagerMixin)[name] for name in names}
    functions["Pool"] = vars(cpythons.ManagerMixin)["Pool"]
    own = {"setUpClass": classmethod(begin), "tearDownClass": classmethod(end), "TYPE": "manager"}
    made = type("Managed", (cpythons.BaseMixin,), {**functions, **own, "Process": face.Process})
    return made


def managers_of(face: ModuleType) -> Any:
    """Return SyncManager of a face. A class body of CPython's binds that of the standard library."""
    return import_module(f"{face.__name__}.managers").SyncManager


def condition_with_shared_lock(lock: Any = None) -> Any:
    return distsync.multiprocessing.Condition(distsync.multiprocessing.SharedLock() if lock is None else lock)


def replaced(name: str) -> dict[str, Any]:
    """What the classes of this name have in place of the functions of multiprocessing."""
    functions: dict[str, Any] = {}
    if name == SHARED:
        functions = {"RLock": distsync.multiprocessing.SharedLock, "Condition": condition_with_shared_lock}
    elif name == ELECTION:
        functions = {"Condition": distsync.multiprocessing.Election}
    return {each: staticmethod(function) for each, function in functions.items()}


def make(name: str, family: str) -> type[unittest.TestCase]:
    """CPython's class with the functions of one face, found by spawned children under its name."""
    face = FACES[name]
    own = () if face is multiprocessing else (Woken if family == "_TestCondition" else Idle,)
    fewer = {} if face is multiprocessing or os.environ.get("DISTSYNC_TEST_MANY") else FEWER
    base = getattr(cpythons, family)
    if family in COMPLETE:
        bound = {"manager_class": managers_of(face)} if hasattr(base, "manager_class") else {}
        return type(f"{name}{family}", (base,), {"__test__": False, **bound})
    repeated = {name: changed(getattr(base, name), *fewer[name]) for name in fewer if hasattr(base, name)}
    given = managers(face) if family in MANAGED or "Managed" in name else mixin(face)
    bases = (*own, base, given, unittest.TestCase)
    made = type(f"{name}{family}", bases, {**repeated, **replaced(name), "__module__": __name__, "__test__": False})
    globals()[made.__name__] = made
    return made


CLASSES = {
    (name, family): make(name, family)
    for name in ("Stdlib", "Distsync")
    for family in (*FAMILIES, *DATA, *MANAGED, *POOLS, *COMPLETE)
}


CLASSES |= {("Named", family): make("Named", family) for family in POOLS}
CLASSES |= {(SHARED, family): make(SHARED, family) for family in ("_TestLock", "_TestCondition")}
CLASSES |= {(name, family): make(name, family) for name in ("StdlibManaged", "Managed") for family in BOTH}
CLASSES[ELECTION, "_TestCondition"] = make(ELECTION, "_TestCondition")


def cases(families: Iterable[str] = FAMILIES, name: str = "Stdlib") -> Iterator[Any]:
    """A pytest parameter (family, method) for each test method that this Python ships."""
    for family in families:
        for method in unittest.defaultTestLoader.getTestCaseNames(CLASSES[name, family]):
            yield pytest.param(family, method, id=f"{family}.{method}")


@contextmanager
def started_by(method: str) -> Iterator[None]:
    """``method`` is the start method of the default context, and nothing of it remains."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(method, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)
        forkserver._forkserver._stop()
        support.reap_children()


def other_than(those: list[Any]) -> Callable[[], list[Any]]:
    """``active_children`` without what was there before, for methods that wait until all have gone."""
    return lambda: [child for child in multiprocessing.process.active_children() if child not in those]


def run(name: str, family: str, method: str, expected_failures: Mapping[str, str] | None = None) -> None:
    """The case passed, or failed where that is expected. An unexpected pass is a failure."""
    assert_ours(CLASSES[name, family], FACES[name], OF_THE_STDLIB)
    reason = (expected_failures or {}).get(f"{family}.{method}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpythons, "multiprocessing", FACES[name])  # which some of its methods use by that name
        patch.setattr(FACES[name], "active_children", other_than(multiprocessing.active_children()))
        problems = problems_of(unittest.TestSuite([CLASSES[name, family](method)]))
    if problems and reason is not None:
        pytest.xfail(reason)
    assert not problems, "\n".join(problems)
    assert reason is None, f"{family}.{method} passes, but is expected to fail: {reason}"


def run_all(name: str, family: str) -> None:
    """Every method of the family passed. A family that says ``multiprocessing.Pool`` means that of the face.

    What a method raises in the server of a manager, with a RemoteError, ours raises itself.
    """
    assert_ours(CLASSES[name, family], FACES[name], OF_THE_STDLIB)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(CLASSES[name, family])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpythons, "multiprocessing", FACES[name])
        if name == "Managed":
            patch.setattr(cpythons, "RemoteError", ValueError)
        problems = problems_of(tests)
    assert not problems, "\n".join(problems)
