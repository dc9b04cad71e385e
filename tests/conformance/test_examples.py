"""The examples in the docstrings of the faces run, on each server, and print what they say."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
from public import MODULES


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_module_run(module: str, client: Any) -> None:
    results = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
