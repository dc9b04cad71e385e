"""How to get rid of a coroutine that was left in the middle, without a word.

Rules for this file: a dead process runs no finally block. Python runs them when it closes a coroutine, so that is
done once nobody looks: each await in them is refused, and what they wanted done in the background is not begun.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

#: A coroutine that awaits again after so many refusals is kept for ever instead.
MAX_REFUSALS = 100


class TaskAbandoned(BaseException):
    """Thrown into the dead. (GeneratorExit would close what they await out of our sight.)"""


_GENERATION_STATES: list[Coroutine[Any, Any, Any]] = []


def abandon(coroutine: Coroutine[Any, Any, Any]) -> None:
    """The coroutine is over, however often it awaits on its way out."""
    if inspect.getcoroutinestate(coroutine) != inspect.CORO_SUSPENDED:
        coroutine.close()
        return
    for _ in range(MAX_REFUSALS):
        try:
            step = coroutine.throw(TaskAbandoned())
        except BaseException:
            return
        work = getattr(step, "protocol", None)
        if work is not None:
            abandon(work)
    _GENERATION_STATES.append(coroutine)
