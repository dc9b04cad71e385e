"""Process: multiprocessing's own, one class for each start method.

Rules for this file: it knows multiprocessing's classes and sessions, and nothing of locks.
"""

from __future__ import annotations

import multiprocessing as _stdlib
from multiprocessing import context as _contexts
from multiprocessing import process as _processes
from typing import Any


class Process(_contexts.Process):
    """A process of the default start method."""


class ForkProcess(_contexts.ForkProcess):
    """A process that is a copy of this one."""


class SpawnProcess(_contexts.SpawnProcess):
    """A process that begins anew."""


class ForkServerProcess(_contexts.ForkServerProcess):
    """A process that is a copy of one that was started for that."""


_CLASSES: dict[Any, type[_processes.BaseProcess]] = {
    _stdlib.Process: Process,
    _contexts.ForkProcess: ForkProcess,
    _contexts.SpawnProcess: SpawnProcess,
    _contexts.ForkServerProcess: ForkServerProcess,
}


def class_for(base: Any) -> type[_processes.BaseProcess]:
    """The class of the processes of a context of multiprocessing's."""
    return _CLASSES[base.Process]


def __getattr__(name: str) -> Any:
    """Whatever else ``multiprocessing.process`` has."""
    try:
        return getattr(_processes, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
