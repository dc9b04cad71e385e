"""A pickled object leads to the server and the namespace of its sender."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.subprocesses import ROOT, Shells
from helpers.timing import PATIENCE
from helpers.worker_processes import Peer

from distsync import Lock, Queue, SharedLock
from distsync import asyncio as aio
from distsync._client import default_client
from distsync._client.client import Client
from distsync._protocols.retries import remove_tree
from distsync.errors import AccessDeniedError, ConfigurationError
from distsync.multiprocessing import Array, Manager, Pool, Value

MakeClient = Callable[..., Client]

PROGRAM = """
import importlib
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import distsync
from helpers.remote_functions.general import seen


def executor(method):
    with ProcessPoolExecutor(1, get_context(method)) as pool:
        return pool.submit(seen, lock, queue).result()


def loky():
    with importlib.import_module("loky").ProcessPoolExecutor(1) as pool:
        return pool.submit(seen, lock, queue).result()


def joblib():
    module = importlib.import_module("joblib")
    with module.parallel_config("loky", n_jobs=2):
        (found,) = module.Parallel()([module.delayed(seen)(lock, queue)])
    module.externals.loky.get_reusable_executor().shutdown()
    return found


def dask():
    module = importlib.import_module("distributed")
    with module.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with module.Client(cluster) as client:
            return client.submit(seen, lock, queue, pure=False).result()


def ours(method):
    with distsync.multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply(seen, (lock, queue))


if __name__ == "__main__":
    kind, method, hosts, namespace = sys.argv[1:]
    lock, queue = distsync.Lock(name="ledger"), distsync.Queue(name="jobs")
    distsync.connect(hosts, namespace=namespace)
    queue.put("item")
    with lock:
        print(*globals()[kind](*[method] * bool(method)))
"""

SLOW = [pytest.mark.slow("starts Python several times")]


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    """Yield a starter of programs whose environment names no server."""
    folders = {f"DISTSYNC_{kind}_DIR": str(tmp_path / kind) for kind in ("RUNTIME", "STATE")}
    made = Shells(tmp_path, {**folders, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONWARNINGS": ""})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("executor", "spawn"),
        *(pytest.param("executor", method, marks=SLOW) for method in ("forkserver", "fork")),
        *(pytest.param("ours", method, marks=SLOW) for method in ("spawn", "forkserver", "fork")),
        *(pytest.param(package, "", marks=SLOW) for package in ("loky", "joblib", "dask")),
    ],
)
def test_worker_shares_the_lock_and_the_queue_of_its_parent(
    kind: str, method: str, server: ServerProcess, client: Client, namespace: str, shells: Shells, tmp_path: Path
) -> None:
    """Regression: the worker used the same names on the embedded server."""
    if not method:
        pytest.importorskip("distributed" if kind == "dask" else kind)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert shells.run(program, kind, method, server.hosts, namespace).split() == [
        "True", "item", Lock(name="ledger").path, Queue(name="jobs").path,
    ]  # fmt: skip


@pytest.mark.slow("starts Python several times")
def test_task_of_a_command_line_worker_uses_the_objects_of_its_caller(
    server: ServerProcess, client: Client, namespace: str, make_client: MakeClient, shells: Shells
) -> None:
    """The worker's own namespace is that of the pool, and not that of the objects."""
    host, _, port = server.hosts.partition(":")
    shells.environment |= {
        "DISTSYNC_HOSTS": f"{host}:{port}",
        "DISTSYNC_NAMESPACE": f"{namespace}/pools",
        "DISTSYNC_SESSION_TIMEOUT": "4",
    }
    lock, queue = Lock(name="ledger"), Queue(name="jobs")
    queue.put("item")
    with lock, Pool(0, name="p", client=make_client(namespace=f"{namespace}/pools")) as pool:
        shells.start("-m", "distsync", "worker", "p", "--processes", "1")
        found = pool.apply_async(remote.seen, (lock, queue)).get(PATIENCE)
    pool.join()
    assert found == (True, "item", lock.path, queue.path)


@pytest.fixture
def elsewhere(peer: Peer, server: ServerProcess, namespace: str) -> Peer:
    """Return a process whose default client has another namespace."""
    return peer.use(server.hosts, f"{namespace}/elsewhere", 4.0)


def test_process_of_another_namespace_shares_the_objects_that_it_is_sent(client: Client, elsewhere: Peer) -> None:
    lock, queue = Lock(name="ledger"), Queue(name="jobs")
    queue.put("item")
    with lock:
        assert elsewhere.do(remote.seen, lock, queue) == (True, "item", lock.path, queue.path)


MADE: dict[str, Callable[[], Any]] = {
    "SharedLock": lambda: SharedLock(name="x"),
    "SharedLock.reader": lambda: SharedLock(name="x").reader,
    "asyncio.Lock": lambda: aio.Lock(name="x"),
    "Manager": Manager,
    "dict": lambda: Manager().dict(),
    "Value": lambda: Value("i", 1),
    "Array": lambda: Array("i", [1]),
    "path": lambda: Lock(path="/test-of-a-path"),
}


