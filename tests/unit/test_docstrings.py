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


def first_paragraph(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0]


def test_every_public_name_has_a_docstring_that_begins_with_one_sentence() -> None:
    ends = (".", "?", ":", "::")
    assert len(NAMES) > 1000
    assert not [name for name, value in NAMES.items() if not first_paragraph(value).endswith(ends)]


def test_headings_of_every_public_name_stand_in_their_order() -> None:
    found = {name: headings(value) for name, value in NAMES.items()}
    assert not [name for name, own in found.items() if own != [heading for heading in HEADINGS if heading in own]]


@pytest.mark.parametrize("name", CLASSES)
def test_class_names_its_source_and_shows_an_example(name: str) -> None:
    text = inspect.getdoc(CLASSES[name]) or ""
    assert "Source" in headings(CLASSES[name])
    assert ">>>" in text
