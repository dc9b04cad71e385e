"""The names of the top module: all exist, are the objects of their home modules, and are loaded on
use.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import distsync

ROOT = Path(__file__).parents[2]
BUILT = {
    name: home for name, home in distsync._HOME_OF.items() if (ROOT / f"distsync/{home.replace('.', '/')}.py").exists()
}


@pytest.mark.parametrize("name", BUILT)
def test_name_is_the_object_of_its_home_module(name: str) -> None:
    home = importlib.import_module(f"distsync.{BUILT[name]}")
    assert getattr(distsync, name) is getattr(home, name)
    assert name in dir(distsync)
    assert name in distsync.__all__


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((ROOT / "distsync/__init__.pyi").read_text())
    imported = {
        alias.asname: (node.module or "").removeprefix("distsync").removeprefix(".")
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {**distsync._HOME_OF, **dict.fromkeys(distsync._MODULES, "")}
    (exported,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(exported)) == sorted(distsync.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Lok'"):
        _ = distsync.Lok


def test_all_public_errors_are_in_the_top_module() -> None:
    from distsync import errors

    internal = {kind.__name__ for kind in (errors.ZnodeError, *errors.ZnodeError.__subclasses__())}
    every = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
    assert every - internal <= set(distsync.__all__)


def test_importing_distsync_loads_neither_kazoo_nor_asyncio(tmp_path: Path) -> None:
    program = "import sys, distsync; dir(distsync); print({'kazoo', 'asyncio', 'uuid'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_the_version_is_that_of_the_distribution() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    assert distsync.__version__ == metadata["metadata"]["version"]


@pytest.mark.parametrize("face", ["threading", "asyncio", "multiprocessing.synchronize"])
def test_added_names_are_loaded_on_use_and_left_out_by_star_imports(face: str) -> None:
    module = importlib.import_module(f"distsync.{face}")
    assert not set(module._ADDED) & {*module.__all__, *vars(importlib.import_module(face))}
    for name in module._ADDED:
        assert name in dir(module)
        assert isinstance(getattr(module, name), type)
    program = f"import sys, distsync.{face}; print([m for m in sys.modules if 'shared_lock' in m])"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
