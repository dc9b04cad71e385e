"""Proof that a conformance suite tests distsync: no class is bound to the stdlib's, and calls reach a client."""

from __future__ import annotations

import unittest
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

ENOUGH = 5
"""Of this many cases of a family, one sends a request, whichever they are."""

STDLIB = ("multiprocessing", "threading", "queue", "asyncio", "concurrent", "_thread", "_queue", "_asyncio")


class Reached:
    """How many cases of each family ran, and how many requests they sent."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[int, int]] = {}

    def add(self, family: str, requests: int) -> None:
        cases, sent = self._families.get(family, (0, 0))
        self._families[family] = cases + 1, sent + requests

    def unreached(self) -> list[str]:
        """Return the families of which enough cases ran, and none sent a request."""
        return [family for family, (cases, sent) in self._families.items() if cases >= ENOUGH and not sent]


def requests_of(client: Any) -> int:
    return sum(client.statistics().requests.values())


def bound_to_stdlib(tests: type, allowed: Mapping[str, str]) -> Iterator[str]:
    """Yield the attributes of CPython's class that are bound to the standard library.

    Args:
        tests: A class that is to test distsync.
        allowed: Names of attributes that are the standard library's, each with the reason.
    """
    for name in dir(tests):
        value = getattr(tests, name, None)
        if name in allowed or hasattr(unittest.TestCase, name) or isinstance(value, property):
            continue
        module = _home(value)
        if module.partition(".")[0] in STDLIB:
            yield f"{tests.__name__}.{name} is {module}'s"


def _home(value: Any) -> str:
    """Return the name of the module that has defined a value, if it is a module, a class, a function or a method."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = getattr(value, "__self__", None)
    home = value if owner is None or isinstance(owner, (ModuleType, type)) else type(owner)
    module = getattr(home, "__module__", None)
    return module if isinstance(module, str) else ""
