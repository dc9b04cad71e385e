"""Paths of znodes: ``<namespace>/<kind>/<name>``, where the name can be any str.

ZooKeeper rejects control characters, surrogates, the private use area U+E000 to U+F8FF, and
U+FFF0 to U+FFFF. Its Java strings have two surrogates for a character beyond U+FFFF. kazoo drops
empty parts and rejects ``.`` and ``..``. Names are therefore percent-encoded:

* These characters, ``/`` and ``%`` are encoded as percent and two hex digits for each UTF-8 byte.
* In the names ``.``, ``..`` and ``zookeeper`` (reserved) the first character is encoded.
* The empty name is a single ``%``.

Different names have different paths, and `decode_name` inverts `encode_name`.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Maximum size in bytes of an encoded name. ZooKeeper has no limit of its own, but paths and lists
#: of children must fit its 1 MiB replies.
MAX_NAME_BYTES = 1000
MAX_PATH_BYTES = 4000
REFUSED = "\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
TO_ENCODE = re.compile(f"[%/{REFUSED}]")
NOT_IN_PATH = re.compile(f"[{REFUSED}]")
ENCODED = re.compile("(?:%[0-9A-F]{2})+")
RESERVED = (".", "..", "zookeeper")
EMPTY = "%"
#: Folders of the namespace that contain the objects of a kind, with the names of the znodes which such an object may
#: have right below its own. None means any name. Names that end in a sequence number are allowed in all of them.
_QUEUE = frozenset(("state", "puts", "hundreds", "gets", "dones", "items", "getters"))
_CLAIMS = frozenset((*_QUEUE, "claims", "delayed", "keys", "clock", "dead"))
PARTS: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(("lock", "sharedlock", "event", "gate", "group", "counter", "value", "rate", "ids"), frozenset()),
    **dict.fromkeys(("queue", "lifo_queue", "priority_queue", "simple_queue"), _QUEUE),
    "semaphore": frozenset(("extra", "permits", "takers", "leases", "locks")),
    "condition": frozenset(("lock", "waiters")),
    "barrier": frozenset(("arrivals",)),
    "double_barrier": frozenset(("ready",)),
    "latch": frozenset(("closed",)),
    "config": frozenset(),
    "election": frozenset(("LEADER", "condition")),
    "partitioner": frozenset(("members", "claims")),
    "transaction": frozenset(("sites",)),
    "joinable_queue": _CLAIMS,
    "pool": frozenset((*_CLAIMS, "callers")),
    "shared": frozenset(("lock", "data")),
    "registry": None,
    "manager": None,
}
GENERATED_PART = re.compile(r"t_|ended-\d{1,9}\Z|.*\d{10}\Z", re.DOTALL)
CREATED_BY = re.compile("/process/([0-9a-f]{16}-[0-9]+-[0-9]+)/objects/")


def object_path(namespace: str, kind: str, name: str) -> str:
    """Return the path of the object called ``name``. Raise ValueError if the name is too long."""
    return f"{namespace}/{kind}/{encode_name(name)}"


def module_path(namespace: str, module: str) -> str:
    """Return the path of what belongs to a module, or to a script."""
    return object_path(namespace, "module", module)


def bound_object_path(namespace: str, module: str, kind: str, name: str) -> str:
    """Return the path of an object that is bound to its name in a module, or in a script."""
    return object_path(f"{module_path(namespace, module)}/objects", kind, name)


def users_path(namespace: str, path: str) -> str:
    """Return the path of the folder of the users of an object; it is beside an object outside of the namespace."""
    inside = path.startswith(f"{namespace}/")
    return f"{namespace}/users{path[len(namespace) :]}" if inside else f"{path}.users"


def process_objects_path(namespace: str, process: str) -> str:
    """Return the path of the objects without a name that a process has created."""
    return f"{namespace}/process/{process}/objects"


def creator_in(path: str) -> str | None:
    """Return the process that created the object without a name to which a path belongs; None if there is none."""
    found = CREATED_BY.search(path) if "/process/" in path else None
    return None if found is None else found[1]


def folder_label(namespace: str, path: str) -> str | None:
    """Return what kind of folder of the namespace a path is; None if it may be the path of an object."""
    if f"{namespace}/".startswith(f"{path}/"):
        return "the namespace" if path == namespace else f"a part of the namespace {namespace}"
    if not path.startswith(f"{namespace}/"):
        return None
    top, *below = path[len(namespace) + 1 :].split("/")
    if top in ("module", "process"):  # their objects are at <top>/<module or process>/objects/<kind>/<name>
        is_folder = len(below) < 4
    else:
        is_folder = top in ("users", "receipts") or (top in PARTS and not below)
    return f"a folder of the namespace {namespace or '/'}" if is_folder else None


def is_part(kind: str, name: str) -> bool:
    """Return whether an object of this kind may have a znode of this name right below its own."""
    parts = PARTS.get(kind)
    return parts is None or name in parts or GENERATED_PART.match(name) is not None


@lru_cache(maxsize=1024)
def encode_name(name: str) -> str:
    """Return ``name`` as one component of a path."""
    encoded = TO_ENCODE.sub(lambda match: _percent(match[0]), name) or EMPTY
    if encoded in RESERVED:
        encoded = _percent(encoded[0]) + encoded[1:]
    size = len(encoded.encode())
    if size > MAX_NAME_BYTES:
        raise ValueError(f"the name {name[:40]!r}... takes {size} bytes in a path, the limit is {MAX_NAME_BYTES} bytes")
    return encoded


def decode_name(part: str) -> str:
    """Return the name that is encoded as ``part``. Raise ValueError if there is none."""
    if part == EMPTY:
        return ""
    name = ENCODED.sub(lambda match: _plain(match[0]), part)
    if encode_name(name) != part:
        raise ValueError(f"{part!r} is not the encoded name of an object")
    return name


def check_namespace(namespace: str) -> str:
    """Return the namespace as a path prefix, "" for ``/``. Raise ValueError if it is invalid."""
    return "" if namespace == "/" else check_path(namespace, "a namespace")


def check_path(path: str, label: str = "a path") -> str:
    """Return ``path`` if it is valid for ZooKeeper and kazoo. Raise TypeError or ValueError."""
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
        return f"ZooKeeper does not allow the character U+{ord(refused[0]):04X}"
    return None if len(path.encode()) <= MAX_PATH_BYTES else f"it is longer than {MAX_PATH_BYTES} bytes"


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _plain(encoded: str) -> str:
    return bytes.fromhex(encoded.replace("%", "")).decode("utf-8", "surrogatepass")
