"""The report as tables in Markdown.

It leaves nothing out: impossible cells are listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simulation.engine.await_points import Place, in_order
from simulation.engine.fault_coverage import COUNTED, OF_A_REQUEST, possible
from simulation.engine.results import Summary, Tally
from simulation.engine.work_units import again

#: How often each fault should hit each place.
ENOUGH = 100


@dataclass
class CoverageMatrix:
    """Places by faults. A cell is the name of a place and a kind."""

    enough: list[tuple[str, str]] = field(default_factory=list)
    few: list[tuple[str, str]] = field(default_factory=list)
    none: list[tuple[str, str]] = field(default_factory=list)
    impossible: list[tuple[str, str]] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    """Places that no schedule reached; all their cells are missing."""

    @property
    def missing(self) -> int:
        """The number of cells that are still to be filled, as far as known."""
        return len(self.few) + len(self.none) + len(self.unreached) * len(COUNTED)


def cells_of(places: Iterable[Place], whole: Tally) -> CoverageMatrix:
    """Return how far the cells of these places are filled."""
    cells = CoverageMatrix()
    for place in places:
        if not whole.reached[place.name]:
            cells.unreached.append(place.name)
            continue
        struck, seen = whole.struck_at(place.name), whole.seen.get(place.name, 0)
        for kind in COUNTED:
            count = struck[kind]
            kept = cells.enough if count >= ENOUGH else cells.few if count else cells.none
            if count < ENOUGH and not possible(kind, seen):
                kept = cells.impossible
            kept.append((place.name, kind))
    return cells


def why_not(kind: str, seen: int) -> str:
    """Return why a fault is impossible at a place with these observations."""
    if kind in OF_A_REQUEST:
        return "no request in progress"
    if kind == "interrupt":
        return "only background work"
    if kind == "deadline":
        return "no call with a deadline was there"
    if kind == "intruder":
        return "no process there had an ephemeral"
    return "answered immediately, or waits for a connection"


def markdown(summary: Summary, places: Mapping[str, Place]) -> str:
    """Return the whole report."""
    return "\n".join(_lines(summary, places)) + "\n"


def _lines(summary: Summary, places: Mapping[str, Place]) -> Iterable[str]:
    whole = summary.whole()
    yield "# Simulated schedules"
    yield ""
    yield f"{whole.schedules:,} schedules, {whole.aimed:,} of them with aimed faults; {whole.violated} violations."
    yield f"Sources of the protocols: `{summary.sources[:16]}`."
    yield ""
    yield from _by_fault(summary)
    yield from _violations(summary)
    for title, kept in (("Steps", True), ("Calls", False)):
        yield from _coverage(title, [place for place in places.values() if place.is_step is kept], whole, places)


def _by_fault(summary: Summary) -> Iterable[str]:
    yield "## Schedules by primitive and injected fault"
    yield ""
    yield from _row("primitive", "schedules", "violations", "none", *COUNTED)
    yield from _row(*["---"] * (len(COUNTED) + 4))
    for name, tally in [*summary.tallies.items(), ("**all**", summary.whole())]:
        struck = [tally.struck_in[kind] for kind in ("none", *COUNTED)]
        yield from _row(name, tally.schedules, tally.violated, *struck)
    yield ""


def _row(*fields: object) -> Iterable[str]:
    yield "| " + " | ".join(map(str, fields)) + " |"


def _violations(summary: Summary) -> Iterable[str]:
    yield "## Violations"
    yield ""
    found = [(name, each) for name, tally in summary.tallies.items() for each in tally.violations]
    for name, each in found:
        yield f"* `{again(name, each)}`: {each['message'].splitlines()[0]}"
    if not found:
        yield "None."
    yield ""


def _coverage(title: str, chosen: list[Place], whole: Tally, places: Mapping[str, Place]) -> Iterable[str]:
    cells = cells_of(chosen, whole)
    yield f"## {title} and faults"
    yield ""
    yield f"{len(chosen)} {title.lower()}, {len(cells.unreached)} of them reached by no schedule. Cells: "
    yield f"{len(cells.enough)} struck at least {ENOUGH} times, {len(cells.few)} less often, {len(cells.none)} never, "
    yield f"{len(cells.impossible)} are impossible."
    yield ""
    yield "### Reached by no schedule"
    yield ""
    for name in cells.unreached:
        yield f"* `{name}` {places[name].function}: `{places[name].source}`"
    yield "" if cells.unreached else "None.\n"
    yield f"### Struck less than {ENOUGH} times"
    yield ""
    yield from _by_place([*cells.few, *cells.none], whole)
    yield "### Impossible"
    yield ""
    reasons: dict[str, dict[str, list[str]]] = {}
    for name, kind in cells.impossible:
        reasons.setdefault(why_not(kind, whole.seen.get(name, 0)), {}).setdefault(kind, []).append(name)
    for reason, kinds in reasons.items():
        for kind, names in kinds.items():
            yield f"* {kind}, {reason} ({len(names)}): {', '.join(in_order(set(names)))}"
    yield ""


def _by_place(cells: list[tuple[str, str]], whole: Tally) -> Iterable[str]:
    by_place: dict[str, list[str]] = {}
    for name, kind in cells:
        by_place.setdefault(name, []).append(f"{kind} {whole.struck_at(name)[kind]}")
    for name in in_order(by_place):
        yield f"* `{name}` (reached {whole.reached[name]}): {', '.join(by_place[name])}"
    yield "" if by_place else "None.\n"
