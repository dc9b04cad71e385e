"""Simulation: protocols against the embedded server's own engine, in one thread, with a clock and faults of its own.

Everything follows from a seed. See docs/simulation.md; ``python -m distsync.testing.simulation`` runs the scenarios of
distsync's own protocols.
"""

from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.checks import Capacity, Check, Exclusion, NothingLeft
from distsync.testing.simulation.faults import Exactly, Faults
from distsync.testing.simulation.history import History, Record, SimulationFailure
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.task import Task
from distsync.testing.simulation.world import Simulation

__all__ = [
    "Capacity",
    "Check",
    "Exactly",
    "Exclusion",
    "Faults",
    "History",
    "NothingLeft",
    "Record",
    "Run",
    "SimProcess",
    "SimulationFailure",
    "Task",
    "Simulation",
]
