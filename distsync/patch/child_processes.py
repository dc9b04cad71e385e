"""Processes that begin anew (spawn, forkserver): the same modules are patched there, before the first is imported.

Rules for this file: a child gets the names inside the data that multiprocessing prepares it with; reading them patches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import wrapt

from distsync.patch.import_hook import patched

FORKSERVER = "multiprocessing.forkserver"
KEY = "distsync"  # multiprocessing looks for keys that it knows, and at no others

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
    """The patched names, on their way: to unpickle them is to patch."""

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
    """Whether the server itself is to be prepared, and not one of the processes that it forks."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(("wrapt", __name__)):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == FORKSERVER


def _wrap(spawn: Any) -> None:
    wrapt.wrap_function_wrapper(spawn, "get_preparation_data", _prepare)


_prepared: list[None] = []


def prepare_children() -> None:
    """Whoever uses multiprocessing's spawn from now on tells children what is patched."""
    if not _prepared:
        _prepared.append(None)
        wrapt.register_post_import_hook(_wrap, "multiprocessing.spawn")
