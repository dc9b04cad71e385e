"""Closing wakes who waits, tells the server, takes little time, and leaves nothing."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from helpers.interrupt_every_line import Strike
from helpers.leak_census import Observer
from helpers.sample_protocols import ask, stand
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import waiting_calls

from distsync._client import lifecycle, runtime
from distsync._client.client import Client
from distsync._client.own_threads import OwnThread
from distsync._protocols.steps import Background, Connected, Create, Exists, Loss, Signal, Wait
from distsync.errors import ClientClosedError, UnreachableError
from distsync.multiprocessing import Barrier
from distsync.testing.faulty_proxy import Proxy

LIMIT = 2.0
"""Seconds that a close may take, as promised; a slow machine's slack comes on top."""

SLACK = 20 * UNIT


def closed_in_time(client: Client) -> bool:
    began = time.monotonic()
    client.close()
    return time.monotonic() - began < LIMIT + SLACK


def test_close_wakes_waiters(near: Client, in_thread: Callable[..., Any]) -> None:
    waiting = [in_thread(near.run, ask(Wait(Signal()))) for _ in range(3)]
    eventually(lambda: near._runtime is not None and len(near._runtime._calls) == 3)
    assert closed_in_time(near)
    for one in waiting:
        with pytest.raises(ClientClosedError):
            one.result()


def test_close_lets_waiters_clean_up(
    near: Client, namespace: str, in_thread: Callable[..., Any], observer: Observer
) -> None:
    async def work() -> None:
        try:
            await Wait(Signal())
        finally:
            await Create(f"{namespace}/cleaned")

    waiting = in_thread(near.run, work())
    eventually(lambda: waiting_calls(near) == 1)
    near.close()
    with pytest.raises(ClientClosedError):
        waiting.result()
    assert observer.kazoo.exists(f"{namespace}/cleaned")


def test_close_ends_the_session_and_its_holds(near: Client, namespace: str, observer: Observer) -> None:
    loss = Loss()
    path = near.run(stand(namespace, loss))
    assert closed_in_time(near)
    assert loss.reason == "client closed"
    assert not observer.kazoo.exists(path)
    assert (near.closed, near.state, near.session_id) == (True, "closed", None)


def test_close_finishes_running_background_work(
    near: Client, namespace: str, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its time, which here is enough for a slow server."""
    monkeypatch.setattr(runtime, "CLOSE_BACKGROUND_S", PATIENCE)

    async def later() -> None:
        for number in range(20):
            await Create(f"{namespace}/{number}")

    near.run(ask(Background(later())))
    near.close()
    assert len(observer.kazoo.get_children(namespace)) == 20


def test_close_ends_background_work_that_only_waits(near: Client) -> None:
    ended: list[BaseException] = []

    async def forever() -> None:
        try:
            await Wait(Signal())
        except BaseException as error:
            ended.append(error)
            raise

    near.run(ask(Background(forever())))
    assert closed_in_time(near)
    assert isinstance(ended[0], ClientClosedError)


def test_close_ends_background_work_that_gets_no_reply(make_client: Callable[..., Client], proxy: Proxy) -> None:
    """Its clean-up is an await, which is possible after an error, but not while a freed coroutine is closed."""
    client = make_client(hosts=proxy.hosts, session_timeout=4.0)  # so that the connection is not given up
    ended: list[BaseException] = []

    async def work() -> None:
        try:
            while True:
                await Exists("/")
        except BaseException as error:
            ended.append(error)
            await Background(work())
            raise

    client.run(ask(Background(work())))
    proxy.blackhole()
    assert closed_in_time(client)
    assert [type(error) for error in ended] == [ClientClosedError]


@pytest.mark.slow("the connection is slow")
def test_close_beside_no_call_gives_a_slow_server_the_time_to_delete_the_objects_of_this_process(
    make_client: Callable[..., Client],
    proxy: Proxy,
    namespace: str,
    observer: Observer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the deletion after 0.4 s, although no call had needed the time for calls."""
    monkeypatch.setattr(runtime, "CLOSE_CALLS_S", PATIENCE)
    client = make_client(hosts=proxy.hosts, session_timeout=PATIENCE)  # so that the connection is not given up
    barrier = Barrier(2, client=client)
    barrier.abort()
    assert any("/barrier/" in path for path in observer.tree(f"{namespace}/process"))
    proxy.delay(UNIT)
    client.close()
    assert not observer.tree(f"{namespace}/process")


def test_closed_client_refuses_and_closes_again(near: Client) -> None:
    near.close()
    near.close()
    for call in (lambda: near.run(ask(Exists("/"))), lambda: near.local("/x", list)):
        with pytest.raises(ClientClosedError):
            call()
    assert near.statistics().requests["Create"] == 1


def test_client_that_was_never_used_closes(server: ServerProcess) -> None:
    with Client(server.hosts) as client:
        pass
    assert client.closed


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["blackhole", "refuse"])
def test_close_is_bounded_when_the_server_is_gone(
    proxied: Client, proxy: Proxy, fault: str, in_thread: Callable[..., Any]
) -> None:
    waiting = in_thread(proxied.run, ask(Wait(Signal())))
    eventually(lambda: proxied._runtime is not None and len(proxied._runtime._calls) == 1)
    getattr(proxy, fault)()
    if fault == "refuse":
        eventually(lambda: proxied.state == "suspended")
    asking = in_thread(proxied.run, ask(Exists("/")))
    assert closed_in_time(proxied)
    for one in (waiting, asking):
        with pytest.raises(ClientClosedError):
            one.result()


