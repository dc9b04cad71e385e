"""One queue with Curator's own mutex and read-write lock: holders, waiters, wakeups, exits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.curator_process import Curator, cycle
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, results

from distsync import Lock, RLock, SharedLock
from distsync._client.client import Client

MS = int(UNIT * 1000)


def in_turn(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


def line_of(lock: Any) -> int:
    return len(lock.holders()) + len(lock.waiters())


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_lock_and_mutex_take_turns_in_one_queue(kind: Callable[..., Any], client: Client, curator: Curator) -> None:
    lock = kind(name="a")
    theirs = [curator.actor("mutex", lock.path) for _ in range(2)]
    assert theirs[0].do("acquire")
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=UNIT)
    waiting = Running(in_turn, lock)
    eventually(lambda: line_of(lock) == 2)
    behind = theirs[1].start("acquire")
    eventually(lambda: line_of(lock) == 3)
    assert waiting.is_alive()
    assert theirs[0].do("release")
    assert waiting.result()
    assert behind.result()
    assert not lock.acquire(blocking=False)
    assert theirs[1].do("release")
    with lock:
        assert theirs[0].do("acquire", MS) is False
        assert theirs[0].do("acquire", 0) is False
    assert line_of(lock) == 0


@pytest.mark.parametrize("verb", ["cycle", "cycle-write"])
def test_many_of_both_never_hold_together(
    verb: str, client: Client, make_client: Callable[..., Client], curator: Curator, tmp_path: Path
) -> None:
    made = [Lock(client=make_client(), path=client.path("lock", "a")) for _ in range(2)]
    if verb == "cycle-write":
        made = [SharedLock(client=make_client(), path=one.path).writer for one in made]  # type: ignore[misc]
    recipe = "mutex" if verb == "cycle" else "readwrite"
    theirs = [curator.actor(recipe, made[0].path).start(verb, 10, tmp_path) for _ in range(2)]
    ours = [Running(cycle, one, 10, tmp_path) for one in made]
    assert [*results(ours), *(int(actor.result()) for actor in theirs)] == [1] * 4


def test_each_side_sees_holders_and_waiters(client: Client, curator: Curator) -> None:
    lock, mutex = Lock(name="a"), curator.actor("mutex", Lock(name="a").path)
    mutex.do("acquire")
    waiting = Running(in_turn, lock)
    eventually(lambda: len(lock.waiters()) == 1)
    (theirs,), (ours,) = lock.holders(), lock.waiters()
    assert theirs.pid is None
    assert ours.pid is not None
    assert mutex.do("line") == f"{theirs.path} {ours.path}"
    mutex.do("release")
    assert waiting.result()


def test_what_a_killed_java_process_held_or_waited_for_is_free(
    client: Client, make_curator: Callable[..., Curator]
) -> None:
    held, waited = Lock(name="held"), Lock(name="waited")
    doomed = make_curator(2_000)
    assert doomed.actor("mutex", held.path).do("acquire")
    with waited:
        doomed.actor("mutex", waited.path).start("acquire")
        eventually(lambda: len(waited.waiters()) == 1)
        waiting = Running(in_turn, held)
        eventually(lambda: len(held.waiters()) == 1)
        doomed.kill()
        assert waiting.result()
    eventually(lambda: line_of(waited) == 0)


def test_mutex_is_woken_when_our_process_is_killed(client: Client, mortal: Peer, curator: Curator) -> None:
    lock = Lock(name="a")
    assert mortal.do(lock.acquire)
    mutex = curator.actor("mutex", lock.path).start("acquire")
    eventually(lambda: len(lock.waiters()) == 1)
    mortal.kill()
    assert mutex.result(2 * PATIENCE)
    assert mutex.do("release")


# ---- revocation


def test_curator_asks_for_our_lock_and_we_ask_for_its(client: Client, curator: Curator) -> None:
    lock, mutex = Lock(name="a"), curator.actor("mutex", Lock(name="a").path)
    with lock:
        assert not lock.revoked.is_set()
        curator.actor("revoker", lock.path).do("revoke", lock.holders()[0].path)
        assert lock.revoked.wait(PATIENCE)
    mutex.do("heed")
    mutex.do("acquire")
    asking = Running(lock.revoke)
    assert mutex.do("asked", int(PATIENCE * 1000))
    mutex.do("release")
    asking.result()


def test_mutex_that_ignores_the_request_is_revoked_after_the_grace_time(client: Client, curator: Curator) -> None:
    lock, mutex = Lock(name="a"), curator.actor("mutex", Lock(name="a").path)
    mutex.do("acquire")
    lock.revoke(grace=UNIT)
    with lock:
        mutex.do("release")
        assert lock.held


# ---- SharedLock


def test_readers_and_writers_of_both_share_one_queue(client: Client, curator: Curator) -> None:
    shared = SharedLock(name="a")
    theirs, other = (curator.actor("readwrite", shared.path) for _ in range(2))
    with shared.reader:
        assert theirs.do("acquire-read")
        assert theirs.do("release-read")
        assert other.do("acquire-write", 0) is False
        writing = other.start("acquire-write")
        eventually(lambda: len(shared.writer.waiters()) == 1)
        behind = Running(in_turn, SharedLock(name="a").writer)
        eventually(lambda: len(shared.writer.waiters()) == 2)
    assert writing.result()
    assert not shared.reader.acquire(blocking=False)
    assert not shared.writer.acquire(timeout=UNIT)
    reading = theirs.start("acquire-read")
    eventually(lambda: len(shared.reader.waiters()) == 1)
    assert other.do("release-write")
    assert behind.result()
    assert reading.result()
    assert not shared.writer.acquire(blocking=False)
    assert shared.reader.acquire(blocking=False)
    shared.reader.release()
    theirs.do("release-read")
    with shared.writer:
        assert theirs.do("acquire-read", MS) is False


def test_curators_downgraded_writer_keeps_our_writer_out_and_lets_our_readers_in(
    client: Client, curator: Curator
) -> None:
    """It reads under the writer's sequence number, as we do."""
    shared = SharedLock(name="a")
    theirs = curator.actor("readwrite", shared.path)
    assert theirs.do("acquire-write")
    waiting = Running(in_turn, shared.writer)
    eventually(lambda: len(shared.writer.waiters()) == 1)
    assert theirs.do("acquire-read")
    assert theirs.do("release-write")
    eventually(lambda: len(shared.reader.holders()) == 1)
    assert not SharedLock(name="a").writer.acquire(timeout=UNIT)
    assert waiting.is_alive()
    assert theirs.do("release-read")
    assert waiting.result()
    assert theirs.do("acquire-write")
    assert theirs.do("acquire-read")
    assert theirs.do("release-write")
    with shared.reader:
        assert not shared.writer.locked()
    theirs.do("release-read")


def test_our_downgraded_writer_keeps_curators_writer_out_and_lets_its_readers_in(
    client: Client, curator: Curator
) -> None:
    shared = SharedLock(name="a")
    theirs, other = (curator.actor("readwrite", shared.path) for _ in range(2))
    with shared.writer:
        reading = theirs.start("acquire-read")
        eventually(lambda: len(shared.reader.waiters()) == 1)
        shared.reader.acquire()
    assert reading.result()
    assert other.do("acquire-write", MS) is False
    theirs.do("release-read")
    writing = other.start("acquire-write")
    eventually(lambda: len(shared.writer.waiters()) == 1)
    shared.reader.release()
    assert writing.result()
    other.do("release-write")
