"""A client on a server that answers, and on one that breaks."""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.sample_protocols import ask, leave, stand
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import expire, waiting_calls

from distsync import errors
from distsync._client import client as client_module
from distsync._client.client import Client
from distsync._protocols.steps import (
    Background,
    Call,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Loss,
    Multi,
    Pipeline,
    SessionInfo,
    SetData,
    Signal,
    Step,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._wire.codes import OpCode
from distsync.testing.faulty_proxy import Proxy

NOBODY = "127.0.0.1:1"


# ---- requests


def test_client_starts_nothing_before_its_first_use(server: ServerProcess) -> None:
    before = threading.enumerate()
    with Client(server.hosts) as client:
        assert threading.enumerate() == before
        assert (client.state, client.session_id) == ("connecting", None)


def test_request_of_each_kind_is_answered(near: Client, namespace: str) -> None:
    async def work() -> None:
        session = await Connected()
        made = await Create(f"{namespace}/a", b"one")
        assert made.path == f"{namespace}/a"
        node = await GetData(made.path)
        assert (node.data, node.stat) == (b"one", made.stat)
        changed = await SetData(made.path, b"two", version=0)
        assert (changed.version, changed.data_length) == (1, 3)
        child = await Create(f"{made.path}/c-", ephemeral=True, sequence=True)
        assert child.path == f"{made.path}/c-0000000000"
        assert child.stat is not None
        assert child.stat.ephemeral_owner == session.session_id
        listing = await Children(made.path)
        assert (listing.names, listing.stat.num_children) == (("c-0000000000",), 1)
        await Create(f"{namespace}/box", container=True)
        await Sync()
        await Delete(child.path, version=0)
        assert await Exists(child.path) is None
        assert (await GetData(f"{namespace}/box")).data == b""

    near.run(work())


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Create("{}/file"), errors.NodeExistsError),
        (Create("{}/no/child"), errors.NoNodeError),
        (Create("{}/own/child"), errors.ChildrenOfEphemeralError),
        (Delete("{}/no"), errors.NoNodeError),
        (Delete("{}/file", version=5), errors.BadVersionError),
        (Delete("{}"), errors.NotEmptyError),
        (SetData("{}/file", b"", version=5), errors.BadVersionError),
        (GetData("{}/no"), errors.NoNodeError),
        (Children("{}/no"), errors.NoNodeError),
    ],
)
def test_refusal_of_the_server_is_our_error_with_its_cause(
    near: Client, namespace: str, step: Any, error: type[Exception]
) -> None:
    async def work() -> None:
        await Create(f"{namespace}/file")
        await Create(f"{namespace}/own", ephemeral=True)
        object.__setattr__(step, "path", step.path.format(namespace))
        try:
            await step
        finally:
            await Delete(f"{namespace}/own")

    before = step.path
    with pytest.raises(error) as raised:
        near.run(work())
    object.__setattr__(step, "path", before)
    assert raised.value.__cause__ is not None


def test_multi_answers_each_operation(near: Client, namespace: str) -> None:
    async def work() -> Any:
        path = f"{namespace}/m"
        box = Create(f"{namespace}/box", container=True)
        return await Multi((Create(path), SetData(path, b"1"), Check(path, 1), box, Delete(path)))

    made, stat, check, box, delete = near.run(work())
    assert (made.path, made.stat, stat.version) == (f"{namespace}/m", None, 1)
    assert (check, box.path, delete) == (None, f"{namespace}/box", None)


def test_multi_refused_throws_the_error_of_the_operation_that_failed(near: Client, namespace: str) -> None:
    operations = (Create(f"{namespace}/m"), Check(namespace, 77), Delete(f"{namespace}/no"))
    with pytest.raises(errors.BadVersionError) as raised:
        near.run(ask(Multi(operations)))
    assert getattr(raised.value, "index", None) == 1
    assert near.run(ask(Exists(f"{namespace}/m"))) is None


def test_together_is_executed_in_order_and_counts_as_one_round_trip(near: Client, namespace: str) -> None:
    before = near.statistics()
    path = f"{namespace}/a"
    made, stat, gone, missing = near.run(ask(Pipeline(Create(path), Exists(path), Delete(path), GetData(path))))
    after = near.statistics()
    assert (made.stat, gone) == (stat, None)
    assert isinstance(missing, errors.NoNodeError)
    assert after.round_trips == before.round_trips + 1
    assert after.requests["Create"] == before.requests["Create"] + 1


