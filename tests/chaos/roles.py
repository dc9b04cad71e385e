"""The roles that processes play at the moment, derived from the last records of each process.

A role is a question to the latest call of a process (its calls follow one another, so that this one
shows what it does); the workloads define the roles, and stage.py catches a process that plays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chaos.history import Call, Event, calls

Role = Callable[[Call], bool]


def calling(*names: str) -> Role:
    """It is in one of these calls."""
    return lambda call: call.name in names and call.ended is None


def having(*names: str) -> Role:
    """It has got something by one of these calls, and has not begun to give it back."""
    return lambda call: call.name in names and call.succeeded and call.value is not False


def between(first: str, last: str) -> Role:
    """It has begun the first of these calls, and has not ended the last."""
    return lambda call: (call.name == first and call.error is None) or (call.name == last and call.ended is None)


def latest(events: Iterable[Event]) -> Call | None:
    """The latest call; None: there is none."""
    events = list(events)
    found = calls(events, *{event["call"] for event in events if "call" in event})
    return found[-1] if found else None
