"""In-process state of a path stays while it has users, and while dropping it would lose something."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import pytest

from distsync._client.shared_state import SWEEP, SharedStateTable
from distsync.errors import NameInUseError


class User:
    _state_entry: Any = None


@dataclass
class Known:
    idle: bool = True


def use(known: SharedStateTable, path: str, kind: str = "lock") -> tuple[User, Known]:
    user = User()
    return user, known.of(path, kind, Known, user)


def sweep(known: SharedStateTable, times: int = 1) -> None:
    for _ in range(times):
        use(known, "/other")
    gc.collect()


def test_users_of_a_path_share_it() -> None:
    known = SharedStateTable()
    users = [use(known, "/a") for _ in range(3)]
    assert all(value is users[0][1] for _, value in users)


def test_state_that_many_users_have_left_is_dropped() -> None:
    known = SharedStateTable()
    for number in range(1_000):
        use(known, f"/{number}")
    sweep(known)
    assert len(known) <= SWEEP + 1


def test_state_stays_while_one_of_its_users_exists() -> None:
    known = SharedStateTable()
    (first, value), (second, _) = use(known, "/a"), use(known, "/a")
    del first
    sweep(known, 10)
    assert use(known, "/a")[1] is value
    del second
    sweep(known, 10)
    assert use(known, "/a")[1] is not value


def test_state_stays_until_it_is_idle() -> None:
    known = SharedStateTable()
    value = use(known, "/a")[1]
    value.idle = False
    sweep(known, 10)
    assert use(known, "/a")[1] is value
    value.idle = True
    sweep(known, 10)
    assert use(known, "/a")[1] is not value


def test_state_without_users_stays() -> None:
    known = SharedStateTable()
    value = known.of("/receipts", "", Known)
    sweep(known, 10)
    assert known.of("/receipts", "", Known) is value


def test_recreated_state_is_not_dropped_for_its_former_users() -> None:
    known = SharedStateTable()
    first, value = use(known, "/a")
    assert known.drop("/a")
    assert not known.drop("/a")
    second, again = use(known, "/a")
    assert again is not value
    del first
    sweep(known, 10)
    assert use(known, "/a")[1] is again
    assert second._state_entry.value is again


def test_object_of_another_kind_is_refused_and_is_no_user() -> None:
    known = SharedStateTable()
    use(known, "/a", "lock")
    with pytest.raises(NameInUseError, match="/a is already a lock and cannot be used as a queue"):
        use(known, "/a", "queue")
    sweep(known, 10)
    assert isinstance(use(known, "/a", "queue")[1], Known)
