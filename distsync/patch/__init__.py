"""Swapping imports without touching the code: inside of chosen modules, the standard library's names mean distsync.

Rules for this file: what is patched is kept here; how, in the other files of this package.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from distsync._client.naming.inference import MAIN_NAMES
from distsync.errors import PatchError
from distsync.patch import module_lookup, rebinding
from distsync.patch.child_processes import prepare_children
from distsync.patch.import_hook import patched
from distsync.patch.replacements import all_replacements, live_types
from distsync.patch.source_analysis import Finding, Source

__all__ = ["Finding", "Report", "Swap", "check", "patch", "report", "unpatch"]


@dataclass(frozen=True)
class Swap:
    """A name of a module, and what of the standard library it stood for."""

    module: str
    name: str
    stood_for: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name} is distsync's {self.stood_for}"


@dataclass(frozen=True)
class Report:
    """What is patched: names that are swapped, modules that are not imported yet, and what is kept as it was."""

    modules: tuple[str, ...]
    swapped: tuple[Swap, ...]
    waiting: tuple[str, ...]
    kept: tuple[Finding, ...]

    def __str__(self) -> str:
        waiting = [f"{name} will be patched when it is imported" for name in self.waiting]
        return "\n".join([*map(str, self.swapped), *waiting, *map(str, self.kept)])


class _Modules:
    """The modules that are patched, and what is known of them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rebound: dict[str, dict[tuple[str, str], str]] = {}
        self.sources: dict[str, Source | None] = {}
        self.kept: dict[str, list[Finding]] = {}


_known = _Modules()


def patch(*modules: str | ModuleType, strict: bool = True) -> Report:
    """Inside of ``modules``, ``threading``, ``queue`` and ``multiprocessing`` mean distsync, and nowhere else.

    A module is named as in an import, or given; ``"myapp.*"`` is the package myapp and all in it. In one that is not
    imported yet all imports of these modules are swapped, from its first line on, those inside of functions too. In one
    that is, the names that it has are bound anew. Patching twice is patching once; any thread may. Processes that are
    started by multiprocessing have the same modules patched.

    Returns: what was swapped, and what is kept, with file and line.
    Raises: PatchError, and then nothing is patched, for a module that does not exist, has no source, belongs to the
        standard library or to distsync, or does with its locks what cannot work distributed: with file and line.
        ``strict=False`` patches all the same where only the last is the matter, and keeps what it finds.
    Cost: no request.
    Source: ``wrapt``; Python's import system.

    >>> from distsync.patch import patch, unpatch
    >>> patch("this_module_is_not_there")
    Traceback (most recent call last):
    distsync.errors.PatchError: this_module_is_not_there: there is no such module: check its name, and sys.path
    """
    names = [module_lookup.checked(module) for module in modules]
    with _known.lock:
        found = {each: _examined(each, strict) for name in names for each in module_lookup.expand_pattern(name)}
        _known.sources.update({name: source for name, (source, _) in found.items()})
        _known.kept.update({name: findings for name, (_, findings) in found.items()})
        apply(names)
        return report(*names)


def apply(names: Iterable[str]) -> None:
    """``names`` are patched, unexamined: where a process begins, with what its parent had patched."""
    with _known.lock:
        prepare_children()
        patched.set(patched.names | frozenset(names))
        imported = _imported()
        meant = all_replacements() if imported else []
        for name, module in imported:
            _known.rebound.setdefault(name, {}).update(rebinding.swap(module, meant))


def unpatch(*modules: str | ModuleType) -> None:
    """Inside of ``modules``, the names mean what they meant before; with no arguments, in all that are patched.

    A module that is not patched stays as it is. Objects that were made stay what they are.
    Raises: PatchError for what cannot be patched either.
    Cost: no request.
    """
    names = frozenset(module_lookup.checked(module) for module in modules) if modules else patched.names
    with _known.lock:
        before = dict(_imported())
        patched.set(patched.names - names)
        for name, module in before.items():
            if not patched.is_patched_importer(vars(module)):
                rebinding.restore(module, all_replacements(), _Swapped(name))
                _known.rebound.pop(name, None)


def check(*modules: str | ModuleType) -> list[Finding]:
    """What `patch` would refuse, or keep as it is, in these modules; nothing is patched.

    Raises: PatchError for a module that does not exist, has no source, or may not be patched.
    Cost: no request.
    """
    names = [each for module in modules for each in module_lookup.expand_pattern(module_lookup.checked(module))]
    with _known.lock:
        return [finding for name in names for finding in _findings(name, module_lookup.source_of(name, strict=True))]


def report(*modules: str | ModuleType) -> Report:
    """What is patched now, in ``modules`` or in all. Cost: no request."""
    names = list(dict.fromkeys(map(module_lookup.checked, modules))) or sorted(patched.names)
    with _known.lock:
        each = dict.fromkeys(
            one for name in names if name in patched.names for one in module_lookup.expand_pattern(name)
        )
        imported = {name: module for name, module in _imported() if name in each}
        swaps = [Swap(m, *pair) for m in imported for pair in rebinding.swapped_names(imported[m], all_replacements())]
        kept = [finding for name in each for finding in _known.kept.get(name, ())]
        return Report(tuple(names), tuple(swaps), tuple(name for name in each if name not in imported), tuple(kept))


def _examined(name: str, strict: bool) -> tuple[Source | None, list[Finding]]:
    """The source, and what there is to say about it. What is patched already was examined then."""
    if patched.includes(name):
        return _known.sources.get(name), _known.kept.get(name, [])
    source = module_lookup.source_of(name, strict)
    findings = _findings(name, source)
    refused = [each for each in findings if each.refused]
    if refused and strict:
        first = refused[0]
        more = f" (and {len(refused) - 1} more: distsync.patch.check({name!r}))" if len(refused) > 1 else ""
        raise PatchError(f"{first.file}:{first.line}", first.what, first.advice + more)
    return source, findings


def _findings(name: str, source: Source | None) -> list[Finding]:
    """What the source says, and what the module, if it is imported, has made already."""
    if source is None:
        return []
    module = sys.modules.get(name)
    made = rebinding.stale_objects(module, all_replacements(), live_types(), source) if module is not None else []
    return source.findings() + made


def _imported() -> list[tuple[str, ModuleType]]:
    """The patched modules that are imported; the main module once, though it has two names in a child."""
    names = [name for name in list(sys.modules) if name == MAIN_NAMES[0] or patched.includes(name)]
    modules = [(name, sys.modules.get(name)) for name in names]
    return [
        (name, one) for name, one in modules if isinstance(one, ModuleType) and patched.is_patched_importer(vars(one))
    ]


class _Swapped:
    """Which names of a module are to be given back: those that were bound anew, and those that an import bound."""

    def __init__(self, name: str) -> None:
        source = _known.sources.get(name)
        self._rebound = _known.rebound.get(name, {})
        self._bound = None if source is None else source.swapped_names()

    def __call__(self, owner: str, name: str) -> bool:
        return (owner, name) in self._rebound or self._bound is None or name in self._bound
