"""Validation of znode paths."""

from __future__ import annotations

import re

from distsync._server.handlers import RequestRefused
from distsync._wire.codes import ErrorCode

SPECIAL = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Nodes that always exist and cannot be deleted."""

_FORBIDDEN = r"\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
"""ZooKeeper checks UTF-16 units, so characters beyond U+FFFF count as surrogates."""

_VALID = re.compile(rf"/|(?:/(?!\.\.?(?:/|\Z))[^/{_FORBIDDEN}]+)+").fullmatch


def check_path(path: str) -> None:
    """Check that the path is absolute, without empty, ``.`` or ``..`` parts or forbidden characters."""
    if _VALID(path) is None:
        raise RequestRefused(ErrorCode.BAD_ARGUMENTS)


def check_child(path: str) -> None:
    """Check the path of a child whose parent exists, faster than `check_path`.

    Only its last part can be invalid, except in ``//a``, where "/" is taken for the parent.
    """
    cut = path.rfind("/") + 1
    name = path[cut:]
    if not (name.isascii() and name.isprintable() and name and name[0] != "." and cut != 2):
        check_path(path)


def parent_of(path: str) -> str:
    """Return the parent of an absolute path. "/" is its own parent."""
    return path[: path.rfind("/")] or "/"


def parent_of_new(path: str) -> str:
    """Return the parent path with the checks that a create or delete makes first."""
    cut = path.rfind("/")
    if cut < 0 or "\0" in path:
        raise RequestRefused(ErrorCode.BAD_ARGUMENTS)
    return path[:cut] or "/"
