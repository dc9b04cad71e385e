"""WatchCache: reads that overlap, as those of a signal handler do with the read that it interrupts."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

import pytest

from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Wait, Watch


@coroutine
def reply() -> Generator[str, str, str]:
    return (yield "read")


async def read(_: Watch) -> str:
    return await reply()


def result(call: Coroutine[Any, Any, str], answer: str) -> str:
    """Return the result of ``call``, whose read is answered with ``answer``."""
    with pytest.raises(StopIteration) as ended:
        call.send(answer)
    return str(ended.value.value)


def test_read_that_began_earlier_does_not_replace_the_copy() -> None:
    cache = WatchCache("/x", read)
    earlier, later = cache.get(), cache.get(alone=True)
    assert [earlier.send(None), later.send(None)] == ["read", "read"]
    assert result(later, "new") == "new"
    cache.forget()
    assert result(earlier, "old") == "old"
    assert not cache.current


def test_read_that_began_earlier_returns_the_copy_of_the_later_one() -> None:
    cache = WatchCache("/x", read)
    earlier, later = cache.get(), cache.get(alone=True)
    assert [earlier.send(None), later.send(None)] == ["read", "read"]
    assert result(later, "new") == "new"
    assert result(earlier, "old") == "new"


def test_failure_of_the_read_that_began_earlier_keeps_the_copy() -> None:
    cache = WatchCache("/x", read)
    earlier, later = cache.get(), cache.get(alone=True)
    assert [earlier.send(None), later.send(None)] == ["read", "read"]
    assert result(later, "new") == "new"
    with pytest.raises(ZeroDivisionError):
        earlier.throw(ZeroDivisionError())
    assert cache.current


def test_third_read_waits_for_the_one_that_began_last() -> None:
    cache = WatchCache("/x", read)
    earlier, later, third = cache.get(), cache.get(alone=True), cache.get()
    assert [earlier.send(None), later.send(None)] == ["read", "read"]
    assert result(earlier, "old") == "old"
    assert isinstance(third.send(None), Wait)
    assert result(later, "new") == "new"
    assert result(third, "") == "new"
