"""Run a program as ``python script.py`` or ``python -m module`` would, after its main module was
prepared.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any


class ProgramNotFound(Exception):
    """The program does not exist."""


class ReplaceCommand(BaseException):
    """Raised by a command to make the process run something else in its place."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__(run)
        self.run = run


class Program:
    """A script, a folder or archive with ``__main__.py``, or a module."""

    def __init__(self, target: str, arguments: Sequence[str], is_module: bool) -> None:
        self.what = target
        self.arguments = list(arguments)
        self.is_module = is_module
        self.main = ModuleType("__main__")
        self.main.__annotations__ = {}
        self._load: Callable[[], CodeType] = lambda: compile("", target, "exec")

    def prepare(self) -> None:
        """Set ``__main__``, ``sys.argv`` and ``sys.path`` to those of the program.

        Raises ProgramNotFound, and what the packages that contain its module raise on import.
        """
        if not self.is_module and not os.path.exists(self.what):
            raise ProgramNotFound(f"there is no file {self.what}")
        importer = None if self.is_module else pkgutil.get_importer(os.path.abspath(self.what))
        sys.argv[:] = [self.what, *self.arguments]
        if self.is_module:
            self._first_on_path(os.getcwd())
            self._as_module(self._spec_of_module(self.what))
            sys.argv[0] = self.main.__file__ or self.what
        elif os.path.isdir(self.what) or importer is not None:
            self._first_on_path(os.path.abspath(self.what))
            self._as_module(self._spec_in(importer))
        else:
            self._first_on_path(os.path.dirname(os.path.realpath(self.what)))
            self._as_script()
        sys.modules["__main__"] = self.main

    def run(self) -> None:
        """Run the program. The traceback of an uncaught exception is shown without our own frames."""
        sys.excepthook = _without(sys.excepthook, vars(self.main))
        exec(self._load(), vars(self.main))

    def _first_on_path(self, folder: str) -> None:
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return
        sys.path[:1] = [folder]

    def _as_script(self) -> None:
        path = os.path.abspath(self.what)
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        values = {"__file__": path, "__loader__": loader, "__cached__": None}
        vars(self.main).update({**values, "__builtins__": __import__("builtins")})
        self._load = self._compiled

    def _compiled(self) -> CodeType:
        path = os.path.abspath(self.what)
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    def _as_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        loader: Any = spec.loader
        values = {"__file__": spec.origin, "__loader__": loader, "__cached__": spec.cached, "__spec__": spec}
        vars(self.main).update({**values, "__package__": spec.parent, "__builtins__": __import__("builtins")})
        code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
        if code is None:
            raise ProgramNotFound(f"{spec.name} has no code that can be run")
        self._load = lambda: code

    def _spec_of_module(self, name: str) -> importlib.machinery.ModuleSpec:
        try:
            spec = importlib.util.find_spec(name)
        except (ModuleNotFoundError, ValueError) as error:
            raise ProgramNotFound(f"there is no module {name} ({error})") from error
        if spec is None:
            raise ProgramNotFound(f"there is no module {name}")
        if spec.submodule_search_locations is not None and not name.endswith(".__main__"):
            return self._spec_of_module(f"{name}.__main__")
        return spec

    def _spec_in(self, importer: Any) -> importlib.machinery.ModuleSpec:
        spec: importlib.machinery.ModuleSpec | None = importer.find_spec("__main__")
        if spec is None:
            raise ProgramNotFound(f"there is no __main__.py in {self.what}")
        return spec


def _without(hook: Callable[..., Any], names: dict[str, Any]) -> Callable[..., None]:
    """Wrap ``hook``, an excepthook, so that it gets the frames from the first one with these globals
    on.
    """

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        inside = trace
        while inside is not None and inside.tb_frame.f_globals is not names:
            inside = inside.tb_next
        hook(kind, error.with_traceback(inside), inside)

    return show
