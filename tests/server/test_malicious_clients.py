"""Hostile input of a client affects no other client, and memory stays bounded."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.certificates import SaslProcess
from helpers.custom_server import TunedProcess
from helpers.digest_md5_client import nonce_of, response
from helpers.frame_client import LOOPBACK, Link, linked
from helpers.sample_frames import FRAMES, HELLO
from helpers.server_load import many_files, resident_bytes
from helpers.servers import EmbeddedProcess
from helpers.timing import PATIENCE, UNIT, eventually
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from distsync._wire import records as r
from distsync._wire.codes import ErrorCode
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_request

EXAMPLES = int(os.environ.get("DISTSYNC_TEST_FRAMES", "150"))
GROWTH = 40_000_000
MANY = 5000


@contextmanager
def running(server: EmbeddedProcess) -> Iterator[EmbeddedProcess]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    with running(TunedProcess(tmp_path_factory.mktemp("hostile"), limits={"close_seconds": 10 * UNIT})) as server:
        yield server


@pytest.fixture(scope="module")
def witness(embedded: EmbeddedProcess) -> Iterator[Callable[[], None]]:
    """Return a function that checks that another client's operations work."""
    with linked(embedded.port, greeted=False) as link:
        link.greet(r.ConnectRequest(timeout_ms=60_000))

        def goes_on() -> None:
            assert link.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0
            assert link.ask(2, r.CreateRequest("/witness", b"", flags=3), r.CreateReply)[2] == 0

        yield goes_on
        link.ask(3, r.CloseSessionRequest())


def alive(server: EmbeddedProcess) -> int:
    """Return the number of connections, except the one that asks."""
    return int(server.figures()["zk_num_alive_connections"]) - 1


@st.composite
def streams(draw: Any) -> bytes:
    """Generate the input of a broken or malicious client: valid frames, some with bytes changed, cut,
    duplicated or moved.
    """
    pieces = draw(st.lists(st.one_of(st.sampled_from([HELLO, *FRAMES]), st.binary(max_size=64)), max_size=8))
    stream = bytearray((HELLO if draw(st.booleans()) else b"") + b"".join(pieces))
    for _ in range(draw(st.integers(0, 6)) if stream else 0):
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    return bytes(stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream)


def test_mutated_frames_cost_their_own_connection_only(embedded: EmbeddedProcess, witness: Callable[[], None]) -> None:
    @seed(20240)
    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(streams())
    def attack(stream: bytes) -> None:
        with socket.create_connection((LOOPBACK, embedded.port), timeout=PATIENCE) as link:
            with suppress(ConnectionError):
                link.sendall(stream)
                link.shutdown(socket.SHUT_WR)
                while link.recv(65536):
                    pass
        witness()

    attack()
    before = resident_bytes(embedded.pid)
    attack()
    assert resident_bytes(embedded.pid) - before < GROWTH
    assert "Traceback" not in embedded.output()


@pytest.mark.parametrize("sent", [FRAMES[0][:-3], struct.pack(">i", 0xFFFFE) + bytes(500_000)], ids=["short", "long"])
def test_connection_with_an_incomplete_frame_ends_with_its_session(
    embedded: EmbeddedProcess, witness: Callable[[], None], sent: bytes
) -> None:
    with linked(embedded.port, greeted=False) as link:
        link.greet(r.ConnectRequest(timeout_ms=1000))
        link.socket.sendall(sent)
        assert link.at_end()
    witness()


def test_incomplete_handshake_times_out(embedded: EmbeddedProcess) -> None:
    with linked(embedded.port, greeted=False) as link:
        with suppress(ConnectionError):
            link.socket.sendall(struct.pack(">i", 0xFFFFE) + bytes(100_000))
        assert link.at_end()


def test_client_that_reads_no_replies_is_disconnected(embedded: EmbeddedProcess, witness: Callable[[], None]) -> None:
    before = alive(embedded)
    with linked(embedded.port) as owner, linked(embedded.port, greeted=False) as link:
        owner.ask(1, r.CreateRequest("/large", bytes(900_000), flags=1), r.CreateReply)
        link.greet(r.ConnectRequest(timeout_ms=1000))
        link.send(*(encode_request(xid, r.GetDataRequest("/large")) for xid in range(100)))
        witness()
        eventually(lambda: alive(embedded) == before + 1)


