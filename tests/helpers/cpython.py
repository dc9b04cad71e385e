"""CPython's own test classes, as single cases that run against a module of our choice.

CPython wrote them for other implementations too: a class takes the types under test from an attribute. Here each
test method becomes one pytest case; the very same case runs on the standard library, which proves the harness.
"""

from __future__ import annotations

import gc
import unittest
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest
from test import support

from helpers.reached import bound_to_stdlib

Build = Callable[[ModuleType], type[unittest.TestCase]]
"""Makes the class that tests what is in a module."""


class Case(NamedTuple):
    """One test method of one of CPython's classes."""

    family: str
    method: str
    build: Build

    def __str__(self) -> str:
        return f"{self.family}.{self.method}"


def cases(families: Mapping[str, Build], stdlib: ModuleType) -> Iterable[Any]:
    """A pytest parameter for each test method of each family that this Python ships."""
    for family, build in families.items():
        for method in unittest.defaultTestLoader.getTestCaseNames(build(stdlib)):
            case = Case(family, method, build)
            yield pytest.param(case, id=str(case))


def run(case: Case, module: ModuleType, expected_failures: Mapping[str, str] | None = None) -> None:
    """The case passed on ``module``, or failed where that is expected. An unexpected pass is a failure."""
    reason = (expected_failures or {}).get(str(case))
    tests = case.build(module)
    assert_ours(tests, module)
    problems = problems_of(tests(case.method))
    if problems and reason is not None:
        gc.collect()  # what the test has left has its end now, not while pytest formats this
        pytest.xfail(reason)
    assert not problems, "\n".join(problems)
    assert reason is None, f"{case} passes, but is expected to fail: {reason}"


def assert_ours(tests: type[unittest.TestCase], module: ModuleType, allowed: Mapping[str, str] | None = None) -> None:
    """No attribute of a class that tests a module of distsync is bound to the standard library."""
    if module.__name__.startswith("distsync"):
        found = list(bound_to_stdlib(tests, allowed or {}))
        assert not found, f"is it distsync that they test? {', '.join(found)}"


class Result(unittest.TestResult):
    """A result without nested tracebacks.

    Python 3.11 cannot format a traceback while it formats another one, as it does for a task that
    is garbage-collected with an unretrieved error (gh-106905).
    """

    def _exc_info_to_string(self, err: Any, test: Any) -> str:
        gc.disable()
        try:
            return str(super()._exc_info_to_string(err, test))  # type: ignore[misc]
        finally:
            gc.enable()


def problems_of(test: unittest.TestCase | unittest.TestSuite) -> list[str]:
    """A text for each failure and error; skips the pytest case if all its tests skip themselves."""
    support.environment_altered = False
    result = Result()
    test.run(result)
    altered = ["it left threads or processes behind"] if support.environment_altered else []
    problems = [text for _, text in (*result.failures, *result.errors)] + altered
    if not problems and len(result.skipped) >= result.testsRun:
        pytest.skip("CPython's own reason: " + ", ".join({why for _, why in result.skipped}))
    return problems


def changed(method: Any, many: int, fewer: int) -> FunctionType:
    """The method with another number in the place of this one."""
    code = method.__code__
    assert many in code.co_consts, f"{method} has changed: look at it"
    numbers = tuple(fewer if value == many else value for value in code.co_consts)
    made = FunctionType(code.replace(co_consts=numbers), method.__globals__, method.__name__, None, method.__closure__)
    made.__kwdefaults__, made.__defaults__ = method.__kwdefaults__, method.__defaults__
    return made
