"""One of everything that distsync pickles, and files of such pickles.

``PYTHONPATH=tests python -m helpers.pickle_samples FILE HOSTS`` writes the pickles of this version, which lead to
HOSTS: a pickle that leads to the embedded server loads on this machine only. A file that is checked in is never written
again: each later version has to read it.
"""

from __future__ import annotations

import base64
import json
import pickle
import pickletools
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import distsync
from distsync import asyncio, errors, multiprocessing, recipes
from distsync.multiprocessing.managers import SyncManager
from helpers.all_object_kinds import KINDS, PROCESSES

PROTOCOL = 5
SINCE = datetime(2026, 11, 26, tzinfo=timezone.utc)


def samples() -> dict[str, Any]:
    """Return everything that distsync pickles, by a name of its own. Uses the default client."""
    found = {
        kind: make(name=f"the {kind}")
        for kind, (make, _) in {**KINDS, **PROCESSES}.items()
        if kind != "multiprocessing.Pool"  # it does not pickle
    }
    for kind in ("SharedLock", "multiprocessing.SharedLock"):
        found[f"{kind}.reader"] = found[kind].reader
        found[f"{kind}.writer"] = found[kind].writer
    for kind in ("Lock", "Semaphore", "BoundedSemaphore", "Event", "Condition", "Queue", "LifoQueue", "PriorityQueue"):
        found[f"asyncio.{kind}"] = getattr(asyncio, kind)(name=f"the asyncio {kind}")
    found["asyncio.SharedLock"] = lock = asyncio.SharedLock(name="the asyncio SharedLock")
    found |= {"asyncio.SharedLock.reader": lock.reader, "asyncio.SharedLock.writer": lock.writer}
    found["asyncio.Barrier"] = asyncio.Barrier(2, name="the asyncio Barrier")
    found |= _managed(found["multiprocessing.SyncManager"])
    found |= {f"value {type(value).__name__}": value for value in _values()}
    found |= {f"error {name}": error for name, error in _errors()}
    found["context"] = multiprocessing.get_context()
    found["spawn context"] = multiprocessing.get_context("spawn")
    found["task"] = (multiprocessing.pool.mapstar, ((abs, (1, -1)),), {})
    return found


def _managed(manager: SyncManager) -> dict[str, Any]:
    manager.connect()
    made = {
        "dict": manager.dict(name="d"),
        "list": manager.list(name="l"),
        "Namespace": manager.Namespace(name="n"),
        "Value": manager.Value("i", 1, name="v"),
        "Array": manager.Array("i", [1], name="a"),
    }
    return {f"SyncManager.{kind}": value for kind, value in made.items()}


def _values() -> Iterator[Any]:
    contender = distsync.Contender("h", 1, "MainThread", SINCE, "job.py:1", "1.0", "/p", 7)
    yield contender
    yield recipes.FencingToken(7)
    yield recipes.Versioned("v", 3)
    yield recipes.Entry("db:1", {"zone": "a"}, owner=contender)


def _errors() -> Iterator[tuple[str, BaseException]]:
    yield "ShutDown", errors.ShutDown("s")
    for name, value in sorted(vars(errors).items()):
        if isinstance(value, type) and issubclass(value, errors.DistsyncError):
            yield name, value("a", "b", "c")


def names_in(data: bytes) -> set[str]:
    """Return the modules and names that a pickle refers to, as ``module.name``."""
    found, stack, memo = set[str](), list[Any](), list[Any]()
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "STACK_GLOBAL":
            found.add(".".join(stack[-2:]))
            stack.append("")
        elif opcode.name == "MEMOIZE":
            memo.append(stack[-1] if stack else "")
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        else:
            assert opcode.name != "GLOBAL", "written with protocol 4 or later"
            stack.append(argument if isinstance(argument, str) else "")
    return found


def read(file: Path) -> dict[str, bytes]:
    """Return the pickles of a file, by name."""
    return {name: base64.b64decode(text) for name, text in json.loads(file.read_text()).items()}


if __name__ == "__main__":
    with distsync.connect(sys.argv[2]):
        written = {name: pickle.dumps(value, PROTOCOL) for name, value in samples().items()}
    lines = {name: base64.b64encode(data).decode() for name, data in written.items()}
    Path(sys.argv[1]).write_text(json.dumps(lines, indent=0) + "\n")
