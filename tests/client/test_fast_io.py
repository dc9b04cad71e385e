"""The wire under faults, kazoo's own and ours: every request is answered by its own answer, or by a lost connection."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.byte_relay import Relay
from helpers.interrupt_every_line import strikes
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import expire
from kazoo.protocol.connection import ConnectionHandler

from distsync._client.transport import fast_io
from distsync._client.transport.kazoo_client import FastKazooConnection, KazooConnection, connection_class
from distsync._protocols.retries import read
from distsync._protocols.steps import (
    Children,
    Create,
    Created,
    Exists,
    GetData,
    Node,
    Pipeline,
    SetData,
    Wait,
    WakeReason,
    Watch,
)
from distsync._wire.codes import OpCode
from distsync.errors import DisconnectedError, NoNodeError, PayloadTooLargeError, SessionLostError
from distsync.testing.faulty_proxy import Proxy

MANY = 40
LARGE = b"x" * 900_000


@pytest.fixture
def relay(server: Any) -> Iterator[Relay]:
    made = Relay(server.hosts)
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["fast", "kazoo"])
def fast(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def relayed(make_client: Callable[..., Any], relay: Relay, namespace: str, fast: bool) -> Iterator[Any]:
    """A connected client behind the relay, with a short session; its namespace is there."""
    made = make_client(hosts=relay.hosts, session_timeout=2.0, fast_wire=fast)
    made.run(ask(Create(namespace)))
    yield made
    made.close()


@pytest.fixture
def proxied(make_client: Callable[..., Any], proxy: Proxy, namespace: str, fast: bool) -> Iterator[Any]:
    made = make_client(hosts=proxy.hosts, session_timeout=10.0, fast_wire=fast)
    made.run(ask(Create(namespace)))
    yield made
    made.close()


def mixed(namespace: str) -> tuple[Any, ...]:
    """Requests of which each has an answer that tells it from the others."""
    three = (
        (Create(f"{namespace}/{n}", b"%d" % n), GetData(f"{namespace}/{n}"), Exists(f"{namespace}/no{n}"))
        for n in range(MANY)
    )
    return tuple(request for requests in three for request in requests)


def expect_mixed(namespace: str, answers: tuple[Any, ...]) -> None:
    for n in range(MANY):
        made, node, missing = answers[3 * n : 3 * n + 3]
        assert isinstance(made, Created)
        assert made.path == f"{namespace}/{n}"
        assert isinstance(node, Node)
        assert node.data == b"%d" % n
        assert missing is None


# ---- reading


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 16])
def test_answers_in_pieces_of_any_length_are_those_of_their_requests(
    relayed: Any, relay: Relay, namespace: str, piece: int
) -> None:
    relay.piece = piece
    expect_mixed(namespace, relayed.run(ask(Pipeline(*mixed(namespace)))))
    assert relay.connections == 1


def test_answer_longer_than_what_one_read_takes_is_whole(relayed: Any, namespace: str) -> None:
    relayed.run(ask(Create(f"{namespace}/large", LARGE)))
    answers = relayed.run(ask(Pipeline(*[GetData(f"{namespace}/large")] * 5)))
    assert all(answer.data == LARGE for answer in answers)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("most", [1, 3, 4, 20, 700])
def test_connection_that_ends_within_an_answer_ends_this_one_and_those_after_it(
    relayed: Any, relay: Relay, namespace: str, most: int
) -> None:
    before = relayed.session_id
    relay.most, relay.hangs_up = most, True
    answers = relayed.run(ask(Pipeline(*mixed(namespace))))
    answered = [not isinstance(answer, DisconnectedError) for answer in answers]
    assert answered == sorted(answered, reverse=True)
    assert not all(answered)
    assert relayed.run(read(Exists(namespace))) is not None
    assert (relayed.session_id, relay.connections) == (before, 2)


@pytest.mark.slow_on("zookeeper")
def test_answer_of_which_the_rest_never_comes_ends_the_connection(relayed: Any, relay: Relay, namespace: str) -> None:
    relay.most = 10
    with pytest.raises(DisconnectedError):
        relayed.run(ask(GetData(namespace)))
    relay.most = None
    assert relayed.run(read(Exists(namespace))) is not None


def test_answer_of_a_negative_length_ends_the_connection_and_no_more(
    relayed: Any, relay: Relay, namespace: str
) -> None:
    connection = relayed._runtime.zk_session._kazoo._connection
    if not isinstance(connection, FastKazooConnection):
        pytest.skip("kazoo reads it in its own way")
    connection._input += b"\xff\xff\xff\xff"
    with pytest.raises(DisconnectedError):
        relayed.run(ask(Exists(namespace)))
    assert relayed.run(read(Exists(namespace))) is not None
    assert relay.connections == 2


def test_event_among_answers_comes_before_the_answer_that_shows_its_change(relayed: Any, namespace: str) -> None:
    watch = Watch()
    path = f"{namespace}/watched"
    relayed.run(ask(Create(path)))
    relayed.run(ask(Pipeline(*[GetData(path, watch)] * 20)))
    relayed.run(ask(Pipeline(SetData(path), *[GetData(path)] * 20)))
    assert watch.fired
    assert relayed.run(ask(Wait(watch, limit=PATIENCE))) is WakeReason.SIGNAL


# ---- writing


@pytest.mark.slow_on("zookeeper")
def test_requests_of_many_threads_are_answered_each_by_its_own(
    relayed: Any, relay: Relay, namespace: str, in_thread: Callable[..., Any]
) -> None:
    def work(number: int) -> None:
        for n in range(30):
            path = f"{namespace}/{number}-{n}"
            assert relayed.run(ask(Create(path, path.encode()))).path == path
            assert relayed.run(ask(GetData(path))).data == path.encode()

    for one in [in_thread(work, number) for number in range(8)]:
        one.result()
    assert relay.connections == 1


def fill(client: Any, namespace: str, in_thread: Callable[..., Any]) -> Any:
    """So many requests that the socket has no room for all of them."""
    writes = [Create(f"{namespace}/{n}", LARGE) for n in range(30)]
    filling = in_thread(client.run, ask(Pipeline(*writes)))
    eventually(
        lambda: len(client._runtime.zk_session._kazoo._pending) + len(client._runtime.zk_session._kazoo._queue) >= 20
    )
    return filling


@pytest.mark.slow_on("zookeeper")
def test_requests_for_which_the_socket_has_no_room_are_sent_when_it_has(
    proxied: Any, proxy: Proxy, namespace: str, in_thread: Callable[..., Any]
) -> None:
    proxy.blackhole()
    filling = fill(proxied, namespace, in_thread)
    after = in_thread(proxied.run, ask(GetData(f"{namespace}/29")))
    proxy.heal()
    assert [made.path for made in filling.result()] == [f"{namespace}/{n}" for n in range(30)]
    assert after.result().data == LARGE
    assert proxy.connections == 1


def test_large_requests_and_large_answers_pass_each_other(
    make_client: Callable[..., Any], relay: Relay, namespace: str
) -> None:
    """Neither end reads more before the other has taken what it sends: a writer has to read."""
    client = make_client(hosts=relay.hosts, session_timeout=4.0)
    large = f"{namespace}/large"
    client.run(ask(Pipeline(Create(namespace), Create(large, LARGE))))
    relay.in_turn = threading.Lock()
    answers = client.run(ask(Pipeline(*[*[GetData(large)] * 3, SetData(large, LARGE)] * 20)))
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert all(node.data == LARGE for node in answers[::4])
    assert relay.connections == 1
    client.close()


def keep_asking(client: Any, path: str, enough: threading.Event) -> None:
    while not enough.wait(UNIT / 10):
        asked(client, GetData(path))


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("size", [1, len(LARGE)], ids=["small requests", "no room for more"])
def test_server_that_answers_nothing_is_given_up_though_threads_keep_asking(
    make_client: Callable[..., Any], proxy: Proxy, namespace: str, in_thread: Callable[..., Any], size: int
) -> None:
    client = make_client(hosts=proxy.hosts, session_timeout=2.0)
    client.run(ask(Create(namespace)))
    proxy.blackhole()
    asked(client, *[SetData(namespace, LARGE[:size])] * 40)
    enough = threading.Event()
    asking = in_thread(keep_asking, client, namespace, enough)
    eventually(lambda: client.state != "connected")
    proxy.heal()
    enough.set()
    asking.result()
    assert client.run(read(Exists(namespace))) is not None
    client.close()


def test_answer_that_came_while_nobody_could_look_is_not_too_late(
    make_client: Callable[..., Any], proxy: Proxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a stop of the process: the time is over, and the answer is there."""
    client = make_client(hosts=proxy.hosts)
    client.run(ask(Create(namespace)))
    watch, stopped, goes_on = Watch(), threading.Event(), threading.Event()
    watch.subscribe(lambda: (stopped.set(), goes_on.wait(PATIENCE)))
    client.run(ask(GetData(namespace, watch)))
    asked(client, SetData(namespace))
    assert stopped.wait(PATIENCE)
    answered = client._runtime.zk_session.submit((Exists(namespace),), lambda: None)
    wire = client._runtime.zk_session._kazoo._connection
    eventually(lambda: select.select([wire._socket], [], [], 0)[0])
    monkeypatch.setattr(fast_io, "wait_clock", lambda: time.monotonic() + wire._reply_timeout)
    goes_on.set()
    eventually(lambda: answered.outcomes is not None)
    assert answered.outcomes[0].error is None
    assert proxy.connections == 1
    client.close()


