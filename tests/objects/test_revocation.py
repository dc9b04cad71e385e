"""Revocation: holders are asked to release, and lose the lock after the grace time.

Source: ZooKeeper recipes, Revocable Shared Locks.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.subprocesses import is_running
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire

from distsync import Lock, LockLostError, NotHeldError, RLock, SharedLock
from distsync._client import default_client
from distsync._client.client import Client
from distsync._protocols.locks import revocation
from distsync._protocols.locks.cache_revocation import is_cached_entry
from distsync._protocols.locks.revocation import carry_over, is_for_writer, is_revoke_request, revoke_request
from distsync._wire.codes import OpCode
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]


def side(name: str) -> Callable[..., Any]:
    return lambda **options: getattr(SharedLock(**options), name)


KINDS = pytest.mark.parametrize(
    "kind", [Lock, RLock, side("reader"), side("writer")], ids=["Lock", "RLock", "reader", "writer"]
)


def pair(kind: Callable[..., Any], client: Client, other: Client) -> tuple[Any, Any]:
    return kind(name="a", client=client), kind(name="a", client=other)


@KINDS
def test_holder_that_releases_on_request_is_asked_once(kind: Callable[..., Any], client: Client, other: Client) -> None:
    ours, theirs = pair(kind, client, other)
    asked: list[Any] = []
    ours.on_revoke = asked.append
    ours.acquire()
    revoking = Running(theirs.revoke, PATIENCE)
    eventually(lambda: asked)
    assert asked == [ours]
    assert (ours.held, ours.revoked.is_set()) == (True, True)
    ours.release()
    assert revoking.result() is True
    assert not ours.revoked.is_set()
    assert asked == [ours]


@pytest.mark.slow_on("zookeeper")
@KINDS
def test_holder_that_ignores_the_request_loses_the_lock_after_the_grace_time(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    ours, theirs = pair(kind, client, other)
    losses: list[LockLostError] = []
    ours.on_lost = losses.append
    ours.acquire()
    transaction = ours.transaction()
    transaction.create(f"{client.namespace}/late", b"")
    assert theirs.revoke(UNIT) is False
    assert theirs.acquire(timeout=PATIENCE)
    eventually(lambda: losses)
    assert losses[0].args == (ours.path, "revoked")
    assert not ours.held
    with pytest.raises(LockLostError):
        transaction.commit()
    with pytest.raises(LockLostError):
        ours.release()
    theirs.release()


@KINDS
def test_lock_that_is_taken_right_after_its_acquire_is_not_held_when_another_process_acquires_it(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    ours, theirs = pair(kind, client, other)
    for _ in range(5):
        ours.acquire()
        assert theirs.revoke(0) is False
        assert theirs.acquire(timeout=PATIENCE)
        assert not ours.held
        theirs.release()
        with pytest.raises(LockLostError):
            ours.release()


def test_held_is_false_before_another_process_holds_under_many_revokers(client: Client, other: Client) -> None:
    ours, theirs = pair(partial(Lock, linger=0), client, other)
    stop = threading.Event()
    overlaps: list[None] = []

    def take() -> None:
        while not stop.is_set():
            with suppress(NotHeldError):
                theirs.revoke(0)
            if theirs.acquire(timeout=UNIT):  # ours may have acquired it first
                if ours.held and theirs.held:
                    overlaps.append(None)
                with suppress(LockLostError):
                    theirs.release()

    taking = Running(take)
    for _ in range(20):
        with suppress(LockLostError, NotHeldError), ours:
            eventually(lambda: not ours.held)
    stop.set()
    taking.result()
    assert not overlaps


def test_lock_is_taken_from_a_process_that_does_not_notice(client: Client, make_far: MakeClient, proxy: Proxy) -> None:
    ours, theirs = pair(Lock, make_far(session_timeout=30.0), client)
    ours.acquire()
    proxy.blackhole()
    assert theirs.revoke(0) is False
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()
    proxy.heal()


def revoke_and_die_before_the_delete(revoker: Peer, lock: Lock) -> None:
    """The lock's znode is marked as revoked, and only its holder is left to delete it."""
    revoker.start(remote.revoke_and_die_before_the_delete, lock)
    eventually(lambda: not is_running(revoker.pid))


def test_holder_gives_the_lock_up_if_the_revoker_is_killed_before_it_deletes_the_znode(
    client: Client, other: Client, make_mortal: Callable[..., Peer]
) -> None:
    ours, theirs = pair(Lock, client, other)
    ours.acquire()
    revoke_and_die_before_the_delete(make_mortal(), ours)
    assert theirs.acquire(timeout=PATIENCE)
    assert not ours.held
    with pytest.raises(LockLostError, match="revoked"):
        ours.release()
    theirs.release()


