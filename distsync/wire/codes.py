"""The numbers of the ZooKeeper protocol: operations, errors, events, permissions, reserved xids.

Rules for this file: numbers only.
"""

from __future__ import annotations

import enum


class OpCode(enum.IntEnum):
    """The number of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CREATE_CONTAINER = 19
    AUTH = 100
    SET_WATCHES = 101
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(enum.IntEnum):
    """The ``err`` of a reply."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115


class EventType(enum.IntEnum):
    """What a watch tells."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class Permission(enum.IntFlag):
    """One bit each in ``Acl.permissions``."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class CreateFlag(enum.IntEnum):
    """The ``flags`` of a create."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENCE = 2
    EPHEMERAL_SEQUENCE = 3
    CONTAINER = 4
    TTL = 5
    SEQUENCE_TTL = 6


EVENT_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8
SYNC_CONNECTED = 3
"""The only ``state`` that a server puts into an event."""
