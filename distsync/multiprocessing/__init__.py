"""Drop-in replacement for ``multiprocessing``: the same names, across processes and hosts.

As in the standard library, the functions are methods of the default context. Names that distsync
does not replace (Pipe, current_process, cpu_count, ...) are the standard library's own.
"""

from __future__ import annotations

import multiprocessing as _stdlib
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from distsync._import_gate import importing as _importing
from distsync.multiprocessing import _stdlib_names as _stdlib_names  # installs its finder

if TYPE_CHECKING:  # for type checkers; see __getattr__
    from distsync.multiprocessing.context import default_context as _default

    Array = _default.Array
    Barrier = _default.Barrier
    BoundedSemaphore = _default.BoundedSemaphore
    Condition = _default.Condition
    Election = _default.Election
    Event = _default.Event
    JoinableQueue = _default.JoinableQueue
    Lock = _default.Lock
    Manager = _default.Manager
    Pool = _default.Pool
    Process = _default.Process
    Queue = _default.Queue
    RawArray = _default.RawArray
    RawValue = _default.RawValue
    RLock = _default.RLock
    Semaphore = _default.Semaphore
    SharedLock = _default.SharedLock
    SimpleQueue = _default.SimpleQueue
    Value = _default.Value
    get_context = _default.get_context

    from multiprocessing import AuthenticationError as AuthenticationError
    from multiprocessing import BufferTooShort as BufferTooShort
    from multiprocessing import Pipe as Pipe
    from multiprocessing import ProcessError as ProcessError
    from multiprocessing import TimeoutError as TimeoutError
    from multiprocessing import active_children as active_children
    from multiprocessing import allow_connection_pickling as allow_connection_pickling
    from multiprocessing import cpu_count as cpu_count
    from multiprocessing import current_process as current_process
    from multiprocessing import freeze_support as freeze_support
    from multiprocessing import get_all_start_methods as get_all_start_methods
    from multiprocessing import get_logger as get_logger
    from multiprocessing import get_start_method as get_start_method
    from multiprocessing import log_to_stderr as log_to_stderr
    from multiprocessing import parent_process as parent_process
    from multiprocessing import set_executable as set_executable
    from multiprocessing import set_forkserver_preload as set_forkserver_preload
    from multiprocessing import set_start_method as set_start_method

__all__ = [*_stdlib.__all__]  # noqa: PLE0604


_OF_CONTEXT = (
    "Array",
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Election",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pool",
    "Process",
    "Queue",
    "RawArray",
    "RawValue",
    "RLock",
    "Semaphore",
    "SharedLock",
    "SimpleQueue",
    "Value",
    "get_context",
)
"""The methods of the default context, bound at the first use of one of them. If this package imported
one of its modules while another thread imports that module, each import would wait for the other.
"""

_MODULES = ("context", "managers", "pool", "process", "queues", "sharedctypes", "synchronize")
"""Modules that replace one of multiprocessing."""


def __getattr__(name: str) -> Any:
    """Return a replaced name or module on first use, or a name of ``multiprocessing``."""
    if name in _OF_CONTEXT:
        with _importing():
            default = _import_module("distsync.multiprocessing.context").default_context
        globals().update({each: getattr(default, each) for each in _OF_CONTEXT if each not in globals()})
        return globals()[name]
    if name in _MODULES:
        with _importing():
            return _import_module(f"distsync.multiprocessing.{name}")
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module 'distsync.multiprocessing' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_CONTEXT, *dir(_stdlib)})
