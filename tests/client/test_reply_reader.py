"""Callers that read their own reply: no other reply is lost by it, nor by an interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from helpers.byte_relay import Relay
from helpers.interrupt_every_line import strikes
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE, eventually

from distsync._client.lease.lease_clock import NEVER
from distsync._client.transport.fast_io import FastIO
from distsync._client.transport.kazoo_client import FastKazooConnection
from distsync._protocols.retries import read
from distsync._protocols.steps import Create, Exists, GetData, Pipeline, SetData, Wait, WakeReason, Watch
from distsync.errors import LockLostError, NoNodeError
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Lock

CALLS = 200

#: Of the answer that there is no such znode.
ANSWER_BYTES = 20

# An interrupt may come before the first line of a call.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def wire_of(client: Any) -> FastKazooConnection:
    found = client._runtime.zk_session._kazoo._connection
    assert isinstance(found, FastKazooConnection)
    return found


def given_by_connection_thread(wire: FastKazooConnection) -> list[int]:
    """The xids of the answers that the connection thread gives from now on."""
    given: list[int] = []
    giving = wire._read_response

    def give(header: Any, buffer: bytes, offset: int) -> Any:
        given.append(header.xid)
        return giving(header, buffer, offset)

    wire._read_response = give  # type: ignore[method-assign]
    return given


def test_caller_that_waits_for_one_reply_at_a_time_reads_most_of_them(near: Any, namespace: str) -> None:
    given = given_by_connection_thread(wire_of(near))
    for _ in range(CALLS):
        assert near.run(ask(GetData(namespace))).data == b""
    assert len(given) < CALLS / 2


def test_answers_that_come_together_are_given_each_to_its_own(near: Any, namespace: str) -> None:
    for n in range(CALLS):
        node, missing, refused, written = near.run(
            ask(
                Pipeline(
                    GetData(namespace),
                    Exists(f"{namespace}/{n}"),
                    GetData(f"{namespace}/{n}"),
                    SetData(namespace, b"%d" % n),
                )
            )
        )
        assert node.data == (b"%d" % (n - 1) if n else b"")
        assert missing is None
        assert isinstance(refused, NoNodeError)
        assert written.version == n + 1


def test_event_that_a_caller_reads_before_its_reply_is_delivered(near: Any, namespace: str) -> None:
    for n in range(CALLS // 4):
        watch = Watch()
        near.run(ask(GetData(namespace, watch)))
        near.run(ask(SetData(namespace, b"%d" % n)))
        assert near.run(ask(Wait(watch, limit=PATIENCE))) is WakeReason.SIGNAL


def test_event_after_the_callers_last_reply_is_delivered(
    near: Any, make_client: Callable[..., Any], namespace: str
) -> None:
    other = make_client()
    for n in range(CALLS // 4):
        watch = Watch()
        near.run(ask(GetData(namespace, watch)))
        other.run(ask(SetData(namespace, b"%d" % n)))
        assert near.run(ask(Wait(watch, limit=PATIENCE))) is WakeReason.SIGNAL
    other.close()


def test_ping_whose_answer_a_caller_has_read_is_answered(
    make_client: Callable[..., Any], server: Any, namespace: str, in_thread: Callable[..., Any]
) -> None:
    relay = Relay(server.hosts)
    client = make_client(hosts=relay.hosts)
    client.run(ask(Create(namespace)))
    wire = wire_of(client)
    for _ in range(CALLS // 10):
        relay.in_turn = threading.Lock()
        with relay.in_turn:
            with wire.lock:
                super(FastIO, wire)._send_ping(PATIENCE)
            asking = in_thread(client.run, ask(GetData(namespace)))
            eventually(lambda: bool(client._runtime.zk_session._kazoo._pending))
        assert asking.result().data == b""
        eventually(lambda: not wire.ping_outstanding.is_set())
    assert relay.connections == 1
    client.close()
    relay.close()


def test_answer_that_a_caller_has_left_comes_before_the_end_of_the_connection(
    make_client: Callable[..., Any], server: Any, namespace: str
) -> None:
    """An error that more depends on is the connection thread's to give; the server then hangs up."""
    relay = Relay(server.hosts)
    client = make_client(hosts=relay.hosts)
    client.run(ask(Create(namespace)))
    wire_of(client)._deliver = lambda replies: False  # type: ignore[method-assign]
    for _ in range(5):
        assert client.run(read(Exists(namespace))) is not None
        relay.most, relay.hangs_up = ANSWER_BYTES, True
        assert client.run(ask(Exists(f"{namespace}/no"))) is None
        eventually(lambda: relay.most is None)
    assert client.run(read(Exists(namespace))) is not None  # it is there again, and can be closed
    client.close()
    relay.close()


def test_lease_that_ran_out_before_its_caller_reads_is_reported(near: Any, namespace: str) -> None:
    """As of a process that was stopped: what it held is lost, though the answer proves that the session lives."""
    for n in range(CALLS // 10):
        lock = Lock(client=near, name="lease")
        lock.acquire()
        for _ in range(5):
            near.run(ask(GetData(namespace)))
        near._runtime.zk_session._lease.proven_at = NEVER
        near.run(ask(SetData(namespace, b"%d" % n)))
        assert not lock.held
        with pytest.raises(LockLostError):
            lock.release()


def test_caller_during_close_gets_no_error_about_sockets(near: Any, namespace: str) -> None:
    wire = wire_of(near)
    near.run(ask(GetData(namespace)))
    near.close()
    wire._is_deferring = True
    wire._input += b"half"
    wire.stop_deferring()
    wire.stop_reading()
    wire.read_replies([], 0.0)


@pytest.mark.slow_on("zookeeper")
def test_interrupt_in_any_line_of_a_call_breaks_no_connection_and_mixes_no_answers(
    make_client: Callable[..., Any], proxy: Proxy, namespace: str, in_thread: Callable[..., Any]
) -> None:
    client = make_client(hosts=proxy.hosts)
    client.run(ask(Create(namespace, b"here")))
    wire = wire_of(client)
    numbers = iter(range(100_000))
    places: set[str] = set()

    def call() -> None:
        client.run(ask(Pipeline(GetData(namespace), Exists(f"{namespace}/{next(numbers)}"))))

    def check(where: str) -> None:
        places.add(where.partition(":")[0])
        for run in (client.run, lambda work: in_thread(client.run, work).result()):
            node, missing, refused = run(
                ask(Pipeline(GetData(namespace), Exists(f"{namespace}/no"), GetData(f"{namespace}/no")))
            )
            assert node.data == b"here", where
            assert missing is None, where
            assert isinstance(refused, NoNodeError), where
        assert not wire.reader_lock._is_owned(), where  # type: ignore[attr-defined]

    call()
    assert strikes(call, check) > 100
    assert "_client/transport/reply_reader.py" in places
    assert proxy.connections == 1
    client.close()
