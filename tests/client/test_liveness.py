"""What a client says of its connection, and of calls that wait: to listeners, and once to the log."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, expire, waiting_calls

from distsync import ClientClosedError, DeadlineError, Lock, Queue, Semaphore, SharedLock, _log_thread
from distsync._client import wait_log
from distsync._client.client import Client
from distsync._client.connection_state import ConnectionState
from distsync._protocols.steps import Signal
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

LISTENED = ["connected", "suspended", "lost", "connected", "closed"]


@pytest.fixture
def near(make_client: MakeClient, proxy: Proxy) -> Client:
    """A client whose connection can be broken."""
    return make_client(hosts=proxy.hosts, session_timeout=20 * UNIT)


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], list[str]]]:
    """The lines of a log so far, each with its level."""

    def lines(name: str) -> list[str]:
        _log_thread.flush(PATIENCE)
        return [f"{one.levelname} {one.getMessage()}" for one in caplog.records if one.name == f"distsync.{name}"]

    with caplog.at_level(logging.INFO, "distsync"):
        yield lines


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits count as long sooner."""
    monkeypatch.setattr(wait_log, "FIRST_S", 4 * UNIT)


def states(client: Client) -> list[str]:
    found: list[str] = []
    client.on_state(found.append)
    return found


@pytest.mark.slow_on("zookeeper")
def test_each_change_is_reported_once_to_listeners_and_log(
    near: Client, proxy: Proxy, heard: Callable[[str], list[str]]
) -> None:
    assert near.state == "connecting"
    seen = states(near)
    near.sync()
    assert near.state == "connected"
    proxy.refuse()
    eventually(lambda: "suspended" in seen)
    eventually(lambda: near.state == "lost")
    proxy.heal()
    eventually(lambda: near.state == "connected")
    near.close()
    assert near.state == "closed"
    eventually(lambda: len(seen) >= len(LISTENED))
    assert seen == LISTENED
    levels = [line.split()[0] for line in heard("client")]
    assert levels == ["INFO", "WARNING", "WARNING", "INFO"]


def test_connection_that_comes_back_in_time_was_never_lost(
    make_client: MakeClient, proxy: Proxy, heard: Callable[[str], list[str]]
) -> None:
    client = make_client(hosts=proxy.hosts, session_timeout=10.0)
    seen = states(client)
    client.sync()
    session = client.session_id
    proxy.cut()
    eventually(lambda: seen == ["connected", "suspended", "connected"])
    assert client.session_id == session
    assert [line.split()[0] for line in heard("client")] == ["INFO", "WARNING", "INFO"]
    client.close()


@pytest.mark.slow_on("zookeeper")
def test_session_that_expires_is_lost(near: Client) -> None:
    seen = states(near)
    near.sync()
    expire(near)
    eventually(lambda: seen[-1:] == ["connected"] and "lost" in seen)


@pytest.mark.slow_on("zookeeper")
def test_last_reported_state_is_current_even_if_two_threads_report_at_once(
    near: Client, monkeypatch: pytest.MonkeyPatch, heard: Callable[[str], list[str]]
) -> None:
    seen = states(near)
    near.sync()
    assert near._runtime is not None
    zk_session, background_thread = near._runtime.zk_session, near._runtime.background_thread

    def connected_meanwhile() -> None:
        monkeypatch.undo()
        zk_session.state = ConnectionState.CONNECTED
        zk_session._notify_state()

    monkeypatch.setattr(background_thread, "wake", connected_meanwhile)
    zk_session.state = ConnectionState.LOST
    zk_session._notify_state()
    all_is_told = threading.Event()
    near.call_back(all_is_told.set)
    assert all_is_told.wait(PATIENCE)
    assert seen == ["connected"]
    assert len(heard("client")) == 1


