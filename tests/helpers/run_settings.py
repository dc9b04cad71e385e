"""A pytest plugin: what a run of the tests needs to give the same result wherever it is started."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from helpers.timing import UNIT

ENSEMBLES = ("tests/ensemble/", "tests/chaos/test_chaos", "tests/chaos/test_takeover", "tests/chaos/test_two_trees")
"""Beginnings of the ids of the tests that start an ensemble of servers."""


def pytest_configure() -> None:
    """Restore the signals of the keyboard, which nohup, cron and background shells ignore.

    Where SIGINT is ignored, neither this process nor those that the tests start raise KeyboardInterrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_report_header() -> str:
    return f"unit of waiting: {UNIT * 1000:.0f} ms"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send the tests to the workers one by one, but those that start an ensemble all to the same worker.

    An ensemble is up to five Java processes; a small machine runs one at a time. pytest-xdist's own groups are not
    used: version 3.8 does not see them with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "ensemble" if nodeid.startswith(ENSEMBLES) else nodeid

    return Scheduling(config, log) if config.getvalue("dist") == "load" else None
