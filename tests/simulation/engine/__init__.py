"""Simulator: runs protocols against the embedded server's engine in one thread, with a virtual clock
and faults.

Everything follows from a seed. See docs/simulation.md; ``PYTHONPATH=tests python -m simulation``
runs the scenarios of distsync's own protocols.
"""

from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.invariants import Capacity, Check, Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.engine.transcript import History, Record, SimulationFailure

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
    "Simulation",
    "SimulationFailure",
    "Task",
]
