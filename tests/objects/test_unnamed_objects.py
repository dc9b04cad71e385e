"""Objects without a name: their znodes go with their maker, and with nobody else."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, eventually

from distsync._client.client import Client
from distsync._client.default_client import close_default
from distsync.errors import NameInUseError
from distsync.queue import LifoQueue, Queue
from distsync.threading import Barrier, Lock


def in_forked_child(function: Callable[[], Any]) -> None:
    """``function`` was called in a child, which has ended in good order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12 a fork beside threads is one
        child = multiprocessing.get_context("fork").Process(target=function)
        child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    child.close()


def test_forked_child_that_used_it_ends_and_takes_nothing_away(client: Client) -> None:
    lock, queue = Lock(), Queue[int]()
    queue.put(1)
    lock.acquire()

    def child() -> None:
        assert queue.qsize() == 1
        assert lock.locked()
        client.close()

    in_forked_child(child)
    assert queue.get(timeout=PATIENCE) == 1
    assert lock.held
    lock.release()


def test_forked_child_that_drops_it_takes_nothing_away(client: Client) -> None:
    kept = [Queue[int]()]
    kept[0].put(1)

    def child() -> None:
        assert kept[0].qsize() == 1
        kept.clear()
        gc.collect()
        close_default()

    in_forked_child(child)
    assert kept[0].get(timeout=PATIENCE) == 1


def test_forked_child_keeps_what_its_maker_drops(client: Client, observer: Observer) -> None:
    kept = [Queue[int]()]
    kept[0].put(1)
    path = kept[0].path
    in_forked_child(os.getpid)
    kept.clear()
    gc.collect()
    assert Queue[int](path=path).get(timeout=PATIENCE) == 1
    client.close()
    assert observer.tree(path) == {}


def test_object_that_travelled_before_its_first_use_stays(client: Client, observer: Observer) -> None:
    kept = [Queue[int](), Queue[int]()]
    sent, dropped = pickle.dumps(kept[0]), kept[1].path
    for queue in kept:
        queue.put(1)
    del queue
    kept.clear()
    gc.collect()
    eventually(lambda: not observer.tree(dropped))
    assert pickle.loads(sent).get(timeout=PATIENCE) == 1


def test_object_that_is_dropped_while_its_client_closes_leaves_nothing(client: Client, observer: Observer) -> None:
    """The close waits for a function of the user's; the object goes after it began, and before it is at its end."""
    kept, acting, go_on = [Queue[int]()], threading.Event(), threading.Event()
    kept[0].put(1)
    path = kept[0].path

    def act() -> None:
        acting.set()
        go_on.wait(PATIENCE)

    waiting = threading.Thread(target=suppressed(Barrier(1, act).wait))
    closing = threading.Thread(target=client.close)
    waiting.start()
    assert acting.wait(PATIENCE)
    closing.start()
    eventually(lambda: client.closed)
    kept.clear()
    gc.collect()
    go_on.set()
    closing.join()
    waiting.join()
    assert observer.tree(path) == {}


def suppressed(function: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        with suppress(Exception):
            function()

    return call


def test_two_kinds_of_object_on_one_path_are_refused(client: Client) -> None:
    path = client.path("queue", "q")
    queue, stack = Queue[int](path=path), LifoQueue[int](path=path)
    queue.put(1)
    with pytest.raises(NameInUseError, match="already a queue and cannot be used as a lifo_queue"):
        stack.put(2)
    assert queue.get() == 1


def test_locks_for_many_keys_leave_nothing_in_the_process(client: Client) -> None:
    assert Lock(name="held").acquire()
    for number in range(50):
        with Lock(name=f"key {number}"):
            pass

    def are_few() -> bool:
        assert Lock(name="held").locked()  # what is not needed any more goes when others come
        return client._core is not None and len(client._core.locals) < 20

    eventually(are_few)
    Lock(name="held").release()
    assert not Lock(name="held").locked()
