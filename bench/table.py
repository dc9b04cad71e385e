"""The results as a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.results import COUNTED, KAZOO, OURS, Goal, Report, Result, Spread
from bench.rivals import LESS

if TYPE_CHECKING:
    from bench.harness import Measure

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
NOWHERE = 1e8
"""A bound like this is none: the figure is only shown."""


def number(value: float) -> str:
    """Format a number with three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def shown(spread: Spread, unit: str) -> str:
    """Return the median and the range of the rounds."""
    if spread.low == spread.high:
        return f"{number(spread.median)}{unit}"
    return f"{number(spread.median)}{unit} ({number(spread.low)} to {number(spread.high)})"


def wanted(goal: Goal) -> str:
    if goal.at_least is not None:
        return f"at least {goal.at_least:g}"
    return f"at most {goal.at_most:g}" if goal.at_most is not None and goal.at_most < NOWHERE else ""


def verdict(goal: Goal, spread: Spread | None) -> str:
    reached = goal.is_reached(spread) if spread and wanted(goal) else None
    return {None: "", True: " ✓", False: " **no**"}[reached]


def cell(goal: Goal, results: Sequence[Result]) -> str:
    spread = goal.spread(results)
    return f"{shown(spread, goal.unit)}{verdict(goal, spread)}" if spread else "not measured"


def lines_of(measure: Measure, server: str, results: Sequence[Result]) -> Iterator[str]:
    """Return the lines for a terminal."""
    for goal in measure.goals:
        if goal.spread(results):
            aim = f"  [{wanted(goal)}]" if wanted(goal) else ""
            yield f"{server:10} {measure.title}; {goal.what}: {cell(goal, results)}{aim}"


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [row(heads), row(["---"] * len(heads)), *map(row, rows), ""]


def goals_of(report: Report, measures: Mapping[str, Measure]) -> Iterator[list[str]]:
    for measure in measures.values():
        found = {server: report.of(measure.name, server) for server in report.servers}
        title = measure.title
        for goal in measure.goals:
            if not any(goal.spread(results) for results in found.values()):
                continue
            yield [title, goal.what, wanted(goal), *(cell(goal, found[server]) for server in report.servers)]
            title = ""


def counts_of(report: Report, measures: Mapping[str, Measure]) -> Iterator[list[str]]:
    for measure in measures.values():
        for server in report.servers:
            for result in report.of(measure.name, server):
                if result.counts:
                    size = f", {result.size:,} {measure.of_what}" if measure.of_what else ""
                    yield [f"{measure.title}{size}", measure.operation, server, *counted_pairs(result)]


def counted_pairs(result: Result) -> Iterator[str]:
    """Return our counts and kazoo's."""
    for kind in COUNTED:
        pair = (result.counts.get(who, {}).get(kind) for who in (OURS, KAZOO))
        yield " / ".join("" if one is None else f"{one:,.0f}" if one >= 10 else f"{one:.2f}" for one in pair)


def bounds_of(report: Report, measures: Mapping[str, Measure]) -> Iterator[str]:
    named = {one.measure for one in report.results}
    for measure in measures.values():
        if measure.bound and measure.name in named:
            yield f"* {measure.title}: {measure.bound}."


def not_reached(report: Report, measures: Mapping[str, Measure]) -> Iterator[str]:
    """Return the goals that are not reached on some server."""
    for measure in measures.values():
        for goal in measure.goals:
            spreads = {server: goal.spread(report.of(measure.name, server)) for server in report.servers}
            missed = {on: spread for on, spread in spreads.items() if spread and "no" in verdict(goal, spread)}
            if missed:
                where = ", ".join(f"{on} {number(spread.median)}{goal.unit}" for on, spread in missed.items())
                yield f"* {measure.title}, {goal.what}: {wanted(goal)}; {where}."


def less_of(report: Report) -> Iterator[str]:
    here = {who for one in report.results for who in one.rates}
    for who, what in LESS.items():
        yield f"* {who}: {what}." if who in here else f"* {who}: not installed, not measured."


def inserted(page: str, text: str) -> str:
    """Return ``page`` with ``text`` between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def about(report: Report) -> str:
    machine = report.machine
    before = f"{machine['load_before'][0]} before and " if "load_before" in machine else ""
    load = f"load {before}{machine['load'][0]} at the end"
    where = f"{machine['processors']} processors, {load}, Python {machine['python']}"
    rounds = sorted(len(rates) for one in report.results for rates in one.rates.values())
    cells = f"{rounds[0]} to {rounds[-1]} rounds. In each cell: the median of the rounds (lowest to highest)."
    return f"Measured on {machine['date']}: {where}, {cells}"


def markdown(report: Report, measures: Mapping[str, Measure]) -> str:
    """Return the whole table."""
    return "\n".join(
        [
            about(report),
            "",
            *table(["measure", "beside", "wanted", *report.servers], goals_of(report, measures)),
            "Not reached here, of what was wanted:",
            "",
            *(list(not_reached(report, measures)) or ["* nothing: all was reached."]),
            "",
            "What bounds each:",
            "",
            *bounds_of(report, measures),
            "",
            "They give less, and are there for comparison only:",
            "",
            *less_of(report),
            "",
            "Counted, for one operation, distsync / kazoo:",
            "",
            *table(["measure", "for each", "server", *COUNTED], counts_of(report, measures)),
        ]
    )
