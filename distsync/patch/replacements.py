"""Modules of the standard library, and the modules of distsync that replace them.

A module of distsync is imported only when something of it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

FACES = {
    "threading": "distsync.threading",
    "queue": "distsync.queue",
    "multiprocessing": "distsync.multiprocessing",
    "multiprocessing.context": "distsync.multiprocessing.context",
    "multiprocessing.managers": "distsync.multiprocessing.managers",
    "multiprocessing.pool": "distsync.multiprocessing.pool",
    "multiprocessing.process": "distsync.multiprocessing.process",
    "multiprocessing.queues": "distsync.multiprocessing.queues",
    "multiprocessing.sharedctypes": "distsync.multiprocessing.sharedctypes",
    "multiprocessing.synchronize": "distsync.multiprocessing.synchronize",
}
ROOTS = frozenset(name.partition(".")[0] for name in FACES)


class Replacement(NamedTuple):
    """The name of an object of the standard library, the object, and its replacement."""

    name: str
    was: Any
    now: Any


def resolve_import(name: str, asked: tuple[str, ...] | None, module: Any) -> Any:
    """Return the result of ``import name`` or ``from name import asked`` in a patched module.

    ``module`` is the result without a patch.
    """
    face = FACES.get(name)
    if face is not None:
        import_module(face)
    if not asked:
        return import_module(FACES[name.partition(".")[0]])
    for each in asked:
        if f"{name}.{each}" in FACES:
            import_module(FACES[f"{name}.{each}"])
    return module if face is None else sys.modules[face]


def all_replacements() -> list[Replacement]:
    """Return the replacements for all modules that are loaded, and for the names in them."""
    loaded = [(name, sys.modules[name], import_module(FACES[name])) for name in FACES if name in sys.modules]
    found = [Replacement(name, module, face) for name, module, face in loaded]
    return found + [each for name, module, face in loaded for each in _changed(name, module, face)]


def _changed(name: str, module: ModuleType, face: ModuleType) -> Iterator[Replacement]:
    for key, was in list(vars(module).items()):
        now = getattr(face, key, was)
        if not key.startswith("_") and now is not was and _is_own(was):
            yield Replacement(f"{name}.{key}", was, now)


def _is_own(value: Any) -> bool:
    """Return whether an object belongs to the swapped modules, and is not imported by them."""
    home = str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).partition(".")[0]
    return callable(value) and home in (*ROOTS, "_thread", "_queue")


def is_ours(value: Any) -> bool:
    """Return whether a value is a class of distsync, or an instance of one."""
    kind = value if isinstance(value, type) else type(value)
    return any(f"{each.__module__}.".startswith("distsync.") for each in kind.__mro__)
