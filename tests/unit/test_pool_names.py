"""Names of a pool's znodes, and parsing of their data, even if another client wrote it."""

from __future__ import annotations

import pytest

from distsync._protocols.payload_chunks import PART_BYTES, is_large, parts_of, unsplit
from distsync._protocols.pool.tasks import PoolSegments, Task, task_of
from distsync.errors import CorruptNodeError, TaskLostError, WorkerStartError

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
