"""DIGEST-MD5 (RFC 2831), the server's side of one talk: a challenge, the answer to it, and who has proved to be whom.

Rules for this file: pure; it knows no request and no session. Chance comes in as the nonce. What it refuses it
explains in words of its own only: what a client sent is nowhere in them, for it may be a password.

ZooKeeper's own ways, which both kazoo and Java's client rely on: the realm and the host of the service have a fixed
name, a first token is not looked at, and whoever it is acts as himself, whatever ``authzid`` he asks for.
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
"""Of the longest response, as RFC 2831 says."""

DUMMY_PASSWORD = "the password of who is not known: the time to refuse him is that of a wrong one"

_DIRECTIVE = re.compile(
    rb"""[ \t\r\n,]* ([!#$%&'*+\-.0-9A-Z^_`a-z|~]+) [ \t\r\n]* = [ \t\r\n]* ("(?:[^"\\]|\\.)*"|[^ \t\r\n,"]+)
    [ \t\r\n]* (?:,|$)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


class ProofRefusedError(Exception):
    """The client has not proved who it is. Fields: why, for the server's own log."""


class DigestMd5Exchange:
    """One attempt of one client to authenticate, with a nonce that nobody can guess and that is used once.

    ``user`` is None until the client has proved its identity. After that, and after a refusal, each token is refused.
    """

    def __init__(self, nonce: str, passwords: Mapping[str, str], realm: str = REALM, uri: str = URI) -> None:
        self.user: str | None = None
        self._nonce = nonce.encode()
        self._passwords = passwords
        self._realm = realm.encode()
        self._uri = uri.encode()
        self._challenged = self._finished = False

    def answer(self, token: bytes) -> bytes:
        """The server's next token. Raises ProofRefusedError."""
        if self._finished:
            raise ProofRefusedError("it has been answered already")
        if len(token) > TOKEN_BYTES:
            self._finished = True
            raise ProofRefusedError("the token is too long")
        if not self._challenged:
            self._challenged = True
            return b'realm="%b",nonce="%b",charset=utf-8,algorithm=md5-sess' % (self._realm, self._nonce)
        self._finished = True
        return self._verify(_directives(token))

    def _verify(self, directives: dict[bytes, bytes]) -> bytes:
        """What proves to the client that the server knows the password too."""
        for name in (b"username", b"nonce", b"cnonce", b"nc", b"digest-uri", b"response"):
            if not directives.get(name):
                raise ProofRefusedError(f"there is no {name.decode()}")
        for name, expected in (
            (b"nonce", self._nonce),
            (b"nc", b"00000001"),
            (b"qop", b"auth"),
            (b"charset", b"utf-8"),
            (b"realm", self._realm),
        ):
            if directives.get(name, expected) != expected:
                raise ProofRefusedError(f"another {name.decode()} than it may be")
        if directives[b"digest-uri"].lower() != self._uri.lower():
            raise ProofRefusedError("the digest-uri is of another service")
        return self._verify_response(directives)

    def _verify_response(self, directives: dict[bytes, bytes]) -> bytes:
        """It takes as long for who is unknown as for a wrong password, and tries each spelling, whichever is right."""
        user = self._user_of(directives[b"username"])
        password = DUMMY_PASSWORD if user is None else self._passwords[user]
        responses = [
            (_response(secret, b"AUTHENTICATE:", directives), _response(secret, b":", directives))
            for secret in _secrets(user or "", directives.get(b"realm", b""), password)
        ]
        right = [proof for expected, proof in responses if hmac.compare_digest(expected, directives[b"response"])]
        if user is None or not right:
            raise ProofRefusedError("an unknown user, or a wrong password")
        self.user = user
        return b"rspauth=" + right[0]

    def _user_of(self, name: bytes) -> str | None:
        for encoding in ("utf-8", "iso-8859-1"):
            user = name.decode(encoding, "replace")
            if user in self._passwords:
                return user
        return None


def _directives(token: bytes) -> dict[bytes, bytes]:
    """``name=value`` by name, without quotes. None may come twice."""
    directives: dict[bytes, bytes] = {}
    for name, value in _pairs(token):
        if name in directives:
            raise ProofRefusedError("a directive comes twice")
        directives[name] = value
    return directives


def _pairs(token: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, end = 0, len(token.rstrip(b" \t\r\n,"))
    while at < end:
        match = _DIRECTIVE.match(token, at)
        if match is None:
            raise ProofRefusedError("the token is no list of directives")
        name, value = match.groups()
        yield name.lower(), _ESCAPED.sub(rb"\1", value[1:-1]) if value.startswith(b'"') else value
        at = match.end()


def _secrets(user: str, realm: bytes, password: str) -> Iterator[bytes]:
    """RFC 2831 writes what ISO 8859-1 can write in that; kazoo writes all in UTF-8."""
    for encodings in (("iso-8859-1", "utf-8"), ("utf-8",)):
        yield _md5(b":".join((_encoded(user, encodings), realm, _encoded(password, encodings)))).digest()


def _encoded(text: str, encodings: Iterable[str]) -> bytes:
    """In the first of them that can write it all."""
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
"""The mechanism's own choice; systems that forbid MD5 are told that it is no choice of ours."""
