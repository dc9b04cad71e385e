"""Access control: the identities of a connection against the ACL of a znode.

The first identity of a connection is its IP address, followed by the subject of its TLS
certificate, if any. auth and sasl requests add more. The schemes are world, auth, digest and ip;
x509 and sasl if the server is set up for them; and super, which bypasses all ACLs.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from distsync._server.auth.x509_subject import is_name
from distsync._server.handlers import RequestRefused
from distsync._wire.codes import ErrorCode, Permission
from distsync._wire.records import OPEN_ACL, Acl

READ, WRITE, CREATE, DELETE, ADMIN = (int(one) for one in Permission if one != Permission.ALL)
READ_ONLY_ACL: tuple[Acl, ...] = (Acl(READ, "world", "anyone"),)

MAX_ENTRIES = 256
"""Maximum number of entries of an ACL, because each request for the znode may check all of them."""

MAX_NETWORK_LENGTH = 80
"""Maximum length in characters of the id of an ``ip`` entry. Limits the memory of the cache of parsed networks."""


class Identity(NamedTuple):
    scheme: str
    id: str


SUPER = Identity("super", "")
PROVING = frozenset({"digest", "x509", "sasl"})
"""Schemes whose identities an ``auth`` entry stands for. As in ZooKeeper, an IP address is not one of them."""


class Policy(NamedTuple):
    """The settings of a server that affect ACLs."""

    schemes: frozenset[str] = frozenset()
    """Those of ``x509`` and ``sasl`` that the server supports."""

    shared: Identity | None = None
    """Identity that all clients have. An ``auth`` entry stands for it only if the client has no other."""


USUAL_POLICY = Policy()


def digest_of(credentials: bytes) -> str:
    """Convert ``user:password`` to ``user:base64(sha1(user:password))``."""
    text = credentials.decode(errors="replace")
    sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return f"{text.partition(':')[0]}:{base64.b64encode(sha1).decode()}"


def permit(acl: tuple[Acl, ...], permission: int, identities: Iterable[Identity]) -> None:
    """Refuse with NO_AUTH unless an identity has one of the bits of ``permission``."""
    if acl is not OPEN_ACL and not allows(acl, permission, identities):
        raise RequestRefused(ErrorCode.NO_AUTH)


def allows(acl: tuple[Acl, ...], permission: int, identities: Iterable[Identity]) -> bool:
    identities = tuple(identities)
    if SUPER in identities:
        return True
    return any(entry.permissions & permission and _matches(entry, identities) for entry in acl)


def _matches(entry: Acl, identities: tuple[Identity, ...]) -> bool:
    if entry.scheme == "world":
        return entry.id == "anyone"
    if entry.scheme == "ip":
        return any(scheme == "ip" and _within(address, entry.id) for scheme, address in identities)
    return (entry.scheme, entry.id) in identities


@lru_cache(4 * MAX_ENTRIES)
def _within(address: str, text: str) -> bool:
    network = _network(text)
    try:
        return network is not None and ipaddress.ip_address(address) in network
    except ValueError:  # the address is unknown
        return False


def normalize(acl: tuple[Acl, ...], identities: Iterable[Identity], policy: Policy = USUAL_POLICY) -> tuple[Acl, ...]:
    """Return the ACL as stored: without duplicates, ``auth`` replaced by identities of the client.

    Refuse with INVALID_ACL if it is empty or too long, or contains an invalid entry.
    """
    if acl == OPEN_ACL:
        return OPEN_ACL
    entries = islice(dict.fromkeys(acl), MAX_ENTRIES + 1)
    settled = [stored for entry in entries for stored in _settle_entry(entry, identities, policy)]
    if not 0 < len(settled) <= MAX_ENTRIES:
        raise RequestRefused(ErrorCode.INVALID_ACL)
    return tuple(settled)


def _settle_entry(entry: Acl, identities: Iterable[Identity], policy: Policy) -> Iterator[Acl]:
    if entry.scheme == "auth":
        proved = [identity for identity in identities if identity.scheme in PROVING]
        if not proved:
            raise RequestRefused(ErrorCode.INVALID_ACL)
        own = [identity for identity in proved if identity != policy.shared]
        yield from (Acl(entry.permissions, *identity) for identity in own or proved)
    elif _is_valid(entry, policy.schemes):
        yield entry
    else:
        raise RequestRefused(ErrorCode.INVALID_ACL)


def _is_valid(entry: Acl, schemes: frozenset[str]) -> bool:
    if entry.scheme in schemes:
        return is_name(entry.id) if entry.scheme == "x509" else _is_principal(entry.id)
    if entry.scheme == "digest":
        return entry.id.rstrip(":").count(":") == 1
    if entry.scheme == "ip":
        return len(entry.id) <= MAX_NETWORK_LENGTH and _network(entry.id) is not None
    return entry.scheme == "world" and entry.id == "anyone"


def _is_principal(text: str) -> bool:
    """Whether ZooKeeper accepts the Kerberos name: ``user``, ``user@realm`` or ``user/host@realm``."""
    return "@" not in text or re.fullmatch(r"[^/@]*(/[^/@]*)?@[^/@]*", text) is not None


@lru_cache(256)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Parse an IPv4 network (with numbers as Java parses them, such as ``+1``) or an IPv6 network."""
    address, slash, bits = text.partition("/")
    octets = address.split(".")
    if not all(map(_is_number, [*octets, bits] if slash else octets)):
        return _ipv6(text)
    try:
        packed = bytes(map(int, octets))
        return ipaddress.IPv4Network((packed, int(bits) if slash else 32), strict=False)
    except ValueError:
        return None


def _ipv6(text: str) -> ipaddress.IPv6Network | None:
    try:
        return ipaddress.IPv6Network(text, strict=False)
    except ValueError:
        return None


_is_number = re.compile(r"[+-]?[0-9]{1,9}").fullmatch


def public_form(identity: Identity) -> Identity:
    """Remove the password hash from a digest identity."""
    scheme, id = identity
    return Identity(scheme, id.partition(":")[0]) if scheme == "digest" else identity


def redact(acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
    """Hide the digests of an ACL from clients without ADMIN permission."""
    return tuple(
        entry._replace(id=f"{entry.id.partition(':')[0]}:x") if entry.scheme == "digest" else entry for entry in acl
    )
