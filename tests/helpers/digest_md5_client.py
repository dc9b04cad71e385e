"""The client's side of DIGEST-MD5, so that tests can also say what no library would."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

NONCE = "a-nonce-of-the-tests"
REALM = "zk-sasl-md5"
URI = f"zookeeper/{REALM}"


def response(
    user: str,
    password: str,
    nonce: str = NONCE,
    *,
    uri: str = URI,
    realm: str = REALM,
    authzid: str = "",
    encodings: Iterable[str] = ("utf-8",),
) -> bytes:
    """What kazoo would send (with ``encodings`` of ISO 8859-1 and UTF-8: what Java would)."""
    name, word = (_encoded(text, tuple(encodings)) for text in (user, password))
    secret = hashlib.md5(b":".join((name, realm.encode(), word))).digest()
    first = b":".join((secret, nonce.encode(), b"cn", *([authzid.encode()] if authzid else [])))
    second = b"AUTHENTICATE:" + uri.encode()
    proof = _hex(b":".join((_hex(first), nonce.encode(), b"00000001", b"cn", b"auth", _hex(second))))
    return b'username="%b",realm="%b",nonce="%b",cnonce="cn",nc=00000001,qop=auth,digest-uri="%b",response=%b%b' % (
        user.encode(),
        realm.encode(),
        nonce.encode(),
        uri.encode(),
        proof,
        b',authzid="%b"' % authzid.encode() if authzid else b"",
    )


def nonce_of(challenge: bytes) -> str:
    return challenge.partition(b'nonce="')[2].partition(b'"')[0].decode()


def _encoded(text: str, encodings: tuple[str, ...]) -> bytes:
    for encoding in encodings:
        try:
            return text.encode(encoding)
        except UnicodeEncodeError:
            continue
    raise ValueError(text)


def _hex(data: bytes) -> bytes:
    return hashlib.md5(data).hexdigest().encode()
