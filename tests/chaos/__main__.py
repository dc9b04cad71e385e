"""``make chaos``: runs of primitives under faults, until told otherwise by the options below."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections import Counter

from chaos.faults import CLIENT_FAULTS, SERVER_FAULTS, strikes
from chaos.runs import Outcome, Plan, run
from chaos.stage import OUTAGE_S, SERVERS, SESSION_S
from chaos.workloads import WORKLOADS


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("primitives", nargs="*", choices=[[], *WORKLOADS], help="these only; none: all")
    parser.add_argument("--server", choices=[*SERVERS, "all"], default="all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="number of seeds, from --seed on")
    parser.add_argument("--seconds", type=float, default=15.0, help="of faults in each run")
    parser.add_argument("--faults", default="", help="these only, with commas between: " + ", ".join(fault_names()))
    parser.add_argument("--outage", type=float, default=OUTAGE_S, help="seconds that an outage lasts")
    parser.add_argument("--session", type=float, default=SESSION_S, help="time-out of sessions, in seconds")
    return parser.parse_args()


def fault_names() -> list[str]:
    return sorted({*CLIENT_FAULTS, *strikes(WORKLOADS), *itertools.chain(*SERVER_FAULTS.values())})


def table(outcomes: list[Outcome]) -> str:
    """How often each fault struck each primitive."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.plan.primitive, Counter()).update(outcome.faults)
    lines = [f"{'fault':<18}" + "".join(f"{primitive:>15}" for primitive in counts)]
    for fault in (name for name in fault_names() if any(count[name] for count in counts.values())):
        lines.append(f"{fault:<18}" + "".join(f"{count[fault]:>15}" for count in counts.values()))
    return "\n".join(lines)


def main() -> None:
    chosen = options()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    servers = list(SERVERS) if chosen.server == "all" else [chosen.server]
    faults = tuple(filter(None, chosen.faults.split(",")))
    outcomes = []
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        for server, primitive in itertools.product(servers, chosen.primitives or WORKLOADS):
            times = chosen.outage, chosen.session
            outcomes.append(run(Plan(primitive, server, seed, chosen.seconds, faults, *times)))
            print(outcomes[-1], flush=True)
    print(table(outcomes))
    wrong = sum(bool(outcome.violations) for outcome in outcomes)
    print(f"{len(outcomes)} runs, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
