"""Objects that the standard library does not have: the other recipes of ZooKeeper, and more."""

from __future__ import annotations

from distsync._objects.acquire_all import acquire_all as acquire_all
from distsync._objects.barriers import DoubleBarrier as DoubleBarrier
from distsync._objects.base import FencingToken as FencingToken
from distsync._objects.config import Config as Config
from distsync._objects.count_down_latch import CountDownLatch as CountDownLatch
from distsync._objects.counters import Counter as Counter
from distsync._objects.counters import Value as Value
from distsync._objects.counters import Versioned as Versioned
from distsync._objects.election import Candidate as Candidate
from distsync._objects.election import Election as Election
from distsync._objects.gate import Gate as Gate
from distsync._objects.group import Group as Group
from distsync._objects.group import Member as Member
from distsync._objects.id_generator import IdGenerator as IdGenerator
from distsync._objects.joinable_queue import Delivery as Delivery
from distsync._objects.joinable_queue import JoinableQueue as JoinableQueue
from distsync._objects.partitioner import Partitioner as Partitioner
from distsync._objects.rate_limiter import RateLimiter as RateLimiter
from distsync._objects.registry import Entry as Entry
from distsync._objects.registry import Registry as Registry
from distsync._objects.shared_lock import SharedLock as SharedLock
from distsync._objects.shared_lock import SharedReader as SharedReader
from distsync._objects.shared_lock import SharedWriter as SharedWriter
from distsync._objects.transaction import Participant as Participant
from distsync._objects.transaction import Transaction as Transaction

__all__ = [
    "Candidate",
    "Config",
    "CountDownLatch",
    "Counter",
    "Delivery",
    "DoubleBarrier",
    "Election",
    "Entry",
    "FencingToken",
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
    "SharedReader",
    "SharedWriter",
    "Transaction",
    "Value",
    "Versioned",
    "acquire_all",
]
