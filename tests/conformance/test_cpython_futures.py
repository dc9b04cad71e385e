"""CPython's ``test.test_concurrent_futures``, against ``concurrent.futures`` and against ``distsync.futures``."""

from __future__ import annotations

import os
import sys
import types
import unittest
from collections.abc import Callable
from concurrent import futures
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.cpython_futures import prepare

import distsync.futures
import distsync.multiprocessing

prepare()

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

OWN_PARTS = "looks at threads and queues of CPython's own executor"
ENDED = "joins the process object of a worker that has ended; here it is closed"
NOT_BROKEN = "a worker that exits breaks no executor: another one runs the call, up to max_deliveries times"
OWN_ERROR = "the call raises the error itself, or PayloadRefusedError, and no other call is affected"

EXPECTED_FAILURES = {
    "ProcessPoolExecutorTest.test_killed_child": NOT_BROKEN,
    "ProcessPoolExecutorTest.test_max_tasks_per_child": "wants fork to be refused, which could deadlock in CPython's",
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "each start method works here",
    "ProcessPoolExecutorTest.test_python_finalization_error": "mocks the start of the threads of CPython's executor",
    "ProcessPoolShutdownTest.test_context_manager_shutdown": ENDED,
    "ProcessPoolShutdownTest.test_del_shutdown": OWN_PARTS,
    "ProcessPoolShutdownTest.test_processes_terminate": ENDED,
    "ProcessPoolShutdownTest.test_shutdown_no_wait": OWN_PARTS,
    "FailingInitializerMixin.test_initializer": "wants a log line of concurrent.futures, and _broken",
    "ExecutorDeadlockTest.test_error_at_task_unpickle": OWN_ERROR,
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler": OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_at_task_unpickle": OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": OWN_ERROR,
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": OWN_PARTS,
}
"""Tests that cannot pass, each with the reason."""

NOT_HERE = {
    "ProcessPoolShutdownTest.test_cancel_futures": "wants a call to run once it is submitted; see test_futures.py",
    "ProcessPoolShutdownTest.test_hang_gh83386": "its program is for thread pools; it imports no multiprocessing",
}
"""Tests that cannot run here, or whose outcome depends on timing, each with the reason."""


def builder(base: type) -> Build:
    def build(module: ModuleType) -> type[unittest.TestCase]:
        ours = module is distsync.futures
        context: Any = distsync.multiprocessing if ours else util.multiprocessing
        members = {
            "executor_type": distsync.futures.Executor if ours else futures.ProcessPoolExecutor,
            "get_context": lambda self: context.get_context("fork"),
            "ctx": "fork",
            "__module__": __name__,
            "__test__": False,
        }
        made = type(base.__name__, (base, util.ProcessPoolForkMixin, util.BaseTestCase), members)
        globals()[base.__name__] = made  # a method that is submitted pickles
        return made

    return build


def slow_or_not(parameter: Any) -> Any:
    is_slow = parameter.id in SLOW or parameter.id.startswith(SLOW_FAMILIES)
    return pytest.param(*parameter.values, id=parameter.id, marks=pytest.mark.slow) if is_slow else parameter


CASES = [slow_or_not(each) for each in cases({name: builder(base) for name, base in BASES.items()}, futures)]


@pytest.mark.slow("checks the harness")
@pytest.mark.skipif(sys.version_info < (3, 13), reason="these are the tests of Python 3.13")
@pytest.mark.parametrize("case", CASES)
def test_harness_passes_on_the_standard_library(case: Case) -> None:
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
@pytest.mark.parametrize("case", [case for case in CASES if case.id not in NOT_HERE])
def test_distsync_passes_what_the_standard_library_passes(case: Case, face: ModuleType) -> None:
    run(case, face, EXPECTED_FAILURES)