def test_requests_that_are_half_sent_when_the_connection_breaks_fail_and_no_later_one_does(
    proxied: Any, proxy: Proxy, namespace: str, in_thread: Callable[..., Any]
) -> None:
    before = proxied.session_id
    proxy.blackhole()
    filling = fill(proxied, namespace, in_thread)
    proxy.cut()
    proxy.heal()
    answers = filling.result()
    assert all(isinstance(answer, (Created, DisconnectedError)) for answer in answers)
    assert isinstance(answers[-1], DisconnectedError)
    proxied.run(read(SetData(namespace, b"after")))
    assert proxied.run(ask(GetData(namespace))).data == b"after"
    assert proxied.session_id == before


def test_lost_reply_among_others_ends_all_after_it(proxied: Any, proxy: Proxy, namespace: str) -> None:
    sprung = proxy.drop_next_reply(OpCode.CREATE2)
    answers = proxied.run(ask(Pipeline(Exists(namespace), *[Create(f"{namespace}/{n}") for n in range(50)])))
    assert sprung.is_set()
    assert all(isinstance(answer, DisconnectedError) for answer in answers[1:])
    assert "0" in proxied.run(read(Children(namespace))).names


def test_request_that_is_too_long_fails_alone(relayed: Any, relay: Relay, namespace: str) -> None:
    too_long = Create(f"{namespace}/no", b"x" * 1_100_000)
    answers = relayed.run(ask(Pipeline(Create(f"{namespace}/a"), too_long, Create(f"{namespace}/b"))))
    assert [type(answer) for answer in answers] == [Created, PayloadTooLargeError, Created]
    assert relay.connections == 1


