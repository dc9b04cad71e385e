"""The measures, a row of the table each, in groups; ``--only`` takes the names of both."""

from __future__ import annotations

from collections.abc import Iterable

from bench.harness import Measure
from bench.measures import (
    barriers,
    cached_reads,
    contention,
    deep_queues,
    elections,
    held_locks,
    locks,
    loops,
    pools,
    queues,
    throughput,
    waiters,
    wire,
)

MODULES = (
    locks,
    held_locks,
    contention,
    waiters,
    queues,
    throughput,
    deep_queues,
    barriers,
    cached_reads,
    elections,
    loops,
    pools,
    wire,
)
MEASURES: dict[str, Measure] = {measure.name: measure for module in MODULES for measure in module.MEASURES}
GROUPS: dict[str, list[str]] = {
    module.__name__.rpartition(".")[2].replace("_", "-"): [measure.name for measure in module.MEASURES]
    for module in MODULES
}


def selected(names: Iterable[str]) -> list[Measure]:
    """Return the measures of these names or groups, each once; all if there are none."""
    chosen = [each for name in names for each in ([name] if name in MEASURES else GROUPS[name])]
    return [MEASURES[name] for name in dict.fromkeys(chosen or MEASURES)]
