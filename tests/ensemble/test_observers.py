"""The tests of ZooKeeper's guide to Observers, with our objects: what observers forward, and what they
never decide.

Contenders use the leader, followers and observers; servers are killed in between. Source:
Observers, Review Guide: testObserver, testSingleObserver, testObserversHammer.
"""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable

import pytest
from helpers.frame_client import linked
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running, results

from distsync import Role
from distsync._client.client import Client
from distsync._wire import records as r
from distsync._wire.message_codec import encode_request
from distsync.errors import UnreachableError
from distsync.queue import Empty, Queue
from distsync.recipes import Config, Counter, Election
from distsync.testing import Ensemble, EnsembleServer
from distsync.threading import Barrier, Event, Lock

MakeClient = Callable[..., Client]

MINUTE = 60.0
LONG_SESSION_S = 120.0
HAMMERS, BLOWS = 100, 3


def everywhere(ensemble: Ensemble) -> list[EnsembleServer]:
    """The leader, a follower and an observer."""
    leader = ensemble.wait_for_leader()
    return [leader, ensemble.followers()[0], ensemble.observers[0]]


# ---- testObserver: operations through an observer reach the ensemble and come back


@pytest.mark.slow("an ensemble")
def test_what_is_done_through_an_observer_is_seen_through_all_others(big: Ensemble, connected: MakeClient) -> None:
    through = Config(name="c", client=connected(big.observers[0].hosts))
    others = [Config(name="c", client=connected(server.hosts)) for server in big.servers]
    for number in range(5):
        through["number"] = number
        assert [each.snapshot(sync=True) for each in others] == [{"number": number}] * len(others)
    others[0]["number"] = "back"
    assert through.snapshot(sync=True) == {"number": "back"}
    through.clear()


@pytest.mark.slow("an ensemble")
def test_synced_reads_are_current_on_a_lagging_server(big: Ensemble, connected: MakeClient) -> None:
    lagging = big.observers[1]
    writer = Config(name="c", client=connected(big.wait_for_leader().hosts))
    reader = Config(name="c", client=connected(lagging.hosts, session_timeout=LONG_SESSION_S))
    writer["number"] = 0
    assert reader.snapshot(sync=True) == {"number": 0}
    big.partition([each for each in big.servers if each is not lagging])
    writer["number"] = 1
    late = Running(lambda: reader.snapshot(sync=True))
    assert reader["number"] == 0, "what is asked of the observer alone is old: the test would show nothing"
    big.heal()
    assert late.result(MINUTE) == {"number": 1}
    writer.clear()


# ---- testObserver: the quorum is lost although a voting observer would have kept it


@pytest.mark.slow("an ensemble")
def test_calls_wait_and_keep_their_deadlines_while_the_quorum_is_lost(small: Ensemble, connected: MakeClient) -> None:
    (observer,), follower = small.observers, small.followers()[0]
    client = connected(observer.hosts, session_timeout=LONG_SESSION_S)
    items: Queue[int] = Queue(name="items", client=client)
    items.put(0)
    lock = Lock(name="held", client=client)
    lock.acquire()
    follower.kill()
    eventually(lambda: observer.status().role is Role.UNKNOWN, "an observer makes no quorum", MINUTE)
    assert small.leader() is None
    waiting = Running(items.put, 1)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        client.sync(timeout=10 * UNIT)
    assert not Lock(name="other", client=client).acquire(timeout=10 * UNIT)
    assert time.monotonic() - begun >= 20 * UNIT
    with pytest.raises((UnreachableError, TimeoutError)):
        connected(observer.hosts).sync(timeout=10 * UNIT)
    assert waiting.is_alive()
    follower.start()
    waiting.result(MINUTE)
    client.sync(timeout=MINUTE)
    assert lock.held
    lock.release()
    assert [items.get(timeout=MINUTE) for _ in range(2)] == [0, 1]
    with pytest.raises(Empty):
        items.get_nowait()


# ---- testSingleObserver


@pytest.mark.slow("an ensemble")
def test_a_single_observer_does_not_serve_alone(small: Ensemble) -> None:
    small.kill()
    (observer,) = small.observers
    observer.start()
    for _ in range(20):
        assert observer.status().role is Role.UNKNOWN
        time.sleep(UNIT)


# ---- testObserversHammer


@pytest.mark.slow("an ensemble")
def test_hammered_through_its_observers_all_servers_hold_the_same_tree(big: Ensemble, connected: MakeClient) -> None:
    clients = [connected(observer.hosts, session_timeout=LONG_SESSION_S) for observer in big.observers]
    top = clients[0].namespace

    def hammer(number: int) -> None:
        client = clients[number % len(clients)]
        counter = Counter(name=f"blows-{number % 10}", client=client)
        box: Queue[tuple[int, int]] = Queue(name=f"box-{number % 10}", client=client)
        for blow in range(BLOWS):
            counter += 1
            box.put((number, blow))

    results([Running(hammer, number) for number in range(HAMMERS)], 2 * MINUTE)
    counters = [Counter(name=f"blows-{number}", client=clients[0]) for number in range(10)]
    assert sum(each.get(sync=True) for each in counters) == HAMMERS * BLOWS
    trees = [tree(server, top) for server in big.servers]
    assert len(trees[0]) > HAMMERS * BLOWS
    for other in trees[1:]:
        assert other == trees[0]
    got = [item for box in range(10) for item in drained(Queue(name=f"box-{box}", client=clients[0]))]
    assert sorted(got) == [(number, blow) for number in range(HAMMERS) for blow in range(BLOWS)]
    assert all(blows == sorted(blows) for blows in by_number(got).values())


