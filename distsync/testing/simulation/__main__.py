"""``python -m distsync.testing.simulation``: play distsync's own scenarios.

::

    python -m distsync.testing.simulation                                   all of them, 1,000 schedules each
    python -m distsync.testing.simulation --primitive lock --schedules 50000
    python -m distsync.testing.simulation --primitive lock --seed 123       one schedule, with its transcript
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from distsync.testing.simulation.history import SimulationFailure
from distsync.testing.simulation.runner import faults_of, play, run
from distsync.testing.simulation.scenarios import SCENARIOS


def parser() -> argparse.ArgumentParser:
    about = "Play distsync's own protocols under faults."
    made = argparse.ArgumentParser(prog="python -m distsync.testing.simulation", description=about)
    made.add_argument("--primitive", choices=[*SCENARIOS, "all"], default="all")
    made.add_argument("--schedules", type=int, default=1_000, metavar="N", help="how many seeds (default 1000)")
    made.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of these seeds (default 0)")
    made.add_argument("--seed", type=int, help="play this one only, and show what happens")
    return made


def show(name: str, seed: int) -> int:
    """One schedule with its transcript."""
    try:
        world = play(SCENARIOS[name], seed)
    except SimulationFailure as failure:
        print(failure)
        return 1
    print(f"{name}, seed {seed}, {faults_of(SCENARIOS[name], seed)}")
    print("\n".join(world.history.lines()))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing was violated; 1: something was."""
    given = parser().parse_args(arguments)
    names = [*SCENARIOS] if given.primitive == "all" else [given.primitive]
    if given.seed is not None:
        return max(show(name, given.seed) for name in names)
    failed = False
    for name in names:
        report = run(SCENARIOS[name], range(given.first, given.first + given.schedules))
        print("\n".join(report.lines()), flush=True)
        if report.failures:
            failed = True
            print(f"\n{report.failures[0]}\n")
            print(f"again: python -m distsync.testing.simulation --primitive {name} --seed {report.failures[0].seed}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
