"""Payloads from any client: nothing is unpickled before it is proven to be ours and meant for this
object.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES, one_of_each
from helpers.leak_census import Observer
from helpers.worker_processes import Running

import distsync
import distsync.multiprocessing as mp
from distsync import ConfigurationError, PayloadRefusedError
from distsync._client import default_client
from distsync._client.client import Client
from distsync._client.payload_codec import Codec
from distsync.multiprocessing.managers import SyncManager

MakeClient = Callable[..., Client]

ITEM = "an item of some length"
KEY, OTHER_KEY = b"the key of all of us", b"the key of others"
SIGNED = b"PJ"
BOMB = "DISTSYNC_TEST_BOMB"


class Bomb:
    """An item whose decoding can be seen."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; os.environ['{BOMB}'] = 'went off'",)


class Carrier:
    """An object that carries payloads: how it is made, filled and read."""

    def __init__(self, make: Callable[..., Any], fill: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self.make, self.fill, self.read = make, fill, read


def put(queue: Any) -> None:
    queue.put(ITEM)


def get(queue: Any) -> Any:
    return queue.get(timeout=20)


def feed(queue: Any) -> None:
    queue.put(ITEM)
    queue.close()
    queue.join_thread()


def read_once(queue: Any) -> Any:
    try:
        return queue.get(timeout=20)
    finally:
        queue.close()


def begin(transaction: Any) -> None:
    transaction.begin(ITEM)


def vote(transaction: Any) -> Any:
    """A site that cannot read what it is asked votes against it, and says why."""
    seen: list[Any] = []
    taking = Running(transaction.participant("a", seen.append).take_part)
    agreed = transaction.decide(20)
    taking.result()
    if "PayloadRefusedError" in transaction.reason:
        raise PayloadRefusedError(transaction.path, transaction.reason)
    return seen[0] if not agreed else None


CARRIERS: dict[str, Carrier] = {
    "Queue": Carrier(distsync.Queue, put, get),
    "LifoQueue": Carrier(distsync.LifoQueue, put, get),
    "PriorityQueue": Carrier(distsync.PriorityQueue, put, get),
    "SimpleQueue": Carrier(distsync.SimpleQueue, put, get),
    "JoinableQueue": Carrier(distsync.JoinableQueue, put, get),
    "Value": Carrier(distsync.Value, lambda value: value.set(ITEM), lambda value: value.get()),
    "Transaction": Carrier(lambda **own: distsync.Transaction(["a"], **own), begin, vote),
    "multiprocessing.Queue": Carrier(mp.Queue, feed, read_once),
    "multiprocessing.JoinableQueue": Carrier(mp.JoinableQueue, feed, read_once),
    "multiprocessing.SimpleQueue": Carrier(mp.SimpleQueue, put, lambda queue: queue.get()),
    "manager.dict": Carrier(
        lambda **own: managed(**own).dict(name="d"),
        lambda shared: shared.update(a=ITEM),
        lambda shared: shared["a"],
    ),
}


def managed(**own: Any) -> SyncManager:
    manager = SyncManager(**own)
    manager.connect()
    return manager


each_carrier = pytest.mark.parametrize("kind", CARRIERS)


@pytest.fixture
def nothing_ran() -> Iterator[None]:
    yield
    assert BOMB not in os.environ


@pytest.fixture
def ours(make_client: MakeClient) -> Iterator[Client]:
    made = make_client(authkey=KEY)
    default_client.set_default(made)
    yield made
    default_client.set_default(None)
    made.close()


def payloads(observer: Observer, top: str, headers: bytes = SIGNED) -> dict[str, bytes]:
    """The znodes there that carry something, and what stands before that, in a line of its own."""
    wanted = re.compile(rb"(\[.*\]\n)?[" + headers + rb"].{10,}", re.DOTALL)
    found = ((path, wanted.fullmatch(data)) for path, data in observer.contents(top).items())
    return {path: match[1] or b"" for path, match in found if match}


def filled(kind: str, name: str) -> Any:
    """An object that can be read."""
    obj = CARRIERS[kind].make(name=name)
    CARRIERS[kind].fill(obj)
    return obj if kind == "Transaction" else CARRIERS[kind].make(name=name)


@pytest.mark.own_state  # refused payloads stay for inspection unless reading removes them
@pytest.mark.usefixtures("nothing_ran")
@pytest.mark.parametrize("key", [None, OTHER_KEY], ids=["unsigned", "another key"])
@each_carrier
def test_payload_of_another_client_is_refused_undecoded(
    kind: str, key: bytes | None, ours: Client, observer: Observer, namespace: str
) -> None:
    obj = filled(kind, "a")
    ((path, before),) = payloads(observer, namespace).items()
    observer.kazoo.set(path, before + Codec("pickle", key).encode(Bomb(), obj.path))
    with pytest.raises(PayloadRefusedError):
        CARRIERS[kind].read(obj)


@pytest.mark.own_state  # as above
@each_carrier
def test_payload_signed_for_another_object_is_refused(
    kind: str, ours: Client, observer: Observer, namespace: str
) -> None:
    _, obj = filled(kind, "a"), filled(kind, "b")
    first, second = sorted(payloads(observer, namespace))
    observer.kazoo.set(second, observer.kazoo.get(first)[0])
    with pytest.raises(PayloadRefusedError, match="its signature is wrong"):
        CARRIERS[kind].read(obj)


def test_items_that_came_with_a_refused_one_are_not_lost(ours: Client, observer: Observer, namespace: str) -> None:
    queue = distsync.Queue(name="a")
    queue.put_many(range(5))
    third = sorted(payloads(observer, namespace), key=lambda path: path.rpartition("-")[2])[2]
    observer.kazoo.set(third, Codec("pickle", OTHER_KEY).encode(ITEM, queue.path))
    with pytest.raises(PayloadRefusedError) as refused:
        queue.get_many(10)
    assert refused.value.got == [0, 1, 3, 4]  # type: ignore[attr-defined]
    assert queue.empty()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.usefixtures("nothing_ran")
@pytest.mark.usefixtures("nothing_kept")
def test_json_alone_leaves_no_pickle_anywhere_and_reads_none(
    make_client: MakeClient, observer: Observer, namespace: str
) -> None:
    """All objects work with it, but for pools, which say so."""
    plain = make_client(codec="json")
    default_client.set_default(plain)
    seen: list[str] = []
    try:
        kinds = {kind: how for kind, how in (KINDS | PROCESSES).items() if kind != "multiprocessing.Pool"}
        with one_of_each(plain, kinds):
            for path, data in observer.contents(namespace).items():
                if data.startswith(b"p") or b"\x80\x05" in data or b"\x80\x04" in data:
                    seen.append(path)
        assert seen == []
    finally:
        default_client.set_default(None)
        plain.close()


@pytest.mark.own_state  # as above
@pytest.mark.usefixtures("nothing_ran")
@each_carrier
def test_json_alone_unpickles_nothing(kind: str, make_client: MakeClient, observer: Observer, namespace: str) -> None:
    plain = make_client(codec="json")
    default_client.set_default(plain)
    try:
        obj = filled(kind, "a")
        ((path, before),) = payloads(observer, namespace, b"j").items()
        observer.kazoo.set(path, before + Codec("pickle").encode(Bomb(), obj.path))
        with pytest.raises(PayloadRefusedError):
            CARRIERS[kind].read(obj)
    finally:
        default_client.set_default(None)
        plain.close()


def test_pool_says_that_it_cannot_do_without_pickle(make_client: MakeClient) -> None:
    with pytest.raises(ConfigurationError, match="by pickle"):
        mp.Pool(1, name="p", client=make_client(codec="json"))


def test_bomb_is_one() -> None:
    pickle.loads(Codec("pickle").encode(Bomb(), "")[1:])
    assert os.environ.pop(BOMB) == "went off"


def test_readers_of_pickle_and_of_cloudpickle_read_each_other(make_client: MakeClient) -> None:
    pytest.importorskip("cloudpickle")
    clients = [make_client(codec=codec) for codec in ("cloudpickle", "pickle", "json")]
    ours, theirs, others = (distsync.Queue(name="q", client=client) for client in clients)
    ours.put(lambda: 3)
    assert theirs.get(timeout=20)() == 3
    theirs.put(4)
    assert ours.get(timeout=20) == 4
    ours.put(5)
    with pytest.raises(PayloadRefusedError, match="cloudpickle"):
        others.get(timeout=20)


def test_cloudpickle_that_is_not_installed_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ConfigurationError, match=r"pip install distsync\[cloudpickle\]"):
        Client(codec="cloudpickle")
