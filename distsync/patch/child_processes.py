"""Patching in processes that are started by spawn or forkserver.

The names of the patched modules are part of the data with which multiprocessing prepares a child.
Unpickling them patches the modules, before the child imports the first of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import wrapt

from distsync.patch.import_hook import patched

FORKSERVER = "multiprocessing.forkserver"
KEY = "distsync"  # multiprocessing ignores keys that it does not know

ARRIVE = """
import sys
before = sys.path
sys.path = [*before, *path]
try:
    from distsync.patch import apply
finally:
    sys.path = before
apply(names)
"""
"""Run in the child. Its own sys.path may not lead to distsync yet."""


class Names:
    """Patched names on their way to a child process. Unpickling them patches the modules."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (ARRIVE, {"names": sorted(self.names), "path": [each for each in sys.path if each]})


def _prepare(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    data = wrapped(*args, **kwargs)
    if patched.names and isinstance(data, dict):
        data[KEY] = Names(patched.names)
        if _is_for_forkserver(sys._getframe(1)):
            data.pop("init_main_from_path", None)  # it would import the script unpatched; the children import it
    return data


def _is_for_forkserver(frame: FrameType | None) -> bool:
    """Return whether the data prepares the fork server, not a child that it forks."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(("wrapt", __name__)):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == FORKSERVER


def _wrap(spawn: Any) -> None:
    wrapt.wrap_function_wrapper(spawn, "get_preparation_data", _prepare)


_prepared: list[None] = []


def prepare_children() -> None:
    """Make children that are started by multiprocessing from now on patch the same modules."""
    if not _prepared:
        _prepared.append(None)
        wrapt.register_post_import_hook(_wrap, "multiprocessing.spawn")
