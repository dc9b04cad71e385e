"""The examples of leaders, as several processes, on each server: a web service, and a cron job."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest
from helpers.subprocesses import LIMIT, Shells
from helpers.timing import UNIT, Control, eventually

from distsync.testing.java_process import LOOPBACK, reserved_port

LONG_SESSION_S = 10.0
"""The default, and the longest that the tests' ZooKeeper grants."""

SHORT_SESSION_S = min(40 * UNIT, LONG_SESSION_S)

needs_web_server = pytest.mark.skipif(
    not (find_spec("starlette") and find_spec("uvicorn")), reason="no starlette, or no uvicorn (extra test-interop)"
)


class Instance:
    """A service of ``examples/leader_service.py``."""

    def __init__(self, shells: Shells, port: int) -> None:
        self.address = f"http://{LOOPBACK}:{port}"
        self.process = shells.start("leader_service.py", port)

    def get(self, path: str) -> tuple[str, dict[str, object]]:
        """Return the URL that answered, after redirects, and its answer."""
        with urlopen(self.address + path, timeout=LIMIT) as response:
            return response.url, json.load(response)

    def leads(self) -> bool:
        return bool(self.get("/")[1]["me"])

    def sees(self, leader: Instance) -> bool:
        return self.get("/")[1]["leader"] == leader.address

    def answers(self) -> bool:
        try:
            return bool(self.get("/"))
        except OSError:
            return False

    def stop(self) -> str:
        """Stop the service as a service manager does. Return what it logged."""
        self.process.send_signal(signal.SIGTERM)
        return self.stopped()

    def stopped(self) -> str:
        """Wait for the end of a service that got SIGTERM. Return what it logged."""
        errors = self.process.communicate(timeout=LIMIT)[1]
        assert self.process.returncode in (0, -signal.SIGTERM), errors
        return errors


def start_services(shells: Shells, count: int, session_s: float) -> tuple[Instance, list[Instance]]:
    """Start instances at the same time. Return the leader, and the others, which know it."""
    shells.environment["DISTSYNC_SESSION_TIMEOUT"] = str(session_s)
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved_port()).getsockname()[1] for _ in range(count)]
    instances = [Instance(shells, port) for port in ports]
    eventually(lambda: all(instance.answers() for instance in instances), limit=LIMIT)
    leader, _ = seconds_to_lead(instances)
    others = [instance for instance in instances if instance is not leader]
    eventually(lambda: all(instance.sees(leader) for instance in instances))
    return leader, others


def seconds_to_lead(candidates: list[Instance]) -> tuple[Instance, float]:
    """Wait until one of the instances leads. Return it, and the seconds until then."""
    begin = time.monotonic()
    leaders: list[Instance] = []
    eventually(lambda: leaders.extend(one for one in candidates if one.leads()) or leaders, limit=LIMIT)
    (leader,) = leaders
    return leader, time.monotonic() - begin


@needs_web_server
@pytest.mark.slow("starts several programs")
def test_service_that_is_stopped_resigns_and_the_next_instance_leads_at_once(shells: Shells) -> None:
    leader, others = start_services(shells, 3, LONG_SESSION_S)
    with Control() as control:
        leader.process.send_signal(signal.SIGTERM)
        successor, took = seconds_to_lead(others)
    assert took < LONG_SESSION_S / 10 + control.late
    assert "Traceback" not in leader.stopped()
    others.remove(successor)
    (last,) = others
    eventually(lambda: last.sees(successor))
    assert "Traceback" not in last.stop()  # a candidate that waits
    assert successor.leads()
    assert "Traceback" not in successor.stop()


@needs_web_server
@pytest.mark.slow("starts several programs")
def test_work_of_the_service_is_at_the_leader_to_which_the_others_redirect(shells: Shells) -> None:
    leader, others = start_services(shells, 3, LONG_SESSION_S)
    for instance in [leader, *others]:
        url, work = instance.get("/work")
        assert url == f"{leader.address}/work"
        assert work["steps"]
    for instance in [*others, leader]:
        instance.stop()


@needs_web_server
@pytest.mark.slow("waits for the end of a session")
def test_service_that_is_killed_is_succeeded_when_its_session_ends(shells: Shells) -> None:
    leader, others = start_services(shells, 3, SHORT_SESSION_S)
    with Control() as control:
        leader.process.kill()
        successor, took = seconds_to_lead(others)
    assert SHORT_SESSION_S / 2 < took < 2 * SHORT_SESSION_S + control.late
    eventually(lambda: all(instance.sees(successor) for instance in others))
    for instance in others:
        instance.stop()


