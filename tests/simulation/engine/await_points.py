"""Places: the awaits in the sources of protocols, and where a thread is among them.

A place is a file and a line (``locks/lock:89``); two awaits in one line are one place. An await
that names its request is a *step* (``await Create(...)``, ``await read(GetData(...))``), any other
a *call*.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

import distsync._protocols
from distsync._protocols import steps

if TYPE_CHECKING:
    from simulation.engine.task import Task

FOLDER = Path(distsync._protocols.__file__).parent

#: Names by which a protocol awaits a step.
STEPS = {
    name: kind
    for name, kind in vars(steps).items()
    if isinstance(kind, type) and issubclass(kind, steps.Step) and kind not in (steps.Step, steps.Request)
}


class Place(NamedTuple):
    """An await in a protocol."""

    name: str
    function: str
    is_step: bool
    source: str


@dataclass(frozen=True)
class Sources:
    """The protocols of one folder."""

    folder: Path = FOLDER

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.py"))

    def digest(self) -> str:
        """Return a hash that changes whenever a protocol does."""
        digest = hashlib.sha256()
        for file in self.files():
            digest.update(_name(file, self.folder).encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()

    def places(self) -> dict[str, Place]:
        """Return all places by name, in the order of the files."""
        found: dict[str, Place] = {}
        for file in self.files():
            _collect(ast.parse(file.read_text("utf-8")), _name(file, self.folder), "", found)
        return found


def _name(file: Path, folder: Path | str) -> str:
    """Return the path below the folder, because two folders may have files of the same name."""
    return file.relative_to(folder).with_suffix("").as_posix()


def _collect(node: ast.AST, file: str, function: str, found: dict[str, Place]) -> None:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = f"{function}.{child.name}".lstrip(".")
        if isinstance(child, ast.Await):
            name = f"{file}:{child.lineno}"
            before = found.get(name)
            is_step = _awaits_a_step(child) or (before is not None and before.is_step)
            found[name] = Place(name, function, is_step, ast.unparse(child))
        _collect(child, file, inside, found)


def _awaits_a_step(node: ast.Await) -> bool:
    """Return whether the await names the class of a step, by itself or for a helper such as ``read``,
    or is a bare name, which may be one.
    """
    return isinstance(node.value, ast.Name) or any(map(_is_step, ast.walk(node)))


def _is_step(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in STEPS


class Locator:
    """Finds where threads are, by the frames of their coroutines."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = str(folder)
        #: By code and instruction; the code is kept alive, so that its id is not reused.
        self._known: dict[int, tuple[CodeType, dict[int, str | None]]] = {}

    def of(self, task: Task) -> list[str]:
        """Return the places where the thread is, outermost first."""
        known, places = self._known, []
        for call in task.stack:
            coroutine: Any = call.coroutine
            while type(coroutine) is CoroutineType:
                frame = coroutine.cr_frame
                if frame is None:
                    break
                try:
                    place = known[id(coroutine.cr_code)][1][frame.f_lasti]
                except KeyError:
                    place = self.learn(coroutine.cr_code, frame)
                if place is not None:
                    places.append(place)
                coroutine = coroutine.cr_await
        return places

    def learn(self, code: CodeType, frame: Any) -> str | None:
        """Return the place of this frame of the code, if any; keeps the code alive."""
        file = Path(code.co_filename)
        inside = file.is_relative_to(self._folder) and frame.f_lasti >= 0
        place = f"{_name(file, self._folder)}:{frame.f_lineno}" if inside else None
        self._known.setdefault(id(code), (code, {}))[1][frame.f_lasti] = place
        return place


def in_order(names: Mapping[str, Any] | set[str]) -> list[str]:
    """Return names of places ordered by file and line."""
    return sorted(names, key=lambda name: (name.rpartition(":")[0], int(name.rpartition(":")[2])))
