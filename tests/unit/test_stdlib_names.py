"""Each name and module of the standard library's is available in the module that replaces it."""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import distsync.futures
import distsync.multiprocessing

MODULES = [info.name for info in pkgutil.iter_modules(multiprocessing.__path__) if "win32" not in info.name]


def public(module: ModuleType) -> list[str]:
    return [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")]


@pytest.mark.parametrize("name", MODULES)
def test_module_of_multiprocessing_is_imported_by_its_name(name: str) -> None:
    theirs = importlib.import_module(f"multiprocessing.{name}")
    ours = importlib.import_module(f"distsync.multiprocessing.{name}")
    assert [each for each in public(theirs) if not hasattr(ours, each)] == []
    assert getattr(distsync.multiprocessing, name) is ours
    assert theirs.__spec__ is not None
    assert theirs.__spec__.name == f"multiprocessing.{name}"


@pytest.mark.parametrize("name", ["managers", "pool", "queues", "synchronize"])
def test_star_import_of_a_module_gives_what_the_standard_librarys_does(name: str) -> None:
    names: dict[str, object] = {}
    exec(f"from distsync.multiprocessing.{name} import *", names)
    assert {*importlib.import_module(f"multiprocessing.{name}").__all__} <= names.keys()


def test_replaced_module_is_ours_under_both_names() -> None:
    assert (
        importlib.import_module("distsync.multiprocessing.synchronize")
        is sys.modules["distsync.multiprocessing.synchronize"]
    )
    assert importlib.import_module("distsync.multiprocessing.connection") is sys.modules["multiprocessing.connection"]


def test_module_that_multiprocessing_has_not_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="distsync.multiprocessing.nothing"):
        importlib.import_module("distsync.multiprocessing.nothing")


@pytest.mark.parametrize("name", concurrent.futures.__all__)
def test_name_of_concurrent_futures_is_there(name: str) -> None:
    assert hasattr(distsync.futures, name)


def test_name_that_a_program_replaces_before_its_first_use_stays_replaced() -> None:
    program = "import distsync.multiprocessing as mp; mp.Lock = 1; mp.Queue; print(mp.Lock)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"
