"""A second look at the few tests that failed: one unstable test does not reject a whole run.

The environment variable ``DISTSYNC_TEST_SECOND_LOOK`` enables it, and names the file to which a line
``UNSTABLE <test id>`` is appended for each test that failed and then passed alone (see ``.ci/run``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPORT = "DISTSYNC_TEST_SECOND_LOOK"
AGAIN = "DISTSYNC_TEST_AGAIN"
"""Ids of the tests to run again, as JSON; set for the second run only."""

MAX_TESTS = 5
"""If more tests fail, there is no second look."""


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    report = os.environ.get(REPORT)
    if not report or hasattr(config, "workerinput"):
        return (yield)
    if AGAIN in os.environ:
        second = SecondRun(json.loads(os.environ[AGAIN]))
        config.pluginmanager.register(second)
        status = yield
        return second.conclude(status, Path(report))
    first = FirstRun()
    config.pluginmanager.register(first)
    status = yield
    if status != pytest.ExitCode.TESTS_FAILED or not 1 <= len(first.failed) <= MAX_TESTS:
        return status
    print(f"\nsecond look, without workers, at {len(first.failed)} that failed:", *first.failed, sep="\n  ", flush=True)
    command = [sys.executable, "-m", "pytest", *config.invocation_params.args, "-n", "0"]
    return subprocess.run(command, env={**os.environ, AGAIN: json.dumps([*first.failed])}).returncode


class FirstRun:
    """Collects the ids of the tests that fail or end in an error."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None


class SecondRun:
    """Runs these tests only, and reports them as unstable if all of them pass.

    Args:
        failed: Ids of the tests.
    """

    def __init__(self, failed: list[str]) -> None:
        self.failed = failed
        self.passed: dict[str, None] = {}

    def _is_selected(self, item: pytest.Item) -> bool:
        return item.nodeid in self.failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if not self._is_selected(item)])
        items[:] = [item for item in items if self._is_selected(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed[report.nodeid] = None

    def conclude(self, status: int, report: Path) -> int:
        """Return the exit status: 0 only if each of the tests has passed, setup and teardown included."""
        if status != pytest.ExitCode.OK:
            return status
        if len(self.passed) != len(self.failed):
            print(f"red: {len(self.passed)} of {len(self.failed)} passed at the second look", flush=True)
            return pytest.ExitCode.TESTS_FAILED
        with report.open("a") as file:
            file.writelines(f"UNSTABLE {test}\n" for test in self.passed)
        return status