def test_close_is_bounded_while_the_first_connection_is_made(proxy: Proxy, in_thread: Callable[..., Any]) -> None:
    proxy.blackhole()
    client = Client(proxy.hosts, connect_timeout=PATIENCE)
    waiting = in_thread(client.run, ask(Connected()))
    time.sleep(2 * UNIT)
    assert closed_in_time(client)
    with pytest.raises(ClientClosedError):
        waiting.result()


def test_close_in_a_callback_does_not_hang(near: Client) -> None:
    loss, closed = Loss(), []
    near.on_loss(loss, lambda: closed.append(closed_in_time(near)))
    loss.fire()
    eventually(lambda: closed)
    assert closed == [True]


def test_close_in_two_threads_at_once(near: Client, in_thread: Callable[..., Any]) -> None:
    for one in [in_thread(near.close) for _ in range(4)]:
        one.result()
    assert near.closed


@pytest.mark.slow_on("zookeeper")
def test_close_that_was_interrupted_is_done_by_the_next_one(
    near: Client,
    make_client: Callable[..., Client],
    namespace: str,
    observer: Observer,
    in_thread: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each place of it, of which there are more where a machine is slow, for it polls. ``near`` has made the
    namespace."""
    monkeypatch.setattr(runtime, "CLOSE_BACKGROUND_S", PATIENCE)
    monkeypatch.setattr(runtime, "CLOSE_SESSION_S", PATIENCE)
    gc.collect()  # no finalizer of an earlier test's is interrupted
    where: str | None = "the start"
    which = 0
    while where is not None and which < 250:
        client, farewells = make_client(), list[str]()
        path = client.run(stand(namespace, Loss()))
        waiting = in_thread(client.run, ask(Wait(Signal())))
        eventually(lambda client=client: waiting_calls(client) == 1)
        client.at_close("/farewell", partial(noted, farewells, path))
        parts, which = client._runtime, which + 1
        where = Strike(which).during(client.close)
        client.close()
        assert parts is not None
        assert not observer.kazoo.exists(path), f"its session lives after an interrupt at {where}"
        assert not parts.background_thread.thread.is_alive()
        assert (client._runtime, client.state, farewells) == (None, "closed", [path])
        with pytest.raises(ClientClosedError):
            waiting.result()
    assert which > 40, which


async def noted(what: list[str], path: str) -> None:
    await Exists(path)
    what.append(path)


EXITS = {
    "normally": "",
    "by sys.exit": "sys.exit(0)",
    "by an exception": "1 / 0",
    "by Ctrl-C": "import signal; signal.raise_signal(signal.SIGINT)",
    "while a thread waits": "threading.Thread(target=client.run, args=(ask(Wait(Signal())),), daemon=True).start()",
}

PROGRAM = """
import sys, threading
from distsync._client.client import Client
from distsync._protocols.steps import *

async def ask(step):
    return await step

client = Client({hosts!r})
client.run(ask(Create({path!r}, ephemeral=True)))
print("standing", flush=True)
{ending}
"""


@pytest.mark.parametrize("ending", list(EXITS))
def test_process_that_exits_closes_its_session(
    near: Client, namespace: str, server: ServerProcess, observer: Observer, ending: str
) -> None:
    path = f"{namespace}/mine"
    program = PROGRAM.format(hosts=server.hosts, path=path, ending=EXITS[ending])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=6 * PATIENCE, check=False
    )
    assert done.stdout == "standing\n"
    assert not observer.kazoo.exists(path)


PARTING = """
from distsync._client.client import Client
from distsync._protocols.steps import *

async def ask(step):
    return await step

idle = [Client({hosts!r}) for _ in range(4)]
for one in idle:
    one.at_close("/farewell", lambda: ask(Exists("/")))
client = Client({hosts!r})
client.run(ask(Create({path!r}, ephemeral=True)))
"""


def test_process_whose_other_clients_have_only_something_to_do_at_their_end_closes_its_session(
    near: Client, namespace: str, server: ServerProcess, observer: Observer
) -> None:
    path = f"{namespace}/mine"
    program = PARTING.format(hosts=server.hosts, path=path)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=6 * PATIENCE, check=False
    )
    assert done.returncode == 0
    assert "at interpreter shutdown" not in done.stderr
    assert not observer.kazoo.exists(path)


def test_each_client_is_closed_at_the_end_whatever_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        closed = False

        def after_fork_in_child(self) -> None:
            """A client, as seen from there."""

        def close(self) -> None:
            self.closed = True
            raise RuntimeError("it cannot be closed")

    clients = [Broken() for _ in range(3)]
    monkeypatch.setattr(lifecycle, "_living", weakref.WeakSet(clients))
    with pytest.raises(RuntimeError, match="cannot be closed"):
        lifecycle.close_clients()
    assert all(one.closed for one in clients)


def test_close_while_a_connection_is_being_made_leaves_no_socket_when_that_is_over() -> None:
    """The server does not accept, and its backlog is full: an attempt lasts, and close does not wait
    for it.
    """
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        earlier = frozenset(threading.enumerate())
        client = Client("{}:{}".format(*server.getsockname()), connect_timeout=UNIT)
        with pytest.raises(UnreachableError):
            client.sync()
        client.close()
        own = [one for one in threading.enumerate() if isinstance(one, OwnThread) and one not in earlier]
        del client
        eventually(lambda: not any(one.is_alive() for one in own))
        gc.collect()  # one that was left would warn now, which is an error
