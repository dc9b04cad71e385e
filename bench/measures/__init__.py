"""What is measured, a row each; its name is what ``--only`` takes."""

from __future__ import annotations

from bench.harness import Measure
from bench.measures import contention, deep, elections, locks, loops, meetings, queues, stream, waiters, watched, wire

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for module in (locks, contention, waiters, queues, stream, deep, meetings, watched, elections, loops, wire)
    for measure in module.MEASURES
}
