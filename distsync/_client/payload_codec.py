"""Payloads: the items of queues, as bytes.

Invariant: nothing is decoded before its signature is checked.

::

    unsigned:  p | payload              p pickle, c cloudpickle, j JSON, o custom codec
    signed:    P | HMAC (32) | payload  P, C, J, O; HMAC-SHA256 over header, length of context, context, payload

The context is the path of the queue, so that an item that is copied into another queue is refused.

Writer and reader must have the same settings. A reader without a key refuses signed items, and a
reader with a key refuses unsigned ones, so that a missing key is noticed at once. A reader of JSON
refuses pickle, and the other way round. A reader of pickle reads cloudpickle, and the other way round.

To change a key: first all clients accept the new key; then all sign with it, and accept the old
one; then none accepts the old one any more.
"""

from __future__ import annotations

import hmac
import json
import pickle
from collections.abc import Sequence
from typing import Any, Protocol

from distsync._import_gate import importing
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ConfigurationError, PayloadPickleError, PayloadRefusedError, PayloadTooLargeError

LIMIT_BYTES = 1_000_000  # of a request; jute.maxbuffer, ZooKeeper's own limit, is 1,048,575 by default
ENVELOPE_BYTES = 256  # of a request without the item and its path (twice in a transaction): ids, ACL, name
PICKLE_PROTOCOL = 5  # all supported versions of Python can read it
DIGEST = "sha256"
MAC_BYTES = 32
ALLOWED = '"pickle", "cloudpickle", "json", or an object with encode(item) -> bytes and decode(bytes) -> item'


class ItemCodec(Protocol):
    """A custom codec."""

    def encode(self, item: Any, /) -> bytes: ...

    def decode(self, data: bytes, /) -> Any: ...


class _Pickle:
    def encode(self, item: Any) -> bytes:
        return pickle.dumps(item, PICKLE_PROTOCOL)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class _CloudPickle(_Pickle):
    """Pickles lambdas, closures, and what is defined in ``__main__`` by value. Any process can read them."""

    def encode(self, item: Any) -> bytes:
        with importing():
            import cloudpickle  # deferred: few programs use it
        data: bytes = cloudpickle.dumps(item, PICKLE_PROTOCOL)
        return data


