"""Drop-in replacement for ``queue``: the same names and signatures, across processes and hosts.

Results and exceptions are the same too.
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
