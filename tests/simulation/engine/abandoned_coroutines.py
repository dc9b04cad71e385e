"""Disposal of coroutines whose process was killed, without running their ``finally`` blocks' effects.

A killed process runs no ``finally`` block. Python runs them when it closes a coroutine, so each
await in them is refused, and background work that they request is not started.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

#: Number of refused awaits after which a coroutine is kept forever instead.
MAX_REFUSALS = 100


class TaskAbandoned(BaseException):
    """Thrown into coroutines of killed processes. (GeneratorExit would close what they await out of
    our control.)
    """


_GENERATION_STATES: list[Coroutine[Any, Any, Any]] = []


def abandon(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close the coroutine, however often it awaits on its way out."""
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
