"""The report of simulated schedules counts which fault hit which place, adds up, and is complete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation.__main__ import main
from simulation.engine import Exactly, Exclusion, Faults, NothingLeft, Run, Simulation, SimulationFailure
from simulation.engine.await_points import Locator, Sources
from simulation.engine.campaign import fresh_units, play_all, raise_all
from simulation.engine.coverage_report import cells_of, markdown
from simulation.engine.fault_coverage import COUNTED, Coverage
from simulation.engine.guided_campaign import GuidedCampaign
from simulation.engine.results import OtherSourcesError, Summary, Tally, not_played, united
from simulation.engine.runner import faults_of, run_seed
from simulation.engine.work_units import TargetedRun, WorkUnit, again, play_unit
from simulation.scenarios import SCENARIOS
from simulation.scenarios.common import Scenario
from simulation.toy_protocols import Lock, contend
from simulation.two_steps import pair

from distsync._protocols.steps import Connected
from distsync.errors import DisconnectedError, SessionLostError

TOY = Sources(Path(pair.__file__).parent)
CALL, WAIT, CREATE = "pair:9", "pair:10", "pair:14"


async def thread() -> None:
    await Connected()
    try:
        await Run(pair.both("/x"), 5.0)
    except (DisconnectedError, SessionLostError):
        pass


def play_pair(world: Simulation) -> None:
    world.process("a").spawn(thread())
    world.run()
    world.close()


def struck(*placed: Exactly, scenario: Scenario | None = None) -> dict[tuple[str, str], int]:
    """Return the cells after one schedule with these faults."""
    coverage = Coverage(Locator(TOY.folder))
    run_seed(scenario or Scenario("pair", play_pair), 1, Faults(exactly=placed), coverage)
    return dict(coverage.cells)


def test_all_awaits_are_found_in_the_sources() -> None:
    places = TOY.places()
    assert [*places] == [CALL, WAIT, CREATE, "pair:18", "pair:21"]
    assert [name for name, place in places.items() if not place.is_step] == [CALL]
    assert places["pair:18"].function == "never"


# the thread's own first step is the process's first opportunity; the create is its first request
@pytest.mark.parametrize(
    ("placed", "where"),
    [
        (Exactly("lost_request", "a", 1), {CALL, CREATE}),
        (Exactly("lost_reply", "a", 1), {CALL, CREATE}),
        (Exactly("cut", "a", 1, 100), {CALL, CREATE}),
        (Exactly("slow", "a", 1, 100), {CALL, CREATE}),
        (Exactly("interrupt", "a", 2), {CALL, CREATE}),
        (Exactly("interrupt", "a", 3), {WAIT}),
        (Exactly("deadline", "a", 3), {WAIT}),
        (Exactly("kill", "a", 2), {CALL, CREATE}),
        (Exactly("pause", "a", 3, 100), {WAIT}),
        (Exactly("intruder", "a", 3, 100), {WAIT}),
        (Exactly("interrupt", "a", 3, 5_000), set()),
        (Exactly("kill", "a", 1), set()),
    ],
)
def test_a_fault_counts_where_the_thread_is_when_it_strikes(placed: Exactly, where: set[str]) -> None:
    assert struck(placed) == {(place, placed.kind): 1 for place in where}


def test_a_lost_request_counts_for_its_own_thread_and_a_cut_for_all_of_the_process() -> None:
    async def late() -> None:
        await Connected()
        await Run(pair.write("/y"))

    def two(world: Simulation) -> None:
        process = world.process("a")
        process.spawn(thread())
        world.run(lambda: any("Wait" in repr(task.at) for task in process.tasks))
        process.spawn(late(), expected=(DisconnectedError,))
        world.run()

    scenario = Scenario("two", two)
    assert struck(Exactly("lost_reply", "a", 2), scenario=scenario) == {(CREATE, "lost_reply"): 1}
    assert struck(Exactly("cut", "a", 2), scenario=scenario) == {(CREATE, "cut"): 1, (WAIT, "cut"): 1}


def test_unreached_places_and_impossible_cells_are_reported_separately() -> None:
    tally = play_unit(WorkUnit("pair", 0, 3), Scenario("pair", play_pair, ("lost_reply",)), Locator(TOY.folder))
    cells = cells_of(TOY.places().values(), tally)
    assert cells.unreached == ["pair:18", "pair:21"]
    assert (WAIT, "lost_reply") in cells.impossible
    assert (WAIT, "cut") in cells.none
    assert (CREATE, "intruder") in cells.none or (CREATE, "intruder") in cells.impossible
    assert len(cells.few + cells.none + cells.impossible + cells.enough) == 3 * len(COUNTED)
    summary = Summary("x", {"pair": tally})
    text = markdown(summary, TOY.places())
    assert "* `pair:21` never: `await GetData(path)`" in text
    assert f"lost_reply, no request in progress (1): {WAIT}" in text
    assert "| pair | 3 | 0 |" in text


def buggy(world: Simulation) -> None:
    """Violate an invariant whenever the reply to a create is lost."""
    world.checks += [Exclusion("lock"), NothingLeft("/lock/")]
    contend(world, Lock(search=False))
    world.run()
    world.close()


BUGGY = Scenario("lock", buggy, ("lost_reply",))


def test_violations_are_counted_and_reported_with_their_seeds() -> None:
    tally = play_unit(WorkUnit("lock", 0, 40), BUGGY)
    assert tally.schedules == 40
    assert 0 < tally.violated < 40
    assert all(each["exactly"] == [] for each in tally.violations)
    seeds = {each["seed"] for each in tally.violations}
    for seed in seeds:
        assert play_unit(WorkUnit("lock", seed, seed + 1), BUGGY).violated == 1
    text = markdown(Summary("x", {"lock": tally}), {})
    assert f"`--primitive lock --seed {min(seeds)}`" in text


def test_a_violation_after_an_aimed_fault_is_the_same_with_that_fault_placed() -> None:
    locator = Locator(Path(sys.modules[Lock.__module__].__file__ or "").parent)
    plain = play_unit(WorkUnit("lock", 0, 20), BUGGY, locator)
    lines = {place for place in plain.reached if plain.seen[place] & 1}
    wanted = {place: {"lost_reply"} for place in lines}
    shots = tuple(TargetedRun(seed, salt=7 + seed) for seed in range(60))
    tally = play_unit(WorkUnit("lock", shots=shots, wanted=wanted, often=dict.fromkeys(lines, 1.0)), BUGGY, locator)
    assert tally.aimed == 60
    assert tally.violations
    aimed = [each for each in tally.violations if each["exactly"]]
    assert aimed
    for violation in aimed:
        assert "--exactly lost_reply:" in again("lock", violation)
        placed = tuple(Exactly(*each) for each in violation["exactly"])
        plan = replace(faults_of(BUGGY, violation["seed"]), exactly=placed)
        with pytest.raises(SimulationFailure) as caught:
            run_seed(BUGGY, violation["seed"], plan)
        assert caught.value.message == violation["message"]


def plain(summary: Summary) -> dict[str, Any]:
    """Return everything except the elapsed time."""
    return {name: {**tally.plain(), "seconds": 0} for name, tally in sorted(summary.tallies.items())}


def quiet(text: str) -> None:
    pass


@pytest.mark.slow
def test_two_jobs_give_the_same_report_as_one() -> None:
    one, two = Summary("x"), Summary("x")
    play_all(one, ["lock", "atomic-bytes"], 0, 120, 1, None, quiet)
    play_all(two, ["lock", "atomic-bytes"], 0, 120, 2, None, quiet)
    assert plain(one) == plain(two)
    assert one.tallies["lock"].schedules == 120
    assert sum(one.tallies["lock"].struck_in.values()) > 120
    assert set(one.whole().reached) <= set(Sources().places())


def test_coverage_does_not_change_the_schedule() -> None:
    for seed in range(10):
        alone = run_seed(SCENARIOS["cached-lock"], seed)
        watched = run_seed(SCENARIOS["cached-lock"], seed, watcher=Coverage(Locator()))
        assert list(alone.history.lines()) == list(watched.history.lines())


def test_a_report_continues_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, table = tmp_path / "report.json", tmp_path / "report.md"
    for _ in range(2):
        assert (
            main(["--primitive", "atomic-bytes", "--schedules", "30", "--report", str(file), "--table", str(table)])
            == 0
        )
    whole = Summary.load(file, Sources().digest())
    assert whole.tallies["atomic-bytes"].seeds == [(0, 60)]
    assert whole.tallies["atomic-bytes"].schedules == 60
    at_once = Summary(whole.sources)
    play_all(at_once, ["atomic-bytes"], 0, 60, 1, None, quiet)
    assert plain(at_once) == plain(whole)
    assert "| atomic-bytes | 60 | 0 |" in table.read_text()


def test_a_report_of_other_protocols_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    Summary("of something else", {"atomic-bytes": Tally(seeds=[(0, 5)])}).save(file)
    before = file.read_bytes()
    with pytest.raises(OtherSourcesError):
        Summary.load(file, Sources().digest())
    for option in ("--report", "--raise"):
        assert main(["--primitive", "atomic-bytes", "--schedules", "3", option, str(file)]) == 2
    assert "other protocols" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_digest_changes_with_the_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = Sources(tmp_path).digest()
    (tmp_path / "a.py").write_text("x = 2\n")
    changed = Sources(tmp_path).digest()
    (tmp_path / "b.py").write_text("")
    added = Sources(tmp_path).digest()
    (tmp_path / "locks").mkdir()
    (tmp_path / "b.py").rename(tmp_path / "locks" / "b.py")
    assert len({before, changed, added, Sources(tmp_path).digest()}) == 4


@pytest.mark.slow
def test_aimed_schedules_fill_more_cells_than_random_ones() -> None:
    summary = Summary("x")
    play_all(summary, ["lock"], 0, 100, 1, None, quiet)
    places = {name: place for name, place in Sources().places().items() if summary.tallies["lock"].reached[name]}
    raise_all(summary, ["lock"], 200, 1, None, quiet)
    aimed = cells_of(places.values(), summary.whole())
    by_chance = Summary("x")
    play_all(by_chance, ["lock"], 0, summary.tallies["lock"].schedules, 1, None, quiet)
    assert len(aimed.none) < len(cells_of(places.values(), by_chance.whole()).none)
    struck = [sum(each.tallies["lock"].injected.values()) for each in (summary, by_chance)]
    assert struck[0] > struck[1]
    assert summary.tallies["lock"].violated == 0


def test_raising_ends_when_no_cell_is_missing() -> None:
    whole = Tally(reached=Counter({CREATE: 1}), seen={CREATE: 31}, cells={CREATE: Counter(dict.fromkeys(COUNTED, 100))})
    places = {CREATE: TOY.places()[CREATE]}
    raising = GuidedCampaign(Summary("x", {"pair": whole}), places, {"pair": COUNTED})
    assert list(raising.units()) == []


@pytest.mark.parametrize(
    ("played", "asked", "found"),
    [
        ([], (0, 10), [(0, 10)]),
        ([(0, 10)], (0, 10), [(10, 20)]),
        ([(5, 10)], (0, 10), [(0, 5), (10, 15)]),
        ([(5, 10), (12, 20)], (7, 4), [(10, 12), (20, 22)]),
    ],
)
def test_not_played_finds_the_next_seeds_that_were_not_played(
    played: list[tuple[int, int]], asked: tuple[int, int], found: list[tuple[int, int]]
) -> None:
    assert not_played(played, *asked) == found


def test_ranges_of_seeds_are_united() -> None:
    assert united([(5, 10), (0, 5), (20, 30), (25, 26)]) == [(0, 10), (20, 30)]


def test_scenarios_are_played_in_turn() -> None:
    units = list(fresh_units(Summary("x"), ["a", "b"], 0, 60))
    assert [(unit.scenario, unit.first, unit.end) for unit in units] == [
        ("a", 0, 50), ("b", 0, 50), ("a", 50, 60), ("b", 50, 60),
    ]  # fmt: skip


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any) -> None:
    """Poll, limited only by the timeout of the test."""
    while not condition():
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_worker_processes_exit_when_the_parent_ends(number: int, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "simulation", "--jobs", "2", "--schedules", "100000"]
    parent = subprocess.Popen(
        [*command, "--report", str(file)],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path(__file__).parents[1],
    )
    try:
        until(lambda: len([pid for pid in children_of(parent.pid) if b"spawn_main" in cmdline(pid)]) == 2)
        children = children_of(parent.pid)
        os.killpg(parent.pid, number) if number == signal.SIGINT else parent.kill()
        status = parent.wait()
        until(lambda: not any(map(is_there, children)))
    finally:
        parent.kill()
    if number == signal.SIGINT:
        assert status == 130
        assert json.loads(file.read_text())["sources"] == Sources().digest()


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
