"""CPython's ``test.test_concurrent_futures``, against ``concurrent.futures`` and ``distsync.futures``.

All its classes that take an executor of processes run, with fork, spawn and forkserver. The others test threads or
futures alone, or look for leaks, which all tests here do.
"""

from __future__ import annotations

import os
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from concurrent import futures
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import cpython_futures

import distsync.futures
import distsync.multiprocessing

cpython_futures.prepare()

util, test_as_completed, test_deadlock, test_init, test_process_pool, test_shutdown, test_wait = (
    import_module(f"test.test_concurrent_futures.{name}")
    for name in ("util", *(f"test_{name}" for name in "as_completed deadlock init process_pool shutdown wait".split()))
)

from helpers.cpython import Build, Case, cases, run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TESTS = Path(__file__).parents[1]

BASES = {
    "ProcessPoolExecutorTest": test_process_pool.ProcessPoolExecutorTest,
    "ProcessPoolShutdownTest": test_shutdown.ProcessPoolShutdownTest,
    "InitializerMixin": test_init.InitializerMixin,
    "FailingInitializerMixin": test_init.FailingInitializerMixin,
    "AsCompletedTests": test_as_completed.AsCompletedTests,
    "WaitTests": test_wait.WaitTests,
    "ExecutorDeadlockTest": test_deadlock.ExecutorDeadlockTest,
}
"""CPython's classes. They take the class under test from ``executor_type``, and the context from ``get_context``."""

SLOW = {
    "ProcessPoolExecutorTest.test_killed_child",
    "ProcessPoolExecutorTest.test_map_timeout",
    "ProcessPoolExecutorTest.test_saturation",
    "ProcessPoolShutdownTest.test_hang_issue12364",
    "ProcessPoolShutdownTest.test_interpreter_shutdown",
    "ProcessPoolShutdownTest.test_submit_after_interpreter_shutdown",
}
SLOW_FAMILIES = ("WaitTests", "ExecutorDeadlockTest")
"""These sleep, or let workers crash."""

QUICK = {
    "ProcessPoolExecutorTest.test_map",
    "ProcessPoolExecutorTest.test_max_tasks_per_child",
    "ProcessPoolExecutorTest.test_traceback",
    "ProcessPoolShutdownTest.test_run_after_shutdown",
    "InitializerMixin.test_initializer",
}
"""Only these are not slow with spawn and forkserver, whose workers import distsync."""

MIXINS = {
    "fork": util.ProcessPoolForkMixin,
    "spawn": util.ProcessPoolSpawnMixin,
    "forkserver": util.ProcessPoolForkserverMixin,
}
"""CPython's mixin for each start method."""

PRELOADED = ["distsync.futures", "distsync.multiprocessing._pool.pipe_worker", "test.support"]

OWN_PARTS = "looks at threads and queues of CPython's own executor"
ENDED = "joins the process object of a worker that has ended; here it is closed"
NOT_BROKEN = "a worker that exits breaks no executor: another one runs the call, up to max_deliveries times"
OWN_ERROR = "the call raises the error itself, or PayloadRefusedError, and no other call is affected"
AT_ONCE = "all workers are started at once, as CPython's with fork"

EXPECTED_FAILURES = {
    "ProcessPoolExecutorTest.test_killed_child": NOT_BROKEN,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "each start method works here",
    "ProcessPoolExecutorTest.test_python_finalization_error": "mocks the start of the threads of CPython's executor",
    "ProcessPoolShutdownTest.test_context_manager_shutdown": ENDED,
    "ProcessPoolShutdownTest.test_del_shutdown": OWN_PARTS,
    "ProcessPoolShutdownTest.test_shutdown_no_wait": OWN_PARTS,
    "FailingInitializerMixin.test_initializer": "wants a log line of concurrent.futures, and _broken",
    "ExecutorDeadlockTest.test_error_at_task_unpickle": OWN_ERROR,
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler": OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_at_task_unpickle": OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": OWN_ERROR,
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": OWN_PARTS,
}
"""Tests that cannot pass, each with the reason."""

