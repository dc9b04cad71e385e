"""The faces, and the names that are their own: what they re-export from the standard library is left out."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[2] / "distsync"
MODULES = [
    "distsync",
    *sorted(f"distsync.{path.stem}" for path in PACKAGE.glob("[a-z]*.py") if path.stem != "errors"),
    "distsync.patch",
    "distsync.multiprocessing",
    *sorted(f"distsync.multiprocessing.{path.stem}" for path in PACKAGE.glob("multiprocessing/[a-z]*.py")),
]


def own_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public classes and functions that distsync itself defines; the error tree has tests of its own."""
    for name in (*getattr(module, "__all__", ()), *getattr(module, "_ADDED", ())):
        value = getattr(module, name)
        home = getattr(value, "__module__", "") or ""
        if (inspect.isclass(value) or inspect.isroutine(value)) and home.partition(".")[0] == "distsync":
            if home != "distsync.errors":
                yield name, value


def documented() -> dict[str, Any]:
    """Each class and function of the faces and each public method of the classes, by its full name."""
    found: dict[str, Any] = {}
    for module in MODULES:
        for name, value in own_names(importlib.import_module(module)):
            found[f"{module}.{name}"] = value
            if inspect.isclass(value):
                found.update({f"{module}.{name}.{key}": each for key, each in own_methods(value)})
    return found


def own_methods(of: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that distsync defines, inherited ones too."""
    for key, each in inspect.getmembers_static(of) if hasattr(inspect, "getmembers_static") else inspect.getmembers(of):
        function = getattr(each, "fget", None) or getattr(each, "__func__", each)
        ours = (getattr(function, "__module__", "") or "").partition(".")[0] == "distsync"
        if ours and not key.startswith("_") and (inspect.isroutine(each) or isinstance(each, property)):
            yield key, each