@pytest.mark.parametrize("kind", MADE)
def test_every_object_keeps_its_place_in_a_process_of_another_namespace(
    kind: str, client: Client, elsewhere: Peer
) -> None:
    made = MADE[kind]()
    assert elsewhere.do(remote.place, made) == remote.place(made)


def test_lock_in_a_managers_dict_is_that_of_its_sender(client: Client, elsewhere: Peer) -> None:
    manager = Manager()
    shared, lock = manager.dict(), Lock(name="ledger")
    shared["lock"] = lock
    with lock:
        assert elsewhere.do(remote.locked_item, shared, "lock")
    manager.shutdown()


def test_stored_pickle_leads_back_to_its_namespace(client: Client, make_client: MakeClient, namespace: str) -> None:
    lock = Lock(name="ledger")
    stored = pickle.dumps(lock)
    before = default_client.set_default(make_client(namespace=f"{namespace}/later"))
    try:
        found = pickle.loads(stored)
        assert found.path == f"{namespace}/lock/ledger"
        assert pickle.loads(pickle.dumps(found)).path == found.path
        found.client.close()
    finally:
        default_client.set_default(before)


def test_object_created_before_connect_is_pickled_with_the_client_that_it_uses(
    client: Client, make_client: MakeClient, namespace: str
) -> None:
    lock = Lock(name="ledger")
    before = default_client.set_default(make_client(namespace=f"{namespace}/later"))
    try:
        stored = pickle.dumps(lock)
        assert lock.path == f"{namespace}/later/lock/ledger"
    finally:
        default_client.set_default(before)
    found = pickle.loads(stored)
    assert found.path == f"{namespace}/later/lock/ledger"
    found.client.close()


def test_unpickled_object_stays_where_it_is_when_the_default_client_changes(
    client: Client, make_client: MakeClient, namespace: str
) -> None:
    """Otherwise a later ``connect()`` of the receiver would move it to another server, silently."""
    found = pickle.loads(pickle.dumps(Lock(name="ledger")))
    assert found.client is client
    before = default_client.set_default(make_client(namespace=f"{namespace}/later"))
    try:
        assert found.path == f"{namespace}/lock/ledger"
    finally:
        default_client.set_default(before)


@pytest.mark.parametrize("hosts", ["b:2181,a/shop", "A:2181,b:2181/shop", "a,b/shop"])
def test_default_client_serves_each_notation_of_its_servers(hosts: str, unset_default: None) -> None:
    mine = default_client.connect("a:2181,b:2181", namespace="/shop/x")
    assert default_client.client_of((hosts, "/x")) is mine
    for other in ((hosts, "/y"), ("a/shop", "/x"), ("a:2182,b/shop", "/x")):
        assert default_client.client_of(other) is not mine


def test_client_of_another_namespace_has_the_credentials_for_the_same_server_only(unset_default: None) -> None:
    default_client.connect("a,b", namespace="/x", auth="digest:me:secret")
    assert default_client.client_of(("b,a", "/y")).settings.auth == (("digest", "me:secret"),)
    assert default_client.client_of(("c", "/y")).settings.auth == ()


@pytest.fixture
def unset_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a fresh default client, which is never started."""
    monkeypatch.setattr(default_client.current, "client", None)
    monkeypatch.setattr(default_client.current, "others", {})
    yield
    assert default_client.current.client is None or not default_client.current.client.is_started


def test_object_on_the_embedded_server_ignores_the_servers_of_its_receiver(
    unset_default: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = pickle.dumps(Lock(name="ledger"))
    default_client.set_default(None)
    monkeypatch.setenv("DISTSYNC_HOSTS", "zk1:2181")
    found = pickle.loads(stored)
    assert found.client.settings.hosts is None
    assert default_client.default_client().settings.hosts == "zk1:2181"
    assert found.client is not default_client.default_client()


def test_object_on_the_embedded_server_of_another_user_is_refused(
    unset_default: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = pickle.dumps(Lock(name="ledger"))
    monkeypatch.setenv("DISTSYNC_STATE_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="DISTSYNC_HOSTS.*embedded server"):
        pickle.loads(stored)


def test_pickle_contains_no_secret(unset_default: None) -> None:
    default_client.connect("zk1:2181", auth="digest:me:password", authkey="key of the items")
    stored = pickle.dumps(Lock(name="ledger"))
    assert b"zk1:2181" in stored
    assert b"password" not in stored
    assert b"key of the items" not in stored


def test_receiver_without_credentials_gets_an_error_that_names_the_variable(
    client: Client, make_client: MakeClient
) -> None:
    with Lock(name="public"):
        pass
    lock = Lock(name="ledger", client=make_client(auth="digest:me:password"), linger=0)
    with lock, pytest.raises(AccessDeniedError, match="DISTSYNC_AUTH"):
        pickle.loads(pickle.dumps(lock)).acquire(False)
    lock.client.run(remove_tree(lock.path))
