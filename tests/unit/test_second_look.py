"""The second look of ``.ci/run``: a test that fails twice is red, one that fails once is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import second_look

pytest_plugins = ["pytester"]

HARNESS = pytest.mark.slow("checks the harness")

TESTS = """
from pathlib import Path

import pytest


def fails_once(name):
    mark = Path(name)
    if not mark.exists():
        mark.touch()
        raise AssertionError(name)


@pytest.fixture
def fails_once_at_its_end():
    yield
    fails_once("teardown")


def test_passes():
    Path("passes").open("a").write(".")


@pytest.mark.parametrize("sign", ["a::b", "c@d"])
def test_once(sign):
    fails_once(sign.replace(":", "_"))


def test_error_once(fails_once_at_its_end):
    pass


@pytest.fixture
def fails_at_its_end():
    yield
    assert False


def test_error_always(fails_at_its_end):
    pass


def test_skipped_then():
    if Path("skipped").exists():
        pytest.skip("not here")
    fails_once("skipped")


def test_always():
    assert False


@pytest.mark.parametrize("number", range(6))
def test_many(number):
    fails_once(f"many{number}")
"""


@pytest.fixture
def apart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(second_look.__file__).parents[1]))
    monkeypatch.setenv(second_look.REPORT, "report")
    monkeypatch.delenv(second_look.AGAIN, raising=False)
    pytester.makepyfile(test_apart=TESTS)
    return pytester


def run(apart: pytest.Pytester, chosen: str, *options: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of the report."""
    status = apart.runpytest_subprocess("-p", "helpers.second_look", "-k", chosen, *options).ret
    report = apart.path / "report"
    return status, report.read_text().splitlines() if report.exists() else []


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_test_that_fails_once_is_green_and_named(apart: pytest.Pytester, workers: tuple[str, ...]) -> None:
    status, report = run(apart, "once or passes", *workers)
    assert status == 0
    assert sorted(report) == [
        "UNSTABLE test_apart.py::test_error_once",
        "UNSTABLE test_apart.py::test_once[a::b]",
        "UNSTABLE test_apart.py::test_once[c@d]",
    ]
    assert (apart.path / "passes").read_text() == "."  # tests that had passed did not run again


@pytest.mark.parametrize(
    "chosen",
    [
        "test_always",
        "error_always",
        pytest.param("test_always or once", marks=HARNESS),
        pytest.param("skipped", marks=HARNESS),
        pytest.param("many", marks=HARNESS),
    ],
)
def test_any_other_failure_is_red_and_names_no_test(apart: pytest.Pytester, chosen: str) -> None:
    assert run(apart, chosen) == (1, [])


def test_a_module_that_cannot_be_imported_is_red(apart: pytest.Pytester) -> None:
    apart.makepyfile(test_broken="import nothing_of_this_name")
    status, report = run(apart, "passes")
    assert status != 0
    assert report == []


def test_without_the_variable_there_is_no_second_look(apart: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(second_look.REPORT)
    assert run(apart, "error_once") == (1, [])
    assert run(apart, "error_once") == (0, [])