def test_chroot_of_hosts_is_a_longer_namespace(make_client: Callable[..., Any], server: ServerProcess) -> None:
    client = make_client(hosts=f"{server.hosts}/top/down", namespace="/names")
    assert (client.hosts, client.namespace) == (server.hosts, "/top/down/names")
    assert client.path("lock", "a").startswith("/top/down/names/")


def test_znodes_of_a_client_with_credentials_are_its_own(
    make_client: Callable[..., Any], near: Client, namespace: str
) -> None:
    owner = make_client(auth=[("digest", "user:password")])
    owner.run(ask(Create(f"{namespace}/secret", b"s")))
    with pytest.raises(errors.AccessDeniedError, match="READ"):
        near.run(ask(GetData(f"{namespace}/secret")))
    assert owner.run(ask(GetData(f"{namespace}/secret"))).data == b"s"
    owner.run(ask(Delete(f"{namespace}/secret")))


@pytest.mark.slow_on("zookeeper")
def test_credentials_that_are_refused_are_named_without_the_secret(make_client: Callable[..., Any]) -> None:
    client = make_client(auth=[("nonsense", "user:password")], session_timeout=1.0)
    with pytest.raises(errors.ConfigurationError, match="nonsense") as raised:
        client.run(ask(Connected()))
    assert "password" not in str(raised.value)


def test_negotiated_time_out_is_the_servers_not_the_one_asked_for(make_client: Callable[..., Any]) -> None:
    session: SessionInfo = make_client(session_timeout=6000.0).run(ask(Connected()))
    assert 0 < session.timeout_ms < 6_000_000


# ---- deadlines


def test_client_without_server_says_so_within_connect_timeout() -> None:
    with Client(NOBODY, connect_timeout=4 * UNIT) as client, pytest.raises(errors.UnreachableError, match=NOBODY):
        client.run(ask(Exists("/")))


def test_first_call_may_be_one_that_does_not_wait(make_client: Callable[..., Any]) -> None:
    assert make_client().run(ask(Exists("/")), timeout=0) is not None


def test_wait_ends_at_the_deadline_of_the_call(near: Client) -> None:
    assert near.run(ask(Wait(Signal())), timeout=UNIT) is WakeReason.DEADLINE


def test_request_to_a_silent_server_ends_with_deadline_error(proxied: Client, proxy: Proxy) -> None:
    proxy.blackhole()
    with pytest.raises(errors.DeadlineError):
        proxied.run(ask(Exists("/")), timeout=UNIT)
    proxy.heal()
    assert proxied.run(ask(Exists("/"))) is not None


def test_request_given_up_while_disconnected_is_not_executed_later(
    proxied: Client, proxy: Proxy, namespace: str
) -> None:
    proxy.refuse()
    eventually(lambda: proxied.state == "suspended")
    with pytest.raises(errors.DeadlineError):
        proxied.run(ask(Create(f"{namespace}/late")), timeout=UNIT)
    proxy.heal()
    assert proxied.run(ask(Exists(f"{namespace}/late"))) is None


# ---- a connection that breaks


def test_connection_that_breaks_comes_back_with_the_same_session(proxied: Client, proxy: Proxy) -> None:
    states: list[str] = []
    proxied.on_state(states.append)
    before = proxied.session_id
    proxy.cut()
    eventually(lambda: states[-1:] == ["connected"])
    assert states == ["suspended", "connected"]
    assert proxied.session_id == before


@pytest.mark.slow_on("zookeeper")
def test_requests_made_while_disconnected_wait_and_keep_their_order(
    proxied: Client, proxy: Proxy, namespace: str, in_thread: Callable[..., Any]
) -> None:
    """Many more than fit into the pipe that wakes kazoo."""
    proxy.refuse()
    eventually(lambda: proxied.state == "suspended")
    steps = [Create(f"{namespace}/n-", sequence=True) for _ in range(500)]
    calls = in_thread(proxied.run, ask(Pipeline(*steps)))
    time.sleep(UNIT)
    assert calls.is_alive()
    proxy.heal()
    assert [made.path[-10:] for made in calls.result()] == [f"{number:010}" for number in range(500)]


