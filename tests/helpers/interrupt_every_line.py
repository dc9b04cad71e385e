"""An interrupt at each place, one after the other, where CPython may raise one: at a call's first instruction, and
after a call of a C function."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import distsync

OURS = os.path.dirname(distsync.__file__)


SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Strike:
    """KeyboardInterrupt at the ``which``-th place in our own lines; ``where`` it was, None if there are fewer."""

    def __init__(self, which: int) -> None:
        self.left = which
        self.where: str | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "c_return") or not name.startswith(OURS) or self.where is not None:
            return
        if event == "call" and frame.f_code.co_flags & SUSPENDABLE:
            return  # what a profiler raises there passes its frame by, unlike a signal
        self.left -= 1
        if self.left == 0:
            self.where = f"{name[len(OURS) + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}, {event}"
            raise KeyboardInterrupt

    def during(self, action: Callable[[], object]) -> str | None:
        """``action`` with the interrupt in it; where it was."""
        sys.setprofile(self)
        try:
            action()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return self.where


def strikes(action: Callable[[], object], check: Callable[[str], object], step: int = 1, first: int = 1) -> int:
    """``check(where)`` after each; returns how many there were."""
    which = first
    while (where := Strike(which).during(action)) is not None:
        check(where)
        which += step
    return which
