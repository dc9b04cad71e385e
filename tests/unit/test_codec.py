"""The codec: bytes on the wire, and round trips of all records."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsync._wire import message_codec
from distsync._wire import records as r
from distsync._wire.codes import OpCode
from distsync._wire.frames import FrameSplitter, WireError, framed

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
data = st.none() | st.binary(max_size=20)
acls = st.lists(st.builds(r.Acl, ints, texts, texts), max_size=3).map(tuple)
names = st.lists(texts, max_size=4).map(tuple)
stats = st.builds(r.Stat, longs, longs, longs, longs, ints, ints, ints, longs, ints, ints, longs)

creates = [st.builds(kind, texts, data, acls, ints) for kind in (r.CreateRequest, r.Create2Request)]
operations = st.one_of(
    *creates,
    st.builds(r.CreateContainerRequest, texts, data, acls, ints),
    st.builds(r.CreateTtlRequest, texts, data, acls, ints, longs),
    st.builds(r.DeleteRequest, texts, ints),
    st.builds(r.SetDataRequest, texts, data, ints),
    st.builds(r.CheckVersionRequest, texts, ints),
)
reads = st.builds(r.GetDataRequest, texts, st.booleans()) | st.builds(r.GetChildrenRequest, texts, st.booleans())
requests = st.one_of(
    operations,
    st.builds(r.ExistsRequest, texts, st.booleans()),
    st.builds(r.GetDataRequest, texts, st.booleans()),
    st.builds(r.GetAclRequest, texts),
    st.builds(r.SetAclRequest, texts, acls, ints),
    st.builds(r.GetChildrenRequest, texts, st.booleans()),
    st.builds(r.GetChildren2Request, texts, st.booleans()),
    st.builds(r.SyncRequest, texts),
    st.builds(r.MultiRequest, st.lists(operations, max_size=4).map(tuple)),
    st.builds(r.SetWatchesRequest, longs, names, names, names),
    st.builds(r.MultiReadRequest, st.lists(reads, max_size=4).map(tuple)),
    st.builds(r.SetWatches2Request, longs, names, names, names, names, names),
    st.builds(r.AddWatchRequest, texts, ints),
    st.builds(r.CheckWatchesRequest, texts, ints),
    st.builds(r.RemoveWatchesRequest, texts, ints),
    st.builds(r.GetEphemeralsRequest, texts),
    st.builds(r.GetAllChildrenNumberRequest, texts),
    st.just(r.WhoAmIRequest()),
    st.just(r.DeleteContainerRequest()),
    st.builds(r.ReconfigRequest, texts, texts, texts, longs),
    st.builds(r.SaslRequest, data),
    st.builds(r.AuthRequest, ints, texts, data),
    st.just(r.PingRequest()),
    st.just(r.CloseSessionRequest()),
    st.just(r.UnknownRequest(777)),
)
results = st.one_of(
    st.builds(r.CreateReply, texts),
    st.builds(r.Create2Reply, texts, stats),
    st.builds(r.StatReply, stats),
    st.just(r.DeleteReply()),
    st.just(r.CheckReply()),
    st.builds(r.GetChildrenReply, names),
    st.builds(r.GetDataReply, data, stats),
    st.builds(r.ErrorReply, ints),
)
bodies = st.one_of(
    st.builds(r.CreateReply, texts),
    st.builds(r.Create2Reply, texts, stats),
    st.builds(r.StatReply, stats),
    st.builds(r.GetDataReply, data, stats),
    st.builds(r.GetAclReply, acls, stats),
    st.builds(r.GetChildrenReply, names),
    st.builds(r.GetChildren2Reply, names, stats),
    st.builds(r.SyncReply, texts),
    st.builds(r.GetEphemeralsReply, names),
    st.builds(r.GetAllChildrenNumberReply, ints),
    st.builds(r.WhoAmIReply, st.lists(st.builds(r.ClientInfo, texts, texts), max_size=3).map(tuple)),
    st.builds(r.SaslReply, data),
    st.builds(r.ErrorReply, ints),
    st.builds(r.MultiReply, st.lists(results, max_size=4).map(tuple)),
)
read_only = st.none() | st.booleans()


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal and have the same types at all levels."""
    if type(left) is not type(right) or left != right:
        return False
    return not isinstance(left, tuple) or all(map(same, left, right))


