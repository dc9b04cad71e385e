"""The modules of ``multiprocessing`` by their names below ``distsync.multiprocessing``, for ``import`` statements.

Rules for this file: it knows names only. Those that are not replaced are the standard library's own modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

FACE = "distsync.multiprocessing"


class Aliases:
    """Finds what nobody else has found below our package: a module that there is under another name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As each finder of ``sys.meta_path``."""
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
    """The module is the one that there is."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, spec: ModuleSpec) -> None:
        """None: whatever Python makes is replaced at once."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._home)


sys.meta_path.append(Aliases())
