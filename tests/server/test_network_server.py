"""The network server: any input, in any pieces, affects at most its own connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.frame_client import Link, linked, says
from helpers.servers import EmbeddedProcess
from helpers.timing import eventually

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import decode_event, encode_connect, encode_request


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    server = EmbeddedProcess(tmp_path_factory.mktemp("rim"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def link(embedded: EmbeddedProcess) -> Iterator[Link]:
    with linked(embedded.port) as one:
        yield one


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_many_frames_in_one_segment_are_answered_in_order(link: Link) -> None:
    link.send(*(encode_request(xid, r.CreateRequest("/many-", b"", flags=3)) for xid in range(1, 201)))
    answers = [link.answer(r.CreateReply) for _ in range(200)]
    assert [answer[0] for answer in answers] == list(range(1, 201))
    assert [answer[1] for answer in answers] == list(range(answers[0][1], answers[0][1] + 200))


def test_handshake_and_request_in_one_segment(embedded: EmbeddedProcess) -> None:
    with linked(embedded.port, greeted=False) as link:
        close = encode_request(1, r.CloseSessionRequest())
        link.send(encode_connect(r.ConnectRequest()), encode_request(-2, r.PingRequest()), close)
        assert len(link.frame()) == 36
        assert link.answer()[0] == -2
        assert link.answer()[0] == 1
        assert link.at_end()


def test_frames_that_arrive_byte_by_byte(embedded: EmbeddedProcess) -> None:
    with linked(embedded.port, greeted=False) as link:
        stream = framed(encode_connect(r.ConnectRequest())) + framed(encode_request(7, r.ExistsRequest("/")))
        link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in stream + framed(encode_request(8, r.CloseSessionRequest())):
            link.socket.sendall(bytes([byte]))
        assert len(link.frame()) == 36
        assert link.answer(r.StatReply)[0] == 7
        assert link.answer()[0] == 8


@pytest.mark.parametrize("length", [-1, 0, -(2**31), 0x100000, 2**31 - 1])
def test_impossible_frame_length_closes_this_connection_only(
    embedded: EmbeddedProcess, link: Link, length: int
) -> None:
    with linked(embedded.port, greeted=False) as other:
        other.greet(r.ConnectRequest(timeout_ms=1000))
        other.socket.sendall(struct.pack(">i", length) + b"whatever")
        assert other.at_end()
    assert link.ask(1, r.ExistsRequest("/"), r.StatReply)[0] == 1


@pytest.mark.parametrize(
    "sent",
    [b"\0\0\0\3abc", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"abcd", framed(bytes(1000))],
    ids=["short", "http", "tls", "word", "zeros"],
)
def test_malformed_handshake_closes_this_connection_only(embedded: EmbeddedProcess, link: Link, sent: bytes) -> None:
    with linked(embedded.port, greeted=False) as other:
        other.socket.sendall(sent)
        if sent != framed(bytes(1000)):
            assert other.at_end()
    assert link.ask(1, r.ExistsRequest("/"), r.StatReply)[0] == 1


def test_request_without_a_header_closes_this_connection_only(embedded: EmbeddedProcess, link: Link) -> None:
    with linked(embedded.port, greeted=False) as other:
        other.greet(r.ConnectRequest(timeout_ms=1000))
        other.send(b"\0\0")
        assert other.at_end()
    assert link.ask(1, r.ExistsRequest("/"), r.StatReply)[0] == 1


def test_requests_before_the_handshake_are_not_answered(embedded: EmbeddedProcess) -> None:
    with linked(embedded.port, greeted=False) as other:
        other.send(encode_request(1, r.DeleteRequest("/zookeeper")))
        assert other.at_end()


@pytest.mark.parametrize(
    ("word", "start"),
    [
        (b"ruok", b"imok"),
        (b"isro", b"rw"),
        (b"srvr", b"Zookeeper version: 3.8.0"),
        (b"stat", b"Zookeeper version: 3.8.0"),
        (b"mntr", b"zk_version\t3.8.0"),
        (b"conf", b"clientPort="),
        (b"envi", b"Environment:\nzookeeper.version=3.8.0"),
    ],
)
def test_four_letter_word_is_answered(embedded: EmbeddedProcess, word: bytes, start: bytes) -> None:
    answer = says(embedded.port, word)
    assert answer.startswith(start)
    assert answer == start or len(answer) > len(start)


def test_four_letter_word_with_a_line_end_and_in_pieces(embedded: EmbeddedProcess) -> None:
    assert says(embedded.port, b"ruok\n") == b"imok"
    with linked(embedded.port, greeted=False) as link:
        link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.socket.sendall(b"ru")
        link.socket.sendall(b"ok")
        assert link.frame() == b""  # "imok" read as a length, then the end


def test_mntr_counts_sessions_watches_and_ephemerals(embedded: EmbeddedProcess, link: Link) -> None:
    link.ask(1, r.CreateRequest("/counted", b"", flags=1), r.CreateReply)
    link.ask(2, r.GetDataRequest("/counted", True), r.GetDataReply)
    figures = embedded.figures()
    counted = [figures[f"zk_{name}"] for name in ("watch_count", "ephemerals_count")]
    assert counted == ["1", "1"]
    assert int(figures["zk_global_sessions"]) >= 1
    assert int(figures["zk_packets_received"]) >= 3


def test_server_without_a_secret_proves_nothing(embedded: EmbeddedProcess) -> None:
    assert says(embedded.port, b"prov" + bytes(32)) == b""


def test_event_comes_before_the_reply_and_is_its_own_frame(link: Link) -> None:
    link.ask(1, r.ExistsRequest("/seen", True))
    link.send(encode_request(2, r.CreateRequest("/seen", b"", flags=1)))
    zxid, event = decode_event(link.frame())
    assert event == (1, 3, "/seen")
    assert link.answer(r.CreateReply)[:3] == (2, zxid, 0)


def test_client_that_reads_nothing_costs_no_memory_and_delays_no_other(embedded: EmbeddedProcess, link: Link) -> None:
    link.ask(1, r.CreateRequest("/large", bytes(900_000), flags=1), r.CreateReply)
    assert embedded.pid
    with linked(embedded.port) as slow:
        before = resident_bytes(embedded.pid)
        slow.send(*(encode_request(xid, r.GetDataRequest("/large")) for xid in range(300)))
        assert link.ask(2, r.ExistsRequest("/large"), r.StatReply)[0] == 2
        assert resident_bytes(embedded.pid) - before < 30_000_000
        for xid in range(300):
            answer = slow.answer(r.GetDataReply)
            assert answer[0] == xid
            assert len(answer[3].data) == 900_000  # type: ignore[attr-defined]


def test_cut_connection_keeps_its_session_and_ephemerals_until_the_timeout(
    embedded: EmbeddedProcess, link: Link
) -> None:
    other = Link(embedded.port)
    other.greet(r.ConnectRequest(timeout_ms=1000))
    other.ask(1, r.CreateRequest("/short-lived", b"", flags=1), r.CreateReply)
    other.close()
    assert link.ask(1, r.ExistsRequest("/short-lived"), r.StatReply)[2] == 0
    eventually(lambda: link.ask(2, r.ExistsRequest("/short-lived"), r.StatReply)[2] == -101)


def test_later_connection_takes_the_session_over(embedded: EmbeddedProcess) -> None:
    first = Link(embedded.port)
    accepted = first.greet()
    again = r.ConnectRequest(session_id=accepted.session_id, password=accepted.password)
    with linked(embedded.port, greeted=False) as second:
        assert second.greet(again).session_id == accepted.session_id
        assert first.at_end()
        second.ask(1, r.CloseSessionRequest())
    first.close()


def test_hundred_connections_are_served_at_once(embedded: EmbeddedProcess) -> None:
    links = [Link(embedded.port) for _ in range(100)]
    assert len({link.greet().session_id for link in links}) == 100
    for link in links:
        assert link.ask(1, r.CloseSessionRequest())[2] == 0
        assert link.at_end()
        link.close()
