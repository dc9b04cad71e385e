"""Checks of arguments: numbers, timeouts and layouts. Each error names the value and the limits."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Literal, TypeVar

from distsync._client.deadlines import TIMEOUT_MAX as TIMEOUT_MAX
from distsync._client.deadlines import finite_seconds, timeout_too_large, validate_call_timeout
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ConfigurationError

Callback = TypeVar("Callback", bound=Callable[..., object] | None)

TimeoutRule = Literal["condition", "event", "lock", "queue", "simple_queue", "call"]
"""The rules for a timeout: those of ``threading.Condition.wait``, ``threading.Event.wait``,
``threading.Lock.acquire``, ``queue.Queue.get`` or ``queue.SimpleQueue.get``. A call that the standard
library lacks (``"call"``) accepts what a lock accepts, and None to wait forever.
"""

#: Naming schemes of znodes that most objects support: Curator's, and that of kazoo's own recipes.
ON_MISMATCH = ("error", "wait", "adopt")
LAYOUTS = ("curator", "kazoo")


def refuse_positional(obj: object, given: tuple[Any, ...]) -> None:
    """Raise TypeError if arguments were given by position to a constructor that takes none, as a name may be."""
    if given:
        hint = f": pass a name as name={given[0]!r}" if isinstance(given[0], str) else ""
        raise TypeError(f"{type(obj).__name__}() takes no positional arguments ({len(given)} given){hint}")


def refuse_container_hooks(kind: type, base: type, hooks: tuple[str, ...], extensible: tuple[str, ...] = ()) -> None:
    """Raise TypeError if a subclass of the queue class ``base`` replaces the container of its items.

    Args:
        kind: The subclass.
        base: The queue class of ours.
        hooks: The methods with which a subclass of the standard library's queue replaces its container.
        extensible: Those that ``base`` has, too. A subclass may override them, if it calls those of ``base``.
    """
    for each in kind.__mro__[: kind.__mro__.index(base)]:
        for name in hooks:
            if name in vars(each) and not (name in extensible and _names(vars(each)[name], name)):
                raise TypeError(_no_container(kind, name, name in extensible))


def _no_container(kind: type, name: str, is_extensible: bool) -> str:
    advice = "use PriorityQueue or LifoQueue for another order, or override put() and get()"
    extend = f"call super().{name}() in it, " if is_extensible else ""
    return (
        f"{kind.__qualname__}.{name}() replaces the container of the queue, which cannot work:"
        f" the items are on a server, for all processes; {extend}{advice}"
    )


def _names(method: Any, name: str) -> bool:
    """Return whether the code of ``method``, or of what it wraps, names ``name``; True if it has no code in Python."""
    function = getattr(method, "__func__", method)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return code is None or _code_names(code, name)


def _code_names(code: CodeType, name: str) -> bool:
    nested = (each for each in code.co_consts if isinstance(each, CodeType))
    return name in code.co_names or any(_code_names(each, name) for each in nested)


def validate_int(label: str, number: Any, least: int | None = None, or_name: bool = False) -> int:
    """Return ``number`` as an int, or raise TypeError, or ValueError if it is below ``least``.

    ``or_name`` tells that callers may have passed a name in its place.
    """
    try:
        whole = int(operator.index(number))
    except TypeError as error:
        raise_if_from_handler(error)
        hint = f"; pass a name as name={number!r}" if or_name and isinstance(number, str) else ""
        raise TypeError(f"{label} must be a whole number, not {number!r} ({type(number).__name__}){hint}") from None
    if least is not None and whole < least:
        raise ValueError(f"{label} must be >= {least}, not {whole}")
    return whole


def validate_maxsize(number: Any) -> int:
    """Return the bound of a queue as an int, or raise TypeError, or ValueError for NaN. Infinity is no bound."""
    if not isinstance(number, float):
        return validate_int("maxsize", number, or_name=True)
    if math.isnan(number):
        raise ValueError("maxsize must be a number, not NaN; 0 means unbounded")
    return 0 if math.isinf(number) else math.ceil(number)


def validate_callback(label: str, callback: Callback) -> Callback:
    """Return ``callback``, or raise TypeError if it is neither callable nor None."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{label} must be callable or None, not {callback!r} ({type(callback).__name__})")
    return callback


def validate_positive(label: str, number: Any, allow_zero: bool = False) -> float:
    """Return ``number`` as a float, or raise TypeError, or ValueError if it is not above zero."""
    if not isinstance(number, (int, float)):
        raise TypeError(f"{label} must be a number, not {number!r} ({type(number).__name__})")
    if not (0 < number <= sys.float_info.max or (allow_zero and number == 0)):
        least = ">= 0" if allow_zero else "above 0"
        raise ValueError(f"{label} must be a number {least}, and at most {sys.float_info.max:g}, not {number}")
    return float(number)


def validate_timeout(timeout: Any, rule: TimeoutRule = "condition", blocking: bool = True) -> float | None:
    """Return the maximum wait of a call.

    Args:
        timeout: Seconds. Other values depend on the rule: None waits forever, but is refused for a
            lock; -1 waits forever for a lock or call, is refused for a queue, and does not wait for a
            condition or event; other negative numbers are refused, but do not wait for these; NaN is
            refused, but does not wait for these.
        rule: Whose rules ``timeout`` follows.
        blocking: Whether the call waits at all.

    Returns:
        Seconds; None to wait forever.

    Raises:
        TypeError: ``timeout`` is not a number.
        ValueError: It is negative or NaN, or given to a lock's call that does not wait.
        OverflowError: It exceeds ``threading.TIMEOUT_MAX``. For an event or queue, the driver raises it
            once the call has to wait.
    """
    if rule == "lock":
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout is None:
            raise TypeError("'NoneType' object cannot be interpreted as a number of seconds")
    if not blocking:
        return 0.0
    if timeout is None:
        return None
    if rule == "call":
        return validate_call_timeout(timeout)
    if rule in ("condition", "event"):
        seconds = float(timeout) if timeout > 0 else 0.0
    elif rule == "queue":
        if not timeout >= 0:  # NaN too, with which the standard library never returns
            raise ValueError("'timeout' must be a non-negative number")
        seconds = float(timeout)
    elif rule != "simple_queue" and timeout == -1:
        return None
    else:
        seconds = finite_seconds(timeout)
    if seconds > TIMEOUT_MAX and rule not in ("event", "queue"):
        raise timeout_too_large(timeout)
    return seconds


def validate_on_mismatch(on_mismatch: object) -> str:
    """Return ``on_mismatch`` as a str if it is valid, or raise ConfigurationError."""
    if on_mismatch not in ON_MISMATCH:
        raise ConfigurationError("on_mismatch", on_mismatch, f"it must be one of {', '.join(map(repr, ON_MISMATCH))}")
    return str(on_mismatch)


def validate_layout(layout: object, known: tuple[str, ...] = LAYOUTS) -> str:
    """Return ``layout`` as a str if it is known, or raise ConfigurationError."""
    if layout not in known:
        raise ConfigurationError("layout", layout, f"it must be one of {', '.join(map(repr, known))}")
    return str(layout)
