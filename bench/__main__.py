"""Compare distsync with other libraries: one command, one run; prints a table, and draws plots.

    python -m bench [--only NAME ...] [--rounds N] [--server embedded|zookeeper] [--hosts HOST:PORT] [--out FOLDER]

Everything that is compared runs in the same run, in turn, on the same servers: a new embedded
server, and Java's ZooKeeper if it is installed. Results of earlier runs that are not measured again
stay in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.servers import TICK_MS, ServerProcess

from bench import plots
from bench.harness import FULL, QUICK, Measure, Pace, Server, measured
from bench.measures import GROUPS, MEASURES, selected
from bench.results import Report, Result
from bench.server import Embedded, ZooKeeper
from bench.table import inserted, lines_of, markdown

RESULTS = "results.json"
MAX_SESSION_MS = 40_000
STARTED = time.monotonic()


class ZooKeeperOfShortTicks(ZooKeeper):
    """Java's ZooKeeper with ticks that allow both short and long sessions."""

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "tickTime": TICK_MS, "maxSessionTimeout": MAX_SESSION_MS}


KINDS: dict[str, type[ServerProcess]] = {"embedded": Embedded, "zookeeper": ZooKeeperOfShortTicks}


@contextmanager
def running(kind: str) -> Iterator[Server]:
    """Run a new server, and stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        server = KINDS[kind](Path(folder) / kind)
        server.start()
        try:
            yield Server(kind, server.hosts)
        finally:
            server.stop()


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "processors": os.cpu_count(),
        "load_before": LOAD_BEFORE,
        "load": load(),
        "date": time.strftime("%Y-%m-%d"),
    }


def load() -> list[float]:
    return [round(one, 1) for one in os.getloadavg()]


#: Load of other programs: the figures mean little if it is not near 0.
LOAD_BEFORE = load()


def measure_all(measures: list[Measure], server: Server, rounds: int, pace: Pace) -> Iterator[Result]:
    for measure in measures:
        sizes = [size for size in measure.sizes if size <= pace.largest] or [measure.sizes[0]]
        sizes = [pace.deep] if measure.deep else sizes
        for size in sizes:
            yield measured(measure, server, size, rounds, pace)


def earlier(folder: Path) -> Report:
    file = folder / RESULTS
    return Report.from_json(json.loads(file.read_text())) if file.exists() else Report({}, [])


def write(folder: Path, report: Report) -> None:
    """Write the results so far, because a run may be interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS).write_text(json.dumps(report.to_json(), indent=1) + "\n")
    (folder / "table.md").write_text(markdown(report, MEASURES))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only",
        choices=sorted({*GROUPS, *MEASURES}),
        nargs="+",
        metavar="NAME",
        help=f"groups: {', '.join(GROUPS)}; rows: {', '.join(MEASURES)}",
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--server", choices=KINDS, help="default: both, ZooKeeper where it is installed")
    parser.add_argument("--hosts", help="a server that runs already, instead")
    parser.add_argument("--items", type=int, default=FULL.deep, help="of the deep queue")
    parser.add_argument("--quick", action="store_true", help="a little of everything; the figures mean nothing")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--page", type=Path, help="a Markdown file that shows the table between its marks")
    parser.add_argument("--render", action="store_true", help="measure nothing: table and plots of the results there")
    return parser.parse_args()


def chosen_servers(given: argparse.Namespace) -> list[str]:
    missing = ZooKeeper.missing()
    if missing and not given.server:
        print(f"only the embedded server: {missing}", file=sys.stderr)
    return [given.server] if given.server else [kind for kind in KINDS if kind == "embedded" or not missing]


def main() -> None:
    given = options()
    report = earlier(given.out)
    if not given.render:
        report = measure_everywhere(given, report)
    write(given.out, report)
    drawn = plots.draw(report, MEASURES, given.out)
    if given.page:
        pictures = [f"![{one.stem}]({os.path.relpath(one, given.page.parent)})\n" for one in drawn]
        given.page.write_text(inserted(given.page.read_text(), "\n".join([markdown(report, MEASURES), *pictures])))


def measure_everywhere(given: argparse.Namespace, report: Report) -> Report:
    pace = QUICK if given.quick else replace(FULL, deep=given.items, window=min(10_000, given.items // 50))
    measures = selected(given.only or ())
    if given.hosts:
        return measure_at(Server("given", given.hosts, lasting=True), measures, given, pace, report)
    for kind in chosen_servers(given):
        with running(kind) as server:
            report = measure_at(server, measures, given, pace, report)
    return report


def measure_at(
    server: Server, measures: list[Measure], given: argparse.Namespace, pace: Pace, report: Report
) -> Report:
    for number, measure in enumerate(measures, 1):
        began = time.monotonic()
        found = list(measure_all([measure], server, given.rounds, pace))
        report = Report(machine(), [*report.without(found), *found])
        for line in lines_of(measure, server.name, found):
            print(line, flush=True)
        spent, rounds = time.monotonic() - began, max(len(rates) for one in found for rates in one.rates.values())
        progress = f"{number} of {len(measures)} on {server.name}: {measure.name}, rounds: {rounds}, {spent:.0f} s"
        print(f"    ({progress}; {(time.monotonic() - STARTED) / 60:.1f} min so far)", file=sys.stderr, flush=True)
        write(given.out, report)
    return report


if __name__ == "__main__":
    main()
