"""Guids are random UUIDs, each given once."""

from __future__ import annotations

import uuid

from distsync._client.guids import GUID_BATCH_SIZE, Guids, format_guid


def test_each_is_a_uuid_of_version_4_as_python_writes_it() -> None:
    guids = Guids()
    taken = [guids.take() for _ in range(3 * GUID_BATCH_SIZE)]
    assert [str(uuid.UUID(one)) for one in taken] == taken
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in taken} == {(4, uuid.RFC_4122)}


def test_none_is_given_twice() -> None:
    mine, others = Guids(), Guids()
    taken = [guids.take() for guids in (mine, others) for _ in range(3 * GUID_BATCH_SIZE)]
    assert len(set(taken)) == len(taken)


def test_only_the_marks_of_the_version_are_not_random() -> None:
    assert format_guid("f" * 32) == "ffffffff-ffff-4fff-bfff-ffffffffffff"
    assert format_guid("0" * 32) == "00000000-0000-4000-8000-000000000000"
