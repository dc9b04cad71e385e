"""Names of objects without an explicit one, after the variable to which they are assigned.

This reads frames, and keeps none. The only trace that it leaves in a module is
``__distsync_names__``, like Python's own ``__warningregistry__``. It needs only the standard
library, so that it works without kazoo.

The decisions made here:

* ``lock = Lock()`` in a module is ``module.lock``, in a class body ``module.Class.lock``. ``a = b =
  Lock()`` is ``b``, the name next to the object, so that an additional alias changes nothing.
  Tuples (``a, b = Lock(), Lock()``), annotations, ``:=``, ``x or Lock()`` and ``Lock() if x else
  y`` are supported.

* The first object that a run of a module assigns to a variable gets its name. Further ones, which a
  second statement, a loop or ``list(map(Queue, sizes))`` makes, get unique names: with the standard
  library they are different objects. ``importlib.reload`` is another run, and so is an import in a
  child process: its first object has the same name, and is the same object, as that of the run before.

* Code in a function makes unique names, even after ``global x``: a function may run any number of
  times, and each run makes its own object, as with the standard library. The same is true of a
  class body inside a function.

* With ``DISTSYNC_UNNAMED=site``, an object that would get a unique name is called
  ``module.function.variable#1``, with the number of objects that this process created so before.
  The variable may be an attribute, and is left out in a comprehension or an expression. Before
  Python 3.11, where code does not know its class, ``function:line`` replaces the function.

* ``__main__`` is the module name given to ``-m``, or the script's file name without its suffix.
  ``python -c`` and the prompt have neither: objects assigned there get unique names.

* On the embedded server, whose users are on one host, a module is known by its file instead, whether
  it is run or imported. Two programs with a ``utils.py`` each have different modules. A module
  without a file, which is built at run time, is known by its name.

An object with a unique name is private to its process until it is pickled or inherited by a fork.
A program whose imports were swapped expects that its processes share its objects. So it is warned
when it uses one that is private.
"""

from __future__ import annotations

import inspect
import os
import sys
import uuid
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import count
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

from distsync._import_gate import importing
from distsync.errors import ConfigurationError, PrivateObjectError

# multiprocessing calls the main module by the second name in a child process.
MAIN_NAMES = ("__main__", "__mp_main__")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # have their own frames until Python 3.11
USER_PARTS = ("distsync.cli.", "distsync.testing.")  # use distsync as a program does
CLASS_TEXT = "__qualname__"
UNNAMED = "DISTSYNC_UNNAMED"
UNNAMED_MODES = ("warn", "error", "ignore", "site")
#: Maximum size in bytes of a file's path as a module's key. A component of a znode's path has at most 1,000 bytes, of
#: which a byte of the file's path takes up to 3. Longer paths are hashed.
MAX_FILE_BYTES = 300


#: The numbers of the next objects that `_site_name` names, by the rest of the name.
_ordinals: dict[str, Iterator[int]] = {}

#: Modules in which this process has bound objects, each with the client that an object was given, or None.
bound_modules: dict[tuple[Module, Any], None] = {}


class PrivateObjectWarning(UserWarning):
    """A warning about an object without a name that only this process can find.

    It is issued when the object is used and was neither pickled nor inherited by a fork. It says
    where the object was created, and what to do. DISTSYNC_UNNAMED replaces it by an error, or
    disables it.
    """

    __module__ = "distsync"


class CreationPlace:
    """Where an object was created, and whether another process knows it.

    It refers to the code of the frame, not to the frame, and finds the line when it is asked for.

    Args:
        kind: The class of the object.
        frame: The frame that creates it.
        reason: Why it has no name.

    Attributes:
        travelled: Whether the object was pickled, or inherited by a fork.
    """

    __slots__ = ("_code", "_globals", "_instruction", "_kind", "_reason", "travelled")

    def __init__(self, kind: type[Any], frame: FrameType, reason: str) -> None:
        frame = _out_of_generated(frame)
        self._kind, self._reason, self.travelled = kind, reason, False
        self._code, self._instruction, self._globals = frame.f_code, frame.f_lasti, frame.f_globals

    @property
    def kind(self) -> str:
        """The class of the object, with its module."""
        return f"{self._kind.__module__}.{self._kind.__qualname__}"

    @property
    def file(self) -> str:
        """The file of the creating code."""
        return self._code.co_filename

    @property
    def line(self) -> int:
        """The line of the creating call."""
        lines = (line for start, end, line in self._code.co_lines() if start <= self._instruction < end)
        return next(lines, None) or self._code.co_firstlineno

    def report_use(self) -> None:
        """Warn that the object is used, once per line, or raise PrivateObjectError.

        The ``__warningregistry__`` of the creating module records what it was warned of.
        """
        mode = unnamed_mode()
        if self.travelled or mode == "ignore":
            return
        line = self.line
        error = PrivateObjectError(self.kind, f"{self.file}:{line}", self._reason)
        if mode == "error":
            raise error
        registry = self._globals.setdefault("__warningregistry__", {})
        module = str(self._globals.get("__name__"))
        warnings.warn_explicit(str(error), PrivateObjectWarning, self.file, line, module=module, registry=registry)


