"""The protocol table in docs/server.md is complete, and each row names an existing test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distsync._wire.codes import ErrorCode, OpCode
from distsync._wire.record_codec import LAYOUTS, OPERATIONS
from distsync._wire.records import Body, Request, Result

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "server.md").read_text()
SECTION = PAGE.partition("## The protocol\n")[2].partition("\n## ")[0]
LINES = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]


def names_in(pattern: str) -> set[str]:
    paths = (ROOT / "tests" / "server").glob(pattern)
    return {name for path in paths for name in re.findall(r"def (test_\w+)\(", path.read_text())}


TESTS = names_in("test_protocol*.py")


def test_each_operation_has_a_row() -> None:
    numbers = {int(row[1]) for row in ROWS if re.fullmatch(r"-?\d+", row[1])}
    assert numbers == {int(op) for op in OpCode} - {OpCode.ERROR}


def test_each_operation_can_be_read_and_written() -> None:
    assert {int(op) for op in OpCode} - {OpCode.ERROR} == set(OPERATIONS.values())
    assert {*OPERATIONS, *Body.__args__, *Result.__args__} <= set(LAYOUTS)
    assert set(OPERATIONS) <= set(Request.__args__)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_each_row_is_backed_by_tests(row: list[str]) -> None:
    named = re.findall(r"`(test_\w+)`", row[4])
    assert named
    assert set(named) <= TESTS | names_in("test_identities.py")


def test_each_test_supports_a_row() -> None:
    assert {name for name in TESTS if f"`{name}`" not in PAGE} == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_error_codes_and_deviations_are_known(row: list[str]) -> None:
    assert set(re.findall(r"`([A-Z_]+)`", row[2])) <= set(ErrorCode.__members__)
    explained = set(re.findall(r"^\* \*\*(D\d+)\*\*", PAGE, re.MULTILINE))
    assert row[3] == "none" or set(row[3].split(", ")) <= explained


def test_each_deviation_is_in_a_row() -> None:
    named = {deviation for row in ROWS for deviation in re.findall(r"D\d+", row[3])}
    assert set(re.findall(r"^\* \*\*(D\d+)\*\*", PAGE, re.MULTILINE)) == named