def test_request_in_flight_at_a_cut_fails_with_disconnected(proxied: Client, proxy: Proxy, namespace: str) -> None:
    dropped = proxy.drop_next_reply(OpCode.SET_DATA)
    with pytest.raises(errors.DisconnectedError):
        proxied.run(ask(SetData(namespace, b"x")))
    assert dropped.is_set()
    assert proxied.run(ask(GetData(namespace))).data == b"x"


def test_ephemeral_whose_reply_was_lost_goes_when_the_call_fails(proxied: Client, proxy: Proxy, namespace: str) -> None:
    proxy.drop_next_reply(OpCode.CREATE2)
    with pytest.raises(errors.DisconnectedError):
        proxied.run(ask(Create(f"{namespace}/_c_1-lock-", ephemeral=True, sequence=True)))
    eventually(lambda: not proxied.run(ask(Children(namespace))).names)


def test_watches_fire_when_the_connection_breaks(proxied: Client, proxy: Proxy, namespace: str) -> None:
    watch = Watch()
    proxied.run(ask(GetData(namespace, watch)))
    proxy.cut()
    assert proxied.run(ask(Wait(watch, limit=PATIENCE))) is WakeReason.SIGNAL


def test_answer_that_makes_no_sense_breaks_the_connection_and_no_more(proxied: Any, namespace: str) -> None:
    before = proxied.session_id
    proxied._runtime.zk_session._kazoo._pending.append((None, Unasked(), 1000))
    with pytest.raises(errors.DisconnectedError):
        proxied.run(ask(Exists(namespace)))
    assert proxied.run(ask(Exists(namespace))) is not None
    assert proxied.session_id == before


class Unasked:
    """The reply to a request that was never made."""

    def set_exception(self, error: BaseException) -> None: ...


@pytest.mark.slow
def test_client_whose_connection_thread_ended_reconnects(proxied: Any, namespace: str) -> None:
    loss = Loss()
    proxied.run(stand(namespace, loss))
    before = proxied.session_id
    kazoo = proxied._runtime.zk_session._kazoo
    kazoo._stopped.set()
    kazoo._connection.shutdown_socket()
    eventually(lambda: proxied.run(ask(Connected())).session_id != before)
    assert loss.reason == "session expired"


@pytest.mark.slow
def test_client_whose_connection_thread_ended_gets_a_session_after_the_old_one_is_over(
    proxied: Client, namespace: str, observer: Observer
) -> None:
    before = proxied.run(ask(Connected())).session_id
    proxied.run(ask(Create(f"{namespace}/ephemeral", ephemeral=True)))
    runtime: Any = proxied._runtime
    runtime.zk_session._kazoo.end(PATIENCE, flush=False)
    after = proxied.run(ask(Connected()), timeout=PATIENCE).session_id
    assert after != before
    assert f"{namespace}/ephemeral" not in observer.tree(namespace)


def test_session_that_ends_loses_what_is_held_and_a_new_one_is_made(proxied: Client, namespace: str) -> None:
    loss, watch = Loss(), Watch()
    proxied.run(stand(namespace, loss))
    proxied.run(ask(GetData(namespace, watch)))
    before = proxied.session_id
    expire(proxied)
    assert proxied.run(ask(Wait(loss, limit=PATIENCE))) is WakeReason.SIGNAL
    assert loss.reason == "session expired"
    assert proxied.run(ask(Wait(watch, limit=PATIENCE))) is WakeReason.SIGNAL
    after = proxied.run(ask(Connected())).session_id
    assert after != before
    assert before is not None
    assert not proxied.is_proven(before)


@pytest.mark.slow_on("zookeeper")
def test_session_that_is_swapped_without_a_word_counts_as_ended(proxied: Any, proxy: Proxy, namespace: str) -> None:
    loss = Loss()
    path = proxied.run(stand(namespace, loss))
    before = proxied.session_id
    proxy.refuse()
    eventually(lambda: proxied.state == "suspended")
    proxied._runtime.zk_session._kazoo._reset_session()
    proxy.heal()
    assert proxied.run(Unwatched(loss)()) != before
    assert loss.reason == "session expired"
    eventually(lambda: proxied.run(ask(Exists(path))) is None)


