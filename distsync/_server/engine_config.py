"""What an engine can be told when it is made.

Rules for this file: plain values only, no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ROOT_ZXID = 0


@dataclass(frozen=True)
class EngineConfig:
    """``Units``: milliseconds, bytes."""

    tick_time_ms: int = 500
    """A silence of the engine longer than it is forgiven (ZooKeeper: 2000)."""

    expiry_ms: int = 100
    """Sessions expire at multiples of it, so that nobody waits longer for what a dead one held (ZooKeeper: a tick)."""

    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 60_000
    """What a client asks for is brought into this range (ZooKeeper: 2 to 20 ticks)."""

    jute_maxbuffer: int = 0xFFFFF
    """The longest frame that is read from a client (ZooKeeper: the same)."""

    secret: bytes = field(default=b"distsync", repr=False)
    """Session passwords are made of it: sessions outlive a restart only if it stays the same."""

    super_digest: str | None = field(default=None, repr=False)
    """``user:base64(sha1(user:password))`` of the identity that no ACL binds."""

    required_digest: str | None = field(default=None, repr=False)
    """When set, every request but auth, ping and close is refused (NO_AUTH) until this digest identity is shown."""

    schemes: frozenset[str] = frozenset()
    """Of x509 and sasl, those by which a connection can say who it is, and an ACL whom it means."""

    required_schemes: frozenset[str] = frozenset()
    """When set, a connection without an identity of one of them is closed at its first request that is not one to
    prove who it is (SESSION_CLOSED_REQUIRE_SASL_AUTH; ZooKeeper: enforce.auth.schemes)."""

    container_interval_ms: int = 60_000
    """How often empty containers and nodes that have outlived their time are looked for (ZooKeeper: the same)."""

    container_unused_ms: int = 300_000
    """A container that never had a child goes when it was not changed for this long (ZooKeeper: never)."""

    enforce_quota: bool = False
    """Hard limits of quotas refuse writes (QUOTA_EXCEEDED); without it, as in ZooKeeper, they are counted only."""

    forgive_pauses: bool = True
    """When the engine was not called for more than a tick, that time counts for no session: a server that was
    stopped must not expire everybody. False for a virtual clock that leaps: then next_tick() is the next expiry."""

    initial_zxid: int = ROOT_ZXID
    """The zxid of an empty tree: above all that clients of an earlier, forgotten tree may have seen."""

    server_id: int = 0
    """0 to 127, the top byte of session ids."""

    seed: int = 0
    """Children are listed in an arbitrary order that depends on it."""
