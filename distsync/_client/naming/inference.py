"""Names of objects without an explicit one, after the variable to which they are assigned.

This reads frames, and keeps none. The only trace that it leaves in a module is
``__distsync_names__``, like Python's own ``__warningregistry__``. It needs only the standard
library, so that it works without kazoo.

The decisions made here:

* ``lock = Lock()`` in a module is ``module.lock``, in a class body ``module.Class.lock``. ``a = b =
  Lock()`` is ``b``, the name next to the object, so that an additional alias changes nothing.
  Tuples (``a, b = Lock(), Lock()``), annotations, ``:=``, ``x or Lock()`` and ``Lock() if x else
  y`` are supported.

* One call site names one object. Further objects that a loop, or ``list(map(Queue, sizes))``, makes at
  the same call site get unique names, with a warning: with the standard library they are different
  objects. ``importlib.reload`` finds the name of the first one again.

* Code in a function makes unique names, even after ``global x``: a function may run any number of
  times, and each run makes its own object, as with the standard library. The same is true of a
  class body inside a function.

* ``__main__`` is the module name given to ``-m``, or the script's file name without its suffix.
  ``python -c`` and the prompt have neither: objects assigned there get unique names, with a
  warning.
"""

from __future__ import annotations

import inspect
import os
import sys
import uuid
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from distsync._client.lifecycle import importing

# multiprocessing calls the main module by the second name in a child process.
MAIN_NAMES = ("__main__", "__mp_main__")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # have their own frames until Python 3.11
USER_PARTS = ("distsync.cli.", "distsync.testing.")  # use distsync as a program does
CLASS_TEXT = "__qualname__"


class UnnamedObjectWarning(UserWarning):
    """A warning about an object at module or class level that is assigned to no name.

    No other process can find such an object.
    """

    __module__ = "distsync"


class Name(NamedTuple):
    """A name, and whether it is fresh: generated, so that no other process can know it yet."""

    text: str
    fresh: bool


def resolve(obj: object, name: str | None) -> Name:
    """Return the name of ``obj``, which is being created.

    Args:
        obj: The object.
        name: Its explicit name; None infers a name, or generates a fresh one.

    Returns:
        The name.
    """
    if name is None:
        bound = bound_name(ignored_object=obj)
        return Name(bound, False) if bound is not None else fresh_name()
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return Name(name, False)


def fresh_name() -> Name:
    """Return a unique name."""
    return Name(str(uuid.uuid4()), True)


def call_site() -> str:
    """Return where the program calls distsync, as ``folder/file:line in function``."""
    frame = next(_callers(None), None)
    if frame is None:
        return "unknown"
    code = frame.f_code
    file = "/".join(code.co_filename.split(os.sep)[-2:])
    return f"{file}:{frame.f_lineno} in {getattr(code, 'co_qualname', code.co_name)}"


def bound_name(ignored_object: object = None) -> str | None:
    """Return ``module.name`` or ``module.Class.name`` for the object being created, or None.

    ``ignored_object`` is the object itself. The ``__init__`` methods of its class and subclasses
    are skipped in the search for the creating code.
    """
    frame = next(_callers(ignored_object), None)
    if frame is None:
        return None
    inside = _out_of_comprehension(frame)
    level = _level(inside)
    if level is None:
        return None
    # Imported late: most programs need neither this module nor dis.
    with importing():
        from distsync._client.naming.assignment_target import target_of_call

    module = module_name(inside.f_globals)
    target = None if _in_comprehension(frame) else target_of_call(frame.f_code, frame.f_lasti)
    if module is None:
        reason = "code at the prompt or in -c has no module name"
    elif target is None:
        reason = "created at module or class level, but not assigned to a name"
    else:
        text = ".".join((module, *([] if target.is_global else level), target.name))
        if _is_first(inside, text):
            return text
        reason = f"{text} was created here before"
    _warn(inside, reason)
    return None


def _out_of_comprehension(frame: FrameType) -> FrameType:
    """Return the nearest frame outside of comprehensions."""
    while frame.f_code.co_name in COMPREHENSIONS and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _in_comprehension(frame: FrameType) -> bool:
    """Return whether the frame runs a comprehension.

    That is a frame of its own or, since Python 3.12, inlined code with variables that hide the
    module's.
    """
    return frame.f_code.co_name in COMPREHENSIONS or _hides_variables(frame)


def _hides_variables(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "<module>" and bool(code.co_varnames) and frame.f_locals is not frame.f_globals


def module_name(names: dict[str, Any]) -> str | None:
    """Return the real name of the module with the globals ``names``; None at a prompt."""
    name = names.get("__name__")
    if name not in MAIN_NAMES:
        return name if isinstance(name, str) else None
    spec = names.get("__spec__")
    if spec is not None and spec.name not in MAIN_NAMES:
        return str(spec.name)
    return _script_name(names.get("__file__"))


def _script_name(file: object) -> str | None:
    """Return the script's stem, or that of the folder or archive whose ``__main__.py`` runs."""
    if not isinstance(file, str) or os.path.basename(file).startswith("<"):
        return None
    folder, base = os.path.split(os.path.abspath(file))
    stem = os.path.splitext(base)[0]
    return stem if stem != "__main__" else os.path.splitext(os.path.basename(folder))[0]


def _callers(ignored_object: object) -> Iterator[FrameType]:
    """Yield the frames of the program, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_ours(frame.f_globals.get("__name__")) and not _initialises(frame, ignored_object):
            yield frame
        frame = frame.f_back


def _is_ours(module: object) -> bool:
    if not isinstance(module, str) or not (module == "distsync" or module.startswith("distsync.")):
        return False
    return not (module + ".").startswith(USER_PARTS)


def _initialises(frame: FrameType, obj: object) -> bool:
    """Return whether the frame is an ``__init__`` of ``obj``."""
    code = frame.f_code
    if obj is None or code.co_name != "__init__" or not code.co_argcount:
        return False
    return frame.f_locals.get(code.co_varnames[0]) is obj


def _level(frame: FrameType) -> list[str] | None:
    """Return the qualified name of the class body that the frame runs, as a list.

    The list is empty at module level. Return None in functions, and in classes inside them.
    """
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None
    if frame.f_locals is frame.f_globals or _hides_variables(frame):
        return []
    inside = frame.f_locals.get(CLASS_TEXT, "<locals>")
    return None if "<locals>" in inside else [inside]


def _is_first(frame: FrameType, text: str) -> bool:
    """Return whether this instruction names its first object in this run of the module.

    A reload of the module counts as another run: it has a new ``__spec__``.
    """
    names = frame.f_globals
    made, spec = names.setdefault("__distsync_names__", {}), names.get("__spec__")
    before = made.get((text, frame.f_lasti), made)
    made[text, frame.f_lasti] = spec
    return before is not spec


def _warn(frame: FrameType, reason: str) -> None:
    """Warn once per line, as recorded in the ``__warningregistry__`` of the frame's module."""
    warnings.warn_explicit(
        f'{reason}, so no other process can find this object: give it a name with name="..."',
        UnnamedObjectWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=str(frame.f_globals.get("__name__")),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
