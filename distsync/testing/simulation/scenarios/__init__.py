"""What distsync's own protocols have to stand: one scenario for each primitive.

Rules for these files: a scenario builds processes and threads out of the world's seed, plays them to the end, and
says what must hold. It uses protocols as the faces do.
"""

from __future__ import annotations

from distsync.testing.simulation.scenarios.base import Scenario
from distsync.testing.simulation.scenarios.lock import LOCK, RLOCK

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (LOCK, RLOCK)}

__all__ = ["SCENARIOS", "Scenario"]