@pytest.mark.parametrize("until", ["it continues", "its session ends"])
def test_stopped_holder_keeps_the_lock_if_the_revoker_is_killed_before_it_deletes_the_znode(
    until: str, client: Client, make_mortal: Callable[..., Peer]
) -> None:
    lock, revoker = Lock(name="a"), make_mortal()
    stopped = make_mortal() if until == "its session ends" else make_mortal(30.0)
    assert not revoker.do(lock.locked)  # it is connected before the session of the other one can end
    stopped.do(lock.acquire)
    stopped.signal(signal.SIGSTOP)
    revoke_and_die_before_the_delete(revoker, lock)
    if until == "it continues":
        assert not lock.acquire(timeout=revocation.NOTICE_S + 4 * UNIT)
        stopped.signal(signal.SIGCONT)
    assert lock.acquire(timeout=PATIENCE)
    if until == "it continues":
        assert stopped.do(attrgetter("held"), lock) is False
    lock.release()


@KINDS
def test_revoke_without_grace_sets_the_flag_and_leaves_the_lock_held(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    """The flag is first read when the request has already been written (hazard 64)."""
    ours, theirs = pair(kind, client, other)
    ours.acquire()
    assert theirs.revoke() is False
    before = ours.holders()
    assert before[0].pid is not None
    eventually(lambda: ours.revoked.is_set())
    assert ours.revoked.wait() is True
    assert ours.held
    assert [each.pid for each in ours.holders()] == [before[0].pid]
    ours.release()


def test_revoked_flag_can_be_waited_for_like_an_event(client: Client, other: Client) -> None:
    ours, theirs = pair(Lock, client, other)
    with pytest.raises(NotHeldError):
        ours.revoked.wait()
    with ours:
        assert ours.revoked.wait(UNIT) is False
        assert not ours.revoked
        waiting = Running(ours.revoked.wait)
        theirs.revoke()
        assert waiting.result() is True
    with ours:
        assert not ours.revoked.is_set()


def test_revoked_flag_is_set_by_a_loss_too(client: Client, observer: Observer) -> None:
    lock = Lock(name="a")
    lock.acquire()
    waiting = Running(lock.revoked.wait)
    observer.kazoo.delete(lock.holders()[0].path)
    assert waiting.result() is True
    with pytest.raises(LockLostError):
        lock.release()


def test_on_revoke_that_is_set_while_held_is_called(client: Client, other: Client) -> None:
    ours, theirs = pair(Lock, client, other)
    ours.acquire()
    theirs.revoke()
    ours.on_revoke = lambda lock: lock.release()
    eventually(lambda: not ours.held)
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()


@pytest.mark.parametrize("kind", [Lock, RLock, lambda **options: SharedLock(**options).reader])
def test_callback_after_the_default_client_was_unset_creates_no_other(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    """Regression: the callback accessed the object, which created a new default client, and so an
    embedded server.
    """
    called: list[Any] = []
    lock = kind(name="b", on_revoke=called.append)
    resume, done = threading.Event(), threading.Event()
    with lock:
        assert not lock.revoked.is_set()
        client.call_back(partial(resume.wait, PATIENCE))
        kind(name="b", client=other).revoke()
        eventually(lock.revoked.is_set)
        default_client.set_default(None)
        try:
            resume.set()
            client.call_back(done.set)
            assert done.wait(PATIENCE)
            assert default_client.export_settings() is None
        finally:
            default_client.set_default(client)
    assert called == [lock]


@pytest.mark.parametrize(
    ("grace", "error"), [(float("nan"), ValueError), (-1, ValueError), (float("inf"), ValueError), ("1", TypeError)]
)
def test_invalid_grace_is_refused_and_revokes_nothing(grace: Any, error: type[Exception], client: Client) -> None:
    lock, shared = Lock(name="a"), SharedLock(name="s")
    with lock, shared.reader:
        for each in (lock, shared):
            with pytest.raises(error, match="grace must be a number"):
                each.revoke(grace)
        assert not lock.revoked.is_set()
        assert lock.held


@KINDS
def test_revoke_of_a_free_lock_raises_not_held_error(kind: Callable[..., Any], client: Client, other: Client) -> None:
    ours, theirs = pair(kind, client, other)
    for _ in range(2):
        with pytest.raises(NotHeldError, match=f"{ours.path} is not held: there is nothing to revoke"):
            theirs.revoke(grace=1)
        with ours:
            pass
    with pytest.raises(TypeError):
        theirs.revoke(grace="soon")


def test_one_side_of_a_shared_lock_can_be_revoked_alone(client: Client, other: Client) -> None:
    ours, theirs = SharedLock(name="a"), SharedLock(name="a", client=other)
    with ours.reader:
        with pytest.raises(NotHeldError):
            theirs.writer.revoke()
        theirs.reader.revoke()
        eventually(lambda: ours.reader.revoked)


def test_readers_that_ignore_the_request_lose_the_lock_after_the_grace_time(
    client: Client, make_client: MakeClient
) -> None:
    ours, others = SharedLock(name="a"), [SharedLock(name="a", client=make_client()) for _ in range(3)]
    for each in others:
        each.reader.acquire()
    others[0].reader.on_revoke = lambda reader: None
    writing = Running(acquire_and_release, ours.writer)
    eventually(lambda: len(ours.waiters()) == 1)
    assert ours.revoke(grace=2 * UNIT) is False
    assert writing.result()
    for each in others:
        with pytest.raises(LockLostError):
            each.reader.release()


def acquire_and_release(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


@pytest.mark.parametrize("lost", ["drop_next_request", "drop_next_reply"])
@pytest.mark.parametrize("kind", [OpCode.SET_DATA, OpCode.DELETE, OpCode.GET_DATA])
def test_lost_request_or_reply_of_the_revoker_does_not_affect_the_revocation(
    client: Client, far: Client, proxy: Proxy, observer: Observer, lost: str, kind: OpCode
) -> None:
    ours, theirs = pair(Lock, client, far)
    ours.acquire()
    if kind == OpCode.DELETE:  # holders of other libraries do not delete their znodes when the lock is taken
        observer.kazoo.set(ours.holders()[0].path, b"of another library")
    assert theirs.locked()
    dropped = getattr(proxy, lost)(kind)
    assert theirs.revoke(grace=4 * UNIT) is False
    assert dropped.is_set()
    assert ours.holders() == []
    with pytest.raises(LockLostError):
        ours.release()


@pytest.mark.parametrize("first", ["writer", "whole"])
def test_concurrent_revocations_of_a_writer_and_of_the_whole_lock_revoke_the_whole(
    client: Client, other: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    ours, theirs = pair(SharedLock, client, other)
    late, early = (theirs.writer.revoke, ours.revoke) if first == "whole" else (theirs.revoke, ours.writer.revoke)
    before = [early]

    def revoke_before_write(path: str, data: bytes, **options: Any) -> bytes:
        """Let another client revoke after this one has read, and before it writes."""
        while before:
            before.pop()()
        return revoke_request(path, data, **options)

    monkeypatch.setattr(revocation, "revoke_request", revoke_before_write)
    with ours.writer, ours.reader:
        late()
        path = ours.writer.holders()[0].path
        data, _ = observer.kazoo.get(path)
        assert (is_revoke_request(data), is_for_writer(data)) == (True, False)
        eventually(lambda: not is_cached_entry(observer.kazoo.get(path)[0]))


def test_waiter_is_not_asked_to_release(client: Client, other: Client) -> None:
    ours, theirs = pair(Lock, client, other)
    ours.acquire()
    theirs.on_revoke = lambda lock: pytest.fail("asked")
    waiting = Running(theirs.acquire)
    eventually(lambda: len(ours.waiters()) == 1)
    theirs.revoke()
    ours.release()
    assert waiting.result()
    assert not theirs.revoked.is_set()
    theirs.release()


def test_revoked_lock_is_not_handed_over_to_a_local_waiter(client: Client, other: Client) -> None:
    ours, theirs = pair(Lock, client, other)
    ours.on_revoke = lambda lock: None
    ours.acquire()
    waiting = Running(theirs.acquire)
    eventually(lambda: len(ours.waiters()) == 1)
    behind = Running(ours.acquire)
    eventually(lambda: len(ours._core.local_waiters) == 1)
    theirs.revoke()
    eventually(lambda: ours.revoked)
    ours.release()
    assert waiting.result()
    assert behind.is_alive()
    theirs.release()
    assert behind.result()
    ours.release()


def test_reader_is_asked_to_release_after_a_downgrade(client: Client, other: Client) -> None:
    """The callback of the reader stays registered when the writer's znode becomes that of a reader."""
    ours, theirs = SharedLock(name="a"), SharedLock(name="a", client=other)
    asked: list[Any] = []
    ours.reader.on_revoke = asked.append
    ours.writer.acquire()
    ours.reader.acquire()
    ours.writer.release()
    theirs.revoke()
    eventually(lambda: asked)
    ours.reader.release()


def writing_and_reading(client: Client) -> SharedLock:
    shared = SharedLock(name="a", client=client)
    shared.writer.acquire()
    shared.reader.acquire()
    return shared


@pytest.mark.slow_on("zookeeper")
def test_revoked_writer_that_downgrades_is_asked_as_reader_and_loses_the_lock(client: Client, other: Client) -> None:
    """It was asked to release the whole lock."""
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    revoking = Running(theirs.revoke, 20 * UNIT)
    eventually(lambda: ours.writer.revoked.is_set())
    ours.writer.release()
    assert revoking.is_alive()
    eventually(lambda: ours.reader.revoked.is_set())
    assert ours.reader.held
    assert revoking.result() is False
    eventually(lambda: not ours.reader.held)
    with pytest.raises(LockLostError):
        ours.reader.release()


def test_revoked_writer_that_downgrades_and_then_releases_has_complied(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    revoking = Running(theirs.revoke, PATIENCE)
    assert ours.writer.revoked.wait(PATIENCE)
    ours.writer.release()
    assert ours.reader.revoked.wait(PATIENCE)
    ours.reader.release()
    assert revoking.result() is True


def test_request_that_was_not_noticed_is_carried_over_by_a_downgrade(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    theirs.revoke()
    ours.writer.release()
    assert theirs.reader.holders()
    assert ours.reader.revoked.wait(PATIENCE)
    ours.reader.release()


def test_writer_revoked_alone_may_downgrade_and_keep_reading(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    ours.reader.on_revoke = pytest.fail
    revoking = Running(theirs.writer.revoke, PATIENCE)
    assert ours.writer.revoked.wait(PATIENCE)
    ours.writer.release()
    assert revoking.result() is True
    with theirs.reader:
        assert (ours.reader.held, ours.reader.revoked.is_set()) == (True, False)
    ours.reader.release()


def test_request_for_the_whole_lock_supersedes_one_for_the_writer() -> None:
    mine, asked = b'{"pid":1}', revoke_request("/a", b'{"pid":1}', "writer")
    assert (is_revoke_request(asked), is_for_writer(asked)) == (True, True)
    assert carry_over("/b", mine, asked) == mine
    for whole in (
        revoke_request("/a", asked),
        revoke_request("/a", revoke_request("/a", mine), "writer"),
        b"unlock",
        b"__REVOKE__",
    ):
        assert (is_revoke_request(whole), is_for_writer(whole)) == (True, False)
        assert is_revoke_request(carry_over("/b", mine, whole))


def test_holder_notices_a_request_after_a_reconnect(client: Client, make_client: MakeClient, peer: Peer) -> None:
    """The watch is lost with the connection; the request is found when the watch is set again."""
    lock = Lock(name="a")
    asked: list[Any] = []
    lock.on_revoke = asked.append
    lock.acquire()
    zk_session = client._runtime.zk_session  # type: ignore[union-attr]
    zk_session._kazoo._connection._socket.shutdown(2)
    peer.do(lock.revoke)
    eventually(lambda: asked)
    lock.release()


def test_end_of_the_session_is_not_a_revocation_request(client: Client) -> None:
    lock = Lock(name="a")
    asked: list[Any] = []
    lock.on_revoke = asked.append
    lock.acquire()
    expire(client)
    eventually(lambda: not lock.held)
    with pytest.raises(LockLostError):
        lock.release()
    assert asked == []


@pytest.mark.parametrize("word", [b"unlock", b"unlock\n", b"__REVOKE__", b'{"unlock": true}'])
def test_revocation_requests_of_other_clients_are_recognized(word: bytes, client: Client, observer: Observer) -> None:
    with Lock(name="a") as _:
        lock = Lock(name="a")
        assert not lock.revoked.is_set()
        observer.kazoo.set(lock.holders()[0].path, word)
        eventually(lambda: lock.revoked.is_set())


@pytest.mark.parametrize("data", [b"", b"unlocked", b'{"place": "unlock"}', b"\xff", b"[1]", b'{"unlock": false}'])
def test_other_data_are_not_a_revocation_request(data: bytes) -> None:
    assert not is_revoke_request(data)
    assert is_revoke_request(revoke_request("/a/_c_1-lock-0000000000", data))


def test_revocation_request_keeps_the_description_of_the_holder() -> None:
    assert json.loads(revoke_request("/a/b", b'{"host": "h", "pid": 1}')) == {"host": "h", "pid": 1, "unlock": True}
    assert revoke_request("/a/_c_1-lock-0000000000", b"") == b"__REVOKE__"
    assert revoke_request("/a/0123__lock__0000000000", b"kazoo's identifier") == b"unlock"
