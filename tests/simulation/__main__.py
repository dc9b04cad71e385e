"""``PYTHONPATH=tests python -m simulation``: play the scenarios of distsync's own protocols.

::

    PYTHONPATH=tests python -m simulation                                   all of them, 1,000 schedules each
    PYTHONPATH=tests python -m simulation --primitive lock --schedules 50000
    PYTHONPATH=tests python -m simulation --primitive lock --seed 123       one schedule, with its transcript
    PYTHONPATH=tests python -m simulation --jobs 2 --report FILE.json --table FILE.md
    PYTHONPATH=tests python -m simulation --raise FILE.json --jobs 2 --schedules 100000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulation.engine.await_points import Sources
from simulation.engine.campaign import play_all, raise_all
from simulation.engine.coverage_report import markdown
from simulation.engine.fault_coverage import COUNTED
from simulation.engine.faults import Exactly
from simulation.engine.results import OtherSourcesError, Summary
from simulation.engine.runner import faults_of, run, run_seed
from simulation.engine.transcript import SimulationFailure
from simulation.engine.work_units import again
from simulation.scenarios import SCENARIOS

#: From the root of the repository.
COMMAND = "PYTHONPATH=tests python -m simulation"

#: Exit status after Ctrl-C.
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    about = "Play distsync's own protocols under faults."
    made = argparse.ArgumentParser(prog=COMMAND, description=about)
    made.add_argument("--primitive", choices=[*SCENARIOS, "all"], default="all")
    made.add_argument("--schedules", type=int, default=1_000, metavar="N", help="number of seeds (default 1000)")
    made.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    made.add_argument("--seed", type=int, help="play only this seed, and print its transcript")
    where = "KIND:PROCESS:NTH[:DELAY_MS[:SALT]]"
    made.add_argument("--exactly", action="append", default=[], type=exactly, metavar=where, help="with --seed")
    made.add_argument("--fierce", type=float, default=1.0, help="factor for the probability of faults (with --seed)")
    made.add_argument("--jobs", type=int, default=1, help="number of processes")
    made.add_argument("--report", type=Path, metavar="FILE.json", help="add the results to this file")
    made.add_argument("--table", type=Path, metavar="FILE.md", help="write the report as tables")
    about = "aim faults at cells missing in this report; add the results to --report, or to this file"
    made.add_argument("--raise", type=Path, dest="source", metavar="FILE.json", help=about)
    return made


def exactly(text: str) -> Exactly:
    """Parse a fault and its place."""
    kind, process, *numbers = text.split(":")
    if kind not in COUNTED:
        raise argparse.ArgumentTypeError(f"{kind!r} is not a kind of fault: {', '.join(COUNTED)}")
    return Exactly(kind, process, *map(int, numbers))


def show(name: str, seed: int, fierce: float, placed: Sequence[Exactly]) -> int:
    """Play one schedule and print its transcript."""
    faults = replace(faults_of(SCENARIOS[name], seed, fierce), exactly=tuple(placed))
    try:
        world = run_seed(SCENARIOS[name], seed, faults)
    except SimulationFailure as failure:
        print(failure)
        return 1
    print(f"{name}, seed {seed}, {faults}")
    print("\n".join(world.history.lines()))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if there was no violation, 1 if there was, 2 if the report is of other protocols."""
    given = parser().parse_args(arguments)
    names = [*SCENARIOS] if given.primitive == "all" else [given.primitive]
    if given.seed is not None:
        return max(show(name, given.seed, given.fierce, given.exactly) for name in names)
    try:
        if given.report or given.table or given.source or given.jobs > 1:
            return campaign(given, names)
    except OtherSourcesError as error:
        print(error, file=sys.stderr)
        return 2
    return run_all(given, names)


def campaign(given: argparse.Namespace, names: list[str]) -> int:
    """Play many schedules with results in a file."""
    sources = Sources()
    begun = [file for file in (given.report, given.source) if file is not None and file.exists()]
    summary = Summary.load(begun[0], sources.digest()) if begun else Summary(sources.digest())
    status = 0
    try:
        campaign_into(summary, given, names)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if given.table:
        given.table.write_text(markdown(summary, sources.places()), "utf-8")
    violations = [(name, each) for name, tally in summary.tallies.items() for each in tally.violations]
    for name, each in violations:
        print(f"{name}: {each['message'].splitlines()[0]}")
        print(f"repeat: {COMMAND} {again(name, each)}")
    return status or int(bool(violations))


def campaign_into(summary: Summary, given: argparse.Namespace, names: list[str]) -> None:
    """Add the requested schedules to ``summary``."""
    if given.source:
        raise_all(summary, names, given.schedules, given.jobs, given.report or given.source)
    else:
        play_all(summary, names, given.first, given.schedules, given.jobs, given.report)


def run_all(given: argparse.Namespace, names: list[str]) -> int:
    """Play scenario by scenario, with the first failure of each."""
    failed = False
    for name in names:
        report = run(SCENARIOS[name], range(given.first, given.first + given.schedules))
        print("\n".join(report.lines()), flush=True)
        if report.failures:
            failed = True
            print(f"\n{report.failures[0]}\n")
            print(f"repeat: {COMMAND} --primitive {name} --seed {report.failures[0].seed}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
