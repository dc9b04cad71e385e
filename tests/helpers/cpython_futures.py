"""``test.test_concurrent_futures`` of CPython 3.13, which Python 3.12 and older do not install.

They take it from a Python 3.13 of this machine, if one is on the PATH or among those of pyenv, as for tox.

A worker that is spawned runs this module first, as if it were the main program, so that it can import that package too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REASON = "no Python 3.13 with its test package is installed"
PACKAGE = "test_concurrent_futures"


def _folders() -> Iterator[Path]:
    """Yield the folders in which the package ``test`` of a Python 3.13 may be."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    prefixes = sorted(root.glob("versions/3.13.*"), reverse=True)
    found = shutil.which("python3.13")
    if found is not None:
        prefixes.append(Path(found).resolve().parent.parent)
    for prefix in prefixes:
        yield prefix / "lib" / "python3.13" / "test"


def _without_thread_sanitizer(function: Callable[..., Any], result: Any) -> Callable[..., Any]:
    """Let a function of ``test.support`` take the parameter ``thread``, which Python 3.13 has added."""

    def call(*args: Any, thread: bool = False, **keywords: Any) -> Any:
        return result if thread else function(*args, **keywords)

    return call


def _unchanged(test: Any) -> Any:
    return test


def _complete(support: Any) -> None:
    """Add to ``test.support`` what the tests of Python 3.13 need."""
    if not hasattr(support, "Py_GIL_DISABLED"):
        support.Py_GIL_DISABLED = False
        support.requires_gil_enabled = lambda reason: _unchanged
    if sys.version_info < (3, 13):
        support.check_sanitizer = _without_thread_sanitizer(support.check_sanitizer, False)
        support.skip_if_sanitizer = _without_thread_sanitizer(support.skip_if_sanitizer, _unchanged)


def make_importable() -> bool:
    """Make ``test.test_concurrent_futures`` importable. Return whether it is."""
    import test
    from test import support

    if find_spec(f"test.{PACKAGE}") is None:
        folder = next((each for each in _folders() if (each / PACKAGE / "util.py").exists()), None)
        if folder is None:
            return False
        test.__path__.append(str(folder))  # after the Python's own, which has all else
    _complete(support)
    return True


def prepare() -> None:
    """Make ``test.test_concurrent_futures`` importable, or skip the module that calls this."""
    import pytest  # not in a worker

    if sys.version_info < (3, 11):
        pytest.skip("test.support of Python 3.10 lacks what the tests of 3.13 need", allow_module_level=True)
    pytest.importorskip("test.support", reason=REASON)
    if not make_importable():
        pytest.skip(REASON, allow_module_level=True)


if __name__ == "__mp_main__":
    make_importable()
