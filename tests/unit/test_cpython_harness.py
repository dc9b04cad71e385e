"""The harness that runs CPython's own tests: what passes, fails, is expected to fail, and passes unexpectedly."""

from __future__ import annotations

import unittest
from types import ModuleType

import pytest

pytest.importorskip("test.support", reason="this Python comes without its test package")

from helpers.cpython import Build, Case, cases, run

EMPTY = ModuleType("empty")


class Sample(unittest.TestCase):
    __test__ = False  # run by the harness only

    def test_passes(self) -> None:
        pass

    def test_fails(self) -> None:
        self.fail("it does")

    def test_fails_in_a_part(self) -> None:
        with self.subTest("a"):
            self.fail("this part does")

    def test_skips(self) -> None:
        self.skipTest("it does")

    def test_raises(self) -> None:
        raise KeyError("it does")


def case(method: str) -> Case:
    build: Build = lambda module: Sample  # noqa: E731
    return Case("Sample", method, build)


def test_every_method_is_a_case() -> None:
    found = {parameter.id for parameter in cases({"Sample": lambda module: Sample}, EMPTY)}
    assert found == {f"Sample.{name}" for name in vars(Sample) if name.startswith("test_")}


def test_passing_case_passes() -> None:
    run(case("test_passes"), EMPTY)


@pytest.mark.parametrize("method", ["test_fails", "test_fails_in_a_part", "test_raises"])
def test_failing_case_fails(method: str) -> None:
    with pytest.raises(AssertionError, match="does"):
        run(case(method), EMPTY)


def test_failing_case_that_should_fail_is_an_expected_failure() -> None:
    with pytest.raises(pytest.xfail.Exception, match="looks inside"):
        run(case("test_fails"), EMPTY, {"Sample.test_fails": "looks inside"})


def test_passing_case_that_should_fail_fails() -> None:
    with pytest.raises(AssertionError, match="passes, but is expected to fail: looks inside"):
        run(case("test_passes"), EMPTY, {"Sample.test_passes": "looks inside"})


def test_skipped_case_skips() -> None:
    with pytest.raises(pytest.skip.Exception, match="it does"):
        run(case("test_skips"), EMPTY)
