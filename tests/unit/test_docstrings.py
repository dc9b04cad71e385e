"""The docstrings of the faces: one line that says what is true afterwards, then the headings, in their order."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from helpers.public_names import documented

HEADINGS = ["Units", "Returns", "Raises", "On loss", "On cancel", "Cost", "Fair", "Source"]
TWINS = ("distsync.threading.", "distsync.queue.", "distsync.multiprocessing.synchronize.", "distsync.asyncio.")
"""The faces whose classes stand for one of the standard library each."""

NAMES = documented()
CLASSES = {
    name: value
    for name, value in NAMES.items()
    if inspect.isclass(value) and not issubclass(value, Exception) and name.startswith(TWINS)
}


def headings(value: Any) -> list[str]:
    return re.findall(rf"^({'|'.join(HEADINGS)}):", inspect.getdoc(value) or "", re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_public_name_has_a_docstring_that_begins_with_one_sentence(name: str) -> None:
    first = (inspect.getdoc(NAMES[name]) or "").split("\n\n")[0]
    assert first.endswith((".", "?", ":", "::"))


@pytest.mark.parametrize("name", NAMES)
def test_headings_stand_in_their_order(name: str) -> None:
    found = headings(NAMES[name])
    assert found == [heading for heading in HEADINGS if heading in found]


@pytest.mark.parametrize("name", CLASSES)
def test_class_names_its_source_and_shows_an_example(name: str) -> None:
    text = inspect.getdoc(CLASSES[name]) or ""
    assert "Source" in headings(CLASSES[name])
    assert ">>>" in text