class Unwatched:
    """The session's id once ``loss`` has fired."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    async def __call__(self) -> int:
        await Wait(self._loss, limit=PATIENCE)
        return (await Connected()).session_id


def test_request_bound_to_an_ended_session_fails(
    proxied: Client, proxy: Proxy, namespace: str, server: ServerProcess, in_thread: Callable[..., Any]
) -> None:
    identity = proxied._runtime.zk_session._kazoo.client_id  # type: ignore[union-attr]
    proxy.refuse()
    eventually(lambda: proxied.state == "suspended")
    call = in_thread(proxied.run, ask(Create(f"{namespace}/late", ephemeral=True)))
    eventually(lambda: proxied._runtime.zk_session._unsent)  # type: ignore[union-attr]
    expire((server.hosts, identity))
    proxy.heal()
    with pytest.raises(errors.SessionLostError):
        call.result()
    assert proxied.run(ask(Exists(f"{namespace}/late"))) is None


# ---- the lease


@pytest.mark.slow
def test_lease_is_kept_moving_while_something_is_held(proxied: Client, namespace: str) -> None:
    loss = Loss()
    path = proxied.run(stand(namespace, loss))
    session = proxied.session_id
    assert session is not None
    assert not loss.fired
    eventually(lambda: proxied.statistics().heartbeats >= 4)
    assert proxied.is_proven(session)
    assert not loss.fired
    proxied.run(leave(path, loss))


@pytest.mark.slow_on("zookeeper")
def test_lease_runs_out_without_a_word_from_any_server(proxied: Client, proxy: Proxy, namespace: str) -> None:
    loss = Loss()
    path = proxied.run(stand(namespace, loss))
    session = proxied.session_id
    assert session is not None
    proxy.blackhole()
    assert proxied.run(ask(Wait(loss, limit=PATIENCE))) is WakeReason.SIGNAL
    assert loss.reason == "lease expired"
    assert not proxied.is_proven(session)
    proxy.heal()
    eventually(lambda: proxied.run(ask(Exists(path))) is None)


@pytest.mark.slow_on("zookeeper")
def test_lease_that_ran_out_is_proven_again_by_the_next_write(proxied: Client, proxy: Proxy, namespace: str) -> None:
    session = proxied.session_id
    assert session is not None
    eventually(lambda: not proxied.is_proven(session))
    proxied.run(ask(GetData(namespace)))
    assert not proxied.is_proven(session)
    proxied.run(ask(Sync()))
    assert proxied.is_proven(session)


def test_own_znode_deleted_by_another_client_is_a_loss(near: Client, namespace: str, observer: Observer) -> None:
    loss = Loss()
    path = near.run(stand(namespace, loss))
    observer.kazoo.delete(path)
    assert near.run(ask(Wait(loss, limit=PATIENCE))) is WakeReason.SIGNAL
    assert loss.reason == "znode deleted"


def test_own_znode_deleted_after_a_reconnect_is_a_loss(
    proxied: Client, proxy: Proxy, namespace: str, observer: Observer
) -> None:
    loss = Loss()
    path = proxied.run(stand(namespace, loss))
    eventually(lambda: proxied._runtime.holds.guard_due() == math.inf)  # type: ignore[union-attr]
    proxy.cut()
    eventually(lambda: proxied.state == "connected")
    observer.kazoo.delete(path)
    assert proxied.run(ask(Wait(loss, limit=PATIENCE))) is WakeReason.SIGNAL
    assert loss.reason == "znode deleted"


# ---- callbacks and the background


def test_callback_of_a_loss_is_called_once_in_the_thread_of_callbacks(near: Client, namespace: str) -> None:
    loss, calls = Loss(), []
    near.on_loss(loss, lambda: calls.append(threading.current_thread().name))
    path = near.run(stand(namespace, loss))
    near._runtime.holds.lose_all("a test")  # type: ignore[union-attr]
    loss.fire()
    eventually(lambda: calls)
    near.run(ask(Delete(path)))
    assert calls == ["distsync-callbacks"]


def test_call_in_a_callback_works(near: Client, namespace: str) -> None:
    loss: Loss = Loss()
    results: list[Any] = []
    near.on_loss(loss, lambda: results.append(near.run(ask(Exists(namespace)))))
    loss.fire()
    eventually(lambda: results)
    assert results[0] is not None


def test_callback_that_raises_is_reported_and_the_next_one_called(
    near: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    calls: list[int] = []
    for callback in (lambda: 1 // 0, lambda: calls.append(1)):
        loss = Loss()
        near.on_loss(loss, callback)
        loss.fire()
    eventually(lambda: calls)
    assert reported == [ZeroDivisionError]


def test_call_in_distsyncs_own_threads_is_refused_instead_of_hanging(
    proxied: Client, proxy: Proxy, namespace: str
) -> None:
    refused: list[BaseException] = []

    def waker() -> None:
        try:
            proxied.run(ask(Exists("/")))
        except BaseException as error:
            refused.append(error)

    watch = Watch()
    watch.subscribe(waker)
    proxied.run(ask(GetData(namespace, watch)))
    proxy.cut()
    eventually(lambda: refused)
    assert isinstance(refused[0], errors.UsageError)


def test_background_work_is_driven_and_its_calls_are_made_elsewhere(near: Client, namespace: str) -> None:
    where: list[str] = []

    async def later() -> None:
        await Wait(limit=UNIT)
        await Create(f"{namespace}/later")
        await Call(lambda: where.append(threading.current_thread().name))

    async def work() -> None:
        await Background(later())

    near.run(work())
    eventually(lambda: where)
    assert where == ["distsync-callbacks"]
    assert near.run(ask(Exists(f"{namespace}/later"))) is not None


@pytest.mark.slow_on("zookeeper")
def test_keeper_outlives_work_that_it_cannot_drive(
    proxied: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise what is held would be proven no more."""

    async def work() -> None:
        await Background(ask(Step()))

    loss = Loss()
    path = proxied.run(stand(namespace, loss))
    proxied.run(work())
    eventually(lambda: "which is not a step" in caplog.text)
    before = proxied.statistics().heartbeats
    eventually(lambda: proxied.statistics().heartbeats >= before + 2)
    assert not loss.fired
    proxied.run(leave(path, loss))


