"""Data that somebody has written who wanted to break those who read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distsync._protocols.barriers import double
from distsync._protocols.pool import callers
from distsync._protocols.semaphores import leases
from distsync._protocols.state import condition, count_down_latch, election
from distsync._protocols.steps import Node, Stat
from distsync._protocols.transactions import vote_records
from distsync.errors import CorruptNodeError

PATH = "/object"

NESTED = b"[" * 100_000
ENDLESS = (
    b'{"initial": 1e999, "extra": 0, "count": 1e999, "parties": 1e999, "inside": [], "token": 1e999, "candidate": ""}'
)
DIGITS = b'{"initial": %s}' % (b"9" * 6000)


@pytest.mark.parametrize("data", [NESTED, b"{" + NESTED, ENDLESS, DIGITS, b"[]", b"{}", b"null", b"\xff"])
@pytest.mark.parametrize(
    "read",
    [
        vote_records.Decision.read,
        vote_records.TransactionRecord.read,
        condition.names_in,
        leases.parse_permits,
        lambda path, data: count_down_latch.tally_in(path, Node(data, Stat(*[0] * len(Stat._fields)))),
        lambda path, data: double._fields(path, data),
        lambda path, data: callers._wills(data),
        lambda path, data: election.leading(data),
    ],
)
def test_what_makes_no_sense_is_corrupt_or_tells_nothing(read: Callable[[str, bytes], Any], data: bytes) -> None:
    try:
        found = read(PATH, data)
    except CorruptNodeError as error:
        assert PATH in str(error)
    else:
        assert found in ([], (None, ()), (False, 60_000), election.Leading(data, "", 0))
