"""What znodes tell of people, members, addresses and settings: JSON, so that every client of ZooKeeper can read it.

Rules for this file: the standard library and errors only. What is read was written by anybody.
"""

from __future__ import annotations

import json
from typing import Any

from distsync._client.payload_codec import LIMIT_BYTES
from distsync.errors import CorruptNodeError, PayloadPickleError, PayloadTooLargeError


def encode(value: Any, label: str) -> bytes:
    """``value`` as JSON. Raises PayloadPickleError, PayloadTooLargeError."""
    try:
        data = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadPickleError(label, "json", f"{type(error).__name__}: {error}") from error
    if len(data) > LIMIT_BYTES:
        raise PayloadTooLargeError(label, len(data), LIMIT_BYTES)
    return data


def decode(data: bytes, path: str) -> Any:
    """What ``path`` says. Raises CorruptNodeError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptNodeError(path, data[:200]) from None


def fields(data: bytes) -> dict[str, Any]:
    """The fields that ``data`` says; none if it makes no sense."""
    try:
        record = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def with_data(description: bytes, value: Any, label: str) -> bytes:
    """Who somebody is (contender_info.describe), and ``value`` as his ``data``."""
    return encode({**fields(description), "data": value}, label)
