"""The docstrings of all public names: Google style, complete, in plain English."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from helpers import phrases
from helpers.docstring_findings import all_documented, findings, parse

ROOT = Path(__file__).parents[2]
NAMES = all_documented()
TWINS = ("distsync.threading.", "distsync.queue.", "distsync.multiprocessing.synchronize.", "distsync.asyncio.")
"""The modules whose classes stand for one of the standard library each."""
CLASSES = [
    name
    for name, value in NAMES.items()
    if inspect.isclass(value) and not issubclass(value, Exception) and name.startswith(TWINS)
]
PLAIN = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
PLAIN += ["docs", "examples", "bench", "scripts", "distsync", "tests"]
"""Where phrases are looked for: in Markdown, docstrings, comments, messages and the names of tests."""

EXCEPTIONS = {
    "tests/helpers/phrases.py": "lists the phrases",
}
"""Files in which no phrases are looked for, and why."""


def test_docstring_of_every_public_name_is_complete() -> None:
    assert len(NAMES) > 1000
    found = {name: list(findings(value)) for name, value in NAMES.items()}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("name", CLASSES)
def test_class_names_its_source_and_shows_an_example(name: str) -> None:
    text = inspect.getdoc(NAMES[name]) or ""
    assert "Source: " in text
    assert "example" in parse(text)


def test_prose_is_plain_english() -> None:
    files = [file.relative_to(ROOT) for path in PLAIN for file in phrases.files_of(ROOT / path)]
    checked = [file for file in files if str(file) not in EXCEPTIONS]
    assert len(checked) > 100
    assert [finding for file in checked for finding in phrases.findings(ROOT / file)] == []


def test_at_most_ten_files_are_excepted_from_plain_english() -> None:
    assert len(EXCEPTIONS) <= 10
    assert all((ROOT / file).is_file() for file in EXCEPTIONS)
