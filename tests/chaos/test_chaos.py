"""A short selection of the runs of ``make chaos``, and that a run can fail. Those on an ensemble are in tests/ensemble,
where one runs already."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chaos.stage
import pytest
from chaos.faults import strike, strikes
from chaos.history import Call, Recorder, calls, read
from chaos.runs import WORKERS, Plan, run, wait_for_all
from chaos.soak import QUEUES, below
from chaos.stage import Stage
from chaos.worker import Desk
from chaos.workloads import SITES, WORKLOADS, Deciding
from helpers.leak_census import Observer
from helpers.servers import need_zookeeper
from helpers.timing import PATIENCE

from distsync import Client, JoinableQueue
from distsync.queue import Queue

pytestmark = pytest.mark.timeout(300)

SECONDS = 3.0

SELECTION = [
    Plan("queue", "zookeeper", 2, SECONDS, ("drop_reply", "interrupt", "expire")),
    Plan("semaphore", "embedded", 1, SECONDS, ("outage",), outage_s=6.0),
    Plan("queue", "zookeeper", 1, SECONDS, ("outage",), outage_s=6.0),
]
PARAMETERS = [
    Plan("lock", "embedded", 1, SECONDS, ("kill:holder", "stop:holder", "server_killed")),
    *(pytest.param(plan, marks=pytest.mark.slow("chaos")) for plan in SELECTION),
]


@pytest.mark.parametrize("plan", PARAMETERS, ids=lambda plan: f"{plan.primitive}-{plan.server}-{plan.faults[0]}")
def test_primitive_keeps_its_promises_under_faults(plan: Plan, tmp_path: Path) -> None:
    if plan.server != "embedded":
        need_zookeeper()
    outcome = run(plan, tmp_path / "history")
    assert outcome.violations == [], str(outcome)
    assert outcome.faults
    assert outcome.calls


@pytest.mark.slow("chaos")
def test_object_that_is_no_lock_is_detected_and_the_command_to_repeat_is_printed(tmp_path: Path) -> None:
    plan = Plan("nothing", "embedded", 5, 0.5, ("clock",))
    outcome = run(plan, tmp_path / "history")
    assert any("2 hold at" in each for each in outcome.violations)
    assert "make chaos CHAOS_ARGS='nothing --server embedded --seed 5 --seconds 0.5 --faults clock'" in str(outcome)
    assert read(tmp_path / "history")


CALLS = (
    *("acquire", "again", "read", "write", "release", "put", "get", "done", "wait", "look", "reset", "notify", "set"),
    *("clear", "is_set", "enter", "leave", "begin", "decide", "take_part"),
)
LATEST: dict[str, Callable[[Call], bool]] = {
    "holder": lambda call: call.name in ("acquire", "again") and call.succeeded and call.value is not False,
    "writer": lambda call: call.name == "write" and call.value is True,
    "reader": lambda call: call.name == "read" and call.value is True,
    "leader": lambda call: call.name == "acquire" and call.value is True,
    "waiter": lambda call: call.name in ("acquire", "read", "write", "wait", "enter") and call.ended is None,
    "setter": lambda call: call.name in ("set", "clear") and call.ended is None,
    "insider": lambda call: call.name == "enter" and isinstance(call.value, list),
    "candidate": lambda call: call.name == "acquire" and call.ended is None,
    "producer": lambda call: call.name == "put" and call.ended is None,
    "consumer": lambda call: call.name == "get" and call.error is None,
    "coordinator": lambda call: call.name == "begin" or (call.name == "decide" and call.ended is None),
    "site": lambda call: call.name == "take_part" and call.ended is None,
}
"""The latest call of a process that plays this role."""


@pytest.mark.slow("chaos")
@pytest.mark.parametrize("primitive", WORKLOADS)
def test_who_is_struck_plays_the_role_that_was_asked_for(
    primitive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos.stage, "CATCH_S", 6 * PATIENCE)
    names, dice = [name for name in strikes([primitive]) if name.startswith("kill:")], random.Random(7)
    assert names
    with Stage("embedded", tmp_path, seed=7) as stage:
        stage.add(primitive, WORKERS)
        for name in 2 * names:
            wait_for_all(stage)
            strike(stage, name, dice)
    events = read(tmp_path)
    struck = [(event["fault"].removeprefix("kill:"), event["whose"]) for event in events if "whose" in event]
    assert [f"kill:{role}" for role, _ in struck] == 2 * names
    for role, who in struck:
        latest = calls((event for event in events if event["who"] == who), *CALLS)[-1]
        assert LATEST[role](latest), f"{who} was struck as {role} in {latest}"


@pytest.mark.slow("chaos")
def test_suspended_process_records_nothing_until_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos.stage, "CATCH_S", 6 * PATIENCE)
    with Stage("embedded", tmp_path, seed=8) as stage:
        stage.add("lock", WORKERS)
        wait_for_all(stage)
        strike(stage, "stop:holder", random.Random(8))
        stage.note("stop:holder over")
    struck, over = (event for event in read(tmp_path) if "fault" in event)
    meanwhile = [event for event in read(tmp_path) if event["who"] == struck["whose"]]
    assert not [event for event in meanwhile if struck["t"] < event["t"] < over["t"] - 0.5]


@pytest.mark.slow("chaos")
def test_nobody_is_struck_for_a_role_that_nobody_plays(tmp_path: Path) -> None:
    with Stage("embedded", tmp_path, seed=9) as stage:
        stage.add("queue", 1)  # it puts, and nobody gets
        wait_for_all(stage)
        strike(stage, "kill:consumer", random.Random(9))
    assert [event["fault"] for event in read(tmp_path) if "fault" in event] == ["nobody there"]


@pytest.mark.slow("chaos")
def test_interrupted_coordinator_decides_before_it_begins_again(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, "c")
    coordinator = Deciding(Desk(recorder, random.Random(1)), len(SITES))
    decide, interrupts = coordinator.order.decide, [KeyboardInterrupt()]

    def interrupted(timeout: float) -> bool:
        for interrupt in interrupts:
            interrupts.clear()
            raise interrupt
        return decide(timeout)

    monkeypatch.setattr(coordinator.order, "decide", interrupted)
    with pytest.raises(KeyboardInterrupt):
        coordinator.step()
    coordinator.step()
    recorder.close()
    told = [(call.name, call.arg) for call in calls(read(tmp_path), "begin", "decide")]
    assert told == [("begin", "c-1"), ("decide", "c-1"), ("decide", "c-1")]


@pytest.mark.parametrize(("make", "folder"), [(Queue, QUEUES["queue"]), (JoinableQueue, QUEUES["joinable"])])
def test_soak_counts_what_is_left_in_queues_apart(
    make: Any, folder: str, client: Client, observer: Observer, namespace: str
) -> None:
    items = f"{namespace}/{folder}/items"
    assert below(observer.kazoo, items) == 0
    make(name="chaos", client=client).put("item")
    assert below(observer.kazoo, items) == len(observer.tree(items)) == 2
