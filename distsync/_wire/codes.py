"""Numbers of the ZooKeeper protocol: operations, errors, events, permissions, reserved xids."""

from __future__ import annotations

import enum


class OpCode(enum.IntEnum):
    """Number of a request's operation."""

    __module__ = "distsync.testing"

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
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(enum.IntEnum):
    """The ``err`` of a reply. Some occur only in clients or ensembles."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class EventType(enum.IntEnum):
    """The ``type`` of a watch event."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class WatcherType(enum.IntEnum):
    """The ``type`` of checkWatches and removeWatches."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class WatchMode(enum.IntEnum):
    """The ``mode`` of addWatch."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class Permission(enum.IntFlag):
    """The bits of ``Acl.permissions``."""

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
"""The ``state`` of all events that a server sends."""
