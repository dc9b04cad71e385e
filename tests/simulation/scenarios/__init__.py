"""Scenarios that exercise distsync's protocols on the simulator, one or more per primitive.

A scenario creates processes and threads from the world's seed, runs them to the end and checks the
invariants. It uses the protocols as the public classes do: threads of a process share one core.
"""

from __future__ import annotations

from simulation.scenarios.acquire_all import ACQUIRE_ALL
from simulation.scenarios.atomic_bytes import CELL
from simulation.scenarios.barrier import BARRIER
from simulation.scenarios.barrier_cancellation import BARRIER_CANCELLATION
from simulation.scenarios.cached_locks import CACHED_FAIR, CACHED_IDLE, CACHED_LOCK, CACHED_RLOCK
from simulation.scenarios.cached_readers import CACHED_READERS, CACHED_READERS_IDLE
from simulation.scenarios.common import Scenario
from simulation.scenarios.condition import CONDITION, ELECTION_CONDITION
from simulation.scenarios.config import CONFIG
from simulation.scenarios.counter import COUNTER, VALUE
from simulation.scenarios.cross_process_handoff import CROSS_PROCESS_HANDOFF
from simulation.scenarios.cross_process_release import CROSS_PROCESS_LOCK, CROSS_PROCESS_PERMITS
from simulation.scenarios.double_barrier import DOUBLE_BARRIER
from simulation.scenarios.election import ELECTION
from simulation.scenarios.event import EVENT
from simulation.scenarios.external_deletes import EXTERNAL_DELETES
from simulation.scenarios.gate import GATE
from simulation.scenarios.generation import GENERATION
from simulation.scenarios.group import GROUP
from simulation.scenarios.ids import IDS
from simulation.scenarios.joinable import JOINABLE
from simulation.scenarios.latch import LATCH
from simulation.scenarios.lock import LOCK, RLOCK
from simulation.scenarios.observers import OBSERVERS
from simulation.scenarios.parameter_users import PARAMETER_USERS
from simulation.scenarios.partitioner import PARTITION
from simulation.scenarios.pool import POOL, POOL_SWEEP
from simulation.scenarios.pool_initializers import POOL_INITIALIZERS
from simulation.scenarios.pool_shared import POOL_SHARED
from simulation.scenarios.process_objects import PROCESS_OBJECTS
from simulation.scenarios.queue_join import QUEUE_JOIN
from simulation.scenarios.queues import (
    BOUNDED,
    BULK_PUTS,
    CONCURRENT_PUTS,
    FIFO,
    LIFO,
    PRIORITY,
    SHUTDOWN,
    SHUTDOWN_BULK,
)
from simulation.scenarios.registry import REGISTRY
from simulation.scenarios.revoked_downgrade import REVOKED_DOWNGRADE
from simulation.scenarios.semaphore import CURATOR_SEMAPHORE, KAZOO_SEMAPHORE, SEMAPHORE, SIGNAL
from simulation.scenarios.shared_lock import REVOCATION, SHARED
from simulation.scenarios.shared_wait import SHARED_WAIT
from simulation.scenarios.task_done import TASK_DONE
from simulation.scenarios.token_bucket import RATE
from simulation.scenarios.transaction import TRANSACTION
from simulation.scenarios.watch_waits import WATCH_WAITS

ALL = (
    TRANSACTION,
    SHARED,
    REVOCATION,
    REVOKED_DOWNGRADE,
    ACQUIRE_ALL,
    KAZOO_SEMAPHORE,
    CURATOR_SEMAPHORE,
    ELECTION,
    ELECTION_CONDITION,
    LOCK,
    RLOCK,
    CACHED_LOCK,
    CACHED_RLOCK,
    CACHED_FAIR,
    CACHED_IDLE,
    CACHED_READERS,
    CACHED_READERS_IDLE,
    CROSS_PROCESS_LOCK,
    CROSS_PROCESS_PERMITS,
    SEMAPHORE,
    SIGNAL,
    CONDITION,
    EVENT,
    BARRIER,
    FIFO,
    BOUNDED,
    BULK_PUTS,
    CONCURRENT_PUTS,
    TASK_DONE,
    JOINABLE,
    POOL,
    LIFO,
    PRIORITY,
    GROUP,
    GATE,
    GENERATION,
    PARAMETER_USERS,
    PROCESS_OBJECTS,
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
    OBSERVERS,
    QUEUE_JOIN,
    POOL_SWEEP,
    WATCH_WAITS,
    CROSS_PROCESS_HANDOFF,
    EXTERNAL_DELETES,
    SHUTDOWN,
    SHUTDOWN_BULK,
    BARRIER_CANCELLATION,
    POOL_INITIALIZERS,
    POOL_SHARED,
    SHARED_WAIT,
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in ALL}

__all__ = ["SCENARIOS", "Scenario"]
