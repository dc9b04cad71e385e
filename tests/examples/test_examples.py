"""The examples do what they say, as several processes, on each server."""

from __future__ import annotations

import json
import re
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.leak_census import Observer
from helpers.subprocesses import LIMIT, Shells, printed
from helpers.timing import eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_to_start_it(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) <= 60
    assert f"python examples/{example.name}" in text


@pytest.mark.slow("starts several programs")
def test_example_that_needs_arguments_says_how_to_start_it(shells: Shells) -> None:
    names = {example.name for example in EXAMPLES if "sys.exit(__doc__)" in example.read_text()}
    names -= {"election.py"}  # which would look on
    if not (find_spec("starlette") and find_spec("uvicorn")):
        names -= {"leader_service.py"}
    started = {name: shells.start(name) for name in names}
    for name, process in started.items():
        assert f"python examples/{name}" in process.communicate()[1]
        assert process.returncode == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_listed(example: Path) -> None:
    assert f"examples/{example.name}" in (ROOT / "docs" / "examples.md").read_text()


def test_lock_loses_no_step(shells: Shells, tmp_path: Path) -> None:
    number = tmp_path / "number"
    printed = shells.together(*[("lock.py", number, 15)] * 3)
    assert number.read_text() == "45"
    assert max(int(re.search(r"is (\d+)", text)[1]) for text in printed) == 45


@pytest.mark.slow_on("zookeeper")
def test_semaphore_lets_two_in_at_a_time(shells: Shells) -> None:
    printed = shells.together(*[("semaphore.py", 0.2)] * 4)
    assert all(1 <= int(text.split(" of 2 places")[0]) <= 2 for text in printed)


@pytest.mark.slow("starts several programs")
def test_event_reaches_those_who_wait_and_those_who_come_later(shells: Shells) -> None:
    waiting = [shells.start("event.py", "wait") for _ in range(2)]
    shells.run("event.py", "go")
    assert [process.communicate()[0] for process in waiting] == ["gone\n"] * 2
    assert shells.run("event.py", "wait") == "gone\n"
    shells.run("event.py", "reset")


def test_barrier_begins_each_round_with_all(shells: Shells) -> None:
    printed = shells.together(*[("barrier.py", 3)] * 3)
    for number in range(3):
        places = [re.search(rf"round {number}: all 3 are here, and (\d) ", text)[1] for text in printed]
        assert sorted(places) == ["0", "1", "2"]


@pytest.mark.slow("starts several programs")
def test_condition_waits_until_there_is_enough(shells: Shells, tmp_path: Path) -> None:
    account = tmp_path / "account"
    takers = [shells.start("condition.py", account, "take", 5) for _ in range(2)]
    for amount in (3, 3, 4):
        shells.run("condition.py", account, "pay", amount)
    assert [process.wait() for process in takers] == [0, 0]
    assert account.read_text() == "0"


@pytest.mark.slow_on("zookeeper")
def test_pipeline_counts_every_file_once(shells: Shells, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(12)]
    for number, file in enumerate(files):
        file.write_text("line\n" * number)
    run = ("queue_pipeline.py", "monday")
    *_, total = shells.together((*run, "count"), (*run, "count"), (*run, "feed", *files), (*run, "sum"))
    assert total == "12 files, 66 lines\n"


@pytest.mark.slow("starts several programs")
def test_most_urgent_comes_first(shells: Shells) -> None:
    for urgency, text in ((2, "later"), (3, "last"), (1, "first")):
        shells.run("priority.py", "add", urgency, text)
    printed = [shells.run("priority.py", "next") for _ in range(4)]
    assert [line.split()[0] for line in printed] == ["first", "later", "last", "nothing"]


@pytest.mark.slow_on("zookeeper")
def test_table_is_read_whole_and_written_by_one(shells: Shells, tmp_path: Path) -> None:
    table = tmp_path / "table"
    run = ("shared_lock.py", table)
    *printed, maintenance = shells.together((*run, 6), (*run, 6), (*run, "maintenance"))
    assert json.loads(table.read_text()) == list(range(12))
    for text in printed:
        seen = [int(word) for word in text.split("rows seen: ")[1].split()]
        assert seen == sorted(seen)
        assert [after - before >= 1 for before, after in zip(seen[::2], seen[1::2], strict=True)] == [True] * 6
    assert re.search(r"maintenance: \d+ rows, all held: True", maintenance)


def test_transfers_change_both_accounts_or_none(shells: Shells, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    keepers = [shells.start("transaction.py", account, "keep") for account in (a, b)]
    assert shells.run("transaction.py", a, "pay", b, 7) == "paid\n"
    assert shells.run("transaction.py", a, "pay", b, 7) == "not paid: a voted abort\n"
    assert keepers[0].stdout.readline() == "a has 3\n"
    assert keepers[1].stdout.readline() == "b has 17\n"
    assert keepers[0].stdout.readline() == "a still has 3\n"
    for keeper in keepers:
        keeper.send_signal(signal.SIGINT)
        keeper.communicate()
    assert (a.read_text(), b.read_text()) == ("3", "17")


@pytest.mark.slow("starts several programs")
def test_jobs_of_a_worker_that_is_killed_are_done_by_others(shells: Shells, namespace: str, observer: Observer) -> None:
    shells.environment["DISTSYNC_SESSION_TIMEOUT"] = "2"
    workers = [shells.start("joinable_queue.py", "work") for _ in range(3)]
    eventually(lambda: sum("/getters/" in path for path in observer.tree(namespace)) == len(workers), limit=LIMIT)
    adding = shells.start("joinable_queue.py", "add", "mow", "fail", *map(str, range(12)))
    first = workers[0].stdout.readline()
    workers[0].kill()
    rest = [*workers[0].communicate()[0].splitlines(True), *printed(workers[1]).splitlines(True)]
    done = {first, *rest, *printed(workers[2]).splitlines(True)}
    assert done == {f"{job} is done\n" for job in ("mow", *range(12))}
    assert printed(adding) == "1 dead letters\n"


def test_ensemble_says_what_each_server_is(shells: Shells, server_kind: str) -> None:
    role = {"embedded": "embedded", "zookeeper": "standalone"}[server_kind]
    printed = shells.run("ensemble.py")
    assert re.fullmatch(rf"read back: here\n127\.0\.0\.1:\d+ {role}, epoch \d+, counter \d+\n", printed)
