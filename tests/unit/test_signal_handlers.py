"""Exceptions of signal handlers are distinguished from those of the code that they interrupt."""

from __future__ import annotations

import functools
import json
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from distsync._signal_handlers import interruptible_at_entry, is_from_handler, is_interrupt, raise_if_from_handler

SIGNAL = signal.SIGUSR1


def function(number: int, frame: FrameType | None) -> NoReturn:
    raise ValueError("of a handler")


def argument_deleted(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise ValueError("of a handler")


def uninstalled(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(SIGNAL, signal.SIG_DFL)
    raise ValueError("of a handler")


def any_arguments(*_: Any) -> NoReturn:
    raise ValueError("of a handler")


def calling(number: int, frame: FrameType | None) -> None:
    int("of a handler")


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise ValueError("of a handler")

    def method(self, number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise ValueError("of a handler")


@pytest.fixture(autouse=True)
def handler_restored() -> Iterator[None]:
    before = signal.getsignal(SIGNAL)
    yield
    signal.signal(SIGNAL, before)


def interrupted() -> None:
    signal.raise_signal(SIGNAL)


def raised_by(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


HANDLERS: list[Any] = [
    *(function, argument_deleted, uninstalled, any_arguments, calling),
    *(Handler(), Handler().method, functools.partial(argument_deleted), lambda *_: int("of a handler")),
]


@pytest.mark.parametrize("place", [interrupted, functools.partial(signal.raise_signal, SIGNAL)], ids=["below", "here"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_exception_of_a_handler_is_recognized(handler: Any, place: Callable[[], object]) -> None:
    signal.signal(SIGNAL, handler)
    error = raised_by(place)
    assert is_from_handler(error)
    assert is_interrupt(error)
    with pytest.raises(ValueError, match="of a handler"):
        raise_if_from_handler(error)


def test_exception_of_a_handler_is_recognized_after_it_was_thrown_into_a_coroutine() -> None:
    async def protocol() -> None:
        raise AssertionError("it was not started")

    signal.signal(SIGNAL, function)
    coroutine = protocol()
    error = raised_by(interrupted)
    assert raised_by(lambda: coroutine.throw(error)) is error
    assert is_from_handler(error)


@pytest.mark.parametrize("call", [lambda: int("x"), lambda: json.loads("{"), lambda: function(0, None)])
def test_other_exception_is_not_of_a_handler(call: Callable[[], object]) -> None:
    error = raised_by(call)
    assert not is_from_handler(error)
    assert not is_interrupt(error)
    raise_if_from_handler(error)


def test_keyboard_interrupt_without_a_frame_is_an_interrupt() -> None:
    assert is_interrupt(raised_by(lambda: signal.default_int_handler(signal.SIGINT, None)))


def covered(handled: list[BaseException]) -> None:
    try:
        sum(range(3))
    except BaseException as error:
        handled.append(error)
        raise


@pytest.mark.slow("thousands of signals")
def test_signal_at_the_first_instruction_is_handled_by_the_try_statement() -> None:
    interruptible_at_entry(covered)
    handled: list[BaseException] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is covered.__code__:
            raise TimeoutError("of a handler")
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    def call_repeatedly() -> None:
        while True:
            covered(handled)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(1000):
            signal.setitimer(signal.ITIMER_REAL, 0.0001)
            assert raised_by(call_repeatedly) is handled.pop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_function_with_a_long_try_statement_works_after_its_table_was_extended() -> None:
    lines = [
        *("def f(fails):", "    try:", *(f"        x = {number}" for number in range(3000)), "        1 / (not fails)"),
        *("    except ZeroDivisionError:", "        return 'handled'", "    return x"),
    ]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert interruptible_at_entry(names["f"])(True) == "handled"
    assert names["f"](False) == 2999
