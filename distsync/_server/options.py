"""Options of a server, besides its address and data folder. See engine_config.py for those of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distsync._pickle import public_in

SCHEMES = frozenset({"x509", "sasl"})
"""Schemes by which clients can authenticate, besides digest, which any client may claim."""

WORDS = frozenset({"ruok", "srvr", "isro", "mntr", "conf", "envi", "stat"})
"""Four-letter words allowed by default: they change nothing and reveal no session or znode (ZooKeeper: srvr only)."""


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of unauthenticated and misbehaving clients."""

    handshake_seconds: float = 10.0
    """Time to complete the handshake, and to show the secret. Then the connection is closed or the session expires."""

    close_seconds: float = 10.0
    """Time to send the last replies of a connection that is closing. Then it is aborted."""

    unauthenticated_sessions: int = 1000
    """Maximum number of sessions that have not shown the secret. If exceeded, the oldest expires."""

    buffered_bytes: int = 256 << 20
    """Maximum size of the buffers of all connections. If exceeded, the connections with the largest are closed."""

    connections: int | None = None
    """Maximum number of connections; None for as many as file descriptors allow."""


@public_in("distsync.testing")
@dataclass(frozen=True)
class Tls:
    """Certificate files of a server that encrypts its connections, in PEM format.

    Attributes:
        certificate: The server's certificate.
        key: The private key of the certificate.
        ca: Certificate of the authority that signs client certificates. Each client must then
            present one, which is its identity. None asks clients for no certificate.
        optional: Whether a client may present no certificate although ``ca`` is given.
    """

    certificate: Path
    key: Path
    ca: Path | None = None
    optional: bool = False


@dataclass(frozen=True)
class Options:
    """Options of a server."""

    sync_full: bool = False
    """Whether replies wait until writes are on disk, and so survive a power failure. If False, they wait until the
    operating system has the writes, which survive only a crash of the process."""

    tls: Tls | None = None
    passwords: Mapping[str, str] | None = field(default=None, repr=False)
    """Passwords for SASL by user; None disables SASL."""

    required_schemes: frozenset[str] = frozenset()
    """If set, clients must authenticate by one of these schemes, of ``x509`` and ``sasl``, before other requests."""

    words: frozenset[str] = WORDS
    """Four-letter words that are answered; ``*`` stands for all."""

    jute_maxbuffer: int = 0xFFFFF
    """Maximum size in bytes of a frame from a client (the same in ZooKeeper)."""

    super_digest: str | None = field(default=None, repr=False)
    """``user:base64(sha1(user:password))`` of the identity that bypasses all ACLs."""

    enforce_quota: bool = False
    """Whether hard limits of quotas refuse writes. If False, usage is only counted, as in ZooKeeper."""

    reaping_seconds: float = 60.0
    """Interval between searches for empty containers and expired TTL nodes (the same in ZooKeeper)."""

    limits: Limits = field(default_factory=Limits)


DEFAULT_OPTIONS = Options()