def test_session_that_ends_with_pending_requests_fails_them_and_is_followed_by_another(
    proxied: Any, proxy: Proxy, namespace: str, server: Any, in_thread: Callable[..., Any]
) -> None:
    before = proxied.session_id
    identity = proxied._runtime.zk_session._kazoo.client_id
    proxy.refuse()
    waiting = in_thread(proxied.run, ask(Pipeline(*[Exists(namespace)] * 5)))
    expire((server.hosts, identity))
    proxy.heal()
    answers = waiting.result()
    assert all(isinstance(answer, (DisconnectedError, SessionLostError)) for answer in answers)
    assert len(answers) == 5
    assert proxied.run(read(Exists(namespace))) is not None
    assert proxied.session_id != before


def test_interrupt_in_any_line_of_sending_breaks_no_connection_and_mixes_no_answers(
    make_client: Callable[..., Any], proxy: Proxy, namespace: str
) -> None:
    client = make_client(hosts=proxy.hosts)
    client.run(ask(Create(namespace, b"here")))
    wire = client._runtime.zk_session._kazoo._connection
    numbers = iter(range(10_000))

    def send() -> None:
        asked(client, GetData(namespace), Exists(f"{namespace}/{next(numbers)}"))

    def check(where: str) -> None:
        client._runtime.unlock()
        node, missing, refused = client.run(
            ask(Pipeline(GetData(namespace), Exists(f"{namespace}/no"), GetData(f"{namespace}/no")))
        )
        assert node.data == b"here", where
        assert missing is None, where
        assert isinstance(refused, NoNodeError), where

    assert isinstance(wire, FastKazooConnection)
    assert strikes(send, check) > 30
    assert proxy.connections == 1
    client.close()


def asked(client: Any, *requests: Any) -> None:
    """They are under way; nobody waits for them."""
    client._runtime.zk_session.submit(requests, lambda: None)


# ---- which wire


def test_kazoo_that_is_installed_is_known() -> None:
    assert fast_io.incompatibility() == ""
    assert connection_class(True) is FastKazooConnection


def test_wire_that_is_switched_off_is_kazoos() -> None:
    assert connection_class(False) is KazooConnection


def without(name: str) -> type:
    return type("Handler", (), {key: value for key, value in vars(ConnectionHandler).items() if key != name})


def instead(name: str, function: Any) -> type:
    return type("Handler", (), {**vars(ConnectionHandler), name: function})


def other_parameters(self: Any, length: int) -> bytes:
    return bytes(self._socket.recv(length))


def other_work(self: Any, length: int, timeout: float) -> bytes:
    return bytes(self.stream.read(length, timeout))


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (without("_send_ping"), "_send_ping is missing"),
        (instead("_read", other_parameters), "_read has other parameters"),
        (instead("_read", other_work), "_read is implemented differently"),
    ],
)
def test_kazoo_that_is_built_otherwise_keeps_its_own_wire(
    handler: type, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fast_io.incompatibility(handler) == reason
    monkeypatch.setattr(fast_io, "incompatibility", lambda: reason)
    assert connection_class(True) is KazooConnection


def test_system_without_poll_keeps_kazoos_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_io, "select", SimpleNamespace())
    assert fast_io.incompatibility() == "the system has no poll"
