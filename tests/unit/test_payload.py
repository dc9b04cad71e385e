"""Payloads of queues: encoded, limited, signed, and refused when necessary."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from typing import Any

import pytest
from helpers.remote_functions import pool as remote_pool
from hypothesis import given
from hypothesis import strategies as st

from distsync._client.payload_codec import ENVELOPE_BYTES, Codec
from distsync.errors import ConfigurationError, PayloadPickleError, PayloadRefusedError, PayloadTooLargeError

QUEUE, OTHER = "/distsync/queue/jobs", "/distsync/queue/jobs2"
KEY = b"a secret that both sides know"
ITEMS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)
JSON_ITEMS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
BOMB = "DISTSYNC_TEST_BOMB"


class Bomb:
    """An item that shows when it is decoded."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; os.environ['{BOMB}'] = 'went off'",)


class Utf8:
    def encode(self, item: str) -> bytes:
        return item.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


@given(ITEMS, st.none() | st.binary(min_size=1))
def test_pickled_item_is_decoded_unchanged(item: object, key: bytes | None) -> None:
    codec = Codec("pickle", key)
    assert codec.decode(codec.encode(item, QUEUE), QUEUE) == item


@given(JSON_ITEMS, st.none() | st.binary(min_size=1))
def test_json_item_is_decoded_unchanged(item: object, key: bytes | None) -> None:
    codec = Codec("json", key)
    assert codec.decode(codec.encode(item, QUEUE), QUEUE) == item


def test_custom_codec_is_used() -> None:
    codec = Codec(Utf8(), KEY)
    assert codec.encode("grüße", QUEUE).endswith("grüße".encode())
    assert codec.decode(codec.encode("grüße", QUEUE), QUEUE) == "grüße"


@pytest.mark.parametrize("codec", ["Pickle", "", "yaml", None, 3, Utf8, object()])
def test_object_that_is_no_codec_is_a_configuration_error(codec: Any) -> None:
    with pytest.raises(ConfigurationError, match='"pickle", "cloudpickle", "json"'):
        Codec(codec)


@pytest.mark.parametrize(
    ("codec", "item"),
    [
        ("pickle", threading.Lock()),
        ("pickle", lambda: None),
        ("json", {1, 2}),
        ("json", b"bytes"),
        ("json", {(1, 2): 3}),
        (Utf8(), 3),
        (Utf8(), "\ud800"),
    ],
)
def test_item_that_cannot_be_encoded_raises_an_error_with_type_codec_and_reason(codec: Any, item: object) -> None:
    with pytest.raises(PayloadPickleError) as caught:
        Codec(codec).encode(item, QUEUE)
    assert type(item).__name__ in str(caught.value)
    assert (codec if isinstance(codec, str) else "Utf8") in str(caught.value)
    assert type(caught.value.__cause__).__name__ in str(caught.value)


def test_error_without_a_text_is_an_error_of_encoding_or_decoding() -> None:
    codec = Codec("pickle")
    with pytest.raises(PayloadPickleError, match="TextlessError"):
        codec.encode(remote_pool.Textless(), QUEUE)
    with pytest.raises(PayloadRefusedError, match="TextlessError"):
        codec.decode(codec.encode(remote_pool.Textless(pickles=True), QUEUE), QUEUE)


def test_an_item_nested_too_deep_is_an_error_of_encoding() -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    for codec in ("pickle", "json"):
        with pytest.raises(PayloadPickleError, match="RecursionError"):
            Codec(codec).encode(deep, QUEUE)
    while deep:
        deep = deep.pop()


def test_a_codec_that_gives_no_bytes_is_an_error_of_encoding() -> None:
    class Wrong(Utf8):
        def encode(self, item: Any) -> Any:
            return item

    with pytest.raises(PayloadPickleError, match=r"encode\(\) returned str"):
        Codec(Wrong()).encode("x", QUEUE)


@pytest.mark.parametrize("key", [None, KEY])
def test_an_item_up_to_the_limit_is_encoded_and_a_larger_one_refused_with_both_sizes(key: bytes | None) -> None:
    room = 1000 - 2 * len(QUEUE) - ENVELOPE_BYTES - (33 if key else 1)
    codec = Codec(Utf8(), key, limit_bytes=1000)
    assert codec.encode("a" * room, QUEUE)
    with pytest.raises(PayloadTooLargeError, match="is 1001 bytes, which exceeds the limit of 1000 bytes") as caught:
        codec.encode("a" * (room + 1), QUEUE)
    assert caught.value.args[1:] == (1001, 1000)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_limit_is_a_million_bytes_by_default() -> None:
    assert Codec().encode(b"a" * 990_000, QUEUE)
    with pytest.raises(PayloadTooLargeError, match="limit of 1000000 bytes"):
        Codec().encode(b"a" * 1_000_000, QUEUE)


