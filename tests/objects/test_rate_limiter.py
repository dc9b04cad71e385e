"""RateLimiter and IdGenerator shared by threads, clients and processes."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable

import pytest
from helpers.forked_children import forked
from helpers.leak_census import Observer
from helpers.remote_functions import barriers as remote_barriers
from helpers.remote_functions import general as remote
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire

from distsync import CorruptNodeError, IdGenerator, MismatchError, RateLimiter
from distsync._client.client import Client
from distsync._protocols.state import id_blocks as protocol
from distsync._protocols.state.token_bucket import Bucket
from distsync._wire.codes import OpCode
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

LONG_S = 1e6
"""Seconds per token: during a test there is no new one."""


@pytest.fixture
def ids(client: Client) -> IdGenerator:
    return IdGenerator(10, name="i")


# ---- RateLimiter


def test_burst_is_shared_by_all_processes(client: Client, peers: list[Peer]) -> None:
    limiter = RateLimiter(1, LONG_S, 5, name="r")
    taken = [peer.do(limiter.try_acquire) for peer in (*peers, *peers)]
    assert taken == [True] * 5 + [False]
    assert not limiter.try_acquire()
    assert not limiter.acquire(timeout=UNIT)


def test_rate_is_shared_by_all_processes(client: Client, peers: list[Peer]) -> None:
    """No period has more tokens than the burst and those that became available in it.

    Clocks count whole milliseconds. A slow machine does not matter: it only delays tokens.
    """
    rate, burst, each = 5 / UNIT, 3, 10
    limiter = RateLimiter(rate, burst=burst, name="r")
    for peer in peers:
        peer.start(remote_barriers.use, limiter, each)
    used = sorted(moment for peer in peers for moment in peer.result())
    assert used[-1] - used[0] >= (3 * each - burst) / rate - 10 * UNIT  # the first token may have been recorded late
    assert len(used) == 3 * each


def test_default_burst_allows_no_more_tokens_than_the_rate(client: Client) -> None:
    """It was the rate itself, so that twice as many tokens could pass in the time of one rate."""
    limiter = RateLimiter(10, LONG_S, name="r")
    assert [limiter.try_acquire() for _ in range(3)] == [True, False, False]
    with pytest.raises(ValueError, match="n=2 exceeds the burst of 1 and can never be granted: give a larger burst="):
        limiter.acquire(2)
    slow = RateLimiter(0.5, LONG_S, name="slow")
    assert [slow.try_acquire() for _ in range(2)] == [True, False]


def test_default_burst_replaces_that_of_an_earlier_version_when_no_process_uses_it(make_client: MakeClient) -> None:
    old = make_client()
    assert RateLimiter(10, LONG_S, 10, name="r", client=old).acquire(3)
    with pytest.raises(MismatchError, match=r"the burst of \S+ is 10.0, not 1.0"):
        RateLimiter(10, LONG_S, name="r", client=make_client()).acquire()
    old.close()
    limiter = RateLimiter(10, LONG_S, name="r", client=make_client())
    assert [limiter.try_acquire() for _ in range(2)] == [True, False]


def test_one_of_all_processes_gets_the_token_of_a_tick(client: Client, peers: list[Peer]) -> None:
    assert sum(peer.do(RateLimiter(1, per=LONG_S, name="once").try_acquire) for peer in peers) == 1
    again = RateLimiter(1, per=2 * UNIT, name="again")
    assert again.try_acquire()
    eventually(again.try_acquire)


def test_acquire_waits_for_a_token_or_fails_if_the_timeout_is_too_short(client: Client) -> None:
    slow, limiter = RateLimiter(1, LONG_S, 1, name="slow"), RateLimiter(1, 4 * UNIT, 1, name="r")
    assert slow.acquire()
    assert not slow.acquire(timeout=UNIT)
    assert limiter.acquire()
    assert limiter.acquire(timeout=PATIENCE)
    assert limiter.acquire()


def test_acquire_of_several_or_fractional_tokens_consumes_them(client: Client) -> None:
    limiter = RateLimiter(1, LONG_S, 10, name="r")
    assert limiter.acquire(7)
    assert not limiter.try_acquire(4)
    assert limiter.acquire(2.5)
    assert limiter.try_acquire(0.5)
    assert not limiter.try_acquire(0.1)


def test_tokens_of_an_interrupted_wait_are_returned(client: Client, peer: Peer, observer: Observer) -> None:
    limiter = RateLimiter(1, LONG_S, 2, name="r")
    assert limiter.acquire()
    assert peer.do(limiter.try_acquire, 0.5)
    version = observer.kazoo.exists(limiter.path).version
    peer.start(remote.catch, limiter.acquire, 2)
    eventually(lambda: observer.kazoo.exists(limiter.path).version == version + 1)
    peer.signal(signal.SIGINT)
    assert peer.result() == "KeyboardInterrupt"
    eventually(lambda: observer.kazoo.exists(limiter.path).version == version + 2)
    assert limiter.try_acquire(0.5)
    assert not limiter.try_acquire(0.5)


@pytest.mark.parametrize("drop", ["drop_next_reply", "drop_next_request"])
def test_acquire_whose_reply_or_request_is_lost_consumes_its_tokens_once(far: Client, proxy: Proxy, drop: str) -> None:
    limiter = RateLimiter(1, LONG_S, 4, name="r", client=far)
    assert limiter.acquire()
    for _ in range(3):
        dropped = getattr(proxy, drop)(OpCode.MULTI)
        assert limiter.try_acquire()
        assert dropped.is_set()
    assert not limiter.try_acquire()


def test_bucket_is_filled_according_to_the_times_of_the_server() -> None:
    """A grant depends only on the time at which the server executed the request."""
    bucket = Bucket(rate=2.0, burst=4.0, level=4.0, at=1000, mtime=1000)
    at_once = bucket.asked(4.0, 0.0, "a")
    assert (at_once.granted, at_once.rest, at_once.wait_s) == (True, 0.0, 0.0)
    later = Bucket(**{**vars(at_once.asked(2.0, None, "b")), "mtime": 1500})
    assert (later.granted, later.rest, later.wait_s) == (True, -1.0, 0.5)
    refused = Bucket(**{**vars(later.asked(1.0, 1.5, "c")), "mtime": 1500})
    assert (refused.granted, refused.rest) == (False, -1.0)
    back = Bucket(**{**vars(refused.asked(1.0, 2.0, "d")), "mtime": 900})
    assert (back.granted, back.rest) == (True, -2.0)  # a clock that is set back adds no tokens
    full = Bucket(**{**vars(back.asked(0.0, 0.0, "e")), "mtime": 10**9})
    assert full.rest == 4.0


def test_acquire_costs_1_request_and_3_after_another_client(client: Client, make_client: MakeClient) -> None:
    limiter = RateLimiter(1, LONG_S, 10, name="r")
    limiter.acquire()
    with counted(client) as alone:
        limiter.acquire()
    with counted(client) as refused_cost:
        limiter.try_acquire(10)
    RateLimiter(1, LONG_S, 10, name="r", client=make_client()).acquire()
    with counted(client) as after:
        limiter.acquire()
    assert (alone, refused_cost, after) == (Cost(1, 1), Cost(1, 1), Cost(3, 3))


def test_limiter_refuses_invalid_arguments_and_malformed_data(
    client: Client, make_client: MakeClient, observer: Observer
) -> None:
    for wrong, error in (
        (0, ValueError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (10**400, ValueError),
        ("1", TypeError),
    ):
        for arguments in ((wrong,), (1, wrong), (1, 1, wrong)):
            with pytest.raises(error, match="must be a number"):
                RateLimiter(*arguments)
    limiter = RateLimiter(10, burst=2, name="r")
    with pytest.raises(ValueError, match=r"n=3 exceeds the burst of 2"):
        limiter.acquire(3)
    with pytest.raises(ValueError, match="above 0"):
        limiter.acquire(0)
    assert limiter.try_acquire()
    with pytest.raises(MismatchError, match=r"the rate of \S+ is 10.0, not 20.0"):
        RateLimiter(20, burst=2, name="r", client=make_client()).acquire()
    with pytest.raises(MismatchError, match=r"the burst of \S+ is 2.0, not 3.0"):
        RateLimiter(10, burst=3, name="r").acquire()
    observer.kazoo.set(limiter.path, b"{}")
    with pytest.raises(CorruptNodeError):
        limiter.acquire()
    assert "10 per 1 s, burst 2" in repr(pickle.loads(pickle.dumps(limiter)))


# ---- IdGenerator


def test_ids_taken_by_several_processes_are_unique(ids: IdGenerator, peers: list[Peer]) -> None:
    for peer in peers:
        peer.start(remote_barriers.take_ids, ids, 25, 2)
    taken = [*remote_barriers.take_ids(ids, 25, 2), *(each for peer in peers for each in peer.result())]
    assert len(set(taken)) == 4 * 50
    assert min(taken) == 1
    assert max(taken) <= 4 * 50 + 4 * 10


def test_ids_of_one_process_grow(ids: IdGenerator) -> None:
    assert [next(ids) for _ in range(25)] == [*range(1, 26)]
    assert ids.next_ids(12) == [*range(26, 38)]
    assert ids.next_id() == 38
    assert ids.next_ids(0) == []
    assert next(iter(IdGenerator(10, name="i"))) == 39


@pytest.mark.slow_on("zookeeper")
def test_ids_of_a_killed_process_are_skipped(ids: IdGenerator, make_mortal: Callable[..., Peer]) -> None:
    mortal = make_mortal()
    assert mortal.do(ids.next_ids, 3) == [1, 2, 3]
    mortal.kill()
    assert ids.next_id() == 11


def test_forked_child_takes_a_block_of_its_own(ids: IdGenerator, client: Client) -> None:

    assert ids.next_id() == 1

    def child() -> int:
        with client:
            return ids.next_id()

    with forked(child) as result:
        assert result() == "11"
    assert ids.next_id() == 2


@pytest.mark.parametrize("drop", ["drop_next_reply", "drop_next_request"])
def test_block_of_ids_whose_reply_is_lost_is_skipped(far: Client, proxy: Proxy, drop: str) -> None:
    ids = IdGenerator(2, name="i", client=far)
    assert ids.next_ids(2) == [1, 2]
    dropped = getattr(proxy, drop)(OpCode.SET_DATA)
    assert ids.next_id() == (5 if drop == "drop_next_reply" else 3)
    assert dropped.is_set()


def test_end_of_the_session_loses_no_id(ids: IdGenerator, client: Client) -> None:
    assert ids.next_id() == 1
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    assert ids.next_ids(11) == [*range(2, 13)]


def test_next_era_of_ids_starts_before_the_versions_are_exhausted(
    client: Client, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a very short era: the ids of the next one start where those of this one would end."""
    monkeypatch.setattr(protocol, "ERA_SIZE", 8)
    monkeypatch.setattr(protocol, "LAST", 4)
    ours = IdGenerator(1, name="i")
    theirs = IdGenerator(1, name="i", client=make_client())
    assert ours.next_id() == 1
    assert theirs.next_ids(5) == [2, 3, 4, 9, 10]
    assert ours.next_ids(2) == [5, 11]


