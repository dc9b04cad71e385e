"""Which paths a znode may have.

Rules for this file: strings only.
"""

from __future__ import annotations

import re

from distsync._server.handlers import RequestRefused
from distsync._wire.codes import ErrorCode

SPECIAL = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Always there: cannot be deleted."""

_FORBIDDEN = r"\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
"""ZooKeeper checks UTF-16 units, so what lies beyond U+FFFF counts as surrogates."""

_VALID = re.compile(rf"/|(?:/(?!\.\.?(?:/|\Z))[^/{_FORBIDDEN}]+)+").fullmatch


def check_path(path: str) -> None:
    """The path is absolute, has no empty, ``.`` or ``..`` part, and no character that ZooKeeper forbids."""
    if _VALID(path) is None:
        raise RequestRefused(ErrorCode.BAD_ARGUMENTS)


def check_child(path: str) -> None:
    """As check_path, where the parent exists: only the last part can be wrong, or what stands before it be no parent's
    path, as in ``//a``."""
    cut = path.rfind("/") + 1
    name = path[cut:]
    if not (name.isascii() and name.isprintable() and name and name[0] != "." and cut != 2):
        check_path(path)


def parent_of(path: str) -> str:
    """The parent's path of an absolute path; "/" is its own parent."""
    return path[: path.rfind("/")] or "/"


def parent_of_new(path: str) -> str:
    """The parent's path as far as a create or delete looks at it before anything else."""
    cut = path.rfind("/")
    if cut < 0 or "\0" in path:
        raise RequestRefused(ErrorCode.BAD_ARGUMENTS)
    return path[:cut] or "/"
