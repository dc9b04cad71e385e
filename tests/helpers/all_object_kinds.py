"""One object of every kind, used so that all its znodes exist: held, filled, waited for.

A kind is named after its class; ``public_kinds`` finds the classes, so that none is forgotten.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import distsync
import distsync.multiprocessing as mp
from distsync._client.client import Client
from distsync._objects.base import SharedObject
from distsync.multiprocessing.managers import SyncManager
from helpers.public_names import MODULES, own_names
from helpers.remote_functions import pool as remote_pool
from helpers.timing import eventually
from helpers.worker_processes import Running, waiting_calls

Use = Callable[[Any, Client, ExitStack], object]
Kinds = dict[str, tuple[Callable[..., Any], Use]]


def hold(obj: Any, client: Client, stack: ExitStack) -> None:
    """Held, and another thread waits."""
    obj.acquire()
    stack.callback(obj.release)


def put_and_fail_to_get(obj: Any, client: Client, stack: ExitStack) -> None:
    """Leave one item that was got, one that is there, and a getter that has waited once."""
    obj.put(b"1".decode())
    obj.put("2")
    obj.get()


def wait_on(obj: Any, client: Client, stack: ExitStack) -> None:
    """Let a thread wait, and notify it at the end."""

    def wait() -> None:
        with obj:
            obj.wait()

    waiter = Running(wait)
    eventually(lambda: waiting_calls(client) > 0 or not waiter.is_alive())
    if not waiter.is_alive():
        waiter.result()

    def tell() -> None:
        with obj:
            obj.notify_all()
        waiter.result()

    stack.callback(tell)


def claim(obj: Any, client: Client, stack: ExitStack) -> None:
    obj.put("1")
    obj.put("2")
    stack.callback(obj.claim().nack)


def transact(obj: Any, client: Client, stack: ExitStack) -> None:
    side = obj.participant("a", lambda item: True)
    obj.begin({"to": "b"})
    taking = Running(side.take_part)
    assert obj.decide(20)
    taking.result()


def enter(obj: Any, client: Client, stack: ExitStack) -> None:
    obj.enter()
    stack.callback(obj.leave)


def join(obj: Any, client: Client, stack: ExitStack) -> None:
    obj.join()
    stack.callback(obj.leave)


def share(obj: Any, client: Client, stack: ExitStack) -> None:
    join(obj, client, stack)
    assert obj.wait(20)


def manage(obj: Any, client: Client, stack: ExitStack) -> None:
    obj.connect()
    obj.dict(name="d", a=1)["b"] = 2
    obj.list([1, 2], name="l").append(3)
    obj.Namespace(name="n").x = 1
    obj.Value("i", 1, name="v").set(2)
    obj.Queue(name="q").put(1)
    obj.Lock(name="k").acquire()


def feed(obj: Any, client: Client, stack: ExitStack) -> None:
    obj.put("1")
    obj.put("2")
    assert obj.get() == "1"
    stack.callback(obj.join_thread)
    stack.callback(obj.close)


def work(obj: Any, client: Client, stack: ExitStack) -> None:
    stack.callback(obj.terminate)  # also where it is refused
    assert obj.map(remote_pool.square, range(3)) == [0, 1, 4]


def read_and_write(obj: Any, client: Client, stack: ExitStack) -> None:
    hold(obj.writer, client, stack)
    hold(obj.reader, client, stack)


KINDS: Kinds = {
    "Lock": (distsync.Lock, hold),
    "RLock": (distsync.RLock, hold),
    "Semaphore": (lambda **own: distsync.Semaphore(2, **own), hold),
    "Semaphore(0)": (lambda **own: distsync.Semaphore(0, **own), lambda obj, *_: obj.release(2)),
    "Semaphore(curator)": (lambda **own: distsync.Semaphore(2, layout="curator", **own), hold),
    "Semaphore(kazoo)": (lambda **own: distsync.Semaphore(2, layout="kazoo", **own), hold),
    "BoundedSemaphore": (lambda **own: distsync.BoundedSemaphore(2, **own), hold),
    "Condition": (distsync.Condition, wait_on),
    "Event": (distsync.Event, lambda obj, *_: obj.set()),
    "Barrier": (lambda **own: distsync.Barrier(1, **own), lambda obj, *_: obj.wait()),
    "SharedLock": (distsync.SharedLock, read_and_write),
    "Queue": (lambda **own: distsync.Queue(3, **own), put_and_fail_to_get),
    "LifoQueue": (distsync.LifoQueue, put_and_fail_to_get),
    "PriorityQueue": (distsync.PriorityQueue, put_and_fail_to_get),
    "SimpleQueue": (distsync.SimpleQueue, put_and_fail_to_get),
    "JoinableQueue": (lambda **own: distsync.JoinableQueue(max_deliveries=2, **own), claim),
    "Gate": (distsync.Gate, lambda obj, *_: obj.close()),
    "DoubleBarrier": (lambda **own: distsync.DoubleBarrier(1, **own), enter),
    "CountDownLatch": (lambda **own: distsync.CountDownLatch(2, **own), lambda obj, *_: obj.count_down()),
    "Counter": (distsync.Counter, lambda obj, *_: obj.add(1)),
    "Value": (lambda **own: distsync.Value("first", **own), lambda obj, *_: obj.set("1")),
    "RateLimiter": (lambda **own: distsync.RateLimiter(5, **own), lambda obj, *_: obj.try_acquire()),
    "IdGenerator": (distsync.IdGenerator, lambda obj, *_: obj.next_id()),
    "Election": (lambda **own: distsync.Election("1", **own), hold),
    "Election(latch)": (lambda **own: distsync.Election("1", layout="latch", **own), hold),
    "Group": (distsync.Group, join),
    "Registry": (distsync.Registry, lambda obj, *_: obj.update({"db": "1"})),
    "Config": (distsync.Config, lambda obj, *_: obj.update({"a": "1"})),
    "Partitioner": (lambda **own: distsync.Partitioner(["a", "b"], **own), share),
    "Transaction": (lambda **own: distsync.Transaction(["a"], **own), transact),
}

#: They take no ``acl=``: their client's is meant.
PROCESSES: Kinds = {
    "multiprocessing.Lock": (mp.Lock, hold),
    "multiprocessing.RLock": (mp.RLock, hold),
    "multiprocessing.SharedLock": (mp.SharedLock, read_and_write),
    "multiprocessing.Election": (lambda **own: mp.Election("1", **own), hold),
    "multiprocessing.Semaphore": (mp.Semaphore, hold),
    "multiprocessing.BoundedSemaphore": (mp.BoundedSemaphore, hold),
    "multiprocessing.Condition": (mp.Condition, wait_on),
    "multiprocessing.Event": (mp.Event, lambda obj, *_: obj.set()),
    "multiprocessing.Barrier": (lambda **own: mp.Barrier(1, **own), lambda obj, *_: obj.wait()),
    "multiprocessing.Queue": (mp.Queue, feed),
    "multiprocessing.JoinableQueue": (mp.JoinableQueue, feed),
    "multiprocessing.SimpleQueue": (mp.SimpleQueue, put_and_fail_to_get),
    "multiprocessing.Value": (lambda **own: mp.Value("i", 1, **own), lambda obj, *_: setattr(obj, "value", 2)),
    "multiprocessing.Array": (lambda **own: mp.Array("i", 3, **own), lambda obj, *_: obj.__setitem__(0, 1)),
    "multiprocessing.SyncManager": (SyncManager, manage),
    "multiprocessing.Pool": (lambda **own: mp.Pool(1, **own), work),
}

#: Kinds that are parts of others, or bases only.
PARTS = {"SharedReader", "SharedWriter"}


def public_kinds() -> set[str]:
    """The classes of the faces whose objects are znodes."""
    found = {value for module in MODULES for _, value in own_names(importlib.import_module(module))}
    return {kind.__name__ for kind in found if isinstance(kind, type) and issubclass(kind, SharedObject)} - PARTS


@contextmanager
def one_of_each(
    client: Client, kinds: dict[str, tuple[Callable[..., Any], Use]], **own: Any
) -> Iterator[dict[str, Any]]:
    """Return a used object of each kind, by its kind. At the end, everything held is released."""
    with ExitStack() as stack:
        made: dict[str, Any] = {}
        for kind, (make, use) in kinds.items():
            made[kind] = make(name=f"the {kind}", client=client, **own)
            use(made[kind], client, stack)
        yield made