@needs_web_server
@pytest.mark.slow("waits for the end of a session")
def test_service_that_was_asleep_stops_its_work_and_leads_again_later(shells: Shells) -> None:
    leader, (other,) = start_services(shells, 2, SHORT_SESSION_S)
    leader.process.send_signal(signal.SIGSTOP)
    seconds_to_lead([other])
    leader.process.send_signal(signal.SIGCONT)
    eventually(lambda: not leader.leads() and leader.sees(other))
    assert leader.get("/work")[0] == f"{other.address}/work"
    assert "Traceback" not in other.stop()
    seconds_to_lead([leader])
    assert "LockLostError" in leader.stop()


@needs_web_server
@pytest.mark.slow("starts a program")
def test_service_does_not_start_without_a_server(shells: Shells) -> None:
    shells.environment.update(DISTSYNC_HOSTS=f"{LOOPBACK}:1", DISTSYNC_CONNECT_TIMEOUT="0.5")
    with reserved_port() as reserved:
        port = reserved.getsockname()[1]
    process = shells.start("leader_service.py", port)
    assert "UnreachableError" in process.communicate(timeout=LIMIT)[1]
    assert process.returncode > 0


STEPS = round(40 * UNIT / 0.1)
"""A job that lasts until the test has found its leader."""


def start_jobs(shells: Shells, report: Path, count: int) -> list[subprocess.Popen[str]]:
    shells.environment["DISTSYNC_SESSION_TIMEOUT"] = str(SHORT_SESSION_S)
    return [shells.start("cron_job.py", "2026-02-01", report, STEPS) for _ in range(count)]


def leader_of(shells: Shells, jobs: list[subprocess.Popen[str]], report: Path) -> subprocess.Popen[str]:
    """Wait until one of the jobs runs. Return it."""
    eventually(report.exists, limit=LIMIT)
    shown = shells.run("cron_job.py", "look")
    pid = re.fullmatch(r".+, process (\d+): 2026-02-01\n", shown)
    assert pid is not None, shown
    return next(job for job in jobs if job.pid == int(pid[1]))


def terms(report: Path) -> list[tuple[int, list[int]]]:
    """Return the fencing token of each run of consecutive lines of one leader, and the steps that it did."""
    found: list[tuple[int, list[int]]] = []
    for step, token in re.findall(r"step (\d+) of \d+, term (\d+)\n", report.read_text()):
        if not found or found[-1][0] != int(token):
            found.append((int(token), []))
        found[-1][1].append(int(step))
    return found


def whole(steps: int) -> list[int]:
    return list(range(1, steps + 1))


@pytest.mark.slow("starts several programs")
def test_job_that_starts_on_three_hosts_runs_once_a_day(shells: Shells, tmp_path: Path) -> None:
    report = tmp_path / "report"
    for number, day in enumerate(("2026-01-31", "2026-02-01"), 1):
        printed = shells.together(*[("cron_job.py", day, report, 5)] * 3)
        assert sorted(printed) == [f"{day}: done\n", *[f"{day}: nothing to do\n"] * 2]
        assert [steps for _, steps in terms(report)] == [whole(5)] * number
    for day in ("2026-01-31", "2026-02-01"):  # hosts that are late
        assert shells.run("cron_job.py", day, report, 5) == f"{day}: nothing to do\n"
    assert len(terms(report)) == 2
    assert shells.run("cron_job.py", "look") == ""


@pytest.mark.slow("waits for the end of a session")
def test_job_whose_host_is_killed_is_run_again_by_one_other(shells: Shells, tmp_path: Path) -> None:
    report = tmp_path / "report"
    jobs = start_jobs(shells, report, 3)
    leader = leader_of(shells, jobs, report)
    leader.kill()
    leader.wait()
    printed = [job.communicate(timeout=LIMIT)[0] for job in jobs if job is not leader]
    assert sorted(printed) == ["2026-02-01: done\n", "2026-02-01: nothing to do\n"]
    (_, cut_off), (_, complete) = terms(report)
    assert len(cut_off) < STEPS
    assert complete == whole(STEPS)


@pytest.mark.slow("waits for the end of a session")
def test_job_whose_host_was_asleep_stops_when_another_one_runs_it(shells: Shells, tmp_path: Path) -> None:
    report = tmp_path / "report"
    jobs = start_jobs(shells, report, 2)
    leader = leader_of(shells, jobs, report)
    leader.send_signal(signal.SIGSTOP)
    (other,) = (job for job in jobs if job is not leader)
    eventually(lambda: len(terms(report)) == 2, limit=LIMIT)
    leader.send_signal(signal.SIGCONT)
    errors = leader.communicate(timeout=LIMIT)[1]
    assert (leader.returncode, other.communicate(timeout=LIMIT)[0]) == (1, "2026-02-01: done\n")
    assert "2026-02-01: stopped at step" in errors
    (first, cut_off), *later = terms(report)
    assert len(cut_off) < STEPS
    assert [step for token, steps in later for step in steps if token != first] == whole(STEPS)
    assert sum(len(steps) for token, steps in later if token == first) <= 1  # the step in which it fell asleep
