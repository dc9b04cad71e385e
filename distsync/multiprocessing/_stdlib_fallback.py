"""Whatever else a module of multiprocessing has: names that are not replaced lead to the standard library's."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def stdlib_getattr(stdlib: str, face: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for the module ``face``, which stands for the module ``stdlib``."""

    def __getattr__(name: str) -> Any:
        try:
            return getattr(import_module(stdlib), name)
        except AttributeError:
            raise AttributeError(f"module {face!r} has no attribute {name!r}") from None

    return __getattr__
