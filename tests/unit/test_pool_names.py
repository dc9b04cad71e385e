"""Names of a pool's znodes, and parsing of their data, even if another client wrote it."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading

import pytest

from distsync._protocols.payload_chunks import PART_BYTES, is_large, parts_of, unsplit
from distsync._protocols.pool.tasks import PoolSegments, Task, task_of
from distsync.errors import CorruptNodeError, TaskLostError, WorkerStartError
from distsync.multiprocessing._pool.pool_codec import describe_initializer

TASK = Task("0d2f0b5e-6c4f-4a53-9be5-4a1a9a8f4b11", 12, 3)
GUID = "7a1e0d4c-26c5-4d0a-8d4f-5d8f0c1c2b33"


def test_task_is_identified_by_the_name_of_its_item() -> None:
    assert task_of(f"/pool/p/items/0000000000/i_{TASK.key}{GUID}-0000000042") == TASK


@pytest.mark.parametrize("name", ["i_-0000000001", f"i_{GUID}-0000000001", "i_a.b.c_x-0000000001", "anything"])
def test_item_with_a_foreign_name_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptNodeError):
        task_of(f"/pool/p/items/0000000000/{name}")


def test_short_payload_has_no_parts() -> None:
    assert parts_of("/parts", unsplit(b"/t1.2.3")) == []
    assert not is_large(b"x" * PART_BYTES)
    assert is_large(b"x" * (PART_BYTES + 1))


def test_parts_are_named_by_their_number() -> None:
    assert parts_of("/parts", b"/t12.3.2") == ["/parts/t12.3.0", "/parts/t12.3.1"]


@pytest.mark.parametrize("data", [b"/", b"/t1", b"/t1.x", b"/.3", b"/t1.-3", b"/t1.99999", b"/\xff.\xff"])
def test_malformed_parts_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptNodeError):
        parts_of("/parts", data)


def test_name_of_an_answer_contains_its_task_and_kind() -> None:
    assert PoolSegments("/p").answer(TASK, "done") == f"/p/callers/{TASK.caller}/answers/12.3.done"


def test_errors_describe_the_fate_of_the_task_and_of_the_workers() -> None:
    assert str(TaskLostError("the task f", "/p", "gone")) == "the task f in pool /p has no result: gone"
    assert "3 workers of pool /p" in str(WorkerStartError("/p", 3, "exit code 1"))


def begin(*_: object) -> None:
    pass


def test_description_of_an_initializer_names_its_module_and_tells_its_arguments_apart() -> None:
    place = begin.__module__
    assert describe_initializer(None, ()) == "None"
    assert describe_initializer(begin, ()) == f"begin of {place}"
    arguments = [(1,), ("1",), ((1,),), ([1],), ({1},), ({1: 2},), (threading.Lock(),), (1, threading.Lock())]
    described = {describe_initializer(begin, args) for args in arguments}
    assert len(described) == len(arguments)
    assert all(text.startswith(f"begin of {place} (arguments: ") for text in described)
    assert describe_initializer(begin, (threading.Lock(),)) == describe_initializer(begin, (threading.Lock(),))


def test_description_of_an_initializer_that_is_no_function_contains_its_state() -> None:
    one, two = (describe_initializer(functools.partial(begin, number), ()) for number in (1, 2))
    assert one != two


def test_description_of_a_lambda_contains_its_line() -> None:
    calls = [
        lambda: None,
        lambda: None,
    ]
    assert describe_initializer(calls[0], ()) != describe_initializer(calls[1], ())


@pytest.mark.parametrize("seed", ["1", "2"])
def test_description_of_an_initializer_is_the_same_in_each_process(seed: str) -> None:
    args = "({'a', 'b', 'c', 'd'}, {'x': ''.join(['a', 'b']), 'y': frozenset('abc')}, 'ab', 'ab')"
    code = f"from distsync.multiprocessing._pool.pool_codec import describe_initializer as f; print(f(print, {args}))"
    run = [sys.executable, "-c", code]
    said = subprocess.run(run, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
    assert said.strip() == describe_initializer(print, eval(args))
