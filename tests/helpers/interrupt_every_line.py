"""An interrupt at each place, one after the other, where CPython may raise one: at a call's first instruction, and
after a call of a C function."""

from __future__ import annotations

import dis
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import kazoo

import distsync

OURS = os.path.dirname(distsync.__file__)
PACKAGES = (OURS, os.path.dirname(kazoo.__file__))
"""Packages whose lines may run in the calling thread."""


SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def handles_first_instruction(code: CodeType) -> bool:
    """Return whether a ``try`` of a function handles what a signal handler raises at its first instruction.

    Before Python 3.12 it does not handle what a profiler raises there. See ``interruptible_at_entry``.
    """
    if sys.version_info < (3, 11):
        return code.co_code[0] == dis.opmap["SETUP_FINALLY"]
    return code.co_exceptiontable.startswith(b"\x80")


def is_at_start(frame: FrameType) -> bool:
    """Return whether a frame that was called or resumed is at its first instruction."""
    starts = [each.offset for each in dis.get_instructions(frame.f_code) if each.opname == "RESUME"]
    return frame.f_lasti <= (starts[0] if starts else 0)


class Strike:
    """An exception at the ``which``-th place in the lines of ``packages``; ``where`` it was, None if there are fewer.

    Like a signal handler's, its frame has the interrupted frame as an argument. With ``coroutines``, the first
    instruction of a coroutine is a place, too.
    """

    def __init__(
        self,
        which: int,
        error: type[BaseException] = KeyboardInterrupt,
        packages: tuple[str, ...] = (OURS,),
        *,
        coroutines: bool = False,
    ) -> None:
        self.left = which
        self.where: str | None = None
        self.raised = error("of a signal handler")
        self.packages = packages
        self.coroutines = coroutines

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "c_return") or not name.startswith(self.packages) or self.where is not None:
            return
        if event == "call" and frame.f_code.co_flags & SUSPENDABLE and not (self.coroutines and is_at_start(frame)):
            return  # what a profiler raises where a coroutine is resumed passes its frame by, unlike a signal
        if event == "call" and sys.version_info < (3, 12) and handles_first_instruction(frame.f_code):
            return
        self.left -= 1
        if self.left == 0:
            self.where = f"{name[len(OURS) + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}, {event}"
            self.strike()

    def strike(self) -> None:
        raise self.raised

    def during(self, action: Callable[[], object]) -> str | None:
        """``action`` with the exception in it, which arrives as itself; where it was."""
        arrived = None
        sys.setprofile(self)
        try:
            action()
        except BaseException as error:
            arrived = error
        finally:
            sys.setprofile(None)
        if isinstance(self.raised, StopIteration) and arrived is not None and arrived.__cause__ is self.raised:
            arrived = self.raised  # a generator has made a RuntimeError of it
        if arrived is not (None if self.where is None else self.raised):
            raise AssertionError(f"{self.raised!r} became {arrived!r} at {self.where}") from arrived
        if arrived is not None:  # frees the frames, and what they refer to, while the test still runs
            arrived.__traceback__ = arrived.__context__ = None
        return self.where


class HandlerCall(Strike):
    """A signal handler that runs at the ``which``-th place and calls ``handler``, which may use the same objects."""

    def __init__(self, which: int, handler: Callable[[], object], packages: tuple[str, ...] = (OURS,)) -> None:
        super().__init__(which, packages=packages)
        self.handler = handler

    def strike(self) -> None:
        self.handler()

    def during(self, action: Callable[[], object]) -> str | None:
        """Call ``action``, and return where the handler ran."""
        sys.setprofile(self)
        try:
            action()
        finally:
            sys.setprofile(None)
        return self.where


def strikes(
    action: Callable[[], object],
    check: Callable[[str], object],
    step: int = 1,
    first: int = 1,
    errors: Sequence[type[BaseException]] = (KeyboardInterrupt,),
    make: Callable[..., Strike] = Strike,
) -> int:
    """``check(where)`` after each; returns how many there were. One of ``errors`` is raised after the other."""
    which = first
    while (where := make(which, errors[which // step % len(errors)]).during(action)) is not None:
        check(where)
        which += step
    return which


def in_protocols(which: int, error: type[BaseException] = KeyboardInterrupt) -> Strike:
    """Return a strike at the ``which``-th place in the lines of protocols, which does not depend on timing."""
    return Strike(which, error, packages=(os.path.join(OURS, "_protocols"),), coroutines=True)
