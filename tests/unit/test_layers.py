"""Imports point downwards: no file imports from a layer above; pure files use no clock, thread or
socket.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "distsync"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

FACE = "face"
"""Every file at the top that is no layer of its own below, and those of _objects/ and multiprocessing/."""

TOOLS = ("cli", "testing", "patch", "__main__")

ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": (),
    "_version": (),
    "_import_gate": (),
    "_log": (),
    "_log_thread": ("_log",),
    "_pickle": (),
    "_signal_handlers": (),
    FACE: (
        *(FACE, "_protocols", "_client", "_import_gate", "_log", "_log_thread", "_pickle", "_signal_handlers"),
        *("_version", "errors"),
    ),
    "__init__": (FACE, "_client", "_import_gate", "_version", "errors", "_server.autostart.address_file"),
    "_protocols": ("_protocols", "_wire.records", "_signal_handlers", "errors"),
    "_client": (
        *("_client", "_protocols.steps", "_wire", "_server.autostart.find_or_start"),
        *("_import_gate", "_log", "_log_thread", "_pickle", "_signal_handlers", "_version", "errors"),
    ),
    "_server": ("_server", "_wire", "_pickle", "errors"),
    "_wire": ("_wire", "errors"),
}
"""From each layer, the layers or single modules that its files may import."""

IMPURE = {
    "_thread", "asyncio", "concurrent", "datetime", "kazoo", "multiprocessing", "queue", "random", "secrets", "select",
    "selectors", "signal", "socket", "sqlite3", "subprocess", "threading", "time", "uuid", "uvloop",
}  # fmt: skip
EXCEPTIONS = {"threading.BrokenBarrierError", "queue.Empty", "queue.Full", "queue.ShutDown"}
"""Classes that a pure file may raise, since the faces' callers catch them."""


@cache
def imports(file: str) -> tuple[tuple[str, str], ...]:
    """Return (module, name) for each import in ``file``; the name of a plain ``import`` is empty."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import):
            found += ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively: write the whole name"
            found += ((node.module or "", alias.name) for alias in node.names)
    return tuple(found)


def modules_imported(file: str) -> set[str]:
    """Return the absolute names of all imported modules; for ``from a import b`` both a and a.b."""
    pairs = set(imports(file))
    return {module for module, _ in pairs} | {f"{module}.{name}" for module, name in pairs if name}


def impure_names(file: str) -> set[str]:
    """Return what ``file`` imports for clocks, threads, sockets or randomness."""
    names = {f"{module}.{name}" for module, name in imports(file) if module.split(".")[0] in IMPURE}
    return names - EXCEPTIONS


def own_modules(file: str) -> set[str]:
    """Return the modules of distsync that ``file`` imports, without the leading name."""
    names = {name.removeprefix("distsync").lstrip(".") for name in modules_imported(file) if is_own(name)}
    return {name for name in names if is_module(name)} - packages_only_passed_through(names)


def packages_only_passed_through(names: set[str]) -> set[str]:
    """Return packages that are only prefixes: ``_protocols`` in ``from distsync._protocols import
    steps``.
    """
    modules = {name for name in names if is_module(name)}
    return {name for name in modules if any(other.startswith(name + ".") or not name for other in modules - {name})}


def is_own(name: str) -> bool:
    return name == "distsync" or name.startswith("distsync.")


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split(".")) if name else PACKAGE
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def layer(module: str) -> str:
    top = module.split(".")[0]
    return top if top in ALLOWED or top in TOOLS else FACE


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def may_import(file: str, module: str) -> bool:
    mine = layer(module_of(file))
    return mine in TOOLS or layer(module) in ALLOWED[mine] or module in ALLOWED[mine]


def pure_files() -> Iterator[str]:
    """Yield protocols, codec, errors and steps, and the server's engine with all that it imports."""
    engine = everything_under("_server.engine")
    for file in FILES:
        module = module_of(file)
        if layer(module) in ("_protocols", "_wire", "errors") or module == "_protocols.steps" or module in engine:
            yield file


def everything_under(module: str) -> set[str]:
    """Return ``module`` and, transitively, all that it imports of distsync."""
    found: set[str] = set()
    todo = {module} if is_module(module) else set()
    while todo:
        found |= todo
        todo = set().union(*(own_modules(file_of(name)) for name in todo)) - found
    return found


