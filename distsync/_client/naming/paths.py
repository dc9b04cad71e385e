"""Paths of znodes: ``<namespace>/<kind>/<name>``, any str as a name.

Rules for this file: pure, the standard library only.

ZooKeeper refuses controls, surrogates, the private area U+E000 to U+F8FF and U+FFF0 to U+FFFF; its Java sees a
character beyond U+FFFF as two surrogates. kazoo drops empty parts and refuses ``.`` and ``..``. So of a name those
characters, ``/`` and ``%`` are written as percent and two hex digits for each byte of their UTF-8; the names ``.``,
``..`` and ``zookeeper`` (reserved) have their first character written so, and the empty name is a lone ``%``.
Different names have different paths, and `decode_name` finds the name again.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_NAME_BYTES = (
    1000  # encoded; ZooKeeper has no limit of its own, but paths and child lists must fit its 1 MiB replies
)
MAX_PATH_BYTES = 4000
REFUSED = "\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
TO_ENCODE = re.compile(f"[%/{REFUSED}]")
NOT_IN_PATH = re.compile(f"[{REFUSED}]")
ENCODED = re.compile("(?:%[0-9A-F]{2})+")
RESERVED = (".", "..", "zookeeper")
EMPTY = "%"


def object_path(namespace: str, kind: str, name: str) -> str:
    """The znode of the object called ``name``. Raises ValueError for a name that is too long."""
    return f"{namespace}/{kind}/{encode_name(name)}"


@lru_cache(maxsize=1024)
def encode_name(name: str) -> str:
    """``name`` as one part of a path."""
    encoded = TO_ENCODE.sub(lambda match: _percent(match[0]), name) or EMPTY
    if encoded in RESERVED:
        encoded = _percent(encoded[0]) + encoded[1:]
    size = len(encoded.encode())
    if size > MAX_NAME_BYTES:
        raise ValueError(f"the name {name[:40]!r}... takes {size} bytes in a path, the limit is {MAX_NAME_BYTES} bytes")
    return encoded


def decode_name(part: str) -> str:
    """The name whose path ends in ``part``. Raises ValueError where no name does."""
    if part == EMPTY:
        return ""
    name = ENCODED.sub(lambda match: _plain(match[0]), part)
    if encode_name(name) != part:
        raise ValueError(f"{part!r} is not the encoded name of an object")
    return name


def check_namespace(namespace: str) -> str:
    """The namespace as paths begin with it: ``/`` alone means no prefix. Raises ValueError where it is no path."""
    return "" if namespace == "/" else check_path(namespace, "a namespace")


def check_path(path: str, label: str = "a path") -> str:
    """``path``, which ZooKeeper and kazoo take as it is. Raises TypeError, ValueError where they do not."""
    if not isinstance(path, str):
        raise TypeError(f"{label} must be a str, not {type(path).__name__}")
    wrong = _wrong_with(path)
    if wrong:
        raise ValueError(f"{path[:200]!r} cannot be {label}: {wrong}")
    return path


def _wrong_with(path: str) -> str | None:
    first, *parts = path.split("/")
    if first or not parts:
        return 'it must begin with "/"'
    if "" in parts:
        return 'it has an empty part: no "//", no "/" at the end'
    if "." in parts or ".." in parts:
        return 'it must be absolute, without "." and ".."'
    if parts[0] == "zookeeper":
        return "/zookeeper belongs to ZooKeeper itself"
    refused = NOT_IN_PATH.search(path)
    if refused:
        return f"ZooKeeper refuses the character U+{ord(refused[0]):04X}"
    return None if len(path.encode()) <= MAX_PATH_BYTES else f"it is longer than {MAX_PATH_BYTES} bytes"


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _plain(encoded: str) -> str:
    return bytes.fromhex(encoded.replace("%", "")).decode("utf-8", "surrogatepass")
