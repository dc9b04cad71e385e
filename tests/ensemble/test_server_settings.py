"""Ensembles that are set up otherwise: read-only servers, local sessions, throttling, quotas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from helpers.leak_census import Observer
from helpers.servers import need_zookeeper
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from distsync import Role
from distsync._client.client import Client
from distsync.errors import RequestError, UnreachableError
from distsync.queue import Empty, Queue
from distsync.testing import Ensemble, EnsembleServer
from distsync.threading import Lock, Semaphore

MakeClient = Callable[..., Client]

MINUTE = 60.0
LONG_SESSION_S = 120.0
TICK_MS = 200
THROTTLED_MS = 300
PATIENT_TICKS = 300
"""A member that is silent for less is not left behind."""
LOCAL = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
"""Sessions that only their server knows, until they make an ephemeral znode."""


@pytest.fixture(scope="module")
def started() -> Iterator[Ensemble]:
    need_zookeeper()
    settings = {**LOCAL, "syncLimit": PATIENT_TICKS}
    properties = {"readonlymode.enabled": "true", "zookeeper.enforceQuota": "true"}
    with Ensemble(3, 0, tick_ms=TICK_MS, settings=settings, properties=properties) as ensemble:
        yield ensemble


@pytest.fixture
def tuned(started: Ensemble) -> Ensemble:
    """Sessions are local, a member that has lost its quorum is read-only, quotas are enforced."""
    started.heal()
    return started


@pytest.fixture
def unupgradable() -> Iterator[Ensemble]:
    need_zookeeper()
    settings = {**LOCAL, "localSessionsUpgradingEnabled": "false", "syncLimit": PATIENT_TICKS}
    with Ensemble(1, 1, tick_ms=TICK_MS, settings=settings) as ensemble:
        yield ensemble


@pytest.fixture
def throttled() -> Iterator[Ensemble]:
    """Servers do one request at a time; what has waited for too long behind it is not done."""
    need_zookeeper()
    properties = {"zookeeper.request_throttle_max_requests": 1, "zookeeper.throttled_op_wait_time": THROTTLED_MS}
    with Ensemble(2, 0, tick_ms=TICK_MS, settings={"syncLimit": PATIENT_TICKS}, properties=properties) as ensemble:
        yield ensemble


def figure(server: EnsembleServer, name: str) -> int:
    """Of what ``mntr`` tells."""
    return sum(int(line.split()[1]) for line in server.ask("mntr").splitlines() if line.split()[:1] == [name])


# ---- read-only servers


@pytest.mark.slow("an ensemble")
def test_read_only_server_is_not_used_and_calls_continue_when_the_quorum_is_back(
    tuned: Ensemble, connected: MakeClient
) -> None:
    leader, follower, other = tuned.wait_for_leader(), *tuned.followers()
    client = connected(follower.hosts, session_timeout=LONG_SESSION_S)
    items: Queue[int] = Queue(name="items", client=client)
    items.put(1)
    lock = Lock(name="held", client=client)
    lock.acquire()
    leader.kill()
    other.kill()
    eventually(lambda: follower.ask("isro") == "ro", "it is not read-only", MINUTE)
    reader = KazooClient(follower.hosts, read_only=True)
    reader.start(MINUTE)
    assert reader.client_state == KeeperState.CONNECTED_RO
    assert reader.get_children(f"{items.path}/items"), "it serves nobody: the test would show nothing"
    assert reader.state == KazooState.CONNECTED
    reader.stop()
    reader.close()

    assert client.state != "connected"
    (told,) = client.ensemble()
    assert (told.role, "lost its quorum" in told.problem) == (Role.UNKNOWN, True)
    putting = Running(items.put, 2)
    begun = time.monotonic()
    with pytest.raises(Empty):
        items.get(timeout=10 * UNIT)
    with pytest.raises(TimeoutError):
        client.sync(timeout=10 * UNIT)
    assert not Lock(name="other", client=client).acquire(timeout=10 * UNIT)
    assert time.monotonic() - begun >= 30 * UNIT
    late = connected(follower.hosts, connect_timeout=20 * UNIT)
    with pytest.raises(UnreachableError):
        Queue[int](name="items", client=late).qsize()
    assert putting.is_alive()
    leader.start()
    other.start()
    putting.result(MINUTE)
    assert lock.held
    lock.release()
    assert [items.get(timeout=MINUTE) for _ in range(2)] == [1, 2]


@pytest.mark.slow("an ensemble")
def test_read_only_server_cannot_be_requested(tuned: Ensemble) -> None:
    with pytest.raises(TypeError, match="unknown setting read_only"):
        Client(tuned.hosts, read_only=True)


# ---- local sessions


@pytest.mark.slow("an ensemble")
def test_local_session_becomes_a_global_one_with_its_first_hold(tuned: Ensemble, connected: MakeClient) -> None:
    follower = tuned.followers()[0]
    client, rival = connected(follower.hosts), connected(tuned.wait_for_leader().hosts)
    client.sync()
    assert figure(follower, "zk_local_sessions") > 0, "its session is global: the test would show nothing"
    lock, semaphore = Lock(name="l", client=client), Semaphore(1, name="s", client=client)
    items: Queue[int] = Queue(name="q", client=client)
    getting = Running(items.get)
    assert lock.acquire(timeout=MINUTE)
    assert semaphore.acquire(timeout=MINUTE)
    assert not Lock(name="l", client=rival).acquire(timeout=10 * UNIT)
    Queue[int](name="q", client=rival).put(1)
    assert getting.result(MINUTE) == 1
    lost: list[bool] = []
    lock.on_lost = lambda reason: lost.append(lock.held)
    tuned.expire(client)
    eventually(lambda: lost == [False], "nobody said that the session is over", MINUTE)
    assert Lock(name="l", client=rival).acquire(timeout=MINUTE)
    assert Semaphore(1, name="s", client=rival).acquire(timeout=MINUTE)


@pytest.mark.slow("an ensemble")
def test_local_session_that_stays_local_says_what_to_do(unupgradable: Ensemble, connected: MakeClient) -> None:
    client = connected(unupgradable.hosts)
    items: Queue[int] = Queue(name="q", client=client)
    for call in (Lock(name="l", client=client).acquire, Semaphore(1, name="s", client=client).acquire, items.get):
        with pytest.raises(RequestError, match=r"\(-120\): .* localSessionsUpgradingEnabled=true"):
            call(timeout=MINUTE)
    assert client.state == "connected"


# ---- quotas


@pytest.mark.slow("an ensemble")
def test_exceeded_quota_leaves_nothing_half_done(tuned: Ensemble, connected: MakeClient) -> None:
    """One znode more is let in with each try, until the call gets through."""
    client = connected(tuned.hosts, session_timeout=LONG_SESSION_S)
    lock, semaphore = Lock(name="l", client=client, linger=0), Semaphore(1, name="s", client=client)
    items: Queue[int] = Queue(name="q", client=client)
    calls = {lock.path: lock.acquire, semaphore.path: semaphore.acquire, items.path: lambda: items.put(1)}
    refused: list[str] = []
    with limited(tuned, client.namespace) as (observer, limit):
        most = 1
        for path, call in calls.items():
            while True:
                limit(most)
                try:
                    call()
                    break
                except RequestError as error:
                    assert "(-125): a quota is exceeded" in str(error)
                    refused.append(path)
                    eventually(lambda path=path: not observer.ephemerals(path), "an ephemeral is left")
                    assert most < 50
                    most += 1
    assert {*refused} == {*calls}
    assert client.state == "connected"
    assert lock.held
    assert (len(lock.holders()), len(semaphore.holders())) == (1, 1)
    assert (items.get(timeout=MINUTE), items.qsize()) == (1, 0)
    lock.release()
    semaphore.release()


@contextmanager
def limited(ensemble: Ensemble, path: str) -> Iterator[tuple[Observer, Callable[[int], object]]]:
    """A function that says how many znodes there may be at and below ``path``."""
    observer = Observer(ensemble)
    kazoo, quota = observer.kazoo, f"/zookeeper/quota{path}"
    kazoo.ensure_path(path)

    def limit(count: int) -> None:
        kazoo.set(f"{quota}/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=%d" % count)

    try:
        kazoo.ensure_path(quota)
        kazoo.create(f"{quota}/zookeeper_limits", b"count=-1,bytes=-1")
        kazoo.create(f"{quota}/zookeeper_stats", b"count=-1,bytes=-1")
        yield observer, limit
    finally:
        observer.wipe(quota)
        observer.close()


# ---- throttling


@pytest.mark.slow("an ensemble")
@pytest.mark.parametrize("fast_wire", [True, False])
def test_throttled_request_is_sent_again_and_executed_once(
    throttled: Ensemble, connected: MakeClient, fast_wire: bool
) -> None:
    leader, (follower,) = throttled.wait_for_leader(), throttled.followers()
    client = connected(leader.hosts, session_timeout=LONG_SESSION_S, fast_wire=fast_wire)
    lock, items = Lock(name="held", client=client), Queue[int](name="items", client=client)
    lock.acquire()
    items.put(0)
    busy = KazooClient(leader.hosts, timeout=LONG_SESSION_S)
    busy.start(MINUTE)
    follower.pause()
    stuck = busy.create_async("/stuck", b"", ephemeral=True)
    waits = figure(leader, "zk_request_throttle_wait_count")
    calls = [Running(items.put, 1), Running(Lock(name="new", client=client).acquire), Running(items.qsize)]
    eventually(lambda: figure(leader, "zk_request_throttle_wait_count") > waits + 10, "nothing waits", MINUTE)
    follower.resume()
    stuck.get(timeout=MINUTE)
    for call in calls:
        call.result(MINUTE)
    assert figure(leader, "zk_throttled_ops") > 0, "nothing was throttled: the test shows nothing"
    assert lock.held
    lock.release()
    busy.stop()
    busy.close()
    assert [items.get(timeout=MINUTE) for _ in range(2)] == [0, 1]
    assert items.qsize() == 0
