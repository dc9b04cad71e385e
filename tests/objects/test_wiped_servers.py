"""What a process remembers of an object ends with its connection: the servers may have been wiped or restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, eventually

from distsync import CorruptNodeError
from distsync._client.client import Client
from distsync.multiprocessing import Array
from distsync.recipes import Counter, IdGenerator, RateLimiter, Value
from distsync.threading import Lock

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


Restored = tuple[Client, Callable[..., Client]]


@pytest.fixture
def restored(own_server: ServerProcess, make_client: MakeClient) -> Restored:
    """A client, and a function that copies the server's data, calls back, restores the copy while the
    client's session lives, and returns another process's client.

    The session is in the copy, and other clients write so much before it reconnects that it does
    not notice the older data.
    """
    ours = make_client(hosts=own_server.hosts, session_timeout=20.0)
    data, copy = own_server.folder / "data", own_server.folder / "copy"

    def restore(meanwhile: Callable[[], object], has_old_znodes: bool = False) -> Client:
        session_id = ours.session_id
        own_server.kill()
        shutil.copytree(data, copy)
        own_server.start()
        meanwhile()
        own_server.kill()
        shutil.rmtree(data)
        copy.rename(data)
        own_server.start()
        theirs = make_client(hosts=own_server.hosts)
        value = Value(name="w", client=theirs)
        for number in range(50):
            value.set(number)
        eventually(lambda: ours.state == "connected")
        assert ours.session_id == session_id or has_old_znodes
        return theirs

    return ours, restore


def test_counter_does_not_overwrite_what_others_counted_after_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    counter = Counter(name="c", client=ours)
    assert counter.add(7) == 7
    theirs = Counter(name="c", client=restore(lambda: counter.add(1000)))
    assert theirs.add(5) == 12
    assert counter.add(1) == 13


def test_compare_and_set_compares_with_the_number_after_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    counter = Counter(name="c", client=ours)
    assert counter.add(7) == 7
    theirs = Counter(name="c", client=restore(lambda: counter.add(1000)))
    assert theirs.add(5) == 12
    assert not counter.compare_and_set(1007, 0)
    assert theirs.get() == 12


def test_shared_array_keeps_what_others_wrote_after_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    mine = Array("i", 3, name="a", client=ours, lock=False)
    mine[0] = 1
    theirs = Array("i", 3, name="a", client=restore(lambda: mine.__setitem__(1, 1000)), lock=False)
    theirs[2] = 5
    mine[0] = 2
    assert theirs[:] == [2, 0, 5]


def test_rate_limiter_counts_the_tokens_of_others_after_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    limiter = RateLimiter(1, per=3600, burst=10, name="r", client=ours)
    assert limiter.acquire(1, timeout=0)
    theirs = RateLimiter(1, per=3600, burst=10, name="r", client=restore(lambda: limiter.acquire(1, timeout=0)))
    assert theirs.acquire(9, timeout=0)
    assert not limiter.acquire(5, timeout=0)


def test_id_generator_repeats_no_ids_of_others_after_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    mine = IdGenerator(name="ids", block=2, client=ours)
    assert [next(mine), next(mine)] == [1, 2]
    theirs = IdGenerator(name="ids", block=2, client=restore(lambda: next(mine)))
    assert [next(theirs) for _ in range(4)] == [3, 4, 5, 6]
    assert next(mine) == 7


def test_id_generator_raises_if_no_block_was_taken_since_a_restore_with_its_session(restored: Restored) -> None:
    ours, restore = restored
    mine = IdGenerator(name="ids", block=2, client=ours)
    assert [next(mine), next(mine)] == [1, 2]
    restore(lambda: next(mine))
    with pytest.raises(CorruptNodeError, match="block 1, though block 1 was taken"):
        next(mine)


def test_lock_that_was_held_in_the_backup_is_free_after_a_restore_with_its_session(restored: Restored) -> None:
    """The holder has released it since, and does not know the znode, but keeps its session alive."""
    ours, restore = restored
    lock = Lock(name="l", client=ours, linger=0)
    lock.acquire()
    theirs = Lock(name="l", client=restore(lock.release, has_old_znodes=True))
    assert theirs.acquire(timeout=PATIENCE)