class Module(NamedTuple):
    """A module in which an object is bound to a name.

    Attributes:
        name: Its real name, also if it runs as ``__main__``.
        file: The resolved path of its file; None if it has no file.
    """

    name: str
    file: str | None = None

    def key(self, is_embedded: bool) -> str:
        """Return the name by which it is known: its file on the embedded server, its real name on others."""
        if not is_embedded or self.file is None:
            return self.name
        encoded = self.file.encode("utf-8", "surrogatepass")
        if len(encoded) <= MAX_FILE_BYTES:
            return self.file
        from hashlib import sha256  # deferred: few paths are that long

        return sha256(encoded).hexdigest()

    def relative(self, name: str) -> str:
        """Return the name of an object without that of this module, which may be known by another name."""
        return name.removeprefix(self.name).lstrip(".")


class Name(NamedTuple):
    """A name.

    Attributes:
        text: The name.
        fresh: Whether it is generated, so that no other process can know it yet.
        place: Where the object with a fresh name was created.
        module: The module in which the object is bound to its name, if that was inferred.
    """

    text: str
    fresh: bool
    place: CreationPlace | None = None
    module: Module | None = None


@cache
def unnamed_mode() -> str:
    """Return the checked value of DISTSYNC_UNNAMED, as it was at the first call."""
    mode = os.environ.get(UNNAMED) or "warn"
    if mode not in UNNAMED_MODES:
        raise ConfigurationError(UNNAMED, mode, f"it must be {', '.join(UNNAMED_MODES[:-1])} or {UNNAMED_MODES[-1]}")
    return mode


def resolve(obj: object, name: str | None, by_site: bool = True) -> Name:
    """Return the name of ``obj``, which is being created.

    Args:
        obj: The object. The ``__init__`` methods of its class and subclasses are skipped in the
            search for the creating code.
        name: Its explicit name; None infers a name, or generates a fresh one.
        by_site: Whether DISTSYNC_UNNAMED may name it after its site instead of a fresh name.

    Returns:
        The name: ``module.name``, ``module.Class.name``, that of its site, or a fresh one.
    """
    if name is not None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        return Name(name, False)
    frame = next(_callers(obj), None)
    if frame is None:
        return Name(fresh_name(), True)
    bound, reason = _bound_name(frame)
    if bound is None and by_site and unnamed_mode() == "site":
        bound = _site_name(frame)
    return Name(fresh_name(), True, CreationPlace(type(obj), frame, reason)) if bound is None else bound


def creation_place(obj: object) -> CreationPlace | None:
    """Return where ``obj``, which is being created, is created; None if no program does it."""
    frame = next(_callers(obj), None)
    return None if frame is None else CreationPlace(type(obj), frame, "")


def fresh_name() -> str:
    """Return a unique name."""
    return str(uuid.uuid4())


def is_fresh_name(name: str) -> bool:
    """Return whether a name was made by `fresh_name`, in this process or in the one that pickled the object."""
    digits = name.replace("-", "")
    return len(name) == 36 and len(digits) == 32 and all(each in "0123456789abcdef" for each in digits)


def call_site() -> str:
    """Return where the program calls distsync, as ``folder/file:line in function``."""
    frame = next(_callers(None), None)
    if frame is None:
        return "unknown"
    code = frame.f_code
    file = "/".join(code.co_filename.split(os.sep)[-2:])
    return f"{file}:{frame.f_lineno} in {getattr(code, 'co_qualname', code.co_name)}"


