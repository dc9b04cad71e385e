"""Configuration of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

ROOT_ZXID = 0


@dataclass(frozen=True)
class EngineConfig:
    tick_time_ms: int = 500
    """Longest time without a call of the engine that is not a pause (ZooKeeper: 2000)."""

    expiry_ms: int = 100
    """Sessions expire at multiples of this time, shortly after their timeout (ZooKeeper: a tick)."""

    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 60_000
    """Requested session timeouts are clamped to this range (ZooKeeper: 2 to 20 ticks)."""

    jute_maxbuffer: int = 0xFFFFF
    """Maximum size in bytes of a frame from a client (the same in ZooKeeper)."""

    secret: bytes = field(default=b"distsync", repr=False)
    """Key of the session passwords. Sessions survive a restart only if it does not change."""

    super_digest: str | None = field(default=None, repr=False)
    """``user:base64(sha1(user:password))`` of the identity that bypasses all ACLs."""

    required_digest: str | None = field(default=None, repr=False)
    """Digest identity that a client must add first. Until then, all requests except auth, SASL, ping and
    closeSession are refused (NO_AUTH)."""

    schemes: frozenset[str] = frozenset()
    """Those of ``x509`` and ``sasl`` that clients and ACLs may use."""

    required_schemes: frozenset[str] = frozenset()
    """If set, a connection without an identity of one of these schemes is closed at its first request other than
    auth and SASL (SESSION_CLOSED_REQUIRE_SASL_AUTH; ZooKeeper: enforce.auth.schemes)."""

    container_interval_ms: int = 60_000
    """Interval between searches for empty containers and expired TTL nodes (the same in ZooKeeper)."""

    container_unused_ms: int = 300_000
    """A container that never had a child is deleted after this time without a change (ZooKeeper: never)."""

    enforce_quota: bool = False
    """Whether hard limits of quotas refuse writes (QUOTA_EXCEEDED). If False, usage is only counted, as in
    ZooKeeper."""

    forgive_pauses: bool = True
    """Whether pauses (more than a tick without a call of the engine) do not count for session timeouts, so that a
    server that was stopped does not expire all sessions. False for a virtual clock that jumps; next_tick() is then
    the next expiry."""

    initial_zxid: int = ROOT_ZXID
    """zxid of an empty tree. Must be above all zxids that clients of an earlier, lost tree may have seen."""

    server_id: int = 0
    """Top byte of session ids, 0 to 127."""

    seed: int = 0
    """Seed of the arbitrary order in which children are listed."""
