"""What the docstring of a public name lacks.

``PYTHONPATH=tests python -m helpers.docstring_findings locks semaphores`` prints the findings of the files whose path
contains one of the words.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import enum
import importlib
import inspect
import logging
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe

import distsync.errors
from helpers.public_names import documented, own_methods

logging.getLogger("griffe").setLevel(logging.CRITICAL)

OLD_HEADING = re.compile(r"^(Units|Returns|Raises|On loss|On cancel|Cost|Fair|Source): ?\S", re.MULTILINE)
ORDER = ["parameters", "attributes", "returns", "yields", "raises", "note", "example"]
NOT_NAMED = {"NotImplementedError", "AssertionError", "StopIteration"}


def errors_by_name() -> dict[str, type[BaseException]]:
    """Return the exceptions that a docstring may name: Python's own and distsync's."""
    known = {**vars(builtins), **vars(distsync.errors)}
    return {name: kind for name, kind in known.items() if isinstance(kind, type) and issubclass(kind, BaseException)}


ERRORS = errors_by_name()


def findings(value: Any) -> Iterator[str]:
    """Yield what is missing or wrong in the docstring of a public class, function, method or property."""
    text = inspect.getdoc(value) or ""
    if not text:
        yield "has no docstring"
        return
    if OLD_HEADING.search(text):
        yield f"has the old heading {OLD_HEADING.search(text)!r}"
    first = text.split("\n\n")[0]
    if not first.endswith((".", "?")) or "\n" in first:
        yield "does not begin with one sentence on one line"
    sections = parse(text)
    kinds = [kind for kind in sections if kind in ORDER]
    if kinds != sorted(kinds, key=ORDER.index):
        yield f"has its sections in the order {kinds}"
    if not is_record(value) and not inspect.ismethoddescriptor(getattr(value, "__wrapped__", None)):
        yield from missing_parameters(value, sections)
        yield from missing_result(value, sections)
    yield from missing_errors(value, sections)


def parse(text: str) -> dict[str, Any]:
    """Return the sections of a docstring in Google style by their kind."""
    found: dict[str, Any] = {}
    for section in griffe.Docstring(text, lineno=1).parse("google", warnings=False):
        kind = section.kind.value
        if kind == "admonition":
            kind = section.value.annotation
        elif kind == "examples":
            kind = "example"
        found[kind] = section.value
    return found


def is_record(value: Any) -> bool:
    """Return whether its fields are described as attributes, not as parameters."""
    if not inspect.isclass(value):
        return False
    return hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__") or issubclass(value, enum.Enum)


def missing_parameters(value: Any, sections: dict[str, Any]) -> Iterator[str]:
    """Yield the parameters that are not described, and descriptions of parameters that do not exist."""
    if isinstance(value, property):
        return
    function = getattr(value, "__func__", value)
    if inspect.isclass(value) and issubclass(value, BaseException):
        return
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return
    real = [name for name in parameters if name not in ("self", "cls") and not name.startswith("_")]
    described = [entry.name.lstrip("*") for entry in sections.get("parameters", ())]
    if missing := [name for name in real if name not in described]:
        yield f"does not describe {', '.join(missing)}"
    if unknown := [name for name in described if name not in parameters]:
        yield f"describes {', '.join(unknown)}, which it has not"


def missing_result(value: Any, sections: dict[str, Any]) -> Iterator[str]:
    """Yield a missing Returns section, and one of a function that returns nothing."""
    if isinstance(value, property) or inspect.isclass(value):
        return
    function = getattr(value, "__func__", value)
    result = str(getattr(function, "__annotations__", {}).get("return", "None")).strip("'\"")
    returns = result not in ("None", "NoReturn", "Never", "<class 'NoneType'>")
    has = "returns" in sections or "yields" in sections
    if returns and not has:
        yield f"has no Returns section for {result}"
    if has and not returns:
        yield "has a Returns section and returns None"


def missing_errors(value: Any, sections: dict[str, Any]) -> Iterator[str]:
    """Yield the errors that the function itself raises and does not list, and errors that do not exist."""
    listed = [str(entry.annotation) for entry in sections.get("raises", ())]
    if unknown := [name for name in listed if name.rpartition(".")[2] not in known_errors(value)]:
        yield f"lists {', '.join(unknown)}, which is no exception"
    covered = tuple(ERRORS[name.rpartition(".")[2]] for name in listed if name.rpartition(".")[2] in ERRORS)
    raised = [name for name in raised_by(value) if not issubclass(ERRORS[name], covered)]
    if raised:
        yield f"does not list {', '.join(dict.fromkeys(raised))}"


def known_errors(value: Any) -> set[str]:
    """Return the names of exceptions that its module knows, besides Python's and distsync's own."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    module = sys.modules.get(getattr(function, "__module__", ""), None)
    names = {*vars(module)} if module else set()
    return names | ERRORS.keys() | {"Empty", "Full", "ShutDown", *vars(asyncio)}


def raised_by(value: Any) -> list[str]:
    """Return the names of the exceptions in ``raise`` statements of the function, nested functions left out."""
    function = value.__init__ if inspect.isclass(value) else getattr(value, "fget", None) or value
    if inspect.isclass(value) and "__init__" not in vars(value):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(function, "__func__", function))))
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            name = node.exc.func.id
            if name in ERRORS and name not in NOT_NAMED:
                found.append(name)
    return found


def all_documented() -> dict[str, Any]:
    """Return everything that has to have a docstring, errors and the parts of distsync.testing included."""
    found = documented()
    for module in ("distsync.testing", "distsync.errors"):
        loaded = importlib.import_module(module)
        names = getattr(loaded, "__all__", None) or [name for name in vars(loaded) if not name.startswith("_")]
        for name in names:
            value = getattr(loaded, name)
            if inspect.isclass(value) and value.__module__.partition(".")[0] == "distsync":
                found[f"{module}.{name}"] = value
                if not issubclass(value, (BaseException, enum.Enum)):
                    found.update({f"{module}.{name}.{key}": each for key, each in own_methods(value)})
    return found


def main(words: list[str]) -> None:
    """Print the findings of the files whose path contains one of ``words``."""
    shown: set[tuple[str, int]] = set()
    for name, value in all_documented().items():
        function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
        try:
            file, line = inspect.getsourcefile(function) or "", inspect.getsourcelines(function)[1]
        except (OSError, TypeError):
            file, line = "", 0
        place = file.partition("/distsync/")[2]
        if (place, line) in shown or not any(word in place for word in words):
            continue
        shown.add((place, line))
        for finding in findings(value):
            print(f"distsync/{place}:{line}: {name} {finding}")


if __name__ == "__main__":
    main(sys.argv[1:] or [""])
