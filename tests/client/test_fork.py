"""A forked child has a session of its own, holds nothing, and leaves its parent alone."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from helpers.forked_children import FORKS, Fork, check, in_child, reaped
from helpers.sample_protocols import ask, leave, stand
from helpers.timing import PATIENCE

from distsync._client import lifecycle
from distsync._client.client import Client
from distsync._client.default_client import current, set_default
from distsync._client.outage_limit import OutageLimit
from distsync._protocols.steps import Call, Connected, Create, Exists, Loss, Signal, Wait

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(params=FORKS)
def fork(request: pytest.FixtureRequest) -> Fork:
    return FORKS[request.param]


def test_child_has_a_session_of_its_own(near: Client, namespace: str, fork: Fork) -> None:
    parents = near.session_id

    def child() -> None:
        check(near.session_id is None, "the parent's session is known")
        session = near.run(ask(Connected()), timeout=PATIENCE)
        check(session.session_id != parents, "the parent's session is used")
        near.run(ask(Create(f"{namespace}/childs", ephemeral=True)))
        near.close()

    assert in_child(child, fork=fork) == 0
    assert near.session_id == parents
    assert near.run(ask(Exists(f"{namespace}/childs"))) is None
    assert near.state == "connected"


@pytest.mark.parametrize("make_mark", [lifecycle._memory_mark, lifecycle.ProcessIdMark])
def test_mark_of_a_process_is_0_in_its_child_and_in_the_childs_child(make_mark: Callable[[], Any], fork: Fork) -> None:
    mark = make_mark()

    def child() -> None:
        check(mark[0] == 0, "the child has its parent's mark")
        check(in_child(lambda: check(mark[0] == 0, "it is back"), fork=fork) == 0, "the child's child has the mark")

    assert mark[0] == 1
    assert in_child(child, fork=fork) == 0
    assert mark[0] == 1


def test_child_waits_for_a_server_although_its_parent_has_waited_for_too_long(near: Client, fork: Fork) -> None:
    """The end of the child gave up its items at once, because the outage of the parent counted."""
    near.outage_noticed_at = 0.0
    assert in_child(lambda: check(not OutageLimit(near).has_passed(), "the child does not wait"), fork=fork) == 0


def test_child_holds_nothing_of_its_parents(near: Client, namespace: str, fork: Fork) -> None:
    loss = Loss()
    path = near.run(stand(namespace, loss))
    session = near.session_id
    assert session is not None
    mine = near.local("/x", object)

    def child() -> None:
        check(not near.is_proven(session), "the lease is proven")
        check(loss.fired, "the hold stands")
        check(near.local("/x", object) is not mine, "the state of the parent's threads is there")
        near.close()

    assert in_child(child, fork=fork) == 0
    assert not loss.fired
    assert near.is_proven(session)
    near.run(leave(path, loss))


@pytest.mark.parametrize("way", ["os._exit", "sys.exit", "exit of libc's fork"])
def test_child_that_exits_ends_neither_session_nor_connection_of_its_parent(
    near: Client, namespace: str, way: str
) -> None:
    loss = Loss()
    path = near.run(stand(namespace, loss))
    states: list[str] = []
    near.on_state(states.append)
    if way == "os._exit":
        assert in_child(lambda: None) == 0
    elif way == "exit of libc's fork":
        assert in_child(lifecycle.close_all, fork=FORKS["libc's fork"]) == 0  # what atexit calls
    else:
        process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(0,))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 0
        process.close()
    assert near.run(ask(Exists(path))) is not None
    assert states == []
    near.run(leave(path, loss))


def test_child_of_a_process_whose_locks_are_all_taken_does_not_hang(near: Client, fork: Fork) -> None:
    """As if other threads had been in the midst of everything at the moment of the fork."""
    runtime: Any = near._runtime
    assert runtime is not None
    locks = [runtime.mutex, runtime.zk_session.lock, runtime.dispatcher._start_lock, near._start_lock, current.lock]
    taken, go_on = threading.Event(), threading.Event()

    def take() -> None:
        for lock in locks:
            lock.acquire()
        taken.set()
        go_on.wait()
        for lock in reversed(locks):
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    taken.wait()

    def child() -> None:
        set_default(near)
        near.run(ask(Exists("/")), timeout=PATIENCE)
        near.close()

    try:
        assert in_child(child, fork=fork) == 0
    finally:
        go_on.set()
        thread.join()
    assert near.run(ask(Exists("/"))) is not None


def test_child_of_a_process_with_waiting_calls(near: Client, in_thread: Callable[..., Any], fork: Fork) -> None:
    done = Signal()
    waiting = [in_thread(near.run, ask(Wait(done))) for _ in range(3)]

    def child() -> None:
        near.run(ask(Exists("/")), timeout=PATIENCE)
        near.close()

    try:
        assert in_child(child, fork=fork) == 0
    finally:
        done.fire()
    for one in waiting:
        one.result()


def test_child_of_a_process_with_calls_under_way(near: Client, in_thread: Callable[..., Any]) -> None:
    done = Signal()
    waiting = [in_thread(near.run, ask(Wait(done))) for _ in range(3)]
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            near.run(ask(Exists("/")))

    asking = in_thread(busy)

    def child() -> None:
        near.run(ask(Exists("/")), timeout=PATIENCE)
        near.close()

    try:
        assert [in_child(child) for _ in range(5)] == [0] * 5
    finally:
        stop.set()
        done.fire()
    for one in (*waiting, asking):
        one.result()


def test_fork_inside_a_call_ends_the_call_in_the_child_only(near: Client, namespace: str, fork: Fork) -> None:
    async def work() -> int:
        child = await Call(fork)
        await Create(f"{namespace}/once")
        return int(child)

    parent = os.getpid()
    try:
        child = near.run(work())
    except BaseException as error:
        if os.getpid() == parent:
            raise
        os._exit(0 if type(error).__name__ == "ClientClosedError" else 1)
    assert reaped(child) == 0
    assert near.run(ask(Exists(f"{namespace}/once"))) is not None


def test_client_closed_before_the_fork_is_closed_in_the_child(near: Client, fork: Fork) -> None:
    near.close()
    assert in_child(lambda: check(near.closed, "it is open"), fork=fork) == 0


class Crowded(weakref.WeakSet[Any]):
    """A collection to which another thread adds during the first iteration."""

    def __init__(self, things: Iterable[Any], late: Any) -> None:
        super().__init__(things)
        self.late = [late]

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            if self.late:
                self.add(self.late.pop())
            yield one


class Told:
    """An object that records its notification; or a client."""

    told = False

    def mark_shared(self) -> None:
        self.told = True

    after_fork_in_child = close = mark_shared


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        ("_ours", lifecycle._before_fork),
        ("_living", lifecycle._discard_state_of_parent),
        ("_living", lifecycle.close_clients),
    ],
    ids=["before the fork", "in the child", "at the end"],
)
def test_all_are_notified_even_if_another_thread_adds_one(
    monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], None]
) -> None:
    everybody = [Told() for _ in range(3)]
    for counter in ("_forks", "_generations"):
        monkeypatch.setattr(lifecycle, counter, [])
    monkeypatch.setattr(lifecycle, name, Crowded(everybody[:2], everybody[2]))
    happens()
    assert [one.told for one in everybody] == [True] * 3
