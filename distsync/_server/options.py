"""What a server can be told when it is started, beyond where it listens and keeps its data.

Rules for this file: values only, no behaviour. What concerns the engine alone stands in engine_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distsync._pickle import public_in

SCHEMES = frozenset({"x509", "sasl"})
"""By which a client can prove who it is, beside digest, which anybody may make up."""

WORDS = frozenset({"ruok", "srvr", "isro", "mntr", "conf", "envi", "stat"})
"""Allowed unless told otherwise: they change nothing and name no session and no znode (ZooKeeper: srvr alone)."""


@dataclass(frozen=True)
class Limits:
    """What strangers and bad clients can cost at most. ``Units``: seconds, bytes, items."""

    handshake_seconds: float = 10.0
    """A connection that has not said by then who it is, is closed; so is a session that nobody showed the secret in."""

    linger_seconds: float = 10.0
    """A connection that is over, but whose client does not take the last answers, is cut off after that."""

    strange_sessions: int = 1000
    """Sessions that have not shown the secret; more of them, and the oldest ends."""

    held_bytes: int = 256 << 20
    """Of all connections, half received or not yet taken; more of it, and those that hold most are closed."""

    connections: int | None = None
    """None: as many as there are file descriptors."""


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
    """How a server differs from the usual one."""

    sync_full: bool = False
    """True: an answer waits until the disk has what it tells, which outlives a power cut. False: until the operating
    system has it, which outlives any death of the process."""

    tls: Tls | None = None
    passwords: Mapping[str, str] | None = field(default=None, repr=False)
    """By user: who may say by SASL who he is. None: nobody can."""

    required_schemes: frozenset[str] = frozenset()
    """Of x509 and sasl: who has not said by one of them who he is, is closed at his first request."""

    words: frozenset[str] = WORDS
    """The four-letter words that are answered; ``*`` is all of them."""

    jute_maxbuffer: int = 0xFFFFF
    """Bytes of the longest frame that is read from a client (ZooKeeper: the same)."""

    super_digest: str | None = field(default=None, repr=False)
    """``user:base64(sha1(user:password))`` of the identity that no ACL binds."""

    enforce_quota: bool = False
    """True: hard limits of quotas refuse writes; False: they are advice, as in ZooKeeper."""

    reaping_seconds: float = 60.0
    """How often empty containers and nodes that have outlived their time are looked for (ZooKeeper: the same)."""

    limits: Limits = field(default_factory=Limits)


USUAL = Options()
