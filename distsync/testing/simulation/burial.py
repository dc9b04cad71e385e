"""How to get rid of a coroutine that was left in the middle, without a word.

Rules for this file: a dead process runs no finally block. Python runs them when it closes a coroutine, so that is
done once nobody looks: each await in them is refused, and what they wanted done in the background is not begun.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

#: A coroutine that awaits again after so many refusals is kept for ever instead.
PATIENCE = 100


class Buried(BaseException):
    """Thrown into the dead. (GeneratorExit would close what they await out of our sight.)"""


_UNDEAD: list[Coroutine[Any, Any, Any]] = []


def bury(coroutine: Coroutine[Any, Any, Any]) -> None:
    """The coroutine is over, however often it awaits on its way out."""
    if inspect.getcoroutinestate(coroutine) != inspect.CORO_SUSPENDED:
        coroutine.close()
        return
    for _ in range(PATIENCE):
        try:
            step = coroutine.throw(Buried())
        except BaseException:
            return
        work = getattr(step, "work", None)
        if work is not None:
            bury(work)
    _UNDEAD.append(coroutine)