@pytest.mark.parametrize(("writer", "reader"), [("pickle", "json"), ("json", "pickle"), ("pickle", Utf8())])
@pytest.mark.parametrize("key", [None, KEY])
def test_an_item_of_another_codec_is_refused_and_not_decoded(writer: Any, reader: Any, key: bytes | None) -> None:
    item = Bomb() if writer == "pickle" else 3
    with pytest.raises(PayloadRefusedError, match=f"used {writer}.*DISTSYNC_CODEC"):
        Codec(reader, key).decode(Codec(writer, key).encode(item, QUEUE), QUEUE)
    assert BOMB not in os.environ


def test_reader_with_a_key_refuses_unsigned_items_undecoded() -> None:
    with pytest.raises(PayloadRefusedError, match=r"unsigned.*DISTSYNC_AUTHKEY"):
        Codec("pickle", KEY).decode(Codec("pickle").encode(Bomb(), QUEUE), QUEUE)
    assert BOMB not in os.environ


def test_reader_without_a_key_refuses_signed_items_undecoded() -> None:
    with pytest.raises(PayloadRefusedError, match=r"signed.*no key.*DISTSYNC_AUTHKEY"):
        Codec("pickle").decode(Codec("pickle", KEY).encode(Bomb(), QUEUE), QUEUE)
    assert BOMB not in os.environ


def test_an_item_signed_with_another_key_or_for_another_queue_is_refused_and_not_decoded() -> None:
    data = Codec("pickle", KEY).encode(Bomb(), QUEUE)
    for key, queue in ((b"another", QUEUE), (KEY, OTHER), (KEY, "")):
        with pytest.raises(PayloadRefusedError, match="signature is wrong"):
            Codec("pickle", key).decode(data, queue)
    assert BOMB not in os.environ


def test_boundary_between_queue_and_item_is_signed() -> None:
    data = Codec(Utf8(), KEY).encode("2 and more", QUEUE)
    moved = data[:33] + data[34:]
    with pytest.raises(PayloadRefusedError, match="signature is wrong"):
        Codec(Utf8(), KEY).decode(moved, QUEUE + "2")


@given(st.data())
def test_a_signed_item_with_any_bit_changed_is_refused_and_not_decoded(draws: st.DataObject) -> None:
    codec = Codec("pickle", KEY)
    data = bytearray(codec.encode(Bomb(), QUEUE))
    data[draws.draw(st.integers(0, len(data) - 1))] ^= 1 << draws.draw(st.integers(0, 7))
    with pytest.raises(PayloadRefusedError):
        codec.decode(bytes(data), QUEUE)
    assert BOMB not in os.environ


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for codec in (Codec("json"), Codec("json", KEY), Codec(Utf8()), Codec("pickle", KEY)):
        for header in (b"", b"j", b"J", b"o"):
            with contextlib.suppress(PayloadRefusedError):
                codec.decode(header + data, QUEUE)


@pytest.mark.parametrize("data", [b"", b"p", b"P", b"j", b"pgarbage", b"pcno_such_module\nthing\n."])
def test_an_item_that_cannot_be_read_is_refused(data: bytes) -> None:
    for codec in (Codec("pickle"), Codec("json")):
        with pytest.raises(PayloadRefusedError, match=QUEUE):
            codec.decode(data, QUEUE)


def test_the_key_is_not_shown() -> None:
    assert repr(KEY)[2:-1] not in repr(Codec("pickle", KEY))
    assert repr(Codec("json", KEY)) == "<Codec json, signed, limit=1000000 bytes>"


def test_random_bytes_as_item_and_key_arrive() -> None:
    codec, item = Codec("pickle", os.urandom(64)), os.urandom(100_000)
    assert codec.decode(codec.encode(item, QUEUE), QUEUE) == item


# ---- another key


def test_key_can_be_rotated_in_three_steps_without_a_refused_item() -> None:
    old, new = b"old", b"new"
    steps = [
        (Codec("pickle", old), Codec("pickle", old, accepted=[new])),
        (Codec("pickle", old, accepted=[new]), Codec("pickle", new, accepted=[old])),
        (Codec("pickle", new, accepted=[old]), Codec("pickle", new)),
    ]
    for before, after in steps:
        assert after.decode(before.encode("item", QUEUE), QUEUE) == "item"
        assert before.decode(after.encode("item", QUEUE), QUEUE) == "item"


def test_key_that_is_no_longer_accepted_verifies_nothing() -> None:
    with pytest.raises(PayloadRefusedError):
        Codec("pickle", b"new").decode(Codec("pickle", b"old").encode(Bomb(), QUEUE), QUEUE)
    assert BOMB not in os.environ


def test_accepted_keys_without_a_signing_key_are_not_used() -> None:
    codec = Codec("pickle", None, accepted=[KEY])
    assert not codec.signed
    with pytest.raises(PayloadRefusedError):
        codec.decode(Codec("pickle", KEY).encode("item", QUEUE), QUEUE)
