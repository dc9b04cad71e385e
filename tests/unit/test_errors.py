"""Each error pickles, has its fields in its message, and is in the diagram of errors."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import distsync.errors
from distsync.errors import DeadlineError, DistsyncError, OutcomeUnknownError

ERRORS = [
    each
    for _, each in inspect.getmembers(distsync.errors, inspect.isclass)
    if issubclass(each, DistsyncError) and each.__module__ == "distsync.errors"
]
SAMPLES = {":.1f": 2.5}
"""A field with a format needs a value that takes it."""


def fields(error: type[DistsyncError]) -> list[object]:
    """Return a value for each field that the template names."""
    formats = dict(re.findall(r"\{(\d)(?:!r)?([^}]*)\}", error.template))
    return [SAMPLES.get(formats[key], f"field {key}") for key in sorted(formats)]


@pytest.mark.parametrize("error", ERRORS)
def test_error_pickles_with_its_fields(error: type[DistsyncError]) -> None:
    made = error(*fields(error))
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is error
    assert again.args == made.args
    assert str(again) == str(made)


@pytest.mark.parametrize("error", ERRORS)
def test_error_names_each_field_in_its_text(error: type[DistsyncError]) -> None:
    values = fields(error)
    assert [value for value in values if str(value) not in str(error(*values))] == []


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("given", [(), ("only one",)])
def test_error_with_missing_fields_still_has_a_text(error: type[DistsyncError], given: tuple[str, ...]) -> None:
    assert isinstance(str(error(*given)), str)


@pytest.mark.parametrize("error", ERRORS)
def test_error_is_in_the_diagram_and_has_a_docstring(error: type[DistsyncError]) -> None:
    assert re.search(rf"\b{error.__name__}\b", distsync.errors.__doc__ or "")
    assert inspect.getdoc(error)


@pytest.mark.parametrize("error", [DeadlineError, OutcomeUnknownError])
def test_error_of_a_late_call_contains_why_there_is_no_server(error: type[DistsyncError]) -> None:
    made = error(*fields(error), "the disk is full")
    assert str(made) == f"{error(*fields(error))}; the disk is full"
