"""Analysis of a module's source: how it uses the names that are swapped, found without running it.

The analysis is pure, and looks at the syntax only. A name means what an import in the module binds
it to, wherever it is used.

*Refused* is what would silently exclude no other process, or would fail later:

* locks below the standard library's (``_thread.allocate_lock``, ``_queue.SimpleQueue``, ...), and
  classes derived from them. They are implemented in C and cannot be swapped.
* locks that the import system or ``logging`` would wait for. distsync imports modules and logs
  while it waits for a lock.
* internals of queues and locks: ``q.mutex``, ``lock._at_fork_reinit``, a queue class with a
  container of its own.

*Kept* is what works as before, on this machine or in this thread, which may be unexpected: pipes,
shared memory, modules that are imported by a function call. ``Thread``, ``Timer``, ``local`` and
``Process`` are kept too, and mean the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from distsync._pickle import public_in

MOVE_ADVICE = "use the names of threading, queue and multiprocessing, or leave this in a module that is not patched"
UNPATCHED = "leave this in a module that is not patched"

FORBIDDEN = {
    **{
        f"_thread.{name}": ("a lock of the interpreter itself, which cannot be shared", MOVE_ADVICE)
        for name in ("allocate_lock", "allocate", "lock", "RLock")
    },
    **{
        f"threading.{name}": ("a private lock of the standard library, which cannot be shared", MOVE_ADVICE)
        for name in ("_allocate_lock", "_CRLock", "_PyRLock", "_RLock")
    },
    "_queue.SimpleQueue": ("a queue in C, which cannot be shared", MOVE_ADVICE),
    "_multiprocessing.SemLock": ("a semaphore in C, which only children can share", MOVE_ADVICE),
    **{
        f"{module}.{name}": ("the lock of the import system, which distsync takes while it waits", UNPATCHED)
        for module in ("_imp", "imp")
        for name in ("acquire_lock", "release_lock", "lock_held")
    },
}

KEEP_ADVICE = {
    "_thread.LockType": "the type of the interpreter's own locks, which those of distsync are not",
    "multiprocessing.Pipe": "stays on this machine",
    "multiprocessing.connection": "stays on this machine",
    "multiprocessing.shared_memory": "stays on this machine",
    "multiprocessing.managers.SharedMemoryManager": "stays on this machine",
    "multiprocessing.dummy": "stays in this process",
}

QUEUES = frozenset(
    f"{module}.{name}"
    for module in ("queue", "multiprocessing.queues")
    for name in ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue", "JoinableQueue")
)
INSIDE_QUEUE = frozenset(("mutex", "not_empty", "not_full", "all_tasks_done", "queue"))
IMPORTER = frozenset(("find_spec", "find_module", "exec_module", "load_module", "create_module"))
SHARED = frozenset(
    "Lock RLock Condition Semaphore BoundedSemaphore Event Barrier Queue LifoQueue PriorityQueue SimpleQueue"
    " JoinableQueue Manager Pool Value Array".split()
)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@public_in("distsync.patch")
class Finding(NamedTuple):
    """Something in a source that is not swapped.

    ``str()`` gives it in one line.

    Attributes:
        file: The source file.
        line: Line number in it.
        what: Description of the finding.
        advice: What to do about it.
        refused: Whether ``patch()`` refuses the module because of it.
    """

    file: str
    line: int
    what: str
    advice: str
    refused: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.advice}"


class Binding(NamedTuple):
    """A name that an import binds, what it means, for example ``threading.Lock``, and its line."""

    name: str
    means: str
    line: int


class Source:
    """The source of one module.

    Args:
        text: The source.
        file: Name of the file, for findings.
        swapped: Names of the modules that are swapped.
    """

    def __init__(self, text: str, file: str, swapped: frozenset[str]) -> None:
        self.file = file
        self.tree = ast.parse(text, file)
        self.nodes = list(_executed(self.tree))
        self.bindings = list(self._bindings(swapped))
        #: All names that an import of any module binds.
        self.imported = frozenset(name for node in self.nodes if isinstance(node, ast.alias) for name in _bound(node))
        self._means = {each.name: each.means for each in reversed(self.bindings)}
        self._roots = frozenset(name.partition(".")[0] for name in swapped)
        self._made = dict(self._queues_made())

    def findings(self) -> list[Finding]:
        """Return all findings, in the order of their lines."""
        found = {each for node in self.nodes for each in self._of(node)}
        return sorted(found, key=lambda each: (each.line, each.what))

    def swapped_names(self) -> frozenset[str]:
        """Return the names that an import binds to something that is swapped."""
        return frozenset(each.name for each in self.bindings if self._is_swapped(each.means))

    def line_of(self, name: str, owner: str = "") -> int:
        """Return the line where the module or its class ``owner`` binds ``name``, or 1."""
        body = self.tree.body
        for part in filter(None, owner.split(".")):
            body = next((n.body for n in body if isinstance(n, ast.ClassDef) and n.name == part), [])
        lines = [getattr(node, "lineno", 1) for each in body for node in _executed(each) if name in _bound(node)]
        return min(lines, default=1)

    def means(self, node: ast.AST) -> str | None:
        """Return the full name of what an expression means if an import bound it, or None."""
        if isinstance(node, ast.Name):
            return self._means.get(node.id)
        if isinstance(node, ast.Attribute):
            before = self.means(node.value)
            return before and f"{before}.{node.attr}"
        return None

    # ---- imports

    def _bindings(self, swapped: frozenset[str]) -> Iterator[Binding]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    yield Binding(alias.asname or root, alias.name if alias.asname else root, node.lineno)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name, asname in _names(node, swapped):
                    yield Binding(asname, f"{node.module}.{name}", node.lineno)

    # ---- rules

    def _of(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from self._forbidden(node, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._forbidden(node, alias.name)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node)

    def _forbidden(self, node: ast.stmt | ast.expr, means: str) -> Iterator[Finding]:
        if means in FORBIDDEN:
            what, advice = FORBIDDEN[means]
            yield self._refused_finding(node, f"{means} is {what}", advice)
        for name, why in KEEP_ADVICE.items():
            if means == name or means.startswith(f"{name}."):
                yield self._kept_finding(node, f"{means} {why}" if why.startswith("stays") else f"{means} is {why}")

    def _attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        means = self.means(node)
        if means is not None:
            yield from self._forbidden(node, means)
        if node.attr == "_at_fork_reinit":
            yield self._refused_finding(
                node, "a distributed lock has no _at_fork_reinit", "make a new lock in the child"
            )
        kind = self._made.get(_last_name(node.value) or "")
        if kind is not None and node.attr in INSIDE_QUEUE:
            what = f"{ast.unparse(node)} is the inside of a {kind}, which is kept on a server here"
            yield self._refused_finding(node, what, "use the queue's methods, or a lock of your own")

    def _class(self, node: ast.ClassDef) -> Iterator[Finding]:
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        if IMPORTER & methods.keys():
            yield from self._waited_for_inside(node, "imports modules, and distsync does so while it waits for a lock")
        if "createLock" in methods:
            yield from self._waited_for_inside(methods["createLock"], "locks a log, and distsync logs while it waits")
        if any(self.means(base) in QUEUES for base in node.bases):
            for name in ("_init", "_qsize", "_put", "_get"):
                is_unused = name in ("_init", "_qsize")
                if name in methods and (is_unused or not _calls_super(methods[name], name)):
                    what = f"class {node.name} has a container of its own ({name}), which no other process could see"
                    yield self._refused_finding(methods[name], what, UNPATCHED)

    def _waited_for_inside(self, node: Definition, why: str) -> Iterator[Finding]:
        whole = ast.walk(self.tree if isinstance(node, ast.ClassDef) else node)
        if any(isinstance(each, ast.Call) and self._is_shared(each.func) for each in whole):
            yield self._refused_finding(node, f"{node.name} {why}", UNPATCHED)

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        means = self.means(node.func) or ""
        if means.endswith(".ProcessPoolExecutor") and self._is_given(node, "mp_context", 1):
            what = "ProcessPoolExecutor makes the standard library's queues of mp_context, which is distsync's here"
            yield self._refused_finding(node, what, "leave mp_context out, or use distsync.futures.Executor")
        name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        called = self.means(node.func) or (node.func.id if isinstance(node.func, ast.Name) else "")
        if called in ("importlib.import_module", "__import__") and self._is_swapped(name):
            yield self._kept_finding(
                node, f"{called}({name!r}) gives the standard library's module", f"write import {name!s}"
            )

    def _is_given(self, node: ast.Call, name: str, place: int) -> bool:
        """Return whether the call passes something swapped, or unknown, as this argument."""
        values = [each.value for each in node.keywords if each.arg == name] or node.args[place : place + 1]
        inner = [each.func if isinstance(each, ast.Call) else each for each in values]
        known = [self.means(each) for each in inner]
        return any(each is None or self._is_swapped(each) for each in known)

    def _subscript(self, node: ast.Subscript) -> Iterator[Finding]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if self.means(node.value) == "sys.modules" and self._is_swapped(key):
            yield self._kept_finding(
                node, f"sys.modules[{key!r}] is the standard library's module", f"write import {key!s}"
            )

    def _queues_made(self) -> Iterator[tuple[str, str]]:
        """Yield names, also of attributes, that are assigned queues of one class only."""
        assigned: dict[str, set[str | None]] = {}
        for node in self.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                kind = self.means(node.value.func) if isinstance(node.value, ast.Call) else None
                for target in targets:
                    assigned.setdefault(_last_name(target) or "", set()).add(kind)
        for name, kinds in assigned.items():
            kind = next(iter(kinds))
            if name and len(kinds) == 1 and kind in QUEUES:
                yield name, str(kind)

    def _is_swapped(self, name: object) -> bool:
        return isinstance(name, str) and name.partition(".")[0] in self._roots

    def _is_shared(self, node: ast.expr) -> bool:
        """Return whether an expression means one of the classes that are swapped."""
        module, _, name = (self.means(node) or "").rpartition(".")
        return name in SHARED and module.partition(".")[0] in self._roots

    def _refused_finding(self, node: ast.stmt | ast.expr, what: str, advice: str) -> Finding:
        return Finding(self.file, node.lineno, what, advice, True)

    def _kept_finding(
        self, node: ast.stmt | ast.expr, what: str, advice: str = "nothing to do if that is meant"
    ) -> Finding:
        return Finding(self.file, node.lineno, what, advice, False)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those for type checkers only."""
    if isinstance(tree, ast.If) and _last_name(tree.test) == "TYPE_CHECKING":
        children: list[ast.AST] = list(tree.orelse)
    else:
        yield tree
        children = list(ast.iter_child_nodes(tree))
    for child in children:
        yield from _executed(child)


def _names(node: ast.ImportFrom, swapped: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield each imported name and its bound name; for a star, those of ``__all__``."""
    for alias in node.names:
        if alias.name != "*":
            yield alias.name, alias.asname or alias.name
        elif node.module in swapped:
            yield from ((name, name) for name in import_module(node.module).__all__)


def _last_name(node: ast.AST | None) -> str | None:
    """Return ``q`` for ``q`` and for ``self.q``."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def _calls_super(method: ast.AST, name: str) -> bool:
    """Return whether a method calls the base's, by ``super()`` or by the name of the class."""
    return any(isinstance(each, ast.Attribute) and each.attr == name for each in ast.walk(method))
