"""The examples of gates, double barriers, latches, counters, rates and ids, as several processes, on each server."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.subprocesses import Shells


@pytest.mark.slow("starts several programs")
def test_gate_stops_workers_until_it_is_opened(shells: Shells) -> None:
    assert shells.run("gate.py", "close") == "closed\n"
    workers = [shells.start("gate.py", "work", 3) for _ in range(2)]
    assert shells.run("gate.py", "close") == "was closed before\n"
    assert [worker.poll() for worker in workers] == [None] * 2
    assert shells.run("gate.py", "open") == "open\n"
    assert [worker.communicate()[0] for worker in workers] == ["step 0\nstep 1\nstep 2\n"] * 2


@pytest.mark.slow_on("zookeeper")
def test_double_barrier_ends_each_step_with_all(shells: Shells, tmp_path: Path) -> None:
    printed = shells.together(*[("double_barrier.py", tmp_path / "sums", 3, mine) for mine in range(3)])
    assert printed == ["step 0: 4950 in all\nstep 1: 14950 in all\nstep 2: 24950 in all\n"] * 3


@pytest.mark.slow("starts several programs")
def test_latch_waits_for_all_parts(shells: Shells) -> None:
    report = shells.start("latch.py", "monday", 3, "report")
    printed = shells.together(*[("latch.py", "monday", 3, "part")] * 3)
    assert sorted(printed) == [f"{missing} parts are missing\n" for missing in range(3)]
    assert report.communicate()[0] == "all parts are here\n"


@pytest.mark.slow("starts several programs")
def test_counter_counts_each_vote_once(shells: Shells) -> None:
    watching = shells.start("counter.py", "watch", 40)
    printed = shells.together(*[("counter.py", "vote", name, 20) for name in ("ann", "bob")])
    assert "40 votes so far\n" in printed
    assert watching.communicate()[0] == "ann:20 bob:20\n"


@pytest.mark.slow("starts several programs")
def test_rate_limiter_limits_the_calls_of_all_processes(shells: Shells) -> None:
    printed = shells.together(*[("rate_limiter.py", 8)] * 2)
    times = sorted(float(line.split()[0]) for text in printed for line in text.splitlines())
    assert len(times) == 16
    assert times[-1] - times[0] > (16 - 5) / 20 / 2  # at 20 a second, and 5 at once; the first may have come late


@pytest.mark.slow("starts several programs")
def test_ids_come_once(shells: Shells) -> None:
    printed = shells.together(*[("ids.py", 1500)] * 3)
    numbers = [int(line) for text in printed for line in text.splitlines()]
    assert len(set(numbers)) == len(numbers) == 4500
    assert max(numbers) <= 6000
