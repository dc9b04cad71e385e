"""What callers give, numbers and the names of layouts, checked where it is given.

Rules for this file: each error says what was given and what is allowed.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

from distsync.errors import ConfigurationError

#: How an object may spell the names of its znodes: as Curator does, or as kazoo's own recipes, beside our own way.
LAYOUTS = ("curator", "kazoo")


def validate_int(label: str, number: Any, least: int | None = None) -> int:
    """``number`` as an int, not below ``least``. Raises TypeError, ValueError."""
    try:
        whole = operator.index(number)
    except TypeError:
        raise TypeError(f"{label} must be a whole number, not {type(number).__name__}") from None
    if least is not None and whole < least:
        raise ValueError(f"{label} must be >= {least}, not {whole}")
    return whole


def validate_positive(label: str, number: Any, allow_zero: bool = False) -> float:
    """``number`` as a float above zero. Raises TypeError, ValueError."""
    if not isinstance(number, (int, float)):
        raise TypeError(f"{label} must be a number, not {type(number).__name__}")
    if not (0 < number <= sys.float_info.max or (allow_zero and number == 0)):
        least = ">= 0" if allow_zero else "above 0"
        raise ValueError(f"{label} must be a number {least}, and at most {sys.float_info.max:g}, not {number}")
    return float(number)


def checked_layout(layout: object, known: tuple[str, ...] = LAYOUTS) -> str:
    """``layout``, if it is one. Raises ConfigurationError (a ValueError)."""
    if layout not in known:
        raise ConfigurationError("layout", layout, f"it must be one of {', '.join(map(repr, known))}")
    return str(layout)
