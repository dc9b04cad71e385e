"""What the standard library has no shape for: the other recipes of ZooKeeper, and what workers ask for besides.

Rules for this file: names only; each is at home in a file of its own.
"""

from __future__ import annotations

from distsync.acquiring import acquire_all as acquire_all
from distsync.configs import Config as Config
from distsync.counters import Counter as Counter
from distsync.counters import Value as Value
from distsync.counters import Versioned as Versioned
from distsync.double_barriers import DoubleBarrier as DoubleBarrier
from distsync.elections import Candidate as Candidate
from distsync.elections import Election as Election
from distsync.gates import Gate as Gate
from distsync.groups import Group as Group
from distsync.groups import Member as Member
from distsync.joinable import Delivery as Delivery
from distsync.joinable import JoinableQueue as JoinableQueue
from distsync.latches import CountDownLatch as CountDownLatch
from distsync.partitioners import Partitioner as Partitioner
from distsync.rates import IdGenerator as IdGenerator
from distsync.rates import RateLimiter as RateLimiter
from distsync.registries import Entry as Entry
from distsync.registries import Registry as Registry
from distsync.shared_locks import SharedLock as SharedLock
from distsync.transactions import Participant as Participant
from distsync.transactions import Transaction as Transaction

__all__ = [
    "Candidate",
    "Config",
    "CountDownLatch",
    "Counter",
    "Delivery",
    "DoubleBarrier",
    "Election",
    "Entry",
    "Gate",
    "Group",
    "IdGenerator",
    "JoinableQueue",
    "Member",
    "Participant",
    "Partitioner",
    "RateLimiter",
    "Registry",
    "SharedLock",
    "Transaction",
    "Value",
    "Versioned",
    "acquire_all",
]