ON_DEMAND = {
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": AT_ONCE,
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": AT_ONCE,
    "ProcessPoolShutdownTest.test_processes_terminate": AT_ONCE,
}
EXPECTED_FAILURES_WITH = {
    "fork": {
        "ProcessPoolExecutorTest.test_max_tasks_per_child": "wants fork to be refused, which can deadlock there",
        "ProcessPoolShutdownTest.test_processes_terminate": ENDED,
    },
    "spawn": ON_DEMAND,
    "forkserver": ON_DEMAND,
}
"""Tests that cannot pass with one start method. CPython's own reason skips some of them with fork."""

NOT_HERE = {
    "ProcessPoolShutdownTest.test_cancel_futures": "wants a call to run once it is submitted; see test_futures.py",
    "ProcessPoolShutdownTest.test_hang_gh83386": "its program is for thread pools; it imports no multiprocessing",
}
"""Tests that cannot run here, or whose outcome depends on timing, each with the reason."""


def builder(base: type, method: str) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        ours = module is distsync.futures
        context: Any = distsync.multiprocessing if ours else util.multiprocessing
        members = {
            "executor_type": distsync.futures.Executor if ours else futures.ProcessPoolExecutor,
            "get_context": lambda self: context.get_context(method),
            "ctx": method,
            "__module__": __name__,
            "__test__": False,
        }
        made = type(base.__name__, (base, MIXINS[method], util.BaseTestCase), members)
        globals()[base.__name__] = made  # a method that is submitted pickles
        return made

    return build


def parameters(method: str) -> Iterator[Any]:
    """Yield a pytest parameter (method, case) for each case with a start method."""
    for parameter in cases({name: builder(base, method) for name, base in BASES.items()}, futures):
        is_slow = parameter.id in SLOW or parameter.id.startswith(SLOW_FAMILIES)
        is_slow = is_slow or (method != "fork" and parameter.id not in QUICK)
        yield pytest.param(method, *parameter.values, id=f"{method}-{parameter.id}", marks=[pytest.mark.slow] * is_slow)


CASES = [each for method in MIXINS for each in parameters(method)]


@pytest.fixture(autouse=True)
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let spawned workers import CPython's tests, and leave no fork server behind."""
    monkeypatch.setitem(sys.modules, "__main__", cpython_futures)
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", PRELOADED)  # type: ignore[attr-defined]
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.slow("checks the harness")
@pytest.mark.skipif(sys.version_info < (3, 13), reason="these are the tests of Python 3.13")
@pytest.mark.parametrize(("method", "case"), CASES)
def test_harness_passes_on_the_standard_library(method: str, case: Case) -> None:
    run(case, futures)


REPLACED = {
    "from concurrent.futures import": "from distsync.futures import",
    "from multiprocessing import": "from distsync.multiprocessing import",
    "from test.test_concurrent_futures.test_shutdown import": "from helpers.remote_functions.pool import",
}
"""What the programs that CPython's tests start import, and what they import here."""


def of_programs(assert_python_ok: Callable[..., Any], client: Any) -> Callable[..., Any]:
    """Let the programs that CPython's tests start use distsync, on the server of the test."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

    def assert_ok(*arguments: str) -> Any:
        *options, program = arguments
        for imports, ours in REPLACED.items():
            program = program.replace(imports, ours)
        own = {"DISTSYNC_HOSTS": client.hosts, "DISTSYNC_NAMESPACE": client.namespace, "PYTHONPATH": path}
        return assert_python_ok(*options, program, **own)

    return assert_ok


@pytest.fixture
def face(client: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``distsync.futures``, with a connected client. It takes the place of names that CPython's modules bind."""
    client.start()  # CPython counts threads
    ours = types.SimpleNamespace(**{**vars(futures), "ProcessPoolExecutor": distsync.futures.Executor})
    monkeypatch.setattr(test_shutdown, "futures", ours)
    monkeypatch.setattr(test_shutdown, "assert_python_ok", of_programs(test_shutdown.assert_python_ok, client))
    for module in (test_process_pool, test_deadlock):
        monkeypatch.setattr(module, "BrokenProcessPool", futures.BrokenExecutor)
    return distsync.futures


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("method", "case"), [each for each in CASES if str(each.values[1]) not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(method: str, case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES | EXPECTED_FAILURES_WITH[method])
