"""A run of the tests gives the same result wherever it is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import timing
from helpers.servers import KINDS

pytest_plugins = ["pytester"]

HELPERS = Path(timing.__file__).parents[1]
ROOT = HELPERS.parent

INTERRUPTED = """
import os
import signal
import subprocess
import sys

import pytest

PROGRAM = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def test_this_process_raises_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_child_raises_keyboard_interrupt():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True)
    assert "KeyboardInterrupt" in ended.stderr
"""

NAMES_ITS_WORKER = """
import os
import time

import pytest


@pytest.mark.parametrize("number", range(4))
def test_worker(number):
    time.sleep(0.1)  # long enough for the other worker to ask for more
    with open({file!r}, "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


@pytest.fixture
def ignored_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def apart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
    return pytester


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "workers"])
def test_ctrl_c_interrupts_where_a_background_shell_ignores_it(
    apart: pytest.Pytester, workers: tuple[str, ...], ignored_interrupts: None
) -> None:
    apart.makepyfile(test_interrupted=INTERRUPTED)
    result = apart.runpytest_subprocess("-p", "helpers.run_settings", *workers)
    result.assert_outcomes(passed=2)


@pytest.mark.slow("checks the harness")
def test_tests_that_start_an_ensemble_share_one_worker(apart: pytest.Pytester) -> None:
    for name in ("tests/ensemble/test_a", "tests/ensemble/test_b", "tests/unit/test_c"):
        file = apart.path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(NAMES_ITS_WORKER.format(file=f"{file.parent.name}.workers"))
    result = apart.runpytest_subprocess("-p", "helpers.run_settings", "-n", "2", "--import-mode=importlib")
    result.assert_outcomes(passed=12)
    assert len({*(apart.path / "ensemble.workers").read_text().split()}) == 1
    assert len((apart.path / "ensemble.workers").read_text().split()) == 8


def test_the_unit_of_waiting_grows_with_the_load_of_the_machine() -> None:
    idle = timing.measure_slowdown()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        loaded = timing.measure_slowdown()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert 1 <= idle <= timing.MAX_SLOWDOWN
    assert loaded > idle or loaded == timing.MAX_SLOWDOWN


@pytest.mark.parametrize("chosen", ["", "2.5"])
def test_the_unit_is_measured_unless_the_environment_has_it(chosen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != timing.VARIABLE}
    program = f"import os, helpers.timing as t; print(t.UNIT / 0.05, os.environ[{timing.VARIABLE!r}])"
    if chosen:
        environment[timing.VARIABLE] = chosen
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=HELPERS, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    unit, inherited = map(float, printed.split())
    assert unit == pytest.approx(inherited)
    assert unit == pytest.approx(2.5) if chosen else unit >= 1


@pytest.mark.slow("checks the harness")
def test_a_test_that_is_slow_on_one_server_is_left_to_make_test_on_the_other() -> None:
    file = "tests/objects/test_container_reaping.py"
    name = "test_object_can_be_used_again_after_its_container_was_reaped"

    def servers(chosen: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", chosen, "-k", name, file]
        printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        return {kind for kind in KINDS for line in printed.splitlines() if name in line and kind in line}

    assert "slow_on" in (ROOT / file).read_text()
    assert servers("not slow") == {"embedded"}
    assert servers("slow") == {"zookeeper"}
