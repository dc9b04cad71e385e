"""The import hook: what import statements of patched modules return.

While anything is patched, ``builtins.__import__`` is wrapped with wrapt. The wrapper never waits,
and holds no lock.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import wrapt

from distsync._client.naming.inference import MAIN_NAMES
from distsync.patch.module_lookup import ALL_BELOW
from distsync.patch.replacements import ROOTS, resolve_import


class Patched:
    """Patched names, in a set that a change replaces, so that imports never see half of it."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._wrapper: Any = None
        self._before: Any = None

    def set(self, names: frozenset[str]) -> None:
        """Replace the patched names, and install or remove the hook."""
        self.names = names
        if names and self._wrapper is None:
            self._before = builtins.__import__
            self._wrapper = builtins.__import__ = wrapt.FunctionWrapper(self._before, self._import)
        elif (
            not names and self._wrapper is builtins.__import__
        ):  # otherwise another wrapper wraps ours, which then does nothing
            builtins.__import__, self._wrapper = self._before, None

    def includes(self, module: str) -> bool:
        """Return whether a module is patched, by its own name or as part of a package."""
        names = self.names
        if module in names or module + ALL_BELOW in names:
            return True
        parts = module.split(".")
        return any(".".join(parts[:count]) + ALL_BELOW in names for count in range(1, len(parts)))

    def is_patched_importer(self, names: dict[str, Any]) -> bool:
        """Return whether the module with these globals is patched.

        A script is known as ``__main__`` and by its real name.
        """
        name, spec = names.get("__name__"), names.get("__spec__")
        if name in MAIN_NAMES:
            return self.includes("__main__") or (spec is not None and self.includes(str(spec.name)))
        return isinstance(name, str) and self.includes(name)

    def _import(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        module = wrapped(*args, **kwargs)
        name, names, asked, level = _arguments(*args, **kwargs)
        if level or name.partition(".")[0] not in ROOTS or not names or not self.is_patched_importer(names):
            return module
        return resolve_import(name, asked, module)


def _arguments(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> tuple[str, Any, tuple[str, ...], int]:
    """Return the arguments of a call of ``__import__``: name, globals, fromlist and level."""
    return name, globals, tuple(fromlist or ()), level


patched = Patched()