def test_interrupted_wait_leaves_no_znode(near: Client, namespace: str, in_thread: Callable[..., Any]) -> None:
    async def work() -> None:
        await Create(f"{namespace}/mine-", ephemeral=True, sequence=True)
        await Wait(Signal(), limit=PATIENCE)

    def interrupt() -> None:
        eventually(lambda: waiting_calls(near))
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        near.run(work())
    interrupting.result()
    eventually(lambda: not near.run(ask(Children(namespace))).names)


def test_threads_share_what_is_local_to_a_path(near: Client, in_thread: Callable[..., Any]) -> None:
    mine = near.local("/x", list)
    assert in_thread(near.local, "/x", list).result() is mine


def test_discarded_local_state_is_deleted_with_its_znodes(near: Client, namespace: str) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append(namespace)

    mine = near.local("/x", list)
    near.discard("/x", work)
    near.discard("/x", work)
    eventually(lambda: done)
    assert near.local("/x", list) is not mine
    assert done == [namespace]


def test_finalizer_that_uses_a_client_while_it_starts_starts_no_second_one(
    make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs where it likes: here while the runtime is made."""
    client, made = make_client(), []

    def collected(*args: Any) -> Any:
        runtime = runtime_of(*args)
        made.append(runtime)
        if len(made) == 1:
            client.local("a finalizer's", object)
        return runtime

    runtime_of = client_module.ClientRuntime
    monkeypatch.setattr(client_module, "ClientRuntime", collected)
    assert client.run(ask(Exists("/"))) is not None
    assert client._runtime is made[-1]
    assert [runtime.background_thread.thread.ident is not None for runtime in made] == [False, True]


@pytest.mark.slow
def test_handshake_that_is_not_answered_is_tried_again_long_before_the_session_is_over(
    make_client: Callable[..., Any], in_thread: Callable[..., Any]
) -> None:
    """A server that accepts and says nothing, as one may that has just begun to listen."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        client = make_client(hosts=f"127.0.0.1:{silent.getsockname()[1]}", session_timeout=60 * UNIT)
        call = in_thread(client.run, ask(Exists("/")))
        began = time.monotonic()
        links = [silent.accept()[0] for _ in range(3)]
        assert time.monotonic() - began < 2 * 60 * UNIT  # each would take a whole session
        client.close()
        for link in links:
            link.close()
        with pytest.raises(errors.ClientClosedError):
            call.result()