class _Json:
    """The json module's conversion: tuples become lists, keys become str."""

    def encode(self, item: Any) -> bytes:
        return json.dumps(item, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


KNOWN: dict[str, tuple[bytes, ItemCodec]] = {
    "pickle": (b"p", _Pickle()),
    "cloudpickle": (b"c", _CloudPickle()),
    "json": (b"j", _Json()),
}
OWN = b"o"
READS = {b"p": b"pc", b"c": b"pc"}
"""What readers of pickles can read. All others read what they write."""
HEADERS = {b"p": "pickle", b"c": "cloudpickle", b"j": "json", OWN: "a custom codec"}


def check_codec(codec: object, setting: str = "codec") -> str | ItemCodec:
    """Return ``codec`` if it is a valid codec; raise ConfigurationError otherwise."""
    if codec == "cloudpickle":
        try:
            with importing():
                import cloudpickle  # noqa: F401
        except ImportError:
            reason = "it is not installed: pip install distsync[cloudpickle]"
            raise ConfigurationError(setting, codec, reason) from None
    if isinstance(codec, str) and codec in KNOWN:
        return codec
    if isinstance(codec, (str, type)) or not all(callable(getattr(codec, name, None)) for name in ("encode", "decode")):
        raise ConfigurationError(setting, codec, f"it must be {ALLOWED}")
    return codec  # type: ignore[return-value]  # checked just now


class Codec:
    """Encoder and decoder of payloads. Signs with ``authkey``, and accepts ``accepted`` as well."""

    def __init__(
        self,
        codec: str | ItemCodec = "pickle",
        authkey: bytes | None = None,
        limit_bytes: int = LIMIT_BYTES,
        accepted: Sequence[bytes] = (),
    ) -> None:
        checked = check_codec(codec)
        if isinstance(checked, str):
            self.name, (self._header, self.items) = checked, KNOWN[checked]
        else:
            self.name, self._header, self.items = type(checked).__name__, OWN, checked
        self._authkey = authkey
        self._accepted = () if authkey is None else (authkey, *accepted)
        self.limit_bytes = limit_bytes

    def __repr__(self) -> str:
        return f"<Codec {self.name}, {'signed' if self.signed else 'unsigned'}, limit={self.limit_bytes} bytes>"

    @property
    def signed(self) -> bool:
        return self._authkey is not None

    @property
    def envelope_bytes(self) -> int:
        """Number of bytes before the item in what `encode` returns."""
        return len(self._header) + (MAC_BYTES if self.signed else 0)

    def encode(self, item: Any, context: str) -> bytes:
        """Return ``item`` as bytes, for the queue at path ``context``.

        Raise PayloadPickleError or PayloadTooLargeError.
        """
        payload = self._payload(item)
        header = self._header.upper() if self.signed else self._header
        mac = _mac(self._authkey, header, context, payload) if self._authkey is not None else b""
        self._check_size(len(header) + len(mac) + len(payload), context)
        return header + mac + payload

    def decode(self, data: bytes, context: str) -> Any:
        """Return the item in ``data``, from the queue at path ``context``.

        Raise PayloadRefusedError if it is unsigned, altered, for another queue, or unreadable.
        """
        header, payload = data[:1], data[1:]
        if header.lower() not in HEADERS:
            raise PayloadRefusedError(context, f"it was not written by distsync, it begins with {data[:8]!r}")
        if header.isupper():
            payload = self._verified(header, payload, context)
        elif self.signed:
            raise PayloadRefusedError(context, "it is unsigned: its writer needs the same DISTSYNC_AUTHKEY")
        if header.lower() not in READS.get(self._header, self._header):
            writer = HEADERS[header.lower()]
            raise PayloadRefusedError(context, f"its writer used {writer}, this reader {self.name}: set DISTSYNC_CODEC")
        return self._item(payload, context)

    @property
    def has_parts(self) -> bool:
        """Whether an item can contain the results of `encode_part`."""
        return self.name in ("pickle", "cloudpickle")

    def encode_part(self, part: Any) -> bytes:
        """Return a part of an item as bytes, which are neither signed nor limited. Raises PayloadPickleError."""
        return self._payload(part)

    def decode_part(self, data: bytes, context: str) -> Any:
        """Return the part of an item in ``data``. Raises PayloadRefusedError."""
        return self._item(data, context)

    def _payload(self, item: Any) -> bytes:
        try:
            payload = self.items.encode(item)
        except Exception as error:  # the user's item may raise anything
            raise_if_from_handler(error)
            raise PayloadPickleError(_described(item), self.name, reason_of(error)) from error
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise PayloadPickleError(_described(item), self.name, f"encode() returned {type(payload).__name__}")
        return bytes(payload)

    def _item(self, payload: bytes, context: str) -> Any:
        try:
            return self.items.decode(payload)
        except Exception as error:  # pickle.loads may raise anything
            raise_if_from_handler(error)
            raise PayloadRefusedError(context, f"{self.name} cannot decode it, {reason_of(error)}") from error

    def _verified(self, header: bytes, data: bytes, context: str) -> bytes:
        if not self.signed:
            raise PayloadRefusedError(context, "it is signed, but this reader has no key: set DISTSYNC_AUTHKEY")
        mac, payload = data[:MAC_BYTES], data[MAC_BYTES:]
        if not any(hmac.compare_digest(mac, _mac(key, header, context, payload)) for key in self._accepted):
            reason = "its signature is wrong: altered, put into another queue, or signed with another DISTSYNC_AUTHKEY"
            raise PayloadRefusedError(context, reason)
        return payload

    def _check_size(self, size: int, context: str) -> None:
        request = size + 2 * len(context.encode("utf-8", "surrogatepass")) + ENVELOPE_BYTES
        if request > self.limit_bytes:
            raise PayloadTooLargeError(f"the request with this item for {context}", request, self.limit_bytes)


def _mac(key: bytes, header: bytes, context: str, payload: bytes) -> bytes:
    encoded_context = context.encode("utf-8", "surrogatepass")
    signed = hmac.new(key, header + len(encoded_context).to_bytes(4, "big") + encoded_context, DIGEST)
    signed.update(payload)
    return signed.digest()


def _described(item: object) -> str:
    """Return the item's type; its repr may be long, secret or fail."""
    return f"an item of type {type(item).__name__}"


def reason_of(error: BaseException) -> str:
    """Return the type and the text of an error; the type alone if its text cannot be had, because it raises."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as second:
        raise_if_from_handler(second)
        return name