@given(ints, requests)
def test_request_survives_a_round_trip(xid: int, request: r.Request) -> None:
    assert same(message_codec.decode_request(message_codec.encode_request(xid, request)), (xid, request))


@given(ints, longs, bodies)
def test_reply_survives_a_round_trip(xid: int, zxid: int, body: r.Body) -> None:
    frame = message_codec.encode_reply(xid, zxid, 0, body)
    assert same(message_codec.decode_reply(frame, type(body)), (xid, zxid, 0, body))


@given(longs, st.builds(r.WatcherEvent, ints, ints, texts))
def test_event_survives_a_round_trip(zxid: int, event: r.WatcherEvent) -> None:
    assert same(message_codec.decode_event(message_codec.encode_event(zxid, event)), (zxid, event))


@given(st.builds(r.ConnectRequest, ints, longs, ints, longs, data, read_only))
def test_connect_request_survives_a_round_trip(request: r.ConnectRequest) -> None:
    assert same(message_codec.decode_connect(message_codec.encode_connect(request)), request)


@given(st.builds(r.ConnectResponse, ints, ints, longs, data, read_only))
def test_connect_response_survives_a_round_trip(response: r.ConnectResponse) -> None:
    assert same(message_codec.decode_connect_response(message_codec.encode_connect_response(response)), response)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_or_refused(frame: bytes) -> None:
    try:
        _, request = message_codec.decode_request(frame)
    except WireError:
        assert len(frame) < 8
    else:
        assert type(request) in r.Request.__args__


@given(ints, requests, st.data())
def test_a_cut_request_is_malformed_or_short(xid: int, request: r.Request, chosen: st.DataObject) -> None:
    frame = message_codec.encode_request(xid, request)
    cut = frame[: chosen.draw(st.integers(8, len(frame)))]
    seen, decoded = message_codec.decode_request(cut)
    assert seen == xid
    assert cut == frame or type(decoded) is r.MalformedRequest


