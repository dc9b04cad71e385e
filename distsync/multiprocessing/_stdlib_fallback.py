"""Fallback of a module that replaces one of multiprocessing's, for names that are not replaced."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def stdlib_getattr(stdlib: str, face: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` that looks names up in a module of the standard library.

    Args:
        stdlib: Name of the replaced module.
        face: Name of the module that replaces it.

    Returns:
        The function.
    """

    def __getattr__(name: str) -> Any:
        try:
            return getattr(import_module(stdlib), name)
        except AttributeError:
            raise AttributeError(f"module {face!r} has no attribute {name!r}") from None

    return __getattr__
