"""Patching of modules: inside chosen modules, names of the standard library mean distsync's.

This file keeps what is patched. The other files of this package do the patching.
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
from distsync.patch.replacements import all_replacements
from distsync.patch.source_analysis import Finding, Source

__all__ = ["Finding", "Report", "Swap", "check", "patch", "report", "unpatch"]


@dataclass(frozen=True)
class Swap:
    """A name of a module that was swapped.

    Attributes:
        module: The module.
        name: The name in it, for example ``"Lock"``, or ``"Class.attribute"`` in a class.
        stood_for: What of the standard library the name meant before, for example
            ``"threading.Lock"``.
    """

    module: str
    name: str
    stood_for: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name} is distsync's {self.stood_for}"


@dataclass(frozen=True)
class Report:
    """The state of patched modules.

    ``str()`` gives it in lines.

    Attributes:
        modules: Names of the modules, as they were patched: ``"myapp"`` or ``"myapp.*"``.
        swapped: Names that mean distsync's objects now.
        waiting: Modules that are patched when they are imported.
        kept: Findings in these modules that were left as they are.
    """

    modules: tuple[str, ...]
    swapped: tuple[Swap, ...]
    waiting: tuple[str, ...]
    kept: tuple[Finding, ...]

    def __str__(self) -> str:
        waiting = [f"{name} will be patched when it is imported" for name in self.waiting]
        return "\n".join([*map(str, self.swapped), *waiting, *map(str, self.kept)])


class _Modules:
    """State of the patched modules, guarded by ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rebound: dict[str, dict[tuple[str, str], str]] = {}
        self.sources: dict[str, Source | None] = {}
        self.kept: dict[str, list[Finding]] = {}


_known = _Modules()


def patch(*modules: str | ModuleType, strict: bool = True) -> Report:
    """Make modules use distsync in place of threading, queue and multiprocessing.

    No other module is affected. In a module that is not imported yet, all imports of the three
    modules are swapped, also those inside functions. In a module that is imported, the names that
    it and its classes have are bound to distsync's objects as well.

    Idempotent and thread-safe. Processes that are started with multiprocessing have the same
    modules patched.

    Args:
        *modules: Modules to patch, by name, as in an import, or as module objects. ``"myapp.*"`` is
            the package myapp and all modules in it.
        strict: Whether to refuse modules that use locks in a way that cannot work across processes,
            and modules without source. If False, they are patched, and the findings are kept.

    Returns:
        The swapped names, and the findings that were kept, with file and line.

    Raises:
        TypeError: A module is neither a name nor a module object.
        PatchError: Nothing was patched, because a module does not exist, belongs to the standard
            library, is distsync or one of the libraries that it uses, is not valid Python, or is
            refused by ``strict``. The error names the module, or file and line.

    Note:
        Costs no request.

        Source: ``wrapt``; Python's import system.

    Example:
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
    """Patch modules without examining them, as a child process does with its parent's modules."""
    with _known.lock:
        prepare_children()
        patched.set(patched.names | frozenset(names))
        imported = _imported()
        meant = all_replacements() if imported else []
        for name, module in imported:
            _known.rebound.setdefault(name, {}).update(rebinding.swap(module, meant))


def unpatch(*modules: str | ModuleType) -> None:
    """Give the names in modules their meaning of the standard library again.

    A module that is not patched is not changed. Objects that were created keep their type.

    Args:
        *modules: Modules, named as in ``patch()``; ``"myapp.*"`` undoes a patch of ``"myapp.*"``.
            Without any, all patched modules.

    Raises:
        TypeError: A module is neither a name nor a module object.
        PatchError: A module belongs to the standard library, or is distsync or one of the libraries
            that it uses.

    Note:
        Costs no request.
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
    """Return what ``patch()`` would refuse or keep in modules, without patching them.

    Args:
        *modules: Modules, named as in ``patch()``.

    Returns:
        The findings, module by module. ``patch()`` refuses a module with a finding that is
        ``refused``.

    Raises:
        TypeError: A module is neither a name nor a module object.
        PatchError: A module does not exist, has no source, is not valid Python, belongs to the
            standard library, or is distsync or one of the libraries that it uses.

    Note:
        Costs no request.
    """
    names = [each for module in modules for each in module_lookup.expand_pattern(module_lookup.checked(module))]
    with _known.lock:
        return [finding for name in names for finding in _findings(name, module_lookup.source_of(name, strict=True))]


def report(*modules: str | ModuleType) -> Report:
    """Return what is patched now.

    Args:
        *modules: Modules, named as they were patched. Without any, all patched modules.

    Returns:
        The state of these modules.

    Raises:
        TypeError: A module is neither a name nor a module object.
        PatchError: A module belongs to the standard library, or is distsync or one of the libraries
            that it uses.

    Note:
        Costs no request.
    """
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
    """Return the source of a module and its findings, those of the first time if it is patched."""
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
    """Return the findings in the source, and in the objects that an imported module has created."""
    if source is None:
        return []
    module = sys.modules.get(name)
    made = (
        rebinding.stale_objects(module, all_replacements(), rebinding.live_types(), source)
        if module is not None
        else []
    )
    return source.findings() + made


def _imported() -> list[tuple[str, ModuleType]]:
    """Return the patched modules that are imported.

    The main module occurs once, although it has two names in a child process.
    """
    names = [name for name in list(sys.modules) if name == MAIN_NAMES[0] or patched.includes(name)]
    modules = [(name, sys.modules.get(name)) for name in names]
    return [
        (name, one) for name, one in modules if isinstance(one, ModuleType) and patched.is_patched_importer(vars(one))
    ]


class _Swapped:
    """Predicate for the names of a module to restore: those that ``swap`` or an import bound."""

    def __init__(self, name: str) -> None:
        source = _known.sources.get(name)
        self._rebound = _known.rebound.get(name, {})
        self._bound = None if source is None else source.swapped_names()

    def __call__(self, owner: str, name: str) -> bool:
        return (owner, name) in self._rebound or self._bound is None or name in self._bound
