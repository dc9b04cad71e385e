"""A client that is closed while its connection is being started, in whatever line of that; and one whose start failed,
or was interrupted."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.interrupt_every_line import Strike
from helpers.leak_census import nothing_more, place_of
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, results

from distsync._client.acls import Access
from distsync._client.client import Client
from distsync._client.connection_state import ConnectionState
from distsync._client.lease.holds import HoldTable
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.settings import Settings
from distsync._client.transport.kazoo_client import Handler, RawKazooClient, kazoo_options
from distsync._client.transport.kazoo_requests import Translator
from distsync._client.transport.session import ZooKeeperSession


@pytest.fixture
def zk_session() -> ZooKeeperSession:
    lease = LeaseClock()
    options = kazoo_options(Settings())
    return ZooKeeperSession(options, Translator(Access()), lease, HoldTable(lease, lambda lost: None), lambda: None)


@contextmanager
def closed_within(zk_session: ZooKeeperSession, kind: type[Any], method: str) -> Iterator[None]:
    """Another thread begins to close the session right before this method does its work, and right after it."""
    method_itself, closing = getattr(kind, method), []

    def close() -> None:
        closing.append(Running(zk_session.close, 0.5))
        closing[-1].join(4 * UNIT)

    def meanwhile(*args: Any, **options: Any) -> Any:
        close()
        result = method_itself(*args, **options)
        close()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, meanwhile)
        yield
    assert closing
    results(closing)


@pytest.mark.parametrize(("kind", "method"), [(RawKazooClient, "start_async"), (Handler, "spawn")])
def test_link_that_is_closed_while_it_starts_keeps_no_thread(
    zk_session: ZooKeeperSession, server: ServerProcess, kind: type[Any], method: str
) -> None:
    earlier = frozenset(threading.enumerate())
    with closed_within(zk_session, kind, method):
        zk_session.start(server.hosts, ())
    remains = nothing_more(lambda: [place_of(one) for one in frozenset(threading.enumerate()) - earlier])
    assert not remains, "threads remain: " + "; ".join(remains)
    assert zk_session.state is ConnectionState.CLOSED


@pytest.mark.slow_on("zookeeper")
def test_client_whose_first_use_was_interrupted_connects_at_the_next_one(make_client: Callable[..., Client]) -> None:
    """At each place of it."""
    gc.collect()  # no finalizer of an earlier test's is interrupted
    where: str | None = "the start"
    which = 0
    while where is not None:
        client, which = make_client(), which + 1
        client.at_close("/farewell", lambda client=client: nothing())
        client.on_state(lambda state: None)
        where = Strike(which).during(client.start)
        client.sync(timeout=PATIENCE)
        client.close()
    assert which > 20, which


async def nothing() -> None:
    pass


@pytest.mark.parametrize("which", [1, 2, 3], ids=["background", "connection", "callbacks"])
def test_client_that_got_no_thread_at_its_first_use_gets_it_at_the_next_one(
    make_client: Callable[..., Client], which: int
) -> None:
    client, states = make_client(), list[str]()
    client.on_state(states.append)
    with failing(threading.Thread, "start", RuntimeError("can't start new thread"), which), pytest.raises(RuntimeError):
        client.start()
    assert not client.is_started
    client.sync(timeout=PATIENCE)
    eventually(lambda: states[:1] == ["connected"])


def test_client_that_got_no_socket_at_its_first_use_gets_it_at_the_next_one(make_client: Callable[..., Client]) -> None:
    client = make_client()
    with (
        failing(Handler, "create_socket_pair", OSError("too many open files"), 1),
        pytest.raises(OSError, match="open"),
    ):
        client.sync()
    client.sync(timeout=PATIENCE)


def test_callbacks_that_got_no_thread_get_it_at_the_next_one(make_client: Callable[..., Client]) -> None:
    client, called = make_client(), list[int]()
    client.sync()
    with failing(threading.Thread, "start", RuntimeError("can't start new thread"), 1), pytest.raises(RuntimeError):
        client.call_back(lambda: called.append(1))
    client.call_back(lambda: called.append(2))
    eventually(lambda: called == [2])


def test_client_that_gets_no_thread_to_do_what_is_to_be_done_at_its_end_closes(
    make_client: Callable[..., Client],
) -> None:
    client = make_client()
    client.at_close("/farewell", nothing)
    with failing(threading.Thread, "start", RuntimeError("can't create new thread at interpreter shutdown"), 1):
        client.close()
    assert client.closed


@contextmanager
def failing(kind: type[Any], method: str, error: Exception, which: int) -> Iterator[None]:
    """So-many-th call of it, in this thread, fails."""
    method_itself, calls, here = getattr(kind, method), list[None](), threading.get_ident()

    def fails(*args: Any, **options: Any) -> Any:
        if threading.get_ident() == here:
            calls.append(None)
            if len(calls) == which:
                raise error
        return method_itself(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, fails)
        yield
