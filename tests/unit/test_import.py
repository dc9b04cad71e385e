"""Importing distsync starts nothing and costs little; each test uses a new interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "distsync"
FACES = ["distsync", *(f"distsync.{path.stem}" for path in PACKAGE.glob("[a-z]*.py"))]
ALL = "import " + ", ".join(FACES)
OBJECTS = [f"distsync._objects.{path.stem}" for path in PACKAGE.glob("_objects/[a-z]*.py")]
MORE_MODULES = {"import distsync.threading, distsync.queue": 77, ALL: 124}
"""Modules that faces may load beyond kazoo's, and beyond asyncio's where the face of asyncio is one of them. It stands
for time, but is the same on every machine."""

CALLS_TO_KAZOO = 2.6
"""The import of all faces may make this many times the Python calls of that of kazoo. They come without kazoo, which is
loaded with the first client. Calls stand for time, but are the same on a busy machine."""

STARTED = """
import os, threading
before = os.listdir("/proc/self/fd")
{imports}
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
assert os.listdir("/proc/self/fd") == before, os.listdir("/proc/self/fd")
assert not [pid for pid in open("/proc/self/task/%d/children" % os.getpid()).read().split()]
print("started nothing")
"""
LOADED = "import sys; {imports}; print(len(sys.modules))"
CALLED = """
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
{imports}
sys.setprofile(None)
print(calls)
"""


def answer(program: str, folder: Path) -> str:
    """Return the output of a new interpreter in ``folder``, where it finds distsync as a program
    would.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")  # no source is compiled twice, distsync's or kazoo's
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_import_starts_no_thread_socket_or_process(tmp_path: Path) -> None:
    assert answer(STARTED.format(imports=ALL), tmp_path) == "started nothing"


@pytest.mark.parametrize("imports", MORE_MODULES)
def test_import_loads_few_modules_beyond_those_of_kazoo(imports: str, tmp_path: Path) -> None:
    others = "kazoo.client, asyncio" if "distsync.asyncio" in imports else "kazoo.client"
    alone = int(answer(LOADED.format(imports=f"import {others}"), tmp_path))
    faces = int(answer(LOADED.format(imports=f"import kazoo.client; {imports}"), tmp_path))
    assert faces - alone <= MORE_MODULES[imports]


def test_import_makes_few_calls_beyond_those_of_kazoo(tmp_path: Path) -> None:
    def calls(imports: str) -> int:
        answer(imports, tmp_path)  # compiles what it imports
        return int(answer(CALLED.format(imports=imports), tmp_path))

    assert calls(ALL) <= CALLS_TO_KAZOO * calls("import kazoo.client")


@pytest.mark.parametrize(
    "module",
    [
        *("distsync._protocols.steps", "distsync._server", "distsync._wire", "distsync._protocols", *FACES),
        *(pytest.param(module, marks=pytest.mark.slow("the faces import them")) for module in OBJECTS),
    ],
)
def test_public_modules_and_pure_parts_do_not_import_kazoo(module: str, tmp_path: Path) -> None:
    assert answer(f"import sys, {module}; print('kazoo' in sys.modules)", tmp_path) == "False"
