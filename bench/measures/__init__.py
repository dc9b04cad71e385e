"""The measures, a row of the table each; ``--only`` takes their names."""

from __future__ import annotations

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

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for module in (
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
    for measure in module.MEASURES
}
