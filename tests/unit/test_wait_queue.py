"""Decisions about the queue of contenders (recipes.txt, Locks, Shared Locks), without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsync._protocols.queues.fifo import before_all
from distsync._protocols.wait_queue import (
    KAZOO_LOCK,
    KAZOO_READ,
    LATCH,
    READ,
    WRITE,
    QueueState,
    current_holders,
    decide,
    in_order,
    is_writer,
    node_name,
    parse,
    predecessors,
    sequence_distance,
)

GUID = "c0ffee00-0000-4000-8000-000000000000"


def name(number: int, mark: str = "-lock-", guid: str = GUID) -> str:
    return f"_c_{guid}{mark}{number:010d}"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (name(0), 0),
        (name(2**31 - 1), 2**31 - 1),
        (name(-(2**31)), -(2**31)),
        (name(-5), -5),
        ("0123456789abcdef0123456789abcdef__lock__0000000007", 7),
        ("0123456789abcdef0123456789abcdef__lock__-2147483648", -(2**31)),
        (f"i_{GUID}-0000000003", 3),
        (f"i_{GUID}--000000003", -3),
        ("n_0000000002", 2),
        ("x-95-0000000004", 4),
        ("queue-00000000", None),
        ("lease_holder", None),
        ("ready", None),
    ],
)
def test_number_of_a_contender_is_the_end_of_its_name_for_any_client(text: str, number: int | None) -> None:
    contender = parse(text)
    assert (contender and contender.number) == number


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 1000), st.text("abcdef0123456789", min_size=8, max_size=8))
def test_order_follows_the_sequence_across_its_overflow_for_any_guids(base: int, count: int, salt: str) -> None:
    """Hazards 52 and 53: neither the text nor the sign decides."""
    numbers = [(base + step + 2**31) % 2**32 - 2**31 for step in range(0, count, max(1, count // 20))]
    names = [name(number, guid=f"{hash((salt, number)) & 0xFFFFFFFF:08x}") for number in numbers]
    assert [contender.number for contender in in_order(reversed(names))] == numbers


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_sequence_distance_is_antisymmetric_except_at_the_maximum(one: int, other: int) -> None:
    assert (
        sequence_distance(one, other) == -sequence_distance(other, one) or abs(sequence_distance(one, other)) == 2**31
    )


def test_first_contender_holds_and_others_wait_for_their_predecessor() -> None:
    """Locks, steps 3 and 4."""
    names = [name(5), name(3), name(4)]
    assert decide(names, name(3)).state is QueueState.HELD
    assert decide(names, name(5)).behind == name(4)


def test_contender_that_is_not_in_the_listing_is_gone() -> None:
    assert decide([name(1)], name(2)).state is QueueState.GONE
    assert predecessors([name(1)], name(2)) is None


def test_reader_waits_for_the_nearest_writer_ahead_only() -> None:
    """Shared Locks, read lock, steps 3 and 4; hazard 51."""
    write, read, mine = name(1, "-__WRIT__"), name(2, "-__READ__"), name(3, "-__READ__")
    assert decide([mine, read, write], mine, is_writer).behind == write
    assert decide([mine, read], mine, is_writer).state is QueueState.HELD


def test_children_that_are_no_contenders_do_not_count() -> None:
    """Hazard 56."""
    assert decide([name(9), "lease_holder", "config", "ready"], name(9)).state is QueueState.HELD


def test_item_restored_from_a_dropped_segment_precedes_the_remaining_ones() -> None:
    """Its number means nothing in the next segment."""
    back = before_all(f"i_{GUID}-0000000999")
    names = [f"i_{GUID}-{number:010d}" for number in (0, 1, 999)]
    assert [contender.name for contender in in_order([*names, back])] == [back, *names]
    assert in_order([back, before_all(back)])[0].name == before_all(back)


@pytest.mark.parametrize(("read", "write"), [(READ, WRITE), (KAZOO_READ, KAZOO_LOCK)])
@pytest.mark.parametrize(
    ("kinds", "holders", "watched"),
    [("r", 1, None), ("w", 1, None), ("rrr", 3, None), ("rrwr", 2, 2), ("wrr", 1, 0), ("wwr", 1, 1), ("rwrwr", 1, 3)],
)
def test_holders_are_the_readers_before_the_first_writer_or_one_writer(
    kinds: str, holders: int, watched: int | None, read: str, write: str
) -> None:
    """Shared Locks: the holders, and the entry that the last reader waits for: the last writer ahead."""
    names = [f"{number:032x}{read if kind == 'r' else write}{number:010d}" for number, kind in enumerate(kinds)]
    assert [each.name for each in current_holders(in_order(reversed(names)))] == names[:holders]
    if kinds[-1] == "r":
        assert decide(names, names[-1], is_writer).behind == ("" if watched is None else names[watched])
    if len(kinds) > 1:
        assert decide(names, names[-1]).behind == names[-2]


def test_empty_queue_has_no_holder() -> None:
    assert current_holders([]) == []


@pytest.mark.parametrize("mark", ["-lock-", LATCH, READ, WRITE, KAZOO_LOCK, KAZOO_READ])
@pytest.mark.parametrize("number", ["0000000000", "2147483647", "-2147483648", "-000000005"])
def test_composed_name_is_parsed_and_found_by_its_guid(mark: str, number: str) -> None:
    prefix, guid = node_name(GUID, mark)
    assert guid in prefix
    found = parse(prefix + number)
    assert found is not None
    assert (found.name_suffix, found.number) == (mark, int(number))
