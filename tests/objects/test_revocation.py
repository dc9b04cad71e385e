"""Revocation (recipes.txt, Revocable Shared Locks): a holder is asked, consents or not, and is
notified of a revocation.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.leak_census import Observer
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
    return lambda **how: getattr(SharedLock(**how), name)


KINDS = pytest.mark.parametrize(
    "kind", [Lock, RLock, side("reader"), side("writer")], ids=["Lock", "RLock", "reader", "writer"]
)


def pair(kind: Callable[..., Any], client: Client, other: Client) -> tuple[Any, Any]:
    return kind(name="a", client=client), kind(name="a", client=other)


@KINDS
def test_consenting_holder_is_asked_once_and_releases(kind: Callable[..., Any], client: Client, other: Client) -> None:
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
def test_holder_that_does_not_heed_it_loses_it_after_the_grace_time(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    """The last resort of the recipe."""
    ours, theirs = pair(kind, client, other)
    told: list[LockLostError] = []
    ours.on_lost = told.append
    ours.acquire()
    transaction = ours.transaction()
    transaction.create(f"{client.namespace}/late", b"")
    assert theirs.revoke(UNIT) is False
    assert theirs.acquire(timeout=PATIENCE)
    eventually(lambda: told)
    assert told[0].args == (ours.path, "znode deleted")
    assert not ours.held
    with pytest.raises(LockLostError):
        transaction.commit()
    with pytest.raises(LockLostError):
        ours.release()
    theirs.release()


@KINDS
def test_asking_only_takes_nothing_and_needs_no_second_word(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    """The flag is first read when the request is there already (hazard 64)."""
    ours, theirs = pair(kind, client, other)
    ours.acquire()
    assert theirs.revoke() is False
    who = ours.holders()
    assert who[0].pid is not None
    eventually(lambda: ours.revoked.is_set())
    assert ours.revoked.wait() is True
    assert ours.held
    assert [each.pid for each in ours.holders()] == [who[0].pid]
    ours.release()


def test_flag_waits_as_an_event_does(client: Client, other: Client) -> None:
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


def test_flag_is_set_by_a_loss_too(client: Client, observer: Observer) -> None:
    lock = Lock(name="a")
    lock.acquire()
    waiting = Running(lock.revoked.wait)
    observer.kazoo.delete(lock.holders()[0].path)
    assert waiting.result() is True
    with pytest.raises(LockLostError):
        lock.release()


def test_callback_that_is_set_while_held_is_called(client: Client, other: Client) -> None:
    ours, theirs = pair(Lock, client, other)
    ours.acquire()
    theirs.revoke()
    ours.on_revoke = lambda lock: lock.release()
    eventually(lambda: not ours.held)
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()


@pytest.mark.parametrize("kind", [Lock, RLock, lambda **options: SharedLock(**options).reader])
def test_callback_that_comes_after_the_default_client_makes_no_other(
    kind: Callable[..., Any], client: Client, other: Client
) -> None:
    """Regression: the callback read the object, which created another default client, and started the
    embedded server.
    """
    called: list[Any] = []
    lock = kind(name="b", on_revoke=called.append)
    go_on, done = threading.Event(), threading.Event()
    with lock:
        assert not lock.revoked.is_set()
        client.call_back(partial(go_on.wait, PATIENCE))
        kind(name="b", client=other).revoke()
        eventually(lock.revoked.is_set)
        default_client.set_default(None)
        try:
            go_on.set()
            client.call_back(done.set)
            assert done.wait(PATIENCE)
            assert default_client.export_settings() is None
        finally:
            default_client.set_default(client)
    assert called == [lock]


@pytest.mark.parametrize(
    ("grace", "error"), [(float("nan"), ValueError), (-1, ValueError), (float("inf"), ValueError), ("1", TypeError)]
)
def test_grace_that_is_no_time_is_refused_and_takes_nothing(grace: Any, error: type[Exception], client: Client) -> None:
    lock, shared = Lock(name="a"), SharedLock(name="s")
    with lock, shared.reader:
        for each in (lock, shared):
            with pytest.raises(error, match="grace must be a number"):
                each.revoke(grace)
        assert not lock.revoked.is_set()
        assert lock.held


@KINDS
def test_revoking_what_nobody_holds_says_so(kind: Callable[..., Any], client: Client, other: Client) -> None:
    ours, theirs = pair(kind, client, other)
    for _ in range(2):
        with pytest.raises(NotHeldError, match=f"nobody holds {ours.path}: there is nothing to revoke"):
            theirs.revoke(grace=1)
        with ours:
            pass
    with pytest.raises(TypeError):
        theirs.revoke(grace="soon")


def test_one_side_is_revoked_alone(client: Client, other: Client) -> None:
    ours, theirs = SharedLock(name="a"), SharedLock(name="a", client=other)
    with ours.reader:
        with pytest.raises(NotHeldError):
            theirs.writer.revoke()
        theirs.reader.revoke()
        eventually(lambda: ours.reader.revoked)


def test_all_readers_are_asked_and_those_who_stay_lose_it(client: Client, make_client: MakeClient) -> None:
    ours, others = SharedLock(name="a"), [SharedLock(name="a", client=make_client()) for _ in range(3)]
    for each in others:
        each.reader.acquire()
    others[0].reader.on_revoke = lambda reader: None
    writing = Running(in_turn, ours.writer)
    eventually(lambda: len(ours.waiters()) == 1)
    assert ours.revoke(grace=2 * UNIT) is False
    assert writing.result()
    for each in others:
        with pytest.raises(LockLostError):
            each.reader.release()


def in_turn(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


@pytest.mark.parametrize("lost", ["drop_next_request", "drop_next_reply"])
@pytest.mark.parametrize("kind", [OpCode.SET_DATA, OpCode.DELETE, OpCode.GET_DATA])
def test_lost_request_or_reply_of_the_revoker_changes_nothing(
    client: Client, far: Client, proxy: Proxy, lost: str, kind: OpCode
) -> None:
    ours, theirs = pair(Lock, client, far)
    ours.acquire()
    assert theirs.locked()
    dropped = getattr(proxy, lost)(kind)
    assert theirs.revoke(grace=4 * UNIT) is False
    assert dropped.is_set()
    assert ours.holders() == []
    with pytest.raises(LockLostError):
        ours.release()


@pytest.mark.parametrize("first", ["writer", "whole"])
def test_two_who_ask_at_once_are_both_heard(
    client: Client, other: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    ours, theirs = pair(SharedLock, client, other)
    late, early = (theirs.writer.revoke, ours.revoke) if first == "whole" else (theirs.revoke, ours.writer.revoke)
    before = [early]

    def overtaken(path: str, data: bytes, word: object = True) -> bytes:
        """Let another client ask after this one has read, and before it writes."""
        while before:
            before.pop()()
        return revoke_request(path, data, word)

    monkeypatch.setattr(revocation, "revoke_request", overtaken)
    with ours.writer, ours.reader:
        late()
        path = ours.writer.holders()[0].path
        data, _ = observer.kazoo.get(path)
        assert (is_revoke_request(data), is_for_writer(data)) == (True, False)
        eventually(lambda: not is_cached_entry(observer.kazoo.get(path)[0]))


def test_waiter_is_not_asked(client: Client, other: Client) -> None:
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


def test_lock_that_is_asked_for_is_not_handed_over_inside_the_process(client: Client, other: Client) -> None:
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


def test_revoked_across_a_downgrade(client: Client, other: Client) -> None:
    """A reader that watches for revocation still does when its znode is replaced."""
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
def test_writer_that_reads_on_is_still_asked_and_loses_it_to_the_beams(client: Client, other: Client) -> None:
    """He was asked for the whole lock, and has become a reader."""
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


def test_downgraded_writer_that_consents_releases_the_lock(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    revoking = Running(theirs.revoke, PATIENCE)
    assert ours.writer.revoked.wait(PATIENCE)
    ours.writer.release()
    assert ours.reader.revoked.wait(PATIENCE)
    ours.reader.release()
    assert revoking.result() is True


def test_word_that_nobody_has_heard_is_inherited(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    theirs.revoke()
    ours.writer.release()
    assert theirs.reader.holders()
    assert ours.reader.revoked.wait(PATIENCE)
    ours.reader.release()


def test_writer_that_was_asked_for_no_more_may_read_on(client: Client, other: Client) -> None:
    ours, theirs = writing_and_reading(client), SharedLock(name="a", client=other)
    ours.reader.on_revoke = pytest.fail
    revoking = Running(theirs.writer.revoke, PATIENCE)
    assert ours.writer.revoked.wait(PATIENCE)
    ours.writer.release()
    assert revoking.result() is True
    with theirs.reader:
        assert (ours.reader.held, ours.reader.revoked.is_set()) == (True, False)
    ours.reader.release()


def test_writer_that_is_asked_for_all_after_the_writer_alone_is_asked_for_all() -> None:
    mine, asked = b'{"pid":1}', revoke_request("/a", b'{"pid":1}', "writer")
    assert (is_revoke_request(asked), is_for_writer(asked)) == (True, True)
    assert carry_over("/b", mine, asked) == mine
    for all_of_it in (
        revoke_request("/a", asked),
        revoke_request("/a", revoke_request("/a", mine), "writer"),
        b"unlock",
        b"__REVOKE__",
    ):
        assert (is_revoke_request(all_of_it), is_for_writer(all_of_it)) == (True, False)
        assert is_revoke_request(carry_over("/b", mine, all_of_it))


def test_holder_heeds_it_through_a_new_connection(client: Client, make_client: MakeClient, peer: Peer) -> None:
    """The watch is gone with the connection; the word is found when it is armed again."""
    lock = Lock(name="a")
    asked: list[Any] = []
    lock.on_revoke = asked.append
    lock.acquire()
    link = client._core.link  # type: ignore[union-attr]
    link._kazoo._connection._socket.shutdown(2)
    peer.do(lock.revoke)
    eventually(lambda: asked)
    lock.release()


def test_session_that_ends_is_no_word(client: Client) -> None:
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
def test_word_of_other_clients_is_understood(word: bytes, client: Client, observer: Observer) -> None:
    with Lock(name="a") as _:
        lock = Lock(name="a")
        assert not lock.revoked.is_set()
        observer.kazoo.set(lock.holders()[0].path, word)
        eventually(lambda: lock.revoked.is_set())


@pytest.mark.parametrize("data", [b"", b"unlocked", b'{"place": "unlock"}', b"\xff", b"[1]", b'{"unlock": false}'])
def test_other_data_is_no_word(data: bytes) -> None:
    assert not is_revoke_request(data)
    assert is_revoke_request(revoke_request("/a/_c_1-lock-0000000000", data))


def test_word_keeps_who_the_holder_is() -> None:
    assert json.loads(revoke_request("/a/b", b'{"host": "h", "pid": 1}')) == {"host": "h", "pid": 1, "unlock": True}
    assert revoke_request("/a/_c_1-lock-0000000000", b"") == b"__REVOKE__"
    assert revoke_request("/a/0123__lock__0000000000", b"kazoo's identifier") == b"unlock"