def test_ids_cost_1_request_per_block(ids: IdGenerator, client: Client) -> None:
    ids.next_ids(10)
    with counted(client) as block:
        ids.next_id()
    with counted(client) as rest:
        for _ in range(9):
            ids.next_id()
    assert (block, rest) == (Cost(1, 1), Cost())


def test_generator_refuses_invalid_arguments_and_malformed_data(
    ids: IdGenerator, make_client: MakeClient, observer: Observer
) -> None:
    for wrong, error in ((0, ValueError), (-5, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="block must be"):
            IdGenerator(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count must be >= 0"):
        ids.next_ids(-1)
    ids.next_id()
    for arguments, text in (((20,), "is 10, not 20"), ((10, 5), "is 1, not 5")):
        with pytest.raises(MismatchError, match=text):
            IdGenerator(*arguments, name="i", client=make_client()).next_id()
        with pytest.raises(MismatchError, match=text):
            IdGenerator(*arguments, name="i").next_id()
    observer.wipe(ids.path)
    with pytest.raises(CorruptNodeError):
        ids.next_ids(10)
    assert "blocks of 10" in repr(pickle.loads(pickle.dumps(ids)))


def test_concurrent_threads_share_the_request_for_a_block(client: Client) -> None:
    ids = IdGenerator(100, name="i")
    ids.next_ids(100)
    with counted(client) as cost:
        running = [Running(ids.next_ids, 5) for _ in range(20)]
        taken = sorted(each for one in running for each in one.result())
    assert taken == [*range(101, 201)]
    assert cost == Cost(1, 1)
