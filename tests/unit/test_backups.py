"""Which waiters of a queue are backups of the first one."""

from __future__ import annotations

import pytest

from distsync._protocols.queues.blocking_get import is_backup


@pytest.mark.parametrize("ahead", [1, 2, 3, 4, 5, 8, 9, 20, 99, 100])
@pytest.mark.parametrize("start", [0, 1, 17, 2**31 - 50, -(2**31)])
def test_any_waiters_in_a_row_contain_one_or_two_backups(ahead: int, start: int) -> None:
    """Whichever process is the first, one of those behind it is a backup, and none wakes a crowd."""
    for first in range(start, start + 2 * ahead):
        assert 1 <= sum(is_backup(number, ahead) for number in range(first, first + ahead)) <= 2


def test_all_waiters_of_a_short_queue_are_backups_except_the_first() -> None:
    found = {ahead: [is_backup(number, ahead) for number in (4, 5)] for ahead in range(3)}
    assert found == {0: [False, False], 1: [True, True], 2: [True, True]}