def file_of(module: str) -> str:
    plain = module.replace(".", "/")
    return next(file for file in (f"{plain}.py", f"{plain}/__init__.py".lstrip("/")) if file in FILES)


@pytest.mark.parametrize("file", FILES)
def test_file_imports_only_from_layers_below(file: str) -> None:
    assert not [module for module in own_modules(file) if not may_import(file, module)]


def test_imports_make_no_cycle_not_even_those_for_types() -> None:
    dependencies = {module_of(file): own_modules(file) for file in FILES}
    while leaves := {module for module, used in dependencies.items() if not used & dependencies.keys() - {module}}:
        for module in leaves:
            del dependencies[module]
    assert not dependencies, f"in a cycle, or above one: {sorted(dependencies)}"


@pytest.mark.parametrize("file", list(pure_files()))
def test_pure_file_knows_no_clock_thread_socket_or_chance(file: str) -> None:
    assert not impure_names(file)


@pytest.mark.parametrize("file", [file for file in FILES if layer(module_of(file)) not in ("_client", "testing")])
def test_kazoo_is_known_to_session_and_testing_only(file: str) -> None:
    assert not [name for name in modules_imported(file) if name.split(".")[0] == "kazoo"]


@pytest.mark.parametrize("package", ["_client", "_server"])
def test_package_imports_nothing_so_that_its_pure_parts_come_without_kazoo(package: str) -> None:
    assert modules_imported(f"{package}/__init__.py") <= {"__future__", "__future__.annotations"}


@pytest.mark.parametrize(
    ("file", "module", "allowed"),
    [
        ("_protocols/locks/lock.py", "_protocols.steps", True),
        ("_protocols/locks/lock.py", "_client.client", False),
        ("_protocols/locks/lock.py", "_wire.message_codec", False),
        ("_client/client.py", "_server.autostart.find_or_start", True),
        ("_client/client.py", "_server.engine", False),
        ("_client/client.py", "threading", False),
        ("_wire/message_codec.py", "_server.engine", False),
        ("_server/engine.py", "_protocols.steps", False),
        ("queue.py", "threading", True),
        ("queue.py", "_server.autostart.find_or_start", False),
        ("multiprocessing/synchronize.py", "_protocols.locks.lock", True),
        ("multiprocessing/synchronize.py", "_server.autostart.find_or_start", False),
        ("cli/serve.py", "_server.main", True),
        ("testing/embedded_server.py", "_server.engine", True),
    ],
)
def test_import_rule(file: str, module: str, allowed: bool) -> None:
    assert file in FILES
    assert may_import(file, module) is allowed


FACES = {
    "Barrier", "BoundedSemaphore", "Condition", "Election", "Event", "JoinableQueue", "LifoQueue", "Lock",
    "PriorityQueue", "Queue", "RLock", "Semaphore", "SharedLock", "SharedReader", "SharedWriter", "SimpleQueue",
    "TaskLostError", "WorkerStartError",
}  # fmt: skip
"""Classes that one object has for threads, for asyncio, for multiprocessing and for futures."""

LAYERS_OF_ONE_THING = {
    "barriers", "base", "conditions", "config", "count_down_latch", "election", "ensemble", "events", "gate",
    "group", "journal", "locks", "partitioner", "pool", "queues", "registry", "revocation", "semaphores",
    "shared_lock",
}  # fmt: skip
"""Modules and packages that have one name because they are layers of one object, or the package of it."""


def test_class_name_means_one_thing() -> None:
    trees = [ast.parse((PACKAGE / file).read_text()) for file in FILES]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, times in names.items() if times > 1} == FACES


def test_module_name_means_one_thing() -> None:
    names = Counter(module_of(file).rpartition(".")[2] for file in FILES if file != "__init__.py")
    assert {name for name, times in names.items() if times > 1} == LAYERS_OF_ONE_THING


TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py")))
def test_shared_test_code_contains_no_test(file: str) -> None:
    modules = modules_imported(f"../tests/{file}")
    assert not [name for name in modules if name.split(".")[0] not in ("pytest", "_pytest") and ".test_" in f".{name}"]
