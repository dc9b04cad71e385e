"""JSON in znodes (members, addresses, settings), so that any ZooKeeper client can read it.

Any client may have written what is read, so it is not trusted.
"""

from __future__ import annotations

import json
from typing import Any

from distsync._client.payload_codec import LIMIT_BYTES
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError, PayloadPickleError, PayloadTooLargeError


def encode(value: Any, label: str) -> bytes:
    """Return ``value`` as JSON. Raise PayloadPickleError or PayloadTooLargeError."""
    try:
        data = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise_if_from_handler(error)
        raise PayloadPickleError(label, "json", f"{type(error).__name__}: {error}") from error
    if len(data) > LIMIT_BYTES:
        raise PayloadTooLargeError(label, len(data), LIMIT_BYTES)
    return data


def decode(data: bytes, path: str) -> Any:
    """Return the value in the znode ``path``. Raise CorruptNodeError if it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, data[:200]) from None


def fields(data: bytes | None) -> dict[str, Any]:
    """Return the fields of a JSON object, or none if ``data`` is not one."""
    try:
        record = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise_if_from_handler(error)
        return {}
    return record if isinstance(record, dict) else {}


def with_data(description: bytes, value: Any, label: str) -> bytes:
    """Return a contender's description (contender_info.describe) with ``value`` as its ``data``."""
    return encode({**fields(description), "data": value}, label)
