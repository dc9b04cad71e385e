"""The face of ``queue``: the same names, signatures, results and exceptions, across processes and hosts.

Rules for this file: names only; the code is in _objects/queues.py.
"""

from __future__ import annotations

from distsync._objects.queues import Empty as Empty
from distsync._objects.queues import Full as Full
from distsync._objects.queues import LifoQueue as LifoQueue
from distsync._objects.queues import PriorityQueue as PriorityQueue
from distsync._objects.queues import Queue as Queue
from distsync._objects.queues import ShutDown as ShutDown
from distsync._objects.queues import SimpleQueue as SimpleQueue

__all__ = ["Empty", "Full", "LifoQueue", "PriorityQueue", "Queue", "ShutDown", "SimpleQueue"]
