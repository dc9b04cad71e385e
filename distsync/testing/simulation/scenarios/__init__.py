"""What distsync's own protocols have to stand: one scenario for each primitive.

Rules for these files: a scenario builds processes and threads out of the world's seed, plays them to the end, and
says what must hold. It uses protocols as the faces do.
"""

from __future__ import annotations

from distsync.testing.simulation.scenarios.acquire_all import ACQUIRE_ALL
from distsync.testing.simulation.scenarios.barrier import BARRIER
from distsync.testing.simulation.scenarios.base import Scenario
from distsync.testing.simulation.scenarios.cell import CELL
from distsync.testing.simulation.scenarios.condition import CONDITION
from distsync.testing.simulation.scenarios.config import CONFIG
from distsync.testing.simulation.scenarios.counter import COUNTER, VALUE
from distsync.testing.simulation.scenarios.deleted import DELETED
from distsync.testing.simulation.scenarios.departures import DEPARTURES
from distsync.testing.simulation.scenarios.dones import DONES
from distsync.testing.simulation.scenarios.double_barrier import DOUBLE_BARRIER
from distsync.testing.simulation.scenarios.downgrades import DOWNGRADES
from distsync.testing.simulation.scenarios.election import ELECTION
from distsync.testing.simulation.scenarios.event import EVENT
from distsync.testing.simulation.scenarios.gate import GATE
from distsync.testing.simulation.scenarios.group import GROUP
from distsync.testing.simulation.scenarios.handed import HANDED_LOCK, HANDED_PERMITS
from distsync.testing.simulation.scenarios.ids import IDS
from distsync.testing.simulation.scenarios.joinable import JOINABLE
from distsync.testing.simulation.scenarios.kept import KEPT_FAIR, KEPT_IDLE, KEPT_LOCK, KEPT_RLOCK
from distsync.testing.simulation.scenarios.kept_readers import KEPT_READERS, KEPT_READERS_IDLE
from distsync.testing.simulation.scenarios.latch import LATCH
from distsync.testing.simulation.scenarios.lock import LOCK, RLOCK
from distsync.testing.simulation.scenarios.looks import LOOKS
from distsync.testing.simulation.scenarios.partition import PARTITION
from distsync.testing.simulation.scenarios.passed_on import PASSED_ON
from distsync.testing.simulation.scenarios.pool import POOL, SWEPT_POOL
from distsync.testing.simulation.scenarios.queues import BOUNDED, FIFO, LIFO, MANY, OVER, PRIORITY, SHUTDOWN, TOGETHER
from distsync.testing.simulation.scenarios.rate import RATE
from distsync.testing.simulation.scenarios.registry import REGISTRY
from distsync.testing.simulation.scenarios.semaphore import CURATOR_SEMAPHORE, KAZOO_SEMAPHORE, SEMAPHORE, SIGNAL
from distsync.testing.simulation.scenarios.shared import REVOCATION, SHARED
from distsync.testing.simulation.scenarios.transaction import TRANSACTION
from distsync.testing.simulation.scenarios.unfinished import UNFINISHED
from distsync.testing.simulation.scenarios.waits import WAITS

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
