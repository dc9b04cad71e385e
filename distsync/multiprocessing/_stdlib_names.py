"""Names and modules of ``multiprocessing`` that distsync does not replace.

``import distsync.multiprocessing.connection``, for example, imports the standard library's own
module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from distsync._import_gate import importing

FACE = "distsync.multiprocessing"


class Aliases:
    """A finder of modules below this package that only multiprocessing has."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module, as finders of ``sys.meta_path`` do.

        Args:
            name: Full name of the module.
            path: Ignored.
            target: Ignored.

        Returns:
            The spec, or None if multiprocessing has no such module.
        """
        package, _, rest = name.partition(f"{FACE}.")
        if package or not rest:
            return None
        home = f"multiprocessing.{rest}"
        return ModuleSpec(name, _Loader(home), origin=home) if _exists(home) else None  # type: ignore[arg-type]


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class _Loader:
    """A loader that puts the existing module into ``sys.modules``."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, because ``exec_module`` replaces the module that Python creates."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._home)


sys.meta_path.append(Aliases())


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
            with importing():
                module = import_module(stdlib)
            return getattr(module, name)
        except AttributeError:
            raise AttributeError(f"module {face!r} has no attribute {name!r}") from None

    return __getattr__
