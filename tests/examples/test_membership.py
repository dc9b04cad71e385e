"""The examples of elections, groups, registries and settings, as several processes, on each server."""

from __future__ import annotations

import re
import signal

import pytest
from helpers.servers import ServerProcess
from helpers.subprocesses import LIMIT, Shells, watches
from helpers.timing import eventually


@pytest.mark.slow("starts several programs")
def test_election_has_one_leader_at_a_time(shells: Shells) -> None:
    printed = shells.together(*[("election.py", name, 3) for name in ("ann", "bob", "cyd")])
    terms = []
    for name, text in zip(("ann", "bob", "cyd"), printed, strict=True):
        found = re.findall(rf"^{name} leads, term (\d+)$", text, re.MULTILINE)
        assert len(found) == 3
        terms += found
    assert len(set(terms)) == 9


@pytest.mark.slow_on("zookeeper")
def test_group_shows_all_to_all(shells: Shells) -> None:
    printed = shells.together(*[("group.py", name, 3) for name in ("ann", "bob", "cyd")])
    assert all("all: ann bob cyd\n" in text for text in printed)
    assert any(" is there\n" in text for text in printed)


@pytest.mark.slow("starts several programs")
def test_registry_finds_what_comes_later(shells: Shells, server: ServerProcess) -> None:
    before = watches(server)
    finding = shells.start("registry.py", "find", "db")
    eventually(lambda: watches(server) > before, "it does not wait", LIMIT)
    serving = shells.start("registry.py", "serve", "db", "10.0.0.7:5432", 3600)
    assert finding.communicate()[0] == "10.0.0.7:5432\n"
    assert serving.stdout is not None
    assert serving.stdout.readline() == "db is at 10.0.0.7:5432\n"
    serving.send_signal(signal.SIGINT)
    serving.communicate()
    assert shells.run("registry.py", "serve", "db", "10.0.0.8:5432", 0) == "db is at 10.0.0.8:5432\n"
    assert shells.run("registry.py") == ""


@pytest.mark.slow("starts several programs")
def test_config_loses_no_change(shells: Shells) -> None:
    watching = shells.start("config.py", "watch")
    shells.together(*[("config.py", "add", "sum", 1)] * 4)
    shells.run("config.py", "set", "colour=red", "size=3")
    assert shells.run("config.py") == '{"sum": 4, "colour": "red", "size": "3"}\n'
    shells.run("config.py", "set", "stop=now")
    assert watching.wait() == 0


@pytest.mark.slow("starts several programs")
def test_partitioner_gives_each_share_to_one_at_a_time(shells: Shells) -> None:
    printed = "".join(shells.together(*[("partitioner.py", 2)] * 3))
    taken = re.findall(r"^\+ (part \d), token (\d+)$", printed, re.MULTILINE)
    assert len({share for share, _ in taken}) == 8
    assert len(set(taken)) == len(taken) == len(re.findall(r"^- part \d$", printed, re.MULTILINE))
