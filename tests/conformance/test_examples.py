"""The examples in the docstrings of the faces run, on each server, and print what they say."""

from __future__ import annotations

import doctest
import inspect
import sys
from typing import Any

import pytest
from helpers.public_names import documented

import distsync
import distsync.asyncio

PARTS = ("distsync", "distsync.multiprocessing.synchronize", "distsync.asyncio")
TOP = {name: value for name, value in documented().items() if name.rpartition(".")[0] in PARTS}
OBJECTS = {name: value for name, value in TOP.items() if inspect.isclass(value) and hasattr(value, "_kind")}


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_examples_of_the_docstring_run(name: str, client: Any) -> None:
    names = {each: getattr(distsync, each) for each in distsync.__all__}
    names |= vars(sys.modules[OBJECTS[name].__module__])
    names["asyncio"] = distsync.asyncio
    test = doctest.DocTestParser().get_doctest(OBJECTS[name].__doc__, names, name, None, None)
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert results.attempted > 0
    assert results.failed == 0
