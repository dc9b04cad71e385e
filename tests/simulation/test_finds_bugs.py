"""The simulator finds planted bugs within a few hundred schedules, and none in a correct lock."""

from __future__ import annotations

import re
from typing import Any

import pytest
from simulation.engine import Exclusion, Faults, NothingLeft, Simulation, SimulationFailure
from simulation.engine.runner import run
from simulation.engine.session import SimSession
from simulation.scenarios import SCENARIOS
from simulation.scenarios import pool as scenarios_pool
from simulation.toy_protocols import Lock, contend

from distsync._protocols import wait_queue
from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.pool.callers import Caller
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.queues.segments import Segments
from distsync._protocols.retries import read_all
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.state import reference_ledger
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.state.gate import GateCore
from distsync._protocols.state.parameter_users import ParameterUser
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Children, GetData, Node
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.vote_records import ABORT, Decision
from distsync.errors import ShutDown
from distsync.multiprocessing._pool.task_claims import TaskClaims

ALL = Faults(
    lost_request=0.01,
    lost_reply=0.01,
    cut=0.01,
    expire_away=0.005,
    expire_live=0.005,
    slow=0.005,
    kill=0.003,
    pause=0.003,
    interrupt=0.003,
    intruder=0.003,
    late_event=0.05,
)


def first_failure(schedules: int, faults: Faults, **lock: bool) -> SimulationFailure | None:
    for seed in range(schedules):
        world = Simulation(seed, faults=faults, checks=[Exclusion("lock"), NothingLeft("/lock/")])
        contend(world, Lock(**lock))
        try:
            world.run()
            world.close()
        except SimulationFailure as failure:
            return failure
    return None


@pytest.mark.parametrize(
    ("faults", "lock", "message"),
    [
        pytest.param(Faults(lost_reply=0.02), {"search": False}, "asleep|left", id="a lost create is not searched for"),
        pytest.param(Faults(interrupt=0.02), {"relist": False}, "2 hold 'lock'", id="an event is taken for a grant"),
        pytest.param(ALL, {"owner": False}, "asleep|left", id="the owner of the znode is not checked"),
    ],
)
def test_a_planted_bug_is_found(faults: Faults, lock: dict[str, bool], message: str) -> None:
    failure = first_failure(500, faults, **lock)
    assert failure is not None
    assert re.search(message, failure.message)


def test_a_client_that_trusts_a_lagging_server_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimSession, "syncs", False)
    found = run(SCENARIOS["gate"], range(1000), most_failures=1).failures
    assert "it was closed throughout" in found[0].message
    assert "lag" in str(found[0])


def test_an_object_without_a_name_that_is_deleted_with_a_pickle_in_transit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_ledger, "merged", lambda found, record: frozenset({*found, *record}) & {"*"})
    found = run(SCENARIOS["process-objects"], range(500), most_failures=1).failures
    assert "was deleted, but" in found[0].message


def test_a_failure_contains_what_is_needed_to_repeat_it() -> None:
    failure = first_failure(500, Faults(lost_reply=0.02), search=False)
    assert failure is not None
    text = str(failure)
    assert f"seed {failure.seed}, Faults(lost_reply=0.02" in text
    assert "Exactly(kind='lost_reply'" in text
    assert "Create(/lock/" in text
    again = Simulation(failure.seed, faults=failure.plan, checks=[Exclusion("lock"), NothingLeft("/lock/")])
    contend(again, Lock(search=False))
    with pytest.raises(SimulationFailure) as caught:
        again.run()
    assert list(caught.value.history.lines()) == list(failure.history.lines())


def test_a_correct_lock_passes_under_every_fault() -> None:
    failure = first_failure(300, ALL)
    assert failure is None, failure


def always(value: Any) -> Any:
    """Return an async function that only returns ``value``."""

    async def instead(*args: Any, **options: Any) -> Any:
        return value

    return instead


async def one_too_many(core: SemaphoreCore) -> int:
    listing, _ = await read_all(Children(core.path), GetData(core.path))
    return core.initial + 1 - len(getattr(listing, "names", ()))


async def single_read(core: QueueCore, maxsize: int) -> str | None:
    path = await core.next_path(maxsize)
    if path is None and await core.is_shutdown():
        raise ShutDown
    return path


async def record_at_any_version(
    user: ParameterUser, found: Node | None, parameters: Any, version: int, gone: list[str]
) -> bool:
    return await record(user, found, parameters, -1, gone)


async def register_after_reading(user: ParameterUser, name: str, parameters: Any, description: Any) -> Any:
    (found,) = await read_all(GetData(user.core.path))
    return found if await register(user, name, parameters, description) is not None else None


register, record = ParameterUser._register, ParameterUser._record


@pytest.mark.parametrize(
    ("scenario", "of", "name", "instead", "message"),
    [
        ("observers", GateCore, "is_open", always(True), "was read as True"),
        ("observers", ConditionCore, "waiting", always(1), "was read as 1"),
        ("observers", wait_queue, "contenders", always([]), r"was read as \[\]"),
        ("observers", SemaphoreCore, "value", one_too_many, "was read as|free at the end"),
        ("queue-join", QueueCore, "join", always(True), "joined when|unfinished"),
        ("queue-join", QueueCore, "_done_together", always([True]), "unfinished"),
        ("pool-sweep", scenarios_pool, "sweep", always(None), "is dead, but these znodes remain"),
        ("pool-shared", TaskClaims, "_put_results", always(None), "asleep"),
        ("pool-initializers", Caller, "_compare_initializers", always(True), "with different initializers"),
        ("parameter-users", ParameterUser, "_record", record_at_any_version, "at the same time"),
        ("parameter-users", ParameterUser, "_register", register_after_reading, "at the same time"),
        ("watch-waits", WatchCache, "until", WatchCache.get, "until more than|unexpected"),
        ("cross-process-handoff", multiprocessing_lock, "_delete_holder", always(True), "asleep|2 hold"),
        ("shutdown-bulk", QueueCore, "next_path_or_shutdown", single_read, "ShutDown was raised although"),
        ("external-deletes", Segments, "_is_whole", always(False), "does not come to rest|asleep"),
        ("external-deletes", TransactionCore, "ended", always(Decision("x", ABORT)), "was reported as|a query for"),
    ],
)
def test_a_bug_planted_in_a_protocol_is_found(
    scenario: str, of: Any, name: str, instead: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, instead)
    failures = run(SCENARIOS[scenario], range(600), most_failures=1).failures
    assert failures
    assert re.search(message, failures[0].message), failures[0].message