class TestBytes:
    """M-1, M-13, M-15: layouts that clients depend on, byte for byte."""

    def test_the_read_only_byte_is_sent_only_to_clients_that_sent_it(self) -> None:
        response = r.ConnectResponse(0, 4000, 7, bytes(16))
        assert len(message_codec.encode_connect_response(response)) == 36
        assert len(message_codec.encode_connect_response(response._replace(read_only=False))) == 37

    def test_a_null_string_reads_as_empty(self) -> None:
        frame = struct.pack(">iii", 1, OpCode.SYNC, -1)
        assert message_codec.decode_request(frame) == (1, r.SyncRequest(""))

    @pytest.mark.parametrize("op", [OpCode.EXISTS, OpCode.GET_DATA, OpCode.CHECK_WATCHES, OpCode.DELETE])
    def test_a_null_path_is_malformed(self, op: int) -> None:
        frame = struct.pack(">iiii", 1, op, -1, 0)
        assert message_codec.decode_request(frame) == (1, r.MalformedRequest(op))

    @pytest.mark.parametrize("count", [-1, -2, -(2**31)])
    def test_an_acl_without_entries(self, count: int) -> None:
        """It is decoded in every encoding; the server refuses it later, with a code of its own."""
        frame = message_codec.encode_request(1, r.SetAclRequest("/", ()))
        assert message_codec.decode_request(frame[:13] + struct.pack(">ii", count, -1)) == (1, r.SetAclRequest("/", ()))

    @pytest.mark.parametrize(
        ("scheme", "malformed"), [("world", True), ("digest", True), ("ip", True), ("auth", False)]
    )
    def test_an_acl_entry_without_id(self, scheme: str, malformed: bool) -> None:
        entry = message_codec.encode_request(1, r.SetAclRequest("/", (r.Acl(31, scheme, ""),)))
        frame = entry[:-8] + struct.pack(">ii", -1, -1)
        assert (type(message_codec.decode_request(frame)[1]) is r.MalformedRequest) == malformed

    def test_null_in_place_of_watched_paths_is_malformed(self) -> None:
        for nulls in ((-1, 0, 0), (1, -1, 0, 0)):
            frame = struct.pack(f">iiq{len(nulls)}i", 1, OpCode.SET_WATCHES, 0, *nulls)
            assert type(message_codec.decode_request(frame)[1]) is r.MalformedRequest

    def test_null_data_is_not_empty_data(self) -> None:
        null, empty = (message_codec.encode_request(1, r.SetDataRequest("/a", value)) for value in (None, b""))
        assert null[14:18] == b"\xff\xff\xff\xff"
        assert empty[14:18] == bytes(4)

    def test_a_stat_has_68_bytes(self) -> None:
        assert len(message_codec.encode_reply(1, 2, 0, r.StatReply(r.Stat(*range(11))))) == 16 + 68

    def test_a_reply_without_a_body_is_a_header(self) -> None:
        assert message_codec.encode_reply(5, 6, -101, None) == struct.pack(">iqi", 5, 6, -101)

    def test_a_reply_may_have_a_body_beside_an_error(self) -> None:
        """The reply to a refused token."""
        frame = struct.pack(">iqii", 5, 0, -115, -1)
        assert message_codec.encode_reply(5, 0, -115, r.SaslReply(None)) == frame
        assert message_codec.framed_reply(5, 0, -115, r.SaslReply(None)) == struct.pack(">i", 20) + frame

    def test_an_empty_multi_is_its_terminator(self) -> None:
        assert message_codec.encode_reply(1, 2, 0, r.MultiReply(()))[16:] == struct.pack(">i?i", -1, True, -1)

    def test_a_failed_multi_holds_an_error_for_each_operation(self) -> None:
        body = message_codec.encode_reply(1, 2, 0, r.MultiReply((r.ErrorReply(0), r.ErrorReply(-101))))[16:]
        assert body == struct.pack(">i?ii", -1, False, 0, 0) + struct.pack(
            ">i?ii", -1, False, -101, -101
        ) + struct.pack(">i?i", -1, True, -1)

    def test_a_path_that_is_not_utf8_becomes_one_that_no_node_has(self) -> None:
        frame = struct.pack(">iii2sB", 1, OpCode.EXISTS, 2, b"/\xff", 0)
        assert message_codec.decode_request(frame)[1] == r.ExistsRequest("/\ufffd", False)

    @pytest.mark.parametrize("count", [-2, 2**31 - 1, 1000])
    def test_a_list_longer_than_its_frame_is_malformed(self, count: int) -> None:
        frame = struct.pack(">iiqi", 1, OpCode.SET_WATCHES, 0, count)
        assert type(message_codec.decode_request(frame)[1]) is r.MalformedRequest

    @pytest.mark.parametrize("frame", [b"", b"1234567"])
    def test_frame_without_a_header_is_refused(self, frame: bytes) -> None:
        with pytest.raises(WireError):
            message_codec.decode_request(frame)

    @pytest.mark.parametrize("frame", [b"", b"ruok", bytes(27), bytes(24) + b"\0\0\0\x10abc"])
    def test_malformed_handshake_is_refused(self, frame: bytes) -> None:
        with pytest.raises(WireError):
            message_codec.decode_connect(frame)


class TestFrames:
    @given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.lists(st.integers(0, 200), max_size=8))
    def test_frames_are_found_however_the_stream_is_cut(self, frames: list[bytes], cuts: list[int]) -> None:
        stream = b"".join(map(framed, frames))
        edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        splitter = FrameSplitter()
        seen = [frame for start, end in pairwise(edges) for frame in splitter.feed(stream[start:end])]
        assert seen == frames
        assert splitter.pending == 0

    @pytest.mark.parametrize("length", [0, -1, 101, 2**31 - 1])
    def test_a_length_out_of_bounds_is_refused(self, length: int) -> None:
        with pytest.raises(WireError, match="allowed are 1 to 100"):
            FrameSplitter(limit=100).feed(struct.pack(">i", length))

    def test_a_frame_of_the_maximum_length_is_accepted(self) -> None:
        assert FrameSplitter(limit=100).feed(framed(bytes(100))) == [bytes(100)]
