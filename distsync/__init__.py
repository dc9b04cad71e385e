"""Locks, queues and the other tools of threading and queue, across processes and hosts.

Rules for this file: it imports nothing that starts or costs anything. A name is fetched from its home when it is first
asked for, so that ``import distsync`` comes without kazoo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsync._version import VERSION as _VERSION

if TYPE_CHECKING:
    from distsync._client.client import Client as Client
    from distsync._client.contender_info import Contender as Contender
    from distsync._client.default_client import close_default as close_default
    from distsync._client.default_client import connect as connect
    from distsync._client.default_client import default_client as default_client
    from distsync._client.default_client import set_default as set_default
    from distsync._client.embedded_locator import find_embedded_server as find_embedded_server
    from distsync._client.ensemble_status import Role as Role
    from distsync._client.ensemble_status import Server as Server
    from distsync._client.naming.inference import UnnamedObjectWarning as UnnamedObjectWarning
    from distsync._objects.acquire_all import acquire_all as acquire_all
    from distsync._objects.joinable_queue import Delivery as Delivery
    from distsync._objects.joinable_queue import JoinableQueue as JoinableQueue
    from distsync._objects.shared_lock import SharedLock as SharedLock
    from distsync._objects.synchronized import synchronized as synchronized
    from distsync._objects.transaction import Participant as Participant
    from distsync._objects.transaction import Transaction as Transaction
    from distsync._server.autostart.address_file import ServerAddress as ServerAddress
    from distsync.errors import AccessDeniedError as AccessDeniedError
    from distsync.errors import ClientClosedError as ClientClosedError
    from distsync.errors import ConfigurationError as ConfigurationError
    from distsync.errors import CorruptNodeError as CorruptNodeError
    from distsync.errors import DeadlineError as DeadlineError
    from distsync.errors import DistsyncError as DistsyncError
    from distsync.errors import LockLostError as LockLostError
    from distsync.errors import MismatchError as MismatchError
    from distsync.errors import NameInUseError as NameInUseError
    from distsync.errors import NameTakenError as NameTakenError
    from distsync.errors import NotHeldError as NotHeldError
    from distsync.errors import NotOwnerError as NotOwnerError
    from distsync.errors import ObjectRemovedError as ObjectRemovedError
    from distsync.errors import OutcomeUnknownError as OutcomeUnknownError
    from distsync.errors import OverReleaseError as OverReleaseError
    from distsync.errors import PatchError as PatchError
    from distsync.errors import PayloadError as PayloadError
    from distsync.errors import PayloadPickleError as PayloadPickleError
    from distsync.errors import PayloadRefusedError as PayloadRefusedError
    from distsync.errors import PayloadTooLargeError as PayloadTooLargeError
    from distsync.errors import PeerError as PeerError
    from distsync.errors import ReleasedTooOftenError as ReleasedTooOftenError
    from distsync.errors import SequenceExhaustedError as SequenceExhaustedError
    from distsync.errors import ServerStartError as ServerStartError
    from distsync.errors import SessionLostError as SessionLostError
    from distsync.errors import TaskLostError as TaskLostError
    from distsync.errors import UnavailableError as UnavailableError
    from distsync.errors import UnreachableError as UnreachableError
    from distsync.errors import UpgradeError as UpgradeError
    from distsync.errors import UsageError as UsageError
    from distsync.errors import VoteRefusedError as VoteRefusedError
    from distsync.errors import WorkerStartError as WorkerStartError
    from distsync.queue import Empty as Empty
    from distsync.queue import Full as Full
    from distsync.queue import LifoQueue as LifoQueue
    from distsync.queue import PriorityQueue as PriorityQueue
    from distsync.queue import Queue as Queue
    from distsync.queue import ShutDown as ShutDown
    from distsync.queue import SimpleQueue as SimpleQueue
    from distsync.recipes import Candidate as Candidate
    from distsync.recipes import Config as Config
    from distsync.recipes import CountDownLatch as CountDownLatch
    from distsync.recipes import Counter as Counter
    from distsync.recipes import DoubleBarrier as DoubleBarrier
    from distsync.recipes import Election as Election
    from distsync.recipes import Entry as Entry
    from distsync.recipes import FencingToken as FencingToken
    from distsync.recipes import Gate as Gate
    from distsync.recipes import Group as Group
    from distsync.recipes import IdGenerator as IdGenerator
    from distsync.recipes import Member as Member
    from distsync.recipes import Partitioner as Partitioner
    from distsync.recipes import RateLimiter as RateLimiter
    from distsync.recipes import Registry as Registry
    from distsync.recipes import SharedReader as SharedReader
    from distsync.recipes import SharedWriter as SharedWriter
    from distsync.recipes import Value as Value
    from distsync.recipes import Versioned as Versioned
    from distsync.threading import Barrier as Barrier
    from distsync.threading import BoundedSemaphore as BoundedSemaphore
    from distsync.threading import BrokenBarrierError as BrokenBarrierError
    from distsync.threading import Condition as Condition
    from distsync.threading import Event as Event
    from distsync.threading import Lock as Lock
    from distsync.threading import RLock as RLock
    from distsync.threading import Semaphore as Semaphore

__version__ = _VERSION

_FACES = ("threading", "queue", "recipes", "multiprocessing", "patch")
_HOMES = {
    "threading": "Lock RLock Condition Semaphore BoundedSemaphore Event Barrier BrokenBarrierError",
    "queue": "Queue LifoQueue PriorityQueue SimpleQueue Empty Full ShutDown",
    "recipes": "Candidate Config CountDownLatch Counter DoubleBarrier Election Entry FencingToken Gate Group"
    " IdGenerator Member Partitioner RateLimiter Registry SharedReader SharedWriter Value Versioned",
    "_objects.shared_lock": "SharedLock",
    "_objects.acquire_all": "acquire_all",
    "_objects.synchronized": "synchronized",
    "_objects.transaction": "Transaction Participant",
    "_objects.joinable_queue": "JoinableQueue Delivery",
    "_client.default_client": "connect default_client set_default close_default",
    "_client.client": "Client",
    "_client.ensemble_status": "Role Server",
    "_client.embedded_locator": "find_embedded_server",
    "_server.autostart.address_file": "ServerAddress",
    "_client.naming.inference": "UnnamedObjectWarning",
    "_client.contender_info": "Contender",
    "errors": "DistsyncError UsageError NotHeldError NotOwnerError UpgradeError OverReleaseError"
    " ReleasedTooOftenError PayloadError"
    " PayloadTooLargeError PayloadPickleError NameInUseError NameTakenError MismatchError VoteRefusedError"
    " ConfigurationError PatchError UnavailableError LockLostError UnreachableError"
    " ServerStartError SessionLostError OutcomeUnknownError ClientClosedError AccessDeniedError DeadlineError"
    " ObjectRemovedError"
    " TaskLostError WorkerStartError SequenceExhaustedError"
    " PeerError PayloadRefusedError CorruptNodeError",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Fetch a public name, or a face, on first use."""
    from importlib import import_module

    if name in _FACES:
        return import_module(f"distsync.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'distsync' has no attribute {name!r}")
    value = getattr(import_module(f"distsync.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_FACES, *(name for name in globals() if name.startswith("__"))})
