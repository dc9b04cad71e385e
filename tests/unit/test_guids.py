"""GUIDs are random, unique UUIDs."""

from __future__ import annotations

import uuid

from distsync._client.guids import GUID_BATCH_SIZE, Guids, format_guid


def test_guid_is_a_version_4_uuid_in_pythons_format() -> None:
    guids = Guids()
    taken = [guids.take() for _ in range(3 * GUID_BATCH_SIZE)]
    assert [str(uuid.UUID(one)) for one in taken] == taken
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in taken} == {(4, uuid.RFC_4122)}


def test_guids_are_unique() -> None:
    mine, others = Guids(), Guids()
    taken = [guids.take() for guids in (mine, others) for _ in range(3 * GUID_BATCH_SIZE)]
    assert len(set(taken)) == len(taken)


def test_all_bits_but_the_version_are_random() -> None:
    assert format_guid("f" * 32) == "ffffffff-ffff-4fff-bfff-ffffffffffff"
    assert format_guid("0" * 32) == "00000000-0000-4000-8000-000000000000"
