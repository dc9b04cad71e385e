"""The lease clock and its holds: times are numbers, and no test waits."""

from __future__ import annotations

import pytest
from helpers.preempted_lease_clock import Preempted

from distsync._client.lease.holds import LEASE_EXPIRED, SESSION_EXPIRED, HeldNode, HoldTable
from distsync._client.lease.lease_clock import HEARTBEAT_FRACTION, MARGIN, LeaseClock
from distsync._protocols.steps import ZNODE_DELETED, Hold, Loss

SESSION, OTHER, TIMEOUT = 7, 8, 10.0
VALID = TIMEOUT * (1 - MARGIN)


def begun(at: float = 100.0) -> LeaseClock:
    clock = LeaseClock()
    clock.begin(SESSION, TIMEOUT, at)
    return clock


def test_lease_before_any_session_proves_nothing() -> None:
    assert not LeaseClock().is_valid_at(SESSION, 0.0)


def test_lease_of_a_new_session_counts_from_its_request() -> None:
    clock = begun(100.0)
    assert clock.is_valid_at(SESSION, 100.0 + VALID - 0.001)
    assert not clock.is_valid_at(SESSION, 100.0 + VALID)


def test_lease_is_fresh_until_its_next_proof_is_due() -> None:
    clock = begun(100.0)
    assert clock.is_valid_at(SESSION, 100.0 + TIMEOUT * HEARTBEAT_FRACTION - 0.001, fresh=True)
    assert not clock.is_valid_at(SESSION, 100.0 + TIMEOUT * HEARTBEAT_FRACTION, fresh=True)


def test_lease_of_another_session_is_never_proven() -> None:
    assert not begun().is_valid_at(OTHER, 100.0)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("reads", [1, 2, 3])
def test_expired_lease_is_not_proven_by_a_session_that_starts_during_the_check(reads: int, fresh: bool) -> None:
    clock = Preempted(reads, (OTHER, TIMEOUT, 200.0))
    clock.begin(SESSION, TIMEOUT, 100.0)
    assert not clock.is_valid_at(SESSION, 200.0, fresh)
    assert clock.is_valid_at(OTHER, 200.0, fresh)


def test_lease_counts_from_the_request_not_from_the_reply() -> None:
    clock = begun(100.0)
    clock.prove(SESSION, 103.0)
    assert clock.valid_until == 103.0 + VALID
    assert clock.next_heartbeat == 103.0 + TIMEOUT * HEARTBEAT_FRACTION


def test_lease_never_shrinks_when_replies_arrive_out_of_order() -> None:
    clock = begun(100.0)
    clock.prove(SESSION, 105.0)
    clock.prove(SESSION, 104.0)
    assert clock.valid_until == 105.0 + VALID


def test_lease_ignores_a_reply_of_an_earlier_session() -> None:
    clock = begun(100.0)
    clock.prove(OTHER, 150.0)
    clock.prove(None, 150.0)
    assert clock.valid_until == 100.0 + VALID


def test_lease_follows_the_timeout_granted_by_another_server() -> None:
    clock = begun(100.0)
    clock.renegotiate(4.0)
    assert clock.valid_until == 100.0 + 4.0 * (1 - MARGIN)


def test_lease_of_an_ended_session_proves_nothing() -> None:
    clock = begun()
    clock.end()
    clock.prove(SESSION, 200.0)
    assert not clock.is_valid_at(SESSION, 100.0)


def test_lease_expires_while_the_machine_is_suspended() -> None:
    """The clock includes suspended time, so that a jump is a passage of time like any other."""
    assert not begun(100.0).is_valid_at(SESSION, 100.0 + 60.0)


class Scene:
    """A lease with one hold."""

    def __init__(self, session_id: int = SESSION, at: float = 100.0) -> None:
        self.expired: list[list[HeldNode]] = []
        self.clock = begun(100.0)
        self.holds = HoldTable(self.clock, self.expired.append)
        self.loss = Loss()
        self.holds.add(Hold("/held", session_id, self.loss), at)


def test_hold_is_valid_while_the_lease_is_proven() -> None:
    scene = Scene()
    scene.holds.expire(100.0 + VALID - 0.001)
    assert not scene.loss.fired
    assert scene.holds.is_active(scene.loss)


def test_hold_is_lost_when_the_lease_runs_out() -> None:
    scene = Scene()
    scene.holds.expire(100.0 + VALID)
    assert (scene.loss.fired, scene.loss.reason) == (True, LEASE_EXPIRED)
    assert [[held.path for held in lost] for lost in scene.expired] == [["/held"]]
    assert not scene.holds.is_active(scene.loss)


def test_lost_hold_is_not_restored_by_a_later_proof() -> None:
    scene = Scene()
    scene.holds.expire(200.0)
    scene.clock.prove(SESSION, 201.0)
    assert scene.clock.is_valid_at(SESSION, 201.0)
    assert scene.loss.fired
    assert len(scene.holds) == 0


def test_hold_in_an_ended_session_is_lost_at_once() -> None:
    assert Scene(session_id=OTHER).loss.reason == SESSION_EXPIRED


def test_hold_added_after_the_lease_ran_out_is_lost_at_once() -> None:
    assert Scene(at=100.0 + VALID).loss.reason == LEASE_EXPIRED


def test_released_hold_is_not_lost() -> None:
    scene = Scene()
    scene.holds.remove(scene.loss)
    scene.holds.expire(200.0)
    assert not scene.loss.fired


def test_hold_is_lost_once_with_the_first_reason() -> None:
    scene = Scene()
    fired: list[str] = []
    scene.loss.subscribe(lambda: fired.append(scene.loss.reason))
    scene.holds.mark_lost(scene.loss, ZNODE_DELETED)
    scene.holds.lose_all(SESSION_EXPIRED)
    assert fired == [ZNODE_DELETED]
