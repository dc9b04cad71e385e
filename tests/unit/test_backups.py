"""Which waiters of a queue are backups of the first one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from distsync._protocols.queues.blocking_get import is_backup


@pytest.mark.parametrize("ahead", [4, 5, 6, 8, 9, 20, 99, 100])
@pytest.mark.parametrize("start", [0, 1, 17, 2**31 - 50, -(2**31)])
def test_two_or_three_of_any_waiters_in_a_row_are_backups_at_even_distances(ahead: int, start: int) -> None:
    """Whichever process is the first, one that runs is behind it, and an item wakes no crowd."""
    for first in range(start, start + 2 * ahead):
        backups = [number for number in range(first, first + ahead) if is_backup(number, ahead)]
        assert 2 <= len(backups) <= 3
        assert {after - before for before, after in pairwise(backups)} == {(ahead + 2) // 3}


def test_all_waiters_of_a_queue_of_four_are_backups_except_the_first() -> None:
    for number in range(10):
        assert [is_backup(number, ahead) for ahead in range(4)] == [False, True, True, True]
