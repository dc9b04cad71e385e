"""Arguments that cannot be used are refused by the call that got them, with the value and what is allowed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

import distsync
import distsync.asyncio
import distsync.futures
import distsync.joblib
import distsync.multiprocessing

COUNTED = [
    distsync.Semaphore,
    distsync.BoundedSemaphore,
    distsync.asyncio.Semaphore,
    distsync.multiprocessing.Semaphore,
    distsync.Barrier,
    distsync.asyncio.Barrier,
    distsync.multiprocessing.Barrier,
    distsync.DoubleBarrier,
    distsync.CountDownLatch,
]
QUEUES = [
    distsync.Queue,
    distsync.LifoQueue,
    distsync.PriorityQueue,
    distsync.JoinableQueue,
    distsync.asyncio.Queue,
    distsync.multiprocessing.Queue,
    distsync.multiprocessing.JoinableQueue,
]


def label(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__name__}"


@pytest.mark.parametrize("kind", COUNTED, ids=label)
@pytest.mark.parametrize("number", [1.5, math.nan, math.inf, None])
def test_count_that_is_not_whole_is_refused(kind: Callable[..., Any], number: object) -> None:
    with pytest.raises(TypeError, match=f"must be a whole number, not {number!r}"):
        kind(number, name="refused")


@pytest.mark.parametrize("kind", [*COUNTED, *QUEUES], ids=label)
def test_name_in_place_of_a_count_is_refused_with_the_keyword_to_use(kind: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="whole number, not 'jobs' .*name='jobs'"):
        kind("jobs")


@pytest.mark.parametrize("kind", QUEUES[:5], ids=label)
@pytest.mark.parametrize(("given", "maxsize"), [(1.3, 2), (math.inf, 0), (True, 1), (-1, -1)])
def test_bound_of_a_queue_is_rounded_up_and_infinity_is_none(kind: Any, given: float, maxsize: int) -> None:
    assert kind(given, name="bound").maxsize == maxsize


@pytest.mark.parametrize("kind", QUEUES, ids=label)
def test_bound_of_a_queue_that_is_not_a_number_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="0 means unbounded"):
        kind(math.nan, name="refused")


@pytest.mark.parametrize("option", ["on_lost", "on_revoke"])
@pytest.mark.parametrize("kind", [distsync.Lock, distsync.RLock, distsync.SharedLock], ids=label)
def test_callback_that_is_not_callable_is_refused(kind: Callable[..., Any], option: str) -> None:
    with pytest.raises(TypeError, match=f"{option} must be callable or None, not 5"):
        kind(name="refused", **{option: 5})


@pytest.mark.parametrize("option", ["on_lost", "on_revoke"])
def test_callback_that_is_set_later_and_not_callable_is_refused(option: str) -> None:
    lock = distsync.Lock(name="refused")
    with pytest.raises(TypeError, match=f"{option} must be callable or None, not 5"):
        setattr(lock, option, 5)


def test_action_of_a_barrier_that_is_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="action must be callable or None, not 5"):
        distsync.Barrier(2, 5, name="refused")  # type: ignore[arg-type]


def test_timeout_of_a_barrier_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match="'str'"):
        distsync.Barrier(2, timeout="soon", name="refused")  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1.5, math.nan, "two"])
def test_number_of_permits_that_is_not_whole_is_refused(number: Any) -> None:
    with pytest.raises(TypeError, match=f"n must be a whole number, not {number!r}"):
        distsync.Semaphore(2, name="refused").release(number)


@pytest.mark.parametrize("lock", [5, "jobs"])
def test_lock_of_a_condition_without_acquire_is_refused(lock: Any) -> None:
    with pytest.raises(AttributeError, match=f"lock={lock!r} has no acquire"):
        distsync.Condition(lock)


@pytest.mark.parametrize("seconds", [math.inf, 1e18])
def test_timeout_above_the_maximum_is_refused_with_the_maximum(seconds: float) -> None:
    with pytest.raises(OverflowError, match=r"exceeds the maximum of \d+ seconds"):
        distsync.Lock(name="refused").acquire(timeout=seconds)


NAMED_ONLY = [
    distsync.Lock,
    distsync.RLock,
    distsync.SharedLock,
    distsync.Event,
    distsync.SimpleQueue,
    distsync.Config,
    distsync.Gate,
    distsync.Group,
    distsync.Registry,
    distsync.Election,
    distsync.asyncio.Lock,
    distsync.asyncio.Event,
]


@pytest.mark.parametrize("kind", NAMED_ONLY, ids=label)
def test_name_given_by_position_is_refused_with_the_keyword_to_use(kind: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="name='jobs'"):
        kind("jobs")


@pytest.mark.parametrize("shares", [None, 5, "abc", b"abc"])
def test_shares_that_are_not_several_names_are_refused(shares: Any) -> None:
    with pytest.raises(TypeError, match=f"shares must be several names, not {shares!r}"):
        distsync.Partitioner(shares, name="refused")


@pytest.mark.parametrize("share", [None, 5, b"a"])
def test_share_whose_name_is_not_text_is_refused(share: Any) -> None:
    with pytest.raises(TypeError, match=f"share must be a str, not {share!r}"):
        distsync.Partitioner([share], name="refused")
    with pytest.raises(TypeError, match=f"share must be a str, not {share!r}"):
        distsync.Partitioner(["a"], name="refused").fencing_token(share)


def test_election_with_a_name_takes_text_as_its_data() -> None:
    assert distsync.Election("host-1", name="leader").name == "leader"


@pytest.mark.parametrize("kind", [distsync.multiprocessing.Pool, distsync.futures.Executor], ids=["Pool", "Executor"])
def test_number_of_processes_that_is_not_whole_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="must be a whole number, not 'jobs' .*name='jobs'"):
        kind("jobs")
    with pytest.raises(TypeError, match=r"must be a whole number, not 1\.5"):
        kind(1.5)


def test_backend_of_joblib_without_joblib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install distsync\[joblib\]"):
        distsync.joblib.register()


HOOKED = [
    *((kind, name) for kind in QUEUES[:3] for name in ("_init", "_qsize", "_put", "_get")),
    *((distsync.JoinableQueue, name) for name in ("_init", "_qsize", "_put", "_get")),
    *((kind, name) for kind in (distsync.asyncio.Queue, distsync.asyncio.PriorityQueue) for name in ("_init", "_put")),
    (distsync.asyncio.LifoQueue, "_get"),
]


@pytest.mark.parametrize(("kind", "name"), HOOKED)
def test_subclass_that_replaces_the_container_of_a_queue_is_refused(kind: Any, name: str) -> None:
    """The standard library calls these methods. Ours were ignored, or stored the items in one process."""
    mixin = type("Mixin", (), {name: lambda self, *_: self.queue.pop()})
    for bases, body in (((kind,), vars(mixin)), ((mixin, kind), {})):
        with pytest.raises(TypeError, match=rf"Mine\.{name}\(\) .* on a server.* override put\(\) and get\(\)"):
            type(kind)("Mine", bases, {name: body[name]} if body else {})


def test_subclass_that_extends_put_and_get_of_a_queue_is_allowed() -> None:
    class Counting(distsync.PriorityQueue[int]):
        def _put(self, item: int) -> None:
            super()._put(item + 1)

        def _get(self) -> int:
            return next(distsync.Queue._get(self) for _ in "1")

    class Further(Counting):
        pass

    assert Further(name="extended").maxsize == 0
