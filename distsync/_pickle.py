"""The stable home of what pickles name and is not public.

A queue filled by one version is read by the next, so a pickle names public classes and the functions and classes of
`HOMES` only. Their code may move, and then a row of `HOMES` changes; no name is taken out, and no function loses or
reorders a parameter. tests/objects/pickles has pickles of earlier versions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

HOMES = {
    "CtypesBytes": "distsync.multiprocessing._ctypes_views",
    "async_object": "distsync._objects.aio.base",
    "ctypes_object": "distsync.multiprocessing._ctypes_views",
    "ctypes_part": "distsync.multiprocessing._ctypes_views",
    "current_context": "distsync.multiprocessing.context",
    "manager": "distsync.multiprocessing.managers",
    "named_context": "distsync.multiprocessing.context",
    "shared_lock": "distsync._objects.shared_lock",
    "shared_object": "distsync._objects.base",
    "synchronized_method": "distsync._objects.synchronized_wrappers",
}
"""The module that defines each name."""

Thing = TypeVar("Thing")


def at_home(thing: Thing) -> Thing:
    """Decorate a function or class of `HOMES`: its pickles name this module."""
    thing.__module__ = __name__
    return thing


def __getattr__(name: str) -> Any:
    """Fetch a name of `HOMES`, which pickle asks for by name."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
