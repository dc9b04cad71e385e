"""What a call costs, as its docstring says it."""

from __future__ import annotations

import inspect
import re
from typing import Any

COST = re.compile(r"\b(no|\d+)(?: requests?)?(?: in (\d+) round trips?)?\b")


def documented_cost(value: Any, condition: str = "") -> tuple[int, int | None]:
    """Return the requests and round trips that the docstring states beside ``condition``, right before or after it.

    Without a condition it is the first cost after the word "Costs". Round trips that are not stated are None.
    """
    text = " ".join((inspect.getdoc(value) or "").split())
    begin = text.index("Costs ") if "Costs " in text else 0
    for found in COST.finditer(text, begin):
        before, after = text[: found.start()].rstrip(" ,"), text[found.end() :].lstrip(" ,")
        if after.startswith(condition) or before.endswith(condition):
            return 0 if found[1] == "no" else int(found[1]), int(found[2]) if found[2] else None
    raise AssertionError(f"the docstring of {value!r} states no cost {condition!r}: {text}")