@pytest.mark.slow_on("zookeeper")
def test_waiter_for_a_change_is_woken_even_if_two_threads_report_at_once(
    near: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    near.sync()
    assert near._runtime is not None
    zk_session, waits_for, telling = near._runtime.zk_session, list[Signal](), list[Running]()

    def signal() -> Signal:
        monkeypatch.undo()
        telling.append(Running(zk_session._notify_state))
        telling[0].join(4 * UNIT)
        waits_for.append(zk_session.changes)
        return Signal()

    monkeypatch.setattr("distsync._client.transport.session.Signal", signal)
    zk_session._notify_state()
    telling[0].result()
    zk_session._notify_state()
    assert waits_for[0].fired


@pytest.mark.slow_on("zookeeper")
def test_removed_listener_is_not_called(near: Client) -> None:
    heard: list[str] = []
    near.on_state(heard.append)
    near.off_state(heard.append)
    near.off_state(print)
    stays = states(near)
    near.sync()
    eventually(lambda: stays == ["connected"])
    assert heard == []


@pytest.mark.slow_on("zookeeper")
def test_holds_are_lost_before_the_state_is_reported(near: Client, proxy: Proxy) -> None:
    lock = Lock(name="a", client=near)
    lock.acquire()
    held_when: list[tuple[str, bool]] = []
    near.on_state(lambda state: held_when.append((state, lock.held)))
    proxy.refuse()
    eventually(lambda: any(state == "lost" for state, _ in held_when))
    assert ("lost", False) in held_when


# ---- waits


def waits(client: Client, call: Callable[..., Any], *args: Any) -> Running:
    running = Running(call, *args)
    eventually(lambda: waiting_calls(client) > 0)
    return running


CONTENDED: dict[str, Callable[[Client], Any]] = {
    "Lock": lambda client: Lock(name="a", client=client),
    "Semaphore": lambda client: Semaphore(1, name="a", client=client),
    "SharedReader": lambda client: SharedLock(name="a", client=client).reader,
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", CONTENDED)
def test_long_wait_logs_the_object_and_its_holder(
    kind: str, client: Client, make_client: MakeClient, heard: Callable[[str], list[str]]
) -> None:
    """The one who has it, not the one ahead in line, who waits too."""
    holder, second = CONTENDED[kind](client), make_client()
    holder = SharedLock(name="a", client=client).writer if kind == "SharedReader" else holder
    holder.acquire()
    (who,) = holder.holders()
    blocked = [waits(second, CONTENDED[kind](second).acquire)]
    third = make_client()
    blocked.append(waits(third, CONTENDED[kind](third).acquire))
    begins, says = f"INFO {kind} 'a' ({holder.path}): ", f"held by {who}, queued since "
    eventually(lambda: sum(says in line for line in heard("wait")) >= 2)
    assert all(line.startswith(begins) for line in heard("wait") if says in line)
    holder.release()
    for one, mine in zip(blocked, (second, third), strict=True):
        one.result()
        mine.close()


@pytest.mark.usefixtures("impatient")
def test_long_wait_without_a_holder_logs_the_object(client: Client, heard: Callable[[str], list[str]]) -> None:
    queue = Queue(name="q")
    getting = waits(client, queue.get)
    eventually(lambda: heard("wait"))
    queue.put(1)
    getting.result()
    assert f"Queue 'q' ({queue.path}): get has waited" in heard("wait")[0]


@pytest.mark.usefixtures("impatient")
def test_long_wait_for_a_connection_is_logged(near: Client, proxy: Proxy, heard: Callable[[str], list[str]]) -> None:
    near.sync()
    proxy.refuse()
    eventually(lambda: near.state != "connected")
    acquiring = Running(Lock(name="a", client=near).acquire)
    eventually(lambda: any("there is no connection" in line for line in heard("wait")))
    proxy.heal()
    acquiring.result()
    near.close()


def asked(client: Client) -> Counter[str]:
    return Counter(client.statistics().requests)


@pytest.mark.usefixtures("impatient")
def test_each_line_costs_one_read_and_many_threads_share_it(
    client: Client, make_client: MakeClient, heard: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    second = make_client()

    def lines() -> list[str]:
        return [line for line in heard("wait") if "held by" in line]

    with Lock(name="a", client=client):
        with caplog.at_level(logging.WARNING, "distsync.wait"):  # no line before requests are counted
            blocked = [waits(second, Lock(name="a", client=second).acquire)]
            before = asked(second)
        blocked += [Running(Lock(name="a", client=second).acquire) for _ in range(4)]
        eventually(lambda: len(lines()) >= 2)
        told = len(lines())
        spent = asked(second) - before
        assert told <= spent["GetData"] <= len(lines()) + 1  # one may be under way
        assert set(spent) == {"GetData"}
        second.close()
        for one in blocked:
            with pytest.raises(ClientClosedError):
                one.result()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.usefixtures("impatient")
def test_no_request_is_sent_without_a_listener(client: Client, make_client: MakeClient) -> None:
    second = make_client()
    with Lock(name="a", client=client):
        waiting = waits(second, Lock(name="a", client=second).acquire, True, 20 * UNIT)
        before = asked(second)
        assert waiting.result() is False
        assert (asked(second) - before)["GetData"] == 0


@pytest.mark.slow_on("zookeeper")
@pytest.mark.usefixtures("impatient")
def test_deadline_is_kept_even_if_the_server_hangs_during_the_report(
    own_server: ServerProcess, heard: Callable[[str], list[str]]
) -> None:
    timeout = max(4.0, 64 * UNIT)  # so that the lock is not lost during the pause, which lasts for 16 units
    with (
        Client(own_server.hosts, session_timeout=timeout) as first,
        Client(own_server.hosts, session_timeout=timeout) as second,
    ):
        with Lock(name="a", client=first):
            waiting = waits(second, Lock(name="a", client=second).acquire, True, 16 * UNIT)
            own_server.pause()
            try:
                assert waiting.result() is False
            except DeadlineError:
                pass
            own_server.resume()
