"""What type checkers and IDEs read: the public names of distsync, and where they come from."""

from distsync import asyncio as asyncio
from distsync import errors as errors
from distsync import futures as futures
from distsync import joblib as joblib
from distsync import multiprocessing as multiprocessing
from distsync import patch as patch
from distsync import queue as queue
from distsync import recipes as recipes
from distsync import testing as testing
from distsync import threading as threading
from distsync._client.client import Client as Client
from distsync._client.contender_info import Contender as Contender
from distsync._client.default_client import close_default as close_default
from distsync._client.default_client import connect as connect
from distsync._client.default_client import default_client as default_client
from distsync._client.default_client import set_default as set_default
from distsync._client.embedded_locator import find_embedded_server as find_embedded_server
from distsync._client.ensemble_status import Role as Role
from distsync._client.ensemble_status import Server as Server
from distsync._client.naming.inference import PrivateObjectWarning as PrivateObjectWarning
from distsync._objects.acquire_all import acquire_all as acquire_all
from distsync._objects.joinable_queue import Delivery as Delivery
from distsync._objects.joinable_queue import JoinableQueue as JoinableQueue
from distsync._objects.shared_lock import SharedLock as SharedLock
from distsync._objects.synchronized import synchronized as synchronized
from distsync._objects.timeout import timeout as timeout
from distsync._objects.transaction import Participant as Participant
from distsync._objects.transaction import Transaction as Transaction
from distsync._server.autostart.address_file import ServerAddress as ServerAddress
from distsync.errors import AccessDeniedError as AccessDeniedError
from distsync.errors import ClientClosedError as ClientClosedError
from distsync.errors import ConfigurationError as ConfigurationError
from distsync.errors import ConfigurationWarning as ConfigurationWarning
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
from distsync.errors import PrivateObjectError as PrivateObjectError
from distsync.errors import ReleasedTooOftenError as ReleasedTooOftenError
from distsync.errors import SequenceExhaustedError as SequenceExhaustedError
from distsync.errors import ServerStartError as ServerStartError
from distsync.errors import SessionLostError as SessionLostError
from distsync.errors import StillUsedError as StillUsedError
from distsync.errors import TaskLostError as TaskLostError
from distsync.errors import TaskTimeoutError as TaskTimeoutError
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

__version__: str

__all__ = [
    "AccessDeniedError",
    "Barrier",
    "BoundedSemaphore",
    "BrokenBarrierError",
    "Candidate",
    "Client",
    "ClientClosedError",
    "Condition",
    "Config",
    "ConfigurationError",
    "ConfigurationWarning",
    "Contender",
    "CorruptNodeError",
    "CountDownLatch",
    "Counter",
    "DeadlineError",
    "Delivery",
    "DistsyncError",
    "DoubleBarrier",
    "Election",
    "Empty",
    "Entry",
    "Event",
    "FencingToken",
    "Full",
    "Gate",
    "Group",
    "IdGenerator",
    "JoinableQueue",
    "LifoQueue",
    "Lock",
    "LockLostError",
    "Member",
    "MismatchError",
    "NameInUseError",
    "NameTakenError",
    "NotHeldError",
    "NotOwnerError",
    "ObjectRemovedError",
    "OutcomeUnknownError",
    "OverReleaseError",
    "Participant",
    "Partitioner",
    "PatchError",
    "PayloadError",
    "PayloadPickleError",
    "PayloadRefusedError",
    "PayloadTooLargeError",
    "PeerError",
    "PriorityQueue",
    "PrivateObjectError",
    "PrivateObjectWarning",
    "Queue",
    "RLock",
    "RateLimiter",
    "Registry",
    "ReleasedTooOftenError",
    "Role",
    "Semaphore",
    "SequenceExhaustedError",
    "Server",
    "ServerAddress",
    "ServerStartError",
    "SessionLostError",
    "SharedLock",
    "SharedReader",
    "SharedWriter",
    "ShutDown",
    "SimpleQueue",
    "StillUsedError",
    "TaskLostError",
    "TaskTimeoutError",
    "Transaction",
    "UnavailableError",
    "UnreachableError",
    "UpgradeError",
    "UsageError",
    "Value",
    "Versioned",
    "VoteRefusedError",
    "WorkerStartError",
    "acquire_all",
    "close_default",
    "connect",
    "default_client",
    "find_embedded_server",
    "set_default",
    "synchronized",
    "timeout",
]
