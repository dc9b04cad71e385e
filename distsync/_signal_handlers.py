"""Exceptions that a signal handler raises while distsync's code runs in the main thread.

They can be of any type, and belong to the program. So code that catches a general type, such as
OSError, must let them pass.
"""

from __future__ import annotations

from _signal import NSIG, getsignal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator
from opcode import opmap
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

#: Packages whose code runs in a call.
OWN_PACKAGES = ("distsync", "kazoo")

#: The instruction of a ``raise`` statement.
RAISE = opmap["RAISE_VARARGS"]

#: Flag of a code object with ``*args``: inspect.CO_VARARGS, without the time to import inspect.
CO_VARARGS = 0x04


def raise_if_from_handler(error: BaseException) -> None:
    """Raise ``error`` again if a signal handler raised it. For the start of an ``except`` block."""
    if is_from_handler(error):
        raise error


def is_interrupt(error: BaseException) -> bool:
    """Return whether ``error`` may have been raised at any line: a handler's, or no Exception."""
    return not isinstance(error, Exception) or is_from_handler(error)


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised ``error``, below the frame that catches it."""
    return handler_frame(_before_conversion(error).__traceback__) is not None


def is_from_signal(error: BaseException) -> bool:
    """Return whether a signal caused ``error``: its handler raised it, or it is that of Ctrl-C.

    A KeyboardInterrupt is not if a ``raise`` statement of the program raised it, in a method of an item that is
    unpickled or compared, for example. Python's own handler of Ctrl-C has no frame, and interrupts another instruction.
    """
    return is_from_handler(error) or (isinstance(error, KeyboardInterrupt) and not _is_raised_by_program(error))


def _is_raised_by_program(error: BaseException) -> bool:
    """Return whether the innermost frame of the traceback is the program's, at a ``raise`` statement."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    is_ours = frame.f_globals.get("__name__", "").partition(".")[0] in OWN_PACKAGES
    return not is_ours and trace.tb_lasti >= 0 and frame.f_code.co_code[trace.tb_lasti] == RAISE


def _before_conversion(error: BaseException) -> BaseException:
    """Return the StopIteration of which a generator or coroutine has made a RuntimeError."""
    cause = error.__cause__
    was_converted = type(error) is RuntimeError and isinstance(cause, (StopIteration, StopAsyncIteration))
    return cause if was_converted and cause is not None else error


def handler_frame(trace: TracebackType | None) -> FrameType | None:
    """Return the frame of the signal handler in a traceback, or None if there is none.

    It follows the frame that the handler interrupted, and has that frame as an argument. A handler
    that is still installed is also recognized by its code, because it may have deleted the
    argument. The locals of our own frames are not looked at: Python would keep a copy of them.
    """
    handlers: set[CodeType] | None = None
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        frame = trace.tb_frame
        handlers = _installed_handlers() if handlers is None else handlers
        is_ours = frame.f_globals.get("__name__", "").partition(".")[0] in OWN_PACKAGES
        if frame.f_code in handlers or (not is_ours and _has_argument(frame, interrupted)):
            return frame
    return None


def is_inside(trace: TracebackType | None) -> bool:
    """Return whether all frames of a traceback are ours: no signal handler or callback of the program was running."""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in OWN_PACKAGES:
            return False
        trace = trace.tb_next
    return True


def _has_argument(frame: FrameType, wanted: object) -> bool:
    """Return whether ``frame`` was called with the argument ``wanted``."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    arguments = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(one is wanted or (type(one) is tuple and any(part is wanted for part in one)) for one in arguments)


def _installed_handlers() -> set[CodeType]:
    """Return the code of the installed signal handlers that are written in Python."""
    # the functions of the module signal catch ValueError, and so a handler's
    handlers = [getsignal(number) for number in range(1, NSIG)]
    return {code for handler in handlers if callable(handler) for code in _codes_of(handler)}


def _codes_of(handler: Any) -> Iterator[CodeType]:
    """Yield the code of a function, method, partial function or callable object."""
    for function in (handler, getattr(handler, "func", None), type(handler).__call__):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def complete(release: Callable[..., object], *args: Any) -> None:
    """Call ``release`` for a call that was interrupted before it did. The interrupt is raised, not its error."""
    try:
        release(*args)
    except Exception as error:
        raise_if_from_handler(error)


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def interruptible_at_entry(function: FunctionT) -> FunctionT:
    """Let the ``try`` statement that ``function`` begins with cover the first instruction too.

    A signal handler can run there, before the ``try``, so that no ``except`` block would run. Local
    variables may be unbound in that block. Python 3.10 runs no handler between the first
    instruction and such a ``try``. Later versions have a table of what each ``try`` covers, whose
    first entry is extended to the beginning.
    """
    code = function.__code__
    table: bytes = getattr(code, "co_exceptiontable", b"")
    if table:
        start, at = _read_varint(table, 0)
        length, at = _read_varint(table, at)
        function.__code__ = code.replace(co_exceptiontable=b"\x80" + _varint(start + length) + table[at:])  # type: ignore[call-arg]
    return function


# The entries of the table are numbers: start, length, and more. Six bits make a byte, the highest
# first; 0x40 marks all bytes of a number but the last one, and 0x80 the first byte of an entry.


def _read_varint(table: bytes, at: int) -> tuple[int, int]:
    """Return the number at an index, and the index of the next one."""
    number = 0
    while True:
        number = number << 6 | table[at] & 0x3F
        at += 1
        if not table[at - 1] & 0x40:
            return number, at


def _varint(number: int) -> bytes:
    """Return a number in the format of the table."""
    parts = [number & 0x3F]
    while number := number >> 6:
        parts.append(number & 0x3F | 0x40)
    return bytes(reversed(parts))
