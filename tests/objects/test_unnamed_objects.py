"""Unnamed objects: their znodes are not deleted while a process uses them."""

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

from distsync import SharedLock
from distsync._client.client import Client
from distsync._client.default_client import close_default
from distsync.errors import NameInUseError
from distsync.queue import LifoQueue, Queue
from distsync.threading import Barrier, Lock


def in_forked_child(function: Callable[[], Any]) -> None:
    """Call ``function`` in a forked child, and check that it exits normally."""
    with warnings.catch_warnings():
        # since Python 3.12 a fork of a process with threads warns
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=function)
        child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    child.close()


def test_exit_of_a_forked_child_that_used_an_object_deletes_nothing(client: Client) -> None:
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


def test_forked_child_that_drops_an_object_deletes_nothing(client: Client) -> None:
    objects = [Queue[int]()]
    objects[0].put(1)

    def child() -> None:
        assert objects[0].qsize() == 1
        objects.clear()
        gc.collect()
        close_default()

    in_forked_child(child)
    assert objects[0].get(timeout=PATIENCE) == 1


def test_object_inherited_by_a_forked_child_is_not_deleted_before_the_client_closes(
    client: Client, observer: Observer
) -> None:
    objects = [Queue[int]()]
    objects[0].put(1)
    path = objects[0].path
    in_forked_child(os.getpid)
    objects.clear()
    gc.collect()
    assert Queue[int](path=path).get(timeout=PATIENCE) == 1
    client.close()
    assert observer.tree(path) == {}


def test_object_that_only_a_forked_child_used_is_deleted_when_the_client_closes(
    client: Client, observer: Observer
) -> None:
    Lock(name="first").locked()
    lock = SharedLock()

    def child() -> None:
        with lock.writer:
            pass
        close_default()

    in_forked_child(child)
    client.close()
    assert lock.path not in observer.tree(client.namespace)


def test_object_pickled_before_its_first_use_is_not_deleted(client: Client, observer: Observer) -> None:
    objects = [Queue[int](), Queue[int]()]
    sent, dropped = pickle.dumps(objects[0]), objects[1].path
    for queue in objects:
        queue.put(1)
    del queue
    objects.clear()
    gc.collect()
    eventually(lambda: not observer.tree(dropped))
    assert pickle.loads(sent).get(timeout=PATIENCE) == 1


def test_object_dropped_while_its_client_closes_is_deleted(client: Client, observer: Observer) -> None:
    """The close waits for a user's function; the object is dropped after the close began, and before
    it ends.
    """
    objects, acting, resume = [Queue[int]()], threading.Event(), threading.Event()
    objects[0].put(1)
    path = objects[0].path

    def act() -> None:
        acting.set()
        resume.wait(PATIENCE)

    waiting = threading.Thread(target=suppressed(Barrier(1, act).wait))
    closing = threading.Thread(target=client.close)
    waiting.start()
    assert acting.wait(PATIENCE)
    closing.start()
    eventually(lambda: client.closed)
    objects.clear()
    gc.collect()
    resume.set()
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


def test_locks_for_many_keys_do_not_accumulate_in_the_process(client: Client) -> None:
    assert Lock(name="held").acquire()
    for number in range(50):
        with Lock(name=f"key {number}"):
            pass

    def are_few() -> bool:
        assert Lock(name="held").locked()  # unused entries are removed when others are added
        return client._runtime is not None and len(client._runtime.shared_states) < 20

    eventually(are_few)
    Lock(name="held").release()
    assert not Lock(name="held").locked()