def test_memory_of_all_buffers_is_bounded(tmp_path: Path) -> None:
    limit = 20_000_000
    with running(TunedProcess(tmp_path, limits={"buffered_bytes": limit})) as server, linked(server.port) as witness:
        before = resident_bytes(server.pid)
        with ExitStack() as stack:
            for _ in range(100):
                link = stack.enter_context(linked(server.port, greeted=False))
                link.greet(r.ConnectRequest(timeout_ms=60_000))
                with suppress(ConnectionError):
                    link.socket.sendall(struct.pack(">i", 0xFFFFE) + bytes(900_000))
            assert witness.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0
            eventually(lambda: alive(server) < 50)
            assert resident_bytes(server.pid) - before < 2 * limit
            assert "the limit of all connections is exceeded" in server.output()


def test_session_without_the_secret_ends_with_the_handshake_time(tmp_path: Path) -> None:
    with running(TunedProcess(tmp_path, secret="open sesame", limits={"handshake_seconds": 40 * UNIT})) as server:
        with linked(server.port, greeted=False) as friend, linked(server.port, greeted=False) as stranger:
            friend.greet()
            friend.ask(-4, r.AuthRequest(0, "digest", b"distsync:open sesame"))
            stranger.greet(r.ConnectRequest(timeout_ms=60_000))
            assert server.figures()["zk_global_sessions"] == "2"
            assert stranger.at_end()
            eventually(lambda: server.figures()["zk_global_sessions"] == "1")  # it started after its connection
            assert friend.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0


def test_number_of_sessions_without_the_secret_is_limited(tmp_path: Path) -> None:
    with running(TunedProcess(tmp_path, secret="open sesame", limits={"unauthenticated_sessions": 5})) as server:
        for _ in range(30):
            with linked(server.port, greeted=False) as stranger:
                stranger.greet(r.ConnectRequest(timeout_ms=60_000))
        eventually(lambda: int(server.figures()["zk_global_sessions"]) <= 5)


def test_connections_above_the_limit_are_refused_and_the_others_stay(tmp_path: Path) -> None:
    with running(TunedProcess(tmp_path, limits={"connections": 10})) as server:
        with linked(server.port) as first, ExitStack() as stack:
            for _ in range(9):
                stack.enter_context(linked(server.port))
            with linked(server.port, greeted=False) as late:
                assert late.at_end()
            assert "connection limit reached (10)" in server.output()
            assert first.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0
            stack.close()
            eventually(lambda: says_hello(server.port))


def says_hello(port: int) -> bool:
    with linked(port, greeted=False) as link, suppress(struct.error):
        return link.greet(r.ConnectRequest(timeout_ms=1000)).session_id != 0
    return False


def test_server_without_file_descriptors_continues_and_accepts_again_later(tmp_path: Path) -> None:
    with running(EmbeddedProcess(tmp_path)) as server, linked(server.port) as first:
        assert server.pid
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (40, 40))
        with ExitStack() as stack:
            waiting = [stack.enter_context(linked(server.port, greeted=False)) for _ in range(60)]
            assert len(waiting) == 60
            assert first.ask(1, r.CreateRequest("/still", b"", flags=1), r.CreateReply)[2] == 0
        eventually(lambda: says_hello(server.port))


