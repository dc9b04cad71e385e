"""What travels between a pool's callers and workers: tasks and what came of them, as bytes.

Rules for this file: no znode, no thread, no process; it knows multiprocessing.pool's helpers and the codec.

Each payload is signed, where there is a key, for its own job and part: it counts for no other one. A function travels
by its name, as with pickle everywhere. One of ``__main__`` is told apart by the program that it is of, for another
program's function of the same name must not be called instead; a worker that runs no such program loads it from its
file, as ``multiprocessing`` does for its spawned processes.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import pool as _stdlib
from typing import Any, NamedTuple

from distsync._client.settings import Settings
from distsync.errors import ConfigurationError, PayloadRefusedError

#: Bytes of one task, or of one result, at most, unless said otherwise: it is in memory several times on its way.
LIMIT_BYTES = 64_000_000
#: It cannot be more: all parts are deleted with one request.
MAX_BYTES = 2_000_000_000
#: So a worker runs the functions of a program that is not its own, as ``multiprocessing`` names it.
OTHER_MAIN = "__mp_main__"

_MAIN = "__main__"
_HELPERS = (_stdlib.mapstar, _stdlib.starmapstar)  # type: ignore[attr-defined]

Function = Callable[..., Any]
Call = tuple[Function, tuple[Any, ...], dict[str, Any]]


class MainProgram(NamedTuple):
    """What runs as ``__main__``: a module (``python -m``), or the file of a script."""

    module: str | None
    file: str | None


class Label(NamedTuple):
    """What is said of a task to people: its function, and how many items it is."""

    function: str
    items: int

    @classmethod
    def of(cls, function: Any, args: Any) -> Label:
        items = 1
        if function in _HELPERS and args and len(args[0]) == 2:
            function, several = args[0]
            items = len(several)
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        return cls(f"{module}.{name}" if module and name else type(function).__name__, items)


#: A signed task is no signed result.
RESULT = "/result"


class Encoder:
    """Makes bytes of tasks and of their results, and reads them."""

    def __init__(self, settings: Settings, limit_bytes: int = LIMIT_BYTES) -> None:
        if settings.codec == "json":
            raise ConfigurationError("codec", "json", "a pool's functions travel by pickle, or by a codec of your own")
        self._codec = settings.payload_codec(limit_bytes)

    def task(self, place: str, call: Call) -> bytes:
        """``place`` is the caller's path, with job and part. Raises PayloadPickleError, PayloadTooLargeError."""
        body = self._codec.encode(call, place)
        return self._codec.encode((_MAIN, *program(), body), place) if _MAIN.encode() in body else body

    @contextmanager
    def call(self, place: str, payload: bytes, own: bool) -> Iterator[Call]:
        """The call, in the program whose function it is; ``own``: it is of the one that started this process. Raises
        PayloadRefusedError."""
        found = self._codec.decode(payload, place)
        if found[0] != _MAIN:
            yield found
            return
        _, module, file, body = found
        with nullcontext() if own else main_module_of(MainProgram(module, file), place):
            yield self._codec.decode(body, place)

    def result(self, place: str, success: bool, value: Any) -> bytes:
        """Raises PayloadPickleError, PayloadTooLargeError."""
        return self._codec.encode((success, value), place + RESULT)

    def outcome(self, place: str, payload: bytes) -> tuple[bool, Any]:
        """Whether it succeeded, and the value or the exception. Raises PayloadRefusedError."""
        success, value = self._codec.decode(payload, place + RESULT)
        return success, value


def program() -> MainProgram:
    """What runs as ``__main__`` here, or did where this process was spawned."""
    main = sys.modules[_MAIN]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    module = None if spec is None or spec.name == OTHER_MAIN else spec.name
    return MainProgram(module, os.path.abspath(file) if file else None)


@contextmanager
def main_module_of(wanted: MainProgram, place: str) -> Iterator[None]:
    """Names of ``__main__`` are those of that program. Raises PayloadRefusedError if it is not to be had here."""
    here = program()
    if any(theirs is not None and theirs == ours for theirs, ours in zip(wanted, here, strict=True)):
        yield
        return
    before = sys.modules[_MAIN]
    try:
        sys.modules[_MAIN] = loaded(wanted)
    except Exception as error:
        name = wanted.module or wanted.file or "a prompt, or -c"
        reason = (
            f"its function is of the program {name}, which this worker cannot load, {type(error).__name__}: {error}"
        )
        raise PayloadRefusedError(place, reason) from error
    try:
        yield
    finally:
        sys.modules[_MAIN] = before


@functools.cache
def loaded(wanted: MainProgram) -> types.ModuleType:
    """That program, as a module, so that only what is not under ``if __name__ == "__main__"`` has run."""
    module = types.ModuleType(OTHER_MAIN)
    if wanted.module is not None:
        module.__dict__.update(runpy.run_module(wanted.module, run_name=OTHER_MAIN, alter_sys=True))
    elif wanted.file is not None:
        sys.path.append(os.path.dirname(wanted.file))
        module.__dict__.update(runpy.run_path(wanted.file, run_name=OTHER_MAIN))
    else:
        raise ModuleNotFoundError("it has no file")
    return module
