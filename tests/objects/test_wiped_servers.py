"""What a process remembers of an object does not outlive its session: the servers may have been wiped."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from helpers.servers import ServerProcess
from helpers.timing import eventually

from distsync import CorruptNodeError
from distsync._client.client import Client
from distsync.multiprocessing import Array
from distsync.recipes import Counter, IdGenerator, RateLimiter

MakeClient = Callable[..., Client]
Clients = tuple[Client, Callable[[], Client]]


@pytest.fixture
def wiped(own_server: ServerProcess, make_client: MakeClient) -> Clients:
    """A client, and a function that wipes the servers and returns another process's client."""
    ours = make_client(hosts=own_server.hosts, session_timeout=1.0)

    def wipe() -> Client:
        before = ours.session_id
        own_server.kill()
        shutil.rmtree(own_server.folder / "data")
        own_server.start()
        eventually(lambda: ours.state == "connected" and ours.session_id != before)
        return make_client(hosts=own_server.hosts)

    return ours, wipe


def test_counter_does_not_overwrite_what_others_counted_after_the_servers_were_wiped(wiped: Clients) -> None:
    ours, wipe = wiped
    counter = Counter(name="c", client=ours)
    assert counter.add(7) == 7
    theirs = Counter(name="c", client=wipe())
    assert theirs.add(1006) == 1006
    assert counter.add(1) == 1007
    assert theirs.get() == 1007


def test_compare_and_set_compares_with_the_number_after_the_servers_were_wiped(wiped: Clients) -> None:
    ours, wipe = wiped
    counter = Counter(name="c", client=ours)
    assert counter.add(7) == 7
    theirs = Counter(name="c", client=wipe())
    theirs.add(1006)
    assert not counter.compare_and_set(7, 8)
    assert theirs.get() == 1006


def test_shared_array_keeps_what_others_wrote_after_the_servers_were_wiped(wiped: Clients) -> None:
    ours, wipe = wiped
    mine = Array("i", 2, name="a", client=ours)
    mine[0] = 1
    theirs = Array("i", 2, name="a", client=wipe())
    theirs[1] = 5
    mine[0] = 2
    assert theirs[:] == [2, 5]


def test_rate_limiter_counts_the_tokens_of_others_after_the_servers_were_wiped(wiped: Clients) -> None:
    ours, wipe = wiped
    limiter = RateLimiter(1, per=3600, burst=10, name="r", client=ours)
    assert limiter.acquire(1, timeout=0)
    theirs = RateLimiter(1, per=3600, burst=10, name="r", client=wipe())
    assert theirs.acquire(10, timeout=0)
    assert not limiter.acquire(5, timeout=0)


def test_id_generator_refuses_to_repeat_ids_after_the_servers_were_wiped(wiped: Clients) -> None:
    ours, wipe = wiped
    mine = IdGenerator(name="ids", block=2, client=ours)
    assert [next(mine) for _ in range(4)] == [1, 2, 3, 4]
    theirs = IdGenerator(name="ids", block=2, client=wipe())
    next(theirs)
    with pytest.raises(CorruptNodeError, match="block 1, though block 1 was taken"):
        next(mine)
