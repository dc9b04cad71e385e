"""SASL DIGEST-MD5 (RFC 2831), server side.

As in ZooKeeper, on which kazoo and Java's client rely, realm and service host have fixed names, the
first token is ignored, and a requested ``authzid`` has no effect on the identity.

Invariant: error messages contain no input of the client, which may be a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

REALM = "zk-sasl-md5"
URI = "zookeeper/zk-sasl-md5"

TOKEN_BYTES = 4096
"""Maximum size of a token (RFC 2831)."""

DUMMY_PASSWORD = "password of unknown users, whose refusal must take as long as that of a wrong password"

_DIRECTIVE = re.compile(
    rb"""[ \t\r\n,]* ([!#$%&'*+\-.0-9A-Z^_`a-z|~]+) [ \t\r\n]* = [ \t\r\n]* ("(?:[^"\\]|\\.)*"|[^ \t\r\n,"]+)
    [ \t\r\n]* (?:,|$)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


class ProofRefusedError(Exception):
    """Authentication failed. Its ``args`` are the reason, for the server's log."""


class DigestMd5Exchange:
    """One attempt of one client to authenticate, with an unpredictable nonce that is used once.

    ``user`` is None until the client is authenticated. After success or refusal, further tokens are refused.
    """

    def __init__(self, nonce: str, passwords: Mapping[str, str], realm: str = REALM, uri: str = URI) -> None:
        self.user: str | None = None
        self._nonce = nonce.encode()
        self._passwords = passwords
        self._realm = realm.encode()
        self._uri = uri.encode()
        self._challenged = self._finished = False

    def answer(self, token: bytes) -> bytes:
        """Return the server's next token. Raises ProofRefusedError."""
        if self._finished:
            raise ProofRefusedError("the exchange is already finished")
        if len(token) > TOKEN_BYTES:
            self._finished = True
            raise ProofRefusedError("the token is too long")
        if not self._challenged:
            self._challenged = True
            return b'realm="%b",nonce="%b",charset=utf-8,algorithm=md5-sess' % (self._realm, self._nonce)
        self._finished = True
        return self._verify(_directives(token))

    def _verify(self, directives: dict[bytes, bytes]) -> bytes:
        """Verify a response and return the token that proves that the server knows the password."""
        for name in (b"username", b"nonce", b"cnonce", b"nc", b"digest-uri", b"response"):
            if not directives.get(name):
                raise ProofRefusedError(f"missing {name.decode()}")
        for name, expected in (
            (b"nonce", self._nonce),
            (b"nc", b"00000001"),
            (b"qop", b"auth"),
            (b"charset", b"utf-8"),
            (b"realm", self._realm),
        ):
            if directives.get(name, expected) != expected:
                raise ProofRefusedError(f"unexpected {name.decode()}")
        if directives[b"digest-uri"].lower() != self._uri.lower():
            raise ProofRefusedError("digest-uri of another service")
        return self._verify_response(directives)

    def _verify_response(self, directives: dict[bytes, bytes]) -> bytes:
        """Compare the response with that of each encoding.

        This takes the same time for an unknown user, a wrong password, and any encoding.
        """
        user = self._user_of(directives[b"username"])
        password = DUMMY_PASSWORD if user is None else self._passwords[user]
        responses = [
            (_response(secret, b"AUTHENTICATE:", directives), _response(secret, b":", directives))
            for secret in _secrets(user or "", directives.get(b"realm", b""), password)
        ]
        right = [proof for expected, proof in responses if hmac.compare_digest(expected, directives[b"response"])]
        if user is None or not right:
            raise ProofRefusedError("unknown user or wrong password")
        self.user = user
        return b"rspauth=" + right[0]

    def _user_of(self, name: bytes) -> str | None:
        for encoding in ("utf-8", "iso-8859-1"):
            user = name.decode(encoding, "replace")
            if user in self._passwords:
                return user
        return None


def _directives(token: bytes) -> dict[bytes, bytes]:
    """Parse ``name=value`` directives, refusing duplicates."""
    directives: dict[bytes, bytes] = {}
    for name, value in _pairs(token):
        if name in directives:
            raise ProofRefusedError("duplicate directive")
        directives[name] = value
    return directives


def _pairs(token: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, end = 0, len(token.rstrip(b" \t\r\n,"))
    while at < end:
        match = _DIRECTIVE.match(token, at)
        if match is None:
            raise ProofRefusedError("the token is not a list of directives")
        name, value = match.groups()
        yield name.lower(), _ESCAPED.sub(rb"\1", value[1:-1]) if value.startswith(b'"') else value
        at = match.end()


def _secrets(user: str, realm: bytes, password: str) -> Iterator[bytes]:
    """Yield the hash of the credentials in RFC 2831's encoding (ISO 8859-1 if possible) and in kazoo's (UTF-8)."""
    for encodings in (("iso-8859-1", "utf-8"), ("utf-8",)):
        yield _md5(b":".join((_encoded(user, encodings), realm, _encoded(password, encodings)))).digest()


def _encoded(text: str, encodings: Iterable[str]) -> bytes:
    """Encode in the first encoding that can represent the text."""
    for encoding in encodings:
        with suppress(UnicodeEncodeError):
            return text.encode(encoding)
    return text.encode(errors="replace")


def _response(secret: bytes, method: bytes, directives: dict[bytes, bytes]) -> bytes:
    nonce, cnonce = directives[b"nonce"], directives[b"cnonce"]
    first = b":".join((secret, nonce, cnonce, *([directives[b"authzid"]] if b"authzid" in directives else [])))
    parts = (_hex(first), nonce, directives[b"nc"], cnonce, b"auth", _hex(method + directives[b"digest-uri"]))
    return _hex(b":".join(parts))


def _hex(data: bytes) -> bytes:
    return _md5(data).hexdigest().encode()


_md5 = partial(hashlib.md5, usedforsecurity=False)
"""MD5 is required by the mechanism. The flag allows it on systems that forbid MD5 for security."""
