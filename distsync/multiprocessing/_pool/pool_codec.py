"""Tasks and results of a pool, as bytes.

If there is a key, each payload is signed for its own job and part, and is valid for no other one. A
function is sent by its name, as pickle always does. A function of ``__main__`` is sent together
with its program, because another program's function of the same name must not be called instead. A
worker that runs another program loads this program from its file, as ``multiprocessing`` does for
spawned processes. A digest of the file travels with the function, so that no other version of it is
called.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pickle
import pickletools
import re
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import pool as _stdlib
from typing import Any, NamedTuple

from distsync._client.payload_codec import reason_of
from distsync._client.settings import Settings
from distsync.errors import ConfigurationError, PayloadRefusedError

#: Default maximum size of one task or one result, in bytes. It is in memory several times in transit.
LIMIT_BYTES = 64_000_000
#: Upper bound of this limit, because all parts are deleted with one request.
MAX_BYTES = 2_000_000_000
#: Name of the main module of another program in a worker, as in ``multiprocessing``.
OTHER_MAIN = "__mp_main__"

#: Description of the initializer of workers that call none.
NO_INITIALIZER = "None"

#: Advice if a worker that runs the caller's program lacks one of its functions.
LATER_FUNCTION = (
    "define it before the pool is created (in a notebook, in an earlier cell), or put it into a module that the worker"
    " can import"
)

_MAIN = "__main__"
_NOT_IN_MAIN = re.compile("attribute .* on <module '__main__'|module '__main__' has no attribute")
_HELPERS = (_stdlib.mapstar, _stdlib.starmapstar)  # type: ignore[attr-defined]

Function = Callable[..., Any]
Call = tuple[Function, tuple[Any, ...], dict[str, Any]]


class MainProgram(NamedTuple):
    """The program that runs as ``__main__``.

    Attributes:
        module: Name of the module, if it was started by ``python -m``; otherwise None.
        file: Path of its file; None at a prompt.
        version: Digest of its file; None if the file cannot be read.
    """

    module: str | None
    file: str | None
    version: str | None


class StaleProgramError(Exception):
    """This process has loaded a program whose file was changed since: only a new process can load it."""


class Label(NamedTuple):
    """Description of a task for messages.

    Attributes:
        function: Name of the function.
        items: Number of items in the task.
    """

    function: str
    items: int

    @classmethod
    def of(cls, function: Any, args: Any) -> Label:
        """Return the description of a task.

        Args:
            function: The function, perhaps a helper of multiprocessing that calls it with several
                items.
            args: Arguments of ``function``.

        Returns:
            The description.
        """
        items = 1
        if function in _HELPERS and args and len(args[0]) == 2:
            function, several = args[0]
            items = len(several)
        try:
            module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        except Exception:  # whatever __getattr__ of a callable object raises
            module = name = None
        return cls(f"{module}.{name}" if module and name else type(function).__name__, items)


#: Suffix of a result's context, so that a signed task is not accepted as a result.
RESULT = "/result"


def check_codec_of_pool(settings: Settings) -> None:
    """Raise ConfigurationError if functions cannot travel by the codec of the client.

    Args:
        settings: Settings of the client.
    """
    if settings.codec == "json":
        reason = "a pool's functions travel by pickle, cloudpickle, or a codec of your own"
        raise ConfigurationError("codec", "json", reason)


class PoolCodec:
    """Codec of calls and results.

    Args:
        settings: Settings of the client.
        limit_bytes: Maximum size of one task or one result, in bytes.

    Raises:
        ConfigurationError: The codec is JSON.
    """

    def __init__(self, settings: Settings, limit_bytes: int = LIMIT_BYTES) -> None:
        check_codec_of_pool(settings)
        self._codec = settings.payload_codec(limit_bytes)
        program()  # remember its version: the file may be changed before the first task

    def encode_call(self, place: str, call: Call) -> bytes:
        """Encode a task.

        Args:
            place: Path of the caller, with job and part, for which the task is signed.
            call: Function, positional arguments and keyword arguments.

        Returns:
            The payload.

        Raises:
            PayloadPickleError: The task does not pickle.
            PayloadTooLargeError: The payload exceeds the limit.
        """
        body = self._codec.encode(call, place)
        if self._codec.name == "cloudpickle" or not self._uses_main(body):  # cloudpickle sends what is in ``__main__``
            return body
        return self._codec.encode((_MAIN, *program(), body), place)

    def _uses_main(self, body: bytes) -> bool:
        if _MAIN.encode() not in body:
            return False
        return self._codec.name != "pickle" or imports_main(body[self._codec.envelope_bytes :])

    @contextmanager
    def decode_call(self, place: str, payload: bytes, own: bool) -> Iterator[Call]:
        """Decode a task, with its program as ``__main__`` during the ``with`` block.

        Args:
            place: Path of the caller, with job and part, for which the task is signed.
            payload: The encoded task.
            own: Whether the program is the one that started this process.

        Yields:
            Call: Function, positional arguments and keyword arguments.

        Raises:
            PayloadRefusedError: The task is unsigned, altered or unreadable, or its program is not
                available in its version.
            StaleProgramError: A new process can load this version of the program.
        """
        found = self._codec.decode(payload, place)
        if found[0] != _MAIN:
            yield found
            return
        _, module, file, version, body = found
        with nullcontext() if own else main_module_of(MainProgram(module, file, version), place):
            try:
                call = self._codec.decode(body, place)
            except PayloadRefusedError as error:
                advice = later_function_advice(error.__cause__) if own else ""
                if advice:
                    raise PayloadRefusedError(place, error.args[1] + advice) from error.__cause__
                raise
            yield call

    def encode_result(self, place: str, success: bool, value: Any) -> bytes:
        """Encode the result of a task.

        Args:
            place: Path of the caller, with job and part, for which the result is signed.
            success: Whether the function returned.
            value: The returned value, or the exception.

        Returns:
            The payload.

        Raises:
            PayloadPickleError: The value does not pickle.
            PayloadTooLargeError: The payload exceeds the limit.
        """
        return self._codec.encode((success, value), place + RESULT)

    def decode_result(self, place: str, payload: bytes) -> tuple[bool, Any]:
        """Decode the result of a task.

        Args:
            place: Path of the caller, with job and part, for which the result is signed.
            payload: The encoded result.

        Returns:
            Whether the function returned, and the value or the exception.

        Raises:
            PayloadRefusedError: The result is unsigned, altered or unreadable.
        """
        success, value = self._codec.decode(payload, place + RESULT)
        return success, value


def imports_main(pickled: bytes) -> bool:
    """Return whether a pickle refers to the module ``__main__``, or contains bytes that may be such a pickle.

    Its name as a text is no reference: scikit-learn sends the filters of `warnings` with each task.

    Args:
        pickled: The pickle, as `pickle.dumps` returns it with protocol 4 or 5.

    Returns:
        Whether its reader needs the module.
    """
    #: The last two values that were pushed; None for one that is not a text.
    module: str | None = None
    last: str | None = None
    memo: list[str | None] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "MEMOIZE":
            memo.append(last)
        elif opcode.name == "STACK_GLOBAL" and module in (_MAIN, None):
            return True
        elif isinstance(argument, (bytes, bytearray)) and _MAIN.encode() in argument:
            return True
        elif opcode.name not in ("PROTO", "FRAME"):
            text: Any = memo[argument] if opcode.name.endswith("BINGET") else argument  # type: ignore[index]  # an int
            module, last = last, text if isinstance(text, str) else None
    return False


def later_function_advice(error: BaseException | None) -> str:
    """Return what to do if a worker of this program could not read a task.

    Args:
        error: What the attempt raised.

    Returns:
        The end of a message; empty if there is no advice.
    """
    return f"; {LATER_FUNCTION}" if error is not None and _NOT_IN_MAIN.search(reason_of(error)) else ""


def describe_initializer(initializer: Function | None, initargs: tuple[Any, ...]) -> str:
    """Return a description by which processes know whether they use the same initializer.

    Args:
        initializer: The initializer; None if there is none.
        initargs: Its arguments. Those that do not pickle are not compared.

    Returns:
        Its name, its module or the path and version of its program, and a digest of its arguments.
    """
    if initializer is None:
        return NO_INITIALIZER
    compared: tuple[Any, ...] = initargs
    if isinstance(initializer, (types.FunctionType, type)):
        module, name = initializer.__module__, initializer.__qualname__
        if "<" in name and isinstance(initializer, types.FunctionType):  # a lambda, for example
            name += f" in line {initializer.__code__.co_firstlineno}"
    else:
        module, name = type(initializer).__module__, type(initializer).__qualname__
        compared = (initializer, *initargs)
    if module in (_MAIN, OTHER_MAIN):
        here = program()
        module = here.module or (os.path.realpath(here.file) if here.file else "a prompt, or -c")
        module += f" in version {here.version}" if here.version else ""
    text = f"{name} of {module}"
    return f"{text} (arguments: {_digest(compared)})" if compared else text


def _digest(value: Any) -> str:
    """Return a digest of a value; empty if the value does not pickle.

    The parts of a container are pickled one by one: the pickle of a set depends on the process, and
    that of a tuple on whether equal parts are one object.
    """
    kind = type(value)
    if kind in (tuple, list):
        parts = [_digest(each) for each in value]
    elif kind in (set, frozenset):
        parts = sorted(map(_digest, value))
    elif kind is dict:
        parts = sorted(map(_digest, value.items()))
    else:
        try:
            return hashlib.sha256(pickle.dumps(value)).hexdigest()[:16]
        except Exception:  # whatever a method of the value raises
            return ""
    return hashlib.sha256(f"{kind.__name__}{parts}".encode()).hexdigest()[:16]


def program() -> MainProgram:
    """Return the program that runs as ``__main__`` here, or in the parent of a spawned process.

    Returns:
        The program.
    """
    main = sys.modules[_MAIN]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    module = None if spec is None or spec.name == OTHER_MAIN else spec.name
    path = os.path.abspath(file) if file else None
    return MainProgram(module, path, _first_version(path))


@functools.cache
def _first_version(file: str | None) -> str | None:
    """Return the digest that the file had at the first call."""
    return _version(file)


def _version(file: str | None) -> str | None:
    try:
        with open(file or "", "rb") as opened:
            return hashlib.sha256(opened.read()).hexdigest()[:16]
    except OSError:
        return None


def _differ(one: str | None, other: str | None) -> bool:
    """Return whether two versions are known, and differ."""
    return None not in (one, other) and one != other


@contextmanager
def main_module_of(wanted: MainProgram, place: str) -> Iterator[None]:
    """Make a program the module ``__main__`` during the ``with`` block.

    Args:
        wanted: The program.
        place: Path of the task, for the error.

    Yields:
        None: Nothing.

    Raises:
        PayloadRefusedError: The program cannot be loaded.
        StaleProgramError: A new process can load this version of the program.
    """
    here = program()
    is_here = any(theirs is not None and theirs == ours for theirs, ours in zip(wanted[:2], here[:2], strict=True))
    if is_here and not _differ(wanted.version, here.version):
        yield
        return
    before = sys.modules[_MAIN]
    try:
        sys.modules[_MAIN] = loaded(wanted)
    except StaleProgramError:
        raise
    except (Exception, SystemExit) as error:  # a program without ``if __name__`` may exit
        name = wanted.module or wanted.file or "a prompt, or -c"
        reason = f"its function is of the program {name}, which this worker cannot load, {reason_of(error)}"
        raise PayloadRefusedError(place, reason) from error
    try:
        yield
    finally:
        sys.modules[_MAIN] = before


#: The loaded programs, by module and file, with their versions.
_loaded: dict[tuple[str | None, str | None], tuple[str | None, types.ModuleType]] = {}


def loaded(wanted: MainProgram) -> types.ModuleType:
    """Return a program as a module, without the part under ``if __name__ == "__main__"``.

    Args:
        wanted: The program.

    Returns:
        The module, which is loaded if it is not yet.

    Raises:
        ModuleNotFoundError: The program has no file.
        ImportError: The file is here in another version.
        StaleProgramError: The file was changed since the program was loaded.
    """
    known = _loaded.get(wanted[:2])
    if known is not None and not _differ(wanted.version, known[0]):
        return known[1]
    spec = None if wanted.module is None else importlib.util.find_spec(wanted.module)
    version = _version(wanted.file if spec is None else spec.origin)
    if _differ(wanted.version, version):
        raise ImportError(
            "its file differs from that of the caller, which may have been changed since the caller started"
        )
    if known is not None:
        raise StaleProgramError
    _loaded[wanted[:2]] = version, _load(wanted)
    return _loaded[wanted[:2]][1]


def _load(wanted: MainProgram) -> types.ModuleType:
    module = types.ModuleType(OTHER_MAIN)
    if wanted.module is not None:
        module.__dict__.update(runpy.run_module(wanted.module, run_name=OTHER_MAIN, alter_sys=True))
    elif wanted.file is not None:
        sys.path.append(os.path.dirname(wanted.file))
        module.__dict__.update(runpy.run_path(wanted.file, run_name=OTHER_MAIN))
    else:
        raise ModuleNotFoundError("it has no file")
    return module
