"""How to discard a suspended coroutine without any effect.

A killed process runs no finally block, but Python runs them when it closes a coroutine. So a
coroutine is closed while nothing is recorded: each await in its finally blocks is refused, and
background work that they request is not started.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

#: A coroutine that still awaits after this number of refusals is kept alive forever instead.
MAX_REFUSALS = 100


class TaskAbandoned(BaseException):
    """Thrown into abandoned coroutines. (GeneratorExit would also close what they await, unseen by
    us.)
    """


_GENERATION_STATES: list[Coroutine[Any, Any, Any]] = []


def abandon(coroutine: Coroutine[Any, Any, Any]) -> None:
    """End the coroutine, however often it awaits during its exit."""
    if inspect.getcoroutinestate(coroutine) != inspect.CORO_SUSPENDED:
        coroutine.close()
        return
    for _ in range(MAX_REFUSALS):
        try:
            step = coroutine.throw(TaskAbandoned())
        except BaseException:
            return
        work = getattr(step, "protocol", None)
        if isinstance(work, Coroutine):
            abandon(work)
    _GENERATION_STATES.append(coroutine)
