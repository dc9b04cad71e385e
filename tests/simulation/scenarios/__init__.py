"""Scenarios for distsync's own protocols, one for each primitive.

A scenario creates processes and threads from the world's seed, runs them to the end, and checks
what must hold. It uses protocols as the public objects do: the threads of a process share one core.
"""

from __future__ import annotations

from simulation.scenarios.acquire_all import ACQUIRE_ALL
from simulation.scenarios.atomic_bytes import CELL
from simulation.scenarios.barrier import BARRIER
from simulation.scenarios.barrier_cancellation import DEPARTURES
from simulation.scenarios.cached_locks import KEPT_FAIR, KEPT_IDLE, KEPT_LOCK, KEPT_RLOCK
from simulation.scenarios.cached_readers import KEPT_READERS, KEPT_READERS_IDLE
from simulation.scenarios.common import Scenario
from simulation.scenarios.condition import CONDITION
from simulation.scenarios.config import CONFIG
from simulation.scenarios.counter import COUNTER, VALUE
from simulation.scenarios.cross_process_handoff import PASSED_ON
from simulation.scenarios.cross_process_release import HANDED_LOCK, HANDED_PERMITS
from simulation.scenarios.double_barrier import DOUBLE_BARRIER
from simulation.scenarios.election import ELECTION
from simulation.scenarios.event import EVENT
from simulation.scenarios.external_deletes import DELETED
from simulation.scenarios.gate import GATE
from simulation.scenarios.group import GROUP
from simulation.scenarios.ids import IDS
from simulation.scenarios.joinable import JOINABLE
from simulation.scenarios.latch import LATCH
from simulation.scenarios.lock import LOCK, RLOCK
from simulation.scenarios.observers import LOOKS
from simulation.scenarios.partitioner import PARTITION
from simulation.scenarios.pool import POOL, SWEPT_POOL
from simulation.scenarios.queue_join import UNFINISHED
from simulation.scenarios.queues import BOUNDED, FIFO, LIFO, MANY, OVER, PRIORITY, SHUTDOWN, TOGETHER
from simulation.scenarios.registry import REGISTRY
from simulation.scenarios.revoked_downgrade import DOWNGRADES
from simulation.scenarios.semaphore import CURATOR_SEMAPHORE, KAZOO_SEMAPHORE, SEMAPHORE, SIGNAL
from simulation.scenarios.shared_lock import REVOCATION, SHARED
from simulation.scenarios.task_done import DONES
from simulation.scenarios.token_bucket import RATE
from simulation.scenarios.transaction import TRANSACTION
from simulation.scenarios.watch_waits import WAITS

ALL = (
    TRANSACTION,
    SHARED,
    REVOCATION,
    DOWNGRADES,
    ACQUIRE_ALL,
    KAZOO_SEMAPHORE,
    CURATOR_SEMAPHORE,
    ELECTION,
    LOCK,
    RLOCK,
    KEPT_LOCK,
    KEPT_RLOCK,
    KEPT_FAIR,
    KEPT_IDLE,
    KEPT_READERS,
    KEPT_READERS_IDLE,
    HANDED_LOCK,
    HANDED_PERMITS,
    SEMAPHORE,
    SIGNAL,
    CONDITION,
    EVENT,
    BARRIER,
    FIFO,
    BOUNDED,
    MANY,
    TOGETHER,
    DONES,
    JOINABLE,
    POOL,
    LIFO,
    PRIORITY,
    GROUP,
    GATE,
    DOUBLE_BARRIER,
    LATCH,
    COUNTER,
    VALUE,
    RATE,
    IDS,
    REGISTRY,
    CONFIG,
    CELL,
    PARTITION,
    LOOKS,
    UNFINISHED,
    SWEPT_POOL,
    WAITS,
    PASSED_ON,
    DELETED,
    SHUTDOWN,
    OVER,
    DEPARTURES,
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in ALL}

__all__ = ["SCENARIOS", "Scenario"]
