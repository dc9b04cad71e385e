"""Look-up of modules and their source, without importing them.

No code of the program is run. Parent packages of a module are looked up, not imported.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from distsync._client.naming.inference import MAIN_NAMES
from distsync.errors import PatchError
from distsync.patch.replacements import FACES
from distsync.patch.source_analysis import Source

ALL_BELOW = ".*"
UNPATCHABLE = frozenset(("distsync", "kazoo", "wrapt", "platformdirs"))
"""Modules that distsync itself uses: with distsync's locks they would wait for themselves."""

SWAPPED = frozenset(FACES)


def checked(module: object) -> str:
    """Return the name of a module that may be patched. The module need not exist."""
    name = module.__name__ if isinstance(module, ModuleType) else module
    if not isinstance(name, str):
        raise TypeError(f"a module, or its name, not {type(name).__name__}")
    plain = name.removesuffix(ALL_BELOW)
    if not plain or not all(part.isidentifier() for part in plain.split(".")):
        raise PatchError(repr(name), "is not the name of a module", "write it as in an import, or package.*")
    root = plain.partition(".")[0]
    if plain in MAIN_NAMES:
        return "__main__"
    if root in UNPATCHABLE:
        raise PatchError(plain, "distsync itself is made of this", "name the modules of your program that use locks")
    if root in sys.stdlib_module_names:
        reason = "belongs to the standard library, which others use too"
        raise PatchError(plain, reason, "name the modules of your program that use it")
    return name


def expand_pattern(name: str) -> list[str]:
    """Return ``[name]``, or for ``package.*`` the package and all modules found in it."""
    plain = name.removesuffix(ALL_BELOW)
    spec = find_module(plain)
    if plain == name:
        return [name]
    if spec is not None and spec.submodule_search_locations is None:
        raise PatchError(name, f"{plain} is not a package", f"write {plain}")
    folders = list((spec and spec.submodule_search_locations) or ())
    return [*([plain] if spec is None or spec.loader is not None else []), *_below(plain, folders)]


def _below(package: str, folders: list[str]) -> Iterator[str]:
    for info in pkgutil.iter_modules(folders, f"{package}."):
        yield info.name
        if info.ispkg:
            below = [os.path.join(folder, info.name.rpartition(".")[2]) for folder in folders]
            yield from _below(info.name, [folder for folder in below if os.path.isdir(folder)])


def find_module(name: str) -> Any:
    """Return the spec of an existing module, imported or not, or None for a started script."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        above = find_module(parent)
        path = above and above.submodule_search_locations
        path = getattr(sys.modules.get(parent), "__path__", path)
    spec = _spec(name, path) if not parent or path is not None else None
    if spec is None:
        raise PatchError(name, "there is no such module", "check its name, and sys.path")
    return spec


def _spec(name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path) if find is not None else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None


def source_of(name: str, strict: bool) -> Source | None:
    """Return the parsed source of a module, or None if it has none and ``strict`` is False."""
    spec, module = find_module(name), sys.modules.get(name)
    file = (spec and spec.origin) or getattr(module, "__file__", None)
    text = _text(name, spec, file)
    if text is None and strict:
        reason = "there is no source, so nobody can tell what it does with its locks"
        raise PatchError(name, reason, "leave it out, or patch it with strict=False")
    try:
        return None if text is None else Source(text, file or name, SWAPPED)
    except SyntaxError as error:
        raise PatchError(f"{file}:{error.lineno}", error.msg, "fix the syntax error") from None


def _text(name: str, spec: Any, file: str | None) -> str | None:
    if file is not None and file.endswith(".py") and os.path.exists(file):
        with open(file, "rb") as opened:
            return importlib.util.decode_source(opened.read())
    loader = getattr(spec, "loader", None)
    get_source = getattr(loader, "get_source", None)
    try:
        return get_source(name) if get_source is not None else _script(file)
    except ImportError:
        return None


def _script(file: str | None) -> str | None:
    """Return the text of a script, whose name need not end in .py."""
    if file is None or not os.path.isfile(file):
        return None
    with open(file, "rb") as opened:
        return importlib.util.decode_source(opened.read())
