"""Malicious data of znodes is reported as corrupt, or ignored; it raises no other error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distsync._protocols.barriers import double, generation
from distsync._protocols.pool import callers
from distsync._protocols.semaphores import leases
from distsync._protocols.state import condition, count_down_latch, election, token_bucket
from distsync._protocols.steps import Node, Stat
from distsync._protocols.transactions import vote_records
from distsync.errors import CorruptNodeError

PATH = "/object"

NESTED = b"[" * 100_000
ENDLESS = (
    b'{"initial": 1e999, "extra": 0, "count": 1e999, "parties": 1e999, "inside": [], "token": 1e999, "candidate": "", '
    b'"after": 1e999, "rate": 1, "burst": 1, "level": 1, "debt": null, "at": 1e999, "want": 1, "by": ""}'
)
DIGITS = b'{"initial": %s}' % (b"9" * 6000)


def node_of(data: bytes) -> Node:
    return Node(data, Stat(*[0] * len(Stat._fields)))


@pytest.mark.parametrize("data", [NESTED, b"{" + NESTED, ENDLESS, DIGITS, b"[]", b"{}", b"null", b"\xff"])
@pytest.mark.parametrize(
    "read",
    [
        vote_records.Decision.read,
        vote_records.TransactionRecord.read,
        condition.names_in,
        leases.parse_permits,
        lambda path, data: count_down_latch.record_in(path, node_of(data)),
        lambda path, data: generation.generation_in(path, node_of(data)),
        lambda path, data: token_bucket.bucket_in(path, node_of(data)),
        lambda path, data: double._fields(path, data),
        lambda path, data: callers._parse_caller(data),
        lambda path, data: election.leading(data),
    ],
)
def test_malformed_data_is_corrupt_or_yields_a_default(read: Callable[[str, bytes], Any], data: bytes) -> None:
    try:
        found = read(PATH, data)
    except CorruptNodeError as error:
        assert PATH in str(error)
    else:
        assert found in ([], (None, ()), (60_000, None), election.Leading(data, "", 0))
