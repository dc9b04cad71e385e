"""What pickles name: a queue filled by one version of distsync is read by the next."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from helpers.pickle_samples import PROTOCOL, names_in, read, samples
from helpers.public_names import MODULES, own_names

import distsync
from distsync import _pickle, recipes
from distsync._client.client import Client

FILES = sorted((Path(__file__).parent / "pickles").glob("*.json"))


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def described(value: Any) -> Any:
    """Return what two copies of one object have in common, in whichever namespace they are."""
    if isinstance(value, tuple):
        return type(value), [described(part) for part in value]
    return type(value), str(getattr(value, "name", "")).rpartition("/")[2], getattr(value, "args", ())


@pytest.mark.slow_on("zookeeper")
def test_pickles_refer_only_to_public_names_and_the_stable_module(client: Client) -> None:
    for kind, value in samples().items():
        names = {name for name in names_in(pickle.dumps(value, PROTOCOL)) if name.startswith("distsync.")}
        strange = [name for name in names if not is_public(name) and name.removeprefix("distsync._pickle.") == name]
        assert not strange, f"{kind}: {strange}"


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_pickles_of_earlier_versions_are_read(client: Client, file: Path) -> None:
    today = samples()
    for kind, data in read(file).items():
        found = pickle.loads(data)
        if kind.startswith("SyncManager."):  # its data is in the other namespace
            assert type(found) is type(today[kind]), kind
            continue
        assert described(found) == described(today[kind]), kind
        if kind.startswith("value "):
            assert found == today[kind]


def test_there_are_pickles_of_an_earlier_version() -> None:
    assert FILES


def test_stable_module_provides_the_names_used_in_pickles() -> None:
    for name in _pickle.HOMES:
        assert getattr(_pickle, name).__module__ == "distsync._pickle"
    with pytest.raises(AttributeError, match="nothing"):
        _ = _pickle.nothing


LOADS_AT_ONCE = """
import base64, json, pickle, sys, threading

sys.setswitchinterval(1e-5)
kinds = ["context", "spawn context", "multiprocessing.Value", "multiprocessing.Lock", "multiprocessing.Queue"] * 2
pickles = [base64.b64decode(json.load(open(sys.argv[1]))[kind]) for kind in kinds]
begin = threading.Barrier(len(pickles))

def load(data):
    begin.wait()
    pickle.loads(data)

threads = [threading.Thread(target=load, args=(data,)) for data in pickles]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("attempt", range(4))
def test_threads_of_a_new_process_can_load_pickles_concurrently(attempt: int) -> None:
    """They import the same packages at the same time."""
    command = [sys.executable, "-c", LOADS_AT_ONCE, str(FILES[0])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_annotations_of_public_records_can_be_evaluated() -> None:
    records = [
        distsync.Contender,
        distsync.Server,
        distsync.ServerAddress,
        distsync.testing.Tls,
        distsync.testing.Counts,
    ]
    records += [recipes.Candidate, recipes.Entry, recipes.Member, recipes.Versioned, distsync.patch.Finding]
    for record in records:
        assert get_type_hints(record), record


def test_repr_of_a_subclass_names_it(client: Client) -> None:
    class Mine(distsync.Lock): ...

    assert f".{Mine.__qualname__} object name='m'" in repr(Mine(name="m"))


@pytest.mark.parametrize("module", MODULES)
def test_module_named_by_a_public_class_is_public(module: str) -> None:
    for name, value in own_names(importlib.import_module(module)):
        if isinstance(value, type):
            home = importlib.import_module(value.__module__)
            assert is_public(value.__module__), f"{module}.{name} says {value.__module__}"
            assert getattr(home, value.__qualname__) is value