def drained(box: Queue[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while not box.empty():
        found += box.get_many(100, block=False)
    return found


def by_number(items: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, blow in items:
        found.setdefault(number, []).append(blow)
    return found


def tree(server: EnsembleServer, top: str) -> dict[str, object]:
    """Return each znode as this server has it: data and stat.

    On a slow machine a server that loses its leader for a moment closes all connections; then the
    tree is read again.
    """
    until = time.monotonic() + MINUTE
    while True:
        try:
            return read_tree(server, top)
        except (OSError, struct.error):
            if time.monotonic() > until:
                raise


def read_tree(server: EnsembleServer, top: str) -> dict[str, object]:
    """After a sync."""
    found: dict[str, object] = {}
    with linked(server.client_port) as link:
        link.ask(1, r.SyncRequest(top))
        todo = [top]
        while todo:
            path = todo.pop()
            link.send(
                encode_request(2, r.GetDataRequest(path, False)), encode_request(3, r.GetChildrenRequest(path, False))
            )
            found[path] = link.answer(r.GetDataReply)[3]
            names = link.answer(r.GetChildrenReply)[3]
            assert isinstance(names, r.GetChildrenReply)
            todo += [f"{path}/{name}" for name in names.children]
    return found


# ---- contenders on leader, follower and observer


def test_lock_has_one_holder_on_any_server(big: Ensemble, connected: MakeClient) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    def work(server: EnsembleServer) -> None:
        lock = Lock(name="one", client=connected(server.hosts, session_timeout=LONG_SESSION_S))
        for _ in range(5):
            with lock:
                inside.append(1)
                tokens.append(lock.fencing_token)
                assert len(inside) == 1
                inside.pop()

    results([Running(work, server) for server in everywhere(big)], MINUTE)
    assert len(tokens) == 15
    assert tokens == sorted(tokens)


@pytest.mark.slow("an ensemble")
def test_parties_of_a_barrier_meet_on_any_server(big: Ensemble, connected: MakeClient) -> None:
    servers = everywhere(big)
    barriers = [Barrier(3, name="b", client=connected(server.hosts)) for server in servers]
    for _ in range(5):
        assert sorted(results([Running(each.wait, MINUTE) for each in barriers], MINUTE)) == [0, 1, 2]


@pytest.mark.slow("an ensemble")
def test_next_candidate_leads_after_the_leader_and_its_server_were_killed(big: Ensemble, connected: MakeClient) -> None:
    elections = [Election(number, name="e", client=connected(s.hosts)) for number, s in enumerate(everywhere(big))]
    assert elections[2].acquire()
    may_end = [threading.Event() for _ in elections[:2]]

    def lead(number: int) -> None:
        with elections[number]:
            may_end[number].wait(MINUTE)

    standing = [Running(lead, number) for number in range(2)]
    eventually(lambda: len(elections[2].candidates()) == 3)
    token = elections[2].fencing_token
    big.observers[0].kill()
    eventually(lambda: not elections[2].is_leader, "it leads on without a server", MINUTE)
    eventually(lambda: any(each.is_leader for each in elections[:2]), "nobody leads", MINUTE)
    (now,) = (number for number in range(2) if elections[number].is_leader)
    assert elections[now].fencing_token > token
    assert elections[now].find_leader(sync=True).data == now
    big.heal()
    with pytest.raises(RuntimeError):
        elections[2].release()
    may_end[now].set()
    eventually(lambda: elections[1 - now].is_leader, "the last one does not lead", MINUTE)
    may_end[1 - now].set()
    results(standing, MINUTE)


def test_items_pass_from_observer_to_follower_in_order_while_the_leader_is_killed(
    big: Ensemble, connected: MakeClient
) -> None:
    leader, follower, observer = everywhere(big)
    flag = Event(name="half", client=connected(observer.hosts, session_timeout=LONG_SESSION_S))
    source: Queue[int] = Queue(name="q", client=flag.client)
    sink: Queue[int] = Queue(name="q", client=connected(follower.hosts, session_timeout=LONG_SESSION_S))

    def put() -> None:
        for number in range(60):
            source.put(number)
            if number == 30:
                flag.set()

    putting = Running(put)
    getting = Running(lambda: [sink.get() for _ in range(60)])
    assert Event(name="half", client=sink.client).wait(MINUTE)
    leader.kill()
    putting.result(MINUTE)
    assert getting.result(MINUTE) == list(range(60))


@pytest.mark.slow("an ensemble")
def test_no_server_shows_an_older_tree_to_a_client_that_hops(big: Ensemble, connected: MakeClient) -> None:
    """One client goes from server to server; what it has seen once it never misses."""
    writer = connected(big.wait_for_leader().hosts, session_timeout=LONG_SESSION_S)
    hopping = connected(big.hosts, session_timeout=LONG_SESSION_S)
    counter, seen = Counter(name="n", client=writer), Counter(name="n", client=hopping)
    last = 0
    for number, server in zip(range(1, 11), itertools.cycle(big.servers)):
        counter += 1
        server.drop_connection()
        now = seen.get(sync=True)
        assert number <= now
        assert last <= now
        last = now
