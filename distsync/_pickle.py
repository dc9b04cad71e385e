"""The modules that pickles name: public ones, and this, the stable home of what is not public.

A queue filled by one version is read by the next, so a pickle names public classes and the functions and classes of
`HOMES` only. Their code may move, and then a row of `HOMES` changes; no name is taken out, and no function loses or
reorders a parameter. An origin, as a parameter, is a tuple that may grow at its end. tests/objects/pickles has pickles
of earlier versions.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, get_type_hints

HOMES = {
    "CtypesBytes": "distsync.multiprocessing._ctypes_views",
    "ManagedBoundedSemaphore": "distsync.multiprocessing._managed_locks",
    "ManagedCondition": "distsync.multiprocessing._managed_locks",
    "ManagedLock": "distsync.multiprocessing._managed_locks",
    "ManagedRLock": "distsync.multiprocessing._managed_locks",
    "ManagedSemaphore": "distsync.multiprocessing._managed_locks",
    "async_object": "distsync._objects.aio.base",
    "ctypes_object": "distsync.multiprocessing._ctypes_views",
    "ctypes_part": "distsync.multiprocessing._ctypes_views",
    "current_context": "distsync.multiprocessing.context",
    "managed_pool": "distsync.multiprocessing._managed_pool",
    "manager": "distsync.multiprocessing.managers",
    "named_context": "distsync.multiprocessing.context",
    "shared_lock": "distsync._objects.shared_lock",
    "shared_object": "distsync._objects.base",
    "synchronized_method": "distsync._objects.synchronized",
    "unnamed_object": "distsync._objects.base",
}
"""The module that defines each name."""

Thing = TypeVar("Thing")
Kind = TypeVar("Kind", bound=type[Any])


def stable_pickle_name(thing: Thing) -> Thing:
    """Decorate a function or class of `HOMES`: its pickles name this module."""
    thing.__module__ = __name__
    return thing


def public_in(module: str) -> Callable[[Kind], Kind]:
    """Decorate a class that ``module`` exports: its pickles, reprs and tracebacks name that module.

    For dataclasses and named tuples, which cannot set ``__module__`` in their body. Their annotations, strings so far,
    are evaluated first: ``typing.get_type_hints`` would look them up in ``module``.
    """

    def decorate(kind: Kind) -> Kind:
        kind.__annotations__ = get_type_hints(kind)
        kind.__module__ = module
        return kind

    return decorate


def __getattr__(name: str) -> Any:
    """Fetch a name of `HOMES`, which pickle asks for by name."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
