"""With which tasks of a pool the caller's program is sent."""

from __future__ import annotations

import pickle
import sys
import types
from functools import partial
from typing import Any

import pytest

from distsync._client.settings import Settings
from distsync.multiprocessing._pool import pool_codec
from distsync.multiprocessing._pool.pool_codec import PoolCodec


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A program with a function and a class."""
    module = types.ModuleType("__main__")
    source = "def function(*_): return 1\nclass Kind:\n  class Inner: pass\n  def method(self): return 2"
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def calls_with_main(main: Any) -> dict[str, Any]:
    """Return calls that need the program."""
    return {
        "function": (main.function, (), {}),
        "class": (main.Kind, (), {}),
        "nested class": (len, ([main.Kind.Inner],), {}),
        "method": (main.Kind().method, (), {}),
        "partial": (partial(main.function, 1), (), {}),
        "instance among arguments": (len, ([1, main.Kind()],), {}),
        "function among keywords": (sorted, ([],), {"key": main.function}),
        "after texts": (print, ("__main__", "function", ["__main__"], main.function), {}),
        "twice": (print, (main.Kind(), main.Kind()), {}),
        "pickled": (pickle.loads, (pickle.dumps(main.function),), {}),
        "pickled, as a bytearray": (pickle.loads, (bytearray(pickle.dumps(main.Kind())),), {}),
    }


CALLS_WITHOUT_MAIN: dict[str, Any] = {
    "text": (print, ("__main__",), {}),
    "texts": (print, ("__main__", "__main__", "function"), {}),
    "text before a function": (print, ("__main__", len, "__main__", partial(len, "__main__")), {}),
    "key": (print, ({"__main__": 1},), {"__main__": b"bytes", "x": bytearray(b"more"), "y": 1.5}),
    "filters of warnings": (print, ([("default", None, DeprecationWarning, "__main__", 0)],), {}),
}


@pytest.fixture(params=[None, b"k" * 32], ids=["unsigned", "signed"])
def codec(request: pytest.FixtureRequest) -> PoolCodec:
    return PoolCodec(Settings(authkey=request.param))


def is_sent_with_program(codec: PoolCodec, call: Any) -> bool:
    return bool(codec._codec.decode(codec.encode_call("place", call), "place")[0] == "__main__")


def test_program_is_sent_with_calls_that_refer_to_it(main: types.ModuleType, codec: PoolCodec) -> None:
    assert [name for name, call in calls_with_main(main).items() if not is_sent_with_program(codec, call)] == []


def test_program_is_not_sent_with_calls_that_only_have_its_name_as_a_text(codec: PoolCodec) -> None:
    assert [name for name, call in CALLS_WITHOUT_MAIN.items() if is_sent_with_program(codec, call)] == []


def test_large_call_without_the_name_is_not_parsed(codec: PoolCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_codec, "imports_main", lambda _: pytest.fail("it was parsed"))
    assert not is_sent_with_program(codec, (len, ([*range(1000)],), {}))
