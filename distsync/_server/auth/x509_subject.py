"""Subjects of X.509 certificates in ZooKeeper's format: RFC 2253, as of Java's X500Principal.getName().

The parts are in reverse order, separated by commas without blanks. Types that RFC 2253 does not name
are written as their OIDs, with the value as ``#`` and its DER encoding in hexadecimal.

Only for certificates that TLS has verified: nothing but the subject is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_TEXTS = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
"""String types. Java decodes all of them as UTF-8."""

_OID, _VERSION = 0x06, 0xA0
_SPECIAL = re.compile(r'[,=+<>#;"\\]')


class UnreadableCertificateError(Exception):
    """Not a valid certificate."""


class _Item(NamedTuple):
    """An ASN.1 value in DER: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, which may be empty. Raises UnreadableCertificateError."""
    try:
        (whole,) = _items(certificate)
        fields = [item for item in _items(next(_items(whole.content)).content) if item.tag != _VERSION]
        _serial, _algorithm, _issuer, _validity, subject = fields[:5]
        parts = [_part(part.content) for part in _items(subject.content)]
    except (IndexError, StopIteration, TypeError, ValueError):  # too short, or an unexpected number of fields
        raise UnreadableCertificateError from None
    return ",".join(reversed(parts))


def _items(data: bytes) -> Iterator[_Item]:
    """Iterate over consecutive values."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size > 0x80:
            length = size & 0x7F
            size, at = int.from_bytes(data[at : at + length], "big"), at + length
        if at + size > len(data):
            raise ValueError(size)
        yield _Item(tag, data[at : at + size], data[start : at + size])
        at += size


def _part(data: bytes) -> str:
    return "+".join(_pair(*_items(pair.content)) for pair in _items(data))


def _pair(type: _Item, value: _Item) -> str:
    number = _number(type.content)
    name = NAMES.get(number)
    if name is None or value.tag not in _TEXTS:
        return f"{name or number}=#{value.whole.hex()}"
    return f"{name}={_escaped(value.content.decode(errors='replace'))}"


def _number(content: bytes) -> str:
    """Return an object identifier in dotted notation."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    text = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", r"\00")
    stripped = text.strip(" \r")
    if not stripped:
        return "".join(f"\\{blank}" for blank in text)
    lead, trail = text.split(stripped, 1)
    return "".join((*(f"\\{blank}" for blank in lead), stripped, *(f"\\{blank}" for blank in trail)))


_KEYWORDS = (
    "CN|C|L|ST|S|OU|O|T|IP|STREET|DC|DNQUALIFIER|DNQ|SURNAME|GIVENNAME|INITIALS|GENERATION|EMAILADDRESS|EMAIL|UID"
    "|SERIALNUMBER"
)
_NUMBER = r"(?:OID\.)?(?:[01]\.[1-3]?[0-9]|2\.[0-9]+)(?:\.[0-9]+)*"
_VALUE = (
    r"""\s*"(?:[^"\\]|\\.)*"\s*|\s*\#(?:[0-9A-F]{2}){2,}\s*|(?!\s*\#)(?:[^,;+"<>\\]|\\[,=+<>\#;"\\\ ]|\\[0-9A-F]{2})*"""
)
_AVA = rf"\s*(?:{_KEYWORDS}|{_NUMBER})\s*=(?:{_VALUE})"
_NAME = re.compile(rf"{_AVA}(?:[,;+]{_AVA})*|\s*", re.IGNORECASE | re.DOTALL)


def is_name(text: str) -> bool:
    """Whether ZooKeeper accepts ``text`` as the name of a subject in an ACL."""
    return _NAME.fullmatch(text) is not None
