"""The names of ``asyncio``, with its locks, events and queues shared by processes and hosts.

Signatures, results and exceptions are those of ``asyncio``. Names that are not replaced here (run,
Task, timeout, ...) are the standard library's own. SharedLock, an addition, belongs to a task.
"""

from __future__ import annotations

import asyncio as _stdlib
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from distsync._import_gate import importing as _importing
from distsync._objects.aio.barriers import Barrier as Barrier
from distsync._objects.aio.barriers import BrokenBarrierError as BrokenBarrierError
from distsync._objects.aio.conditions import Condition as Condition
from distsync._objects.aio.events import Event as Event
from distsync._objects.aio.locks import Lock as Lock
from distsync._objects.aio.queues import LifoQueue as LifoQueue
from distsync._objects.aio.queues import PriorityQueue as PriorityQueue
from distsync._objects.aio.queues import Queue as Queue
from distsync._objects.aio.queues import QueueShutDown as QueueShutDown
from distsync._objects.aio.semaphores import BoundedSemaphore as BoundedSemaphore
from distsync._objects.aio.semaphores import Semaphore as Semaphore

if TYPE_CHECKING:  # for type checkers; see __getattr__
    import sys
    from asyncio import ALL_COMPLETED as ALL_COMPLETED
    from asyncio import FIRST_COMPLETED as FIRST_COMPLETED
    from asyncio import FIRST_EXCEPTION as FIRST_EXCEPTION
    from asyncio import AbstractEventLoop as AbstractEventLoop
    from asyncio import AbstractEventLoopPolicy as AbstractEventLoopPolicy
    from asyncio import AbstractServer as AbstractServer
    from asyncio import BaseEventLoop as BaseEventLoop
    from asyncio import BaseProtocol as BaseProtocol
    from asyncio import BaseTransport as BaseTransport
    from asyncio import BufferedProtocol as BufferedProtocol
    from asyncio import CancelledError as CancelledError
    from asyncio import DatagramProtocol as DatagramProtocol
    from asyncio import DatagramTransport as DatagramTransport
    from asyncio import DefaultEventLoopPolicy as DefaultEventLoopPolicy
    from asyncio import Future as Future
    from asyncio import Handle as Handle
    from asyncio import IncompleteReadError as IncompleteReadError
    from asyncio import InvalidStateError as InvalidStateError
    from asyncio import LimitOverrunError as LimitOverrunError
    from asyncio import Protocol as Protocol
    from asyncio import QueueEmpty as QueueEmpty
    from asyncio import QueueFull as QueueFull
    from asyncio import ReadTransport as ReadTransport
    from asyncio import SelectorEventLoop as SelectorEventLoop
    from asyncio import SendfileNotAvailableError as SendfileNotAvailableError
    from asyncio import Server as Server
    from asyncio import StreamReader as StreamReader
    from asyncio import StreamReaderProtocol as StreamReaderProtocol
    from asyncio import StreamWriter as StreamWriter
    from asyncio import SubprocessProtocol as SubprocessProtocol
    from asyncio import SubprocessTransport as SubprocessTransport
    from asyncio import Task as Task
    from asyncio import TimeoutError as TimeoutError
    from asyncio import TimerHandle as TimerHandle
    from asyncio import Transport as Transport
    from asyncio import WriteTransport as WriteTransport
    from asyncio import all_tasks as all_tasks
    from asyncio import as_completed as as_completed
    from asyncio import create_subprocess_exec as create_subprocess_exec
    from asyncio import create_subprocess_shell as create_subprocess_shell
    from asyncio import create_task as create_task
    from asyncio import current_task as current_task
    from asyncio import ensure_future as ensure_future
    from asyncio import gather as gather
    from asyncio import get_event_loop as get_event_loop
    from asyncio import get_event_loop_policy as get_event_loop_policy
    from asyncio import get_running_loop as get_running_loop
    from asyncio import iscoroutine as iscoroutine
    from asyncio import iscoroutinefunction as iscoroutinefunction
    from asyncio import isfuture as isfuture
    from asyncio import new_event_loop as new_event_loop
    from asyncio import open_connection as open_connection
    from asyncio import open_unix_connection as open_unix_connection
    from asyncio import run as run
    from asyncio import run_coroutine_threadsafe as run_coroutine_threadsafe
    from asyncio import set_event_loop as set_event_loop
    from asyncio import set_event_loop_policy as set_event_loop_policy
    from asyncio import shield as shield
    from asyncio import sleep as sleep
    from asyncio import start_server as start_server
    from asyncio import start_unix_server as start_unix_server
    from asyncio import to_thread as to_thread
    from asyncio import wait as wait
    from asyncio import wait_for as wait_for
    from asyncio import wrap_future as wrap_future

    from distsync._objects.aio.election import Election as Election

    if sys.version_info >= (3, 11):
        from asyncio import Runner as Runner
        from asyncio import TaskGroup as TaskGroup
        from asyncio import timeout as timeout
        from asyncio import timeout_at as timeout_at

    from distsync._objects.aio.shared_lock import SharedLock as SharedLock
    from distsync._objects.aio.shared_lock import SharedReader as SharedReader
    from distsync._objects.aio.shared_lock import SharedWriter as SharedWriter

_REPLACED = [
    "Lock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "BrokenBarrierError",
    "Queue", "LifoQueue", "PriorityQueue", "QueueShutDown",
]  # fmt: skip
#: Names that the standard library does not have, and the modules from which they are imported at their first use.
#: ``import *`` does not import them.
_ADDED = {
    "Election": "election",
    "SharedLock": "shared_lock",
    "SharedReader": "shared_lock",
    "SharedWriter": "shared_lock",
}
__all__ = [*dict.fromkeys([*_stdlib.__all__, *_REPLACED])]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Return an added name, or the standard library's object for a name that is not replaced here."""
    if name in _ADDED:
        with _importing():
            return getattr(_import_module(f"distsync._objects.aio.{_ADDED[name]}"), name)
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module 'distsync.asyncio' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_ADDED, *dir(_stdlib)})