def _bound_name(frame: FrameType) -> tuple[Name | None, str]:
    """Return the name for an object that ``frame`` creates, or None and the reason why it has none."""
    inside = _out_of_comprehension(frame)
    level = _level(inside)
    if level is None:
        return None, "created in a function"
    # Imported late: most programs need neither this module nor dis.
    with importing():
        from distsync._client.naming.assignment_target import target_of_call

    module = module_of(inside.f_globals)
    if module is None:
        return None, "code at the prompt or in -c has no module name"
    target = None if _in_comprehension(frame) else target_of_call(frame.f_code, frame.f_lasti)
    if target is None:
        return None, "assigned to no name"
    text = ".".join((module.name, *([] if target.is_global else level), target.name))
    first = _first_place(inside, text)
    if first is not None:
        return None, f"the name {text} is taken by the object created at {first}"
    return Name(text, False, module=module), ""


def _site_name(frame: FrameType) -> Name | None:
    """Return the name of an object after the code that creates it, and its number; None at a prompt."""
    with importing():
        from distsync._client.naming.assignment_target import cached_target_of_call

    frame = _out_of_generated(frame)
    inside = _out_of_comprehension(frame)
    module, level, code = module_of(inside.f_globals), _level(inside), inside.f_code
    if module is None:
        return None
    function = getattr(code, "co_qualname", f"{code.co_name}:{code.co_firstlineno}")
    target = None if _in_comprehension(frame) else cached_target_of_call(frame.f_code, frame.f_lasti)
    text = ".".join((module.name, *([function] if level is None else level), *([target.name] if target else [])))
    return Name(f"{text}#{next(_ordinals.setdefault(text, count(1)))}", False, module=module)


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


def module_of(names: dict[str, Any]) -> Module | None:
    """Return the module with the globals ``names``, by its real name; None at a prompt."""
    name, file = names.get("__name__"), names.get("__file__")
    if name in MAIN_NAMES:
        spec = names.get("__spec__")
        name = _script_name(file) if spec is None or spec.name in MAIN_NAMES else str(spec.name)
    return Module(name, _resolved(file)) if isinstance(name, str) else None


def _resolved(file: object) -> str | None:
    return os.path.realpath(file) if _is_file(file) else None


def _is_file(file: object) -> TypeGuard[str]:
    return isinstance(file, str) and not os.path.basename(file).startswith("<")


def _script_name(file: object) -> str | None:
    """Return the script's stem, or that of the folder or archive whose ``__main__.py`` runs."""
    if not _is_file(file):
        return None
    folder, base = os.path.split(os.path.abspath(file))
    stem = os.path.splitext(base)[0]
    return stem if stem != "__main__" else os.path.splitext(os.path.basename(folder))[0]


def _callers(ignored_object: object) -> Iterator[FrameType]:
    """Yield the frames of the program, innermost first.

    A frame of typing is that of ``Queue[int]()``.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module != "typing" and not is_ours(module) and not initialises(frame, ignored_object):
            yield frame
        frame = frame.f_back


def is_ours(module: object) -> bool:
    """Return whether a module of this name is distsync's own, and does not use it as a program does."""
    if not isinstance(module, str) or not (module == "distsync" or module.startswith("distsync.")):
        return False
    return not (module + ".").startswith(USER_PARTS)


def initialises(frame: FrameType, obj: object) -> bool:
    """Return whether the frame is an ``__init__`` of ``obj``."""
    code = frame.f_code
    if obj is None or code.co_name != "__init__" or not code.co_argcount:
        return False
    return frame.f_locals.get(code.co_varnames[0]) is obj


def _out_of_generated(frame: FrameType) -> FrameType:
    """Return the caller of a dataclass's ``__init__``, which has no file; for other frames, the frame itself."""
    code = frame.f_code
    return frame.f_back or frame if code.co_name == "__init__" and code.co_filename.startswith("<") else frame


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


def _first_place(frame: FrameType, text: str) -> str | None:
    """Return where this run of the module has given the name ``text`` to an object; None if this is the first one.

    A reload of the module counts as another run: it has a new ``__spec__``.
    """
    names = frame.f_globals
    taken, spec = names.setdefault("__distsync_names__", {}), names.get("__spec__")
    if text in taken and taken[text][0] is spec:
        return str(taken[text][1])
    taken[text] = spec, f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return None