def test_thousands_of_connections_are_served_at_once(embedded: EmbeddedProcess, witness: Callable[[], None]) -> None:
    before = resident_bytes(embedded.pid)
    with many_files() as hard, ExitStack() as stack:
        if hard != resource.RLIM_INFINITY and hard < MANY + 1000:
            pytest.skip(f"this system allows {hard} file descriptors")
        address = (LOOPBACK, embedded.port)
        links = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE)) for _ in range(MANY)]
        for link in links[: MANY // 2]:
            link.sendall(HELLO)
        witness()
        assert all(len(link.recv(1000)) > 30 for link in links[: MANY // 2])
        witness()
        assert resident_bytes(embedded.pid) - before < 20_000 * MANY
    eventually(lambda: alive(embedded) < 10)


BUG = """
from distsync._server.handlers.dispatch import Requests
handle = Requests.handle
def buggy(self, link, xid, request, now_ms):
    path = getattr(request, "path", "")
    if path == "/bug":
        raise ZeroDivisionError("a bug")
    effects = handle(self, link, xid, request, now_ms)
    if path == "/half":
        raise ZeroDivisionError("half a bug")
    return effects
Requests.handle = buggy
"""


def test_bug_before_any_change_closes_only_the_connection_that_hit_it(tmp_path: Path) -> None:
    with running(TunedProcess(tmp_path, before=BUG)) as server, linked(server.port) as other:
        with linked(server.port, greeted=False) as link:
            link.greet(r.ConnectRequest(timeout_ms=1000))
            link.send(encode_request(1, r.CreateRequest("/bug", b"")))
            assert link.at_end()
        assert other.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0
        assert server.output().count("ZeroDivisionError: a bug") == 1


def test_bug_within_a_change_stops_the_server_before_any_client_sees_half_of_it(tmp_path: Path) -> None:
    server = TunedProcess(tmp_path, before=BUG)
    with running(server):
        with linked(server.port, greeted=False) as link:
            link.greet()
            link.ask(1, r.CreateRequest("/before", b""), r.CreateReply)
            link.send(encode_request(2, r.CreateRequest("/half", b"")))
            assert link.at_end()
        assert server.process
        assert server.process.wait(PATIENCE) == 1
        assert "ZeroDivisionError: half a bug" in server.output()
        server.before = ""
        server.start()
        with linked(server.port) as link:
            assert link.ask(1, r.ExistsRequest("/before"), r.StatReply)[2] == 0
            assert link.ask(2, r.ExistsRequest("/half"), r.StatReply)[2] == -101


EAGER = """
from distsync._server.net import connection
from distsync._server.journal.journal import Journal
connection.PENDING_REPLY_BYTES = 100
Journal.wants_compaction = property(lambda self: True)
"""


def test_bug_within_a_change_is_in_no_snapshot(tmp_path: Path) -> None:
    """The bug is hit when a connection resumes after its replies were sent, within the flush that
    would compact.
    """
    server = TunedProcess(tmp_path, before=BUG + EAGER)
    with running(server):
        with linked(server.port, greeted=False) as link:
            link.greet()
            link.ask(1, r.CreateRequest("/before", bytes(200)), r.CreateReply)
            link.send(encode_request(2, r.GetDataRequest("/before")), encode_request(3, r.CreateRequest("/half", b"")))
            assert server.process
            assert server.process.wait(PATIENCE) == 1
        server.before = ""
        server.start()
        with linked(server.port) as link:
            assert link.ask(1, r.ExistsRequest("/before"), r.StatReply)[2] == 0
            assert link.ask(2, r.ExistsRequest("/half"), r.StatReply)[2] == ErrorCode.NO_NODE


MULTI_BUG = """
from distsync._server.handlers.writes import Writes
def buggy(self, link, request):
    raise ZeroDivisionError("a bug")
Writes._check = buggy
"""


def test_bug_within_a_multi_closes_only_the_connection_that_hit_it(tmp_path: Path) -> None:
    """All changes are rolled back."""
    with running(TunedProcess(tmp_path, before=MULTI_BUG)) as server, linked(server.port) as other:
        with linked(server.port, greeted=False) as link:
            link.greet(r.ConnectRequest(timeout_ms=1000))
            link.send(encode_request(1, r.MultiRequest((r.CreateRequest("/half"), r.CheckVersionRequest("/")))))
            assert link.at_end()
        assert other.ask(1, r.ExistsRequest("/half"), r.StatReply)[2] == ErrorCode.NO_NODE
        assert other.ask(2, r.CreateRequest("/half", flags=1), r.CreateReply)[2] == 0


NOWHERE = """
from distsync._server.net.connection import Connection
made = Connection.connection_made
class Reset:
    def __init__(self, transport):
        self._transport = transport
    def __getattr__(self, name):
        return getattr(self._transport, name)
    def get_extra_info(self, name):
        told = self._transport.get_extra_info(name)
        return None if name == "peername" and told[0] == "127.0.0.2" else told
Connection.connection_made = lambda self, transport: made(self, Reset(transport))
"""
"""uvloop asks for the address late: it knows none of a connection that was reset before, and reads what was sent."""


def test_connection_reset_before_its_address_was_known_is_closed(tmp_path: Path) -> None:
    with running(TunedProcess(tmp_path, before=NOWHERE)) as server, linked(server.port) as witness:
        address = (LOOPBACK, server.port)
        with socket.create_connection(address, PATIENCE, source_address=("127.0.0.2", 0)) as link:
            with suppress(ConnectionError):
                link.sendall(HELLO + framed(encode_request(1, r.CreateRequest("/made"))))
                assert link.recv(1) == b""
        assert "reset before its address was known" in server.output()
        assert witness.ask(1, r.ExistsRequest("/made"), r.StatReply)[2] == ErrorCode.NO_NODE


PASSWORD = "in wonderland"


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    with running(SaslProcess(tmp_path_factory.mktemp("knowing"), {"alice": PASSWORD})) as server:
        yield server


@st.composite
def tokens(draw: Any) -> tuple[list[bytes], list[tuple[int, int]], int | None]:
    """Generate further tokens before the response, a change in it, and where it is cut."""
    before = draw(st.lists(st.one_of(st.just(b""), st.binary(max_size=40)), min_size=1, max_size=3))
    changes = draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
    return before, changes, draw(st.none() | st.integers(0, 300))


def test_mutated_sasl_responses_are_refused_cleanly_and_give_no_identity(knowing: EmbeddedProcess) -> None:
    """Either it is refused with an error and the end of the connection, or it is valid."""
    outcomes: set[str] = set()

    @seed(20241)
    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(tokens())
    def attack(given: tuple[list[bytes], list[tuple[int, int]], int | None]) -> None:
        before, changes, cut = given
        with linked(knowing.port, greeted=False) as link:
            link.greet(r.ConnectRequest(timeout_ms=1000))
            asked = link.ask(1, r.SaslRequest(before[0]), r.SaslReply)
            proof = bytearray(response("alice", PASSWORD, nonce_of(asked[3].token)))  # type: ignore[attr-defined]
            for at, value in changes:
                proof[at % len(proof)] = value
            outcomes.add(outcome(link, [*before[1:], bytes(proof[:cut])]))

    attack()
    assert outcomes == {"refused", "proved"}
    with linked(knowing.port) as witness:
        assert witness.ask(1, r.ExistsRequest("/"), r.StatReply)[2] == 0
    assert "Traceback" not in knowing.output()
    assert "wonderland" not in knowing.output()


def outcome(link: Link, tokens: list[bytes]) -> str:
    for token in tokens:
        _, zxid, err, body = link.ask(2, r.SaslRequest(token), r.SaslReply)
        if err:
            assert (zxid, err) == (0, ErrorCode.AUTH_FAILED)
            assert link.at_end()
            return "refused"
        assert body.token.startswith(b"rspauth=")  # type: ignore[attr-defined]
    told = link.ask(3, r.WhoAmIRequest(), r.WhoAmIReply)[3]
    assert ("sasl", "alice") in told.client_info  # type: ignore[attr-defined]
    return "proved"


def test_malformed_sasl_requests_close_their_own_connection(knowing: EmbeddedProcess) -> None:
    for body in (b"", b"\0\0", struct.pack(">i", -1), struct.pack(">i", -2), struct.pack(">i", 5) + b"abc"):
        with linked(knowing.port, greeted=False) as link:
            link.greet(r.ConnectRequest(timeout_ms=1000))
            link.send(struct.pack(">ii", 1, 102) + body)
            assert link.at_end()
    with linked(knowing.port, greeted=False) as link:
        link.greet(r.ConnectRequest(timeout_ms=1000))
        link.ask(1, r.SaslRequest(b""), r.SaslReply)
        assert link.ask(2, r.SaslRequest(bytes(900_000)), r.SaslReply)[2] == ErrorCode.AUTH_FAILED
        assert link.at_end()
    assert "Traceback" not in knowing.output()
