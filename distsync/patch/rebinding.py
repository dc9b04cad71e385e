"""Rebinding of names in modules that are imported already. Existing objects are not changed.

Only names of one module and of its classes are rebound at a time.
"""

from __future__ import annotations

import _thread
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from distsync.patch.replacements import Replacement, is_ours
from distsync.patch.source_analysis import Finding, Source

LOCAL_TYPES = {
    "_thread": "RLock",
    "threading": "_PyRLock Condition Semaphore Event Barrier",
    "queue": "Queue SimpleQueue",
    "multiprocessing.synchronize": "SemLock Condition Event",
    "multiprocessing.queues": "Queue SimpleQueue",
    "multiprocessing.sharedctypes": "SynchronizedBase",
    "multiprocessing.managers": "BaseManager BaseProxy",
    "multiprocessing.pool": "Pool",
}
"""Classes of the standard library whose objects one process (or its children) has to itself."""

BEFORE = "patch this module before it is imported"


def swap(module: ModuleType, replacements: list[Replacement]) -> dict[tuple[str, str], str]:
    """Bind names of a module and its classes to distsync's replacements.

    Args:
        module: The module.
        replacements: What replaces what.

    Returns:
        What each swapped name meant before, by class (or ``""``) and name.
    """
    return _rebind(module, {id(each.was): (each.name, each.now) for each in reversed(replacements)}, lambda *_: True)


def restore(module: ModuleType, replacements: list[Replacement], which: Callable[[str, str], bool]) -> None:
    """Bind names that ``which(class, name)`` selects to the standard library's objects again."""
    _rebind(module, {id(each.now): (each.name, each.was) for each in reversed(replacements)}, which)


def _rebind(
    module: ModuleType, table: dict[int, tuple[str, Any]], which: Callable[[str, str], bool]
) -> dict[tuple[str, str], str]:
    done = {}
    for owner, label, name, value in list(_names(module)):
        if id(value) in table and which(label, name):
            done[label, name], now = table[id(value)]
            setattr(owner, name, now)
    return done


def swapped_names(module: ModuleType, replacements: list[Replacement]) -> Iterator[tuple[str, str]]:
    """Yield each name that means an object of distsync, and what it meant before."""
    table = {id(each.now): each.name for each in reversed(replacements)}
    for _, label, name, value in _names(module):
        if id(value) in table:
            yield f"{label}.{name}".lstrip("."), table[id(value)]


def stale_objects(
    module: ModuleType, replacements: list[Replacement], live: tuple[type, ...], source: Source
) -> list[Finding]:
    """Return findings for objects that the module has created from the standard library and keeps.

    Their type cannot be swapped.
    """
    made = _ExistingObjects(module, live, frozenset(id(each.was) for each in replacements))
    found = []
    for _, owner, name, value in _names(module):
        if owner or name not in source.imported:
            line, called = source.line_of(name, owner), f"{owner}.{name}".lstrip(".")
            found += [
                Finding(source.file, line, f"{called} {what}", BEFORE, True) for what in made.describe_stale(value)
            ]
    return found


class _ExistingObjects:
    """Detector of objects that a module has created from the standard library."""

    def __init__(self, module: ModuleType, live: tuple[type, ...], factories: frozenset[int]) -> None:
        self._module = module.__name__
        self._live = live
        self._factories = factories

    def describe_stale(self, value: Any) -> Iterator[str]:
        """Yield what is wrong with the value of a name."""
        if any(self._is_live(each) for each in _contents(value)):
            yield "was made by the standard library before, and excludes nobody in another process"
        if isinstance(value, type):
            yield from self._class(value)
        else:
            function = inspect.unwrap(value.__func__ if isinstance(value, staticmethod | classmethod) else value)
            if isinstance(function, FunctionType) and function.__module__ == self._module:
                yield from self._function(function)

    def _class(self, kind: type) -> Iterator[str]:
        base = next((each for each in kind.__mro__[1:] if each in self._live), None)
        if base is not None and kind.__module__ == self._module and not is_ours(kind):
            yield f"is a class made of {base.__module__}.{base.__qualname__}"

    def _function(self, function: FunctionType) -> Iterator[str]:
        if any(map(self._is_old, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))):
            yield "has a default argument of the standard library"
        if any(map(self._is_old, _cells(function))):
            yield "uses something of the standard library from the function that it was made in"

    def _is_old(self, value: Any) -> bool:
        return id(value) in self._factories or self._is_live(value)

    def _is_live(self, value: Any) -> bool:
        return isinstance(value, self._live) and not is_ours(value)


def _contents(value: Any) -> list[Any]:
    """Return the elements of a list, tuple, set or dictionary, or the value itself."""
    if isinstance(value, dict):
        return [*value.values()]
    return [*value] if isinstance(value, list | tuple | set | frozenset) else [value]


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


def _names(module: ModuleType) -> Iterator[tuple[Any, str, str, Any]]:
    """Yield owner, class (or ``""``), name and value of each name of a module and its classes."""
    for name, value in list(vars(module).items()):
        if name.startswith("__"):
            continue
        yield module, "", name, value
        if isinstance(value, type) and value.__module__ == vars(module).get("__name__"):
            yield from _attributes(value)


def _attributes(of: type) -> Iterator[tuple[Any, str, str, Any]]:
    for name, value in list(vars(of).items()):
        if name in ("__dict__", "__weakref__"):
            continue
        yield of, of.__qualname__, name, value
        if isinstance(value, type) and value.__qualname__ == f"{of.__qualname__}.{name}":
            yield from _attributes(value)


def live_types() -> tuple[type, ...]:
    """Return the loaded types of LOCAL_TYPES, and the type of the interpreter's locks."""
    homes = [(sys.modules[home], names.split()) for home, names in LOCAL_TYPES.items() if home in sys.modules]
    found = {getattr(home, name, None) for home, names in homes for name in names}
    return tuple({type(_thread.allocate_lock()), *(each for each in found if isinstance(each, type))})
