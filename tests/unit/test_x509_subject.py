"""Names of subjects in Java's format: each expectation is the output of X500Principal.getName() of
Java 17.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsync._server.auth.x509_subject import UnreadableCertificateError, is_name, subject_of

CN, ORG, OU, UID, DC, STREET = "550403", "55040a", "55040b", "0992268993f22c640101", "0992268993f22c640119", "550409"
EMAIL, SERIAL, OTHER = "2a864886f70d010901", "550405", "883703"
UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL, NUMBER = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x1C, 0x02

Pair = tuple[str, int, bytes]


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def certificate(*parts: list[Pair]) -> bytes:
    """Build the parts of a certificate that are read: the version, four fields, the subject."""
    subject = der(
        0x30,
        *(
            der(0x31, *(der(0x30, der(6, bytes.fromhex(oid)), der(tag, text)) for oid, tag, text in part))
            for part in parts
        ),
    )
    fields = (der(0xA0, der(2, b"\2")), der(2, b"\1"), der(0x30), der(0x30), der(0x30), subject, der(0x30))
    return der(0x30, der(0x30, *fields), der(0x30), der(3, b"\0"))


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([], ""),
        ([[(CN, UTF8, b"client")]], "CN=client"),
        ([[(ORG, PRINTABLE, b"us")], [(OU, T61, b"b"), (CN, IA5, b"a")]], "OU=b+CN=a,O=us"),
        ([[(DC, IA5, b"org")], [(UID, UTF8, b"me")], [(STREET, UTF8, b"1 x")]], "STREET=1 x,UID=me,DC=org"),
        ([[(CN, UTF8, b'a,b+c"d\\e<f>g;h=i#j/k')]], r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j/k"),
        ([[(CN, UTF8, b"  a b ")]], r"CN=\ \ a b\ "),
        ([[(CN, UTF8, b"  ")]], r"CN=\ \ "),
        ([[(CN, UTF8, b"")]], "CN="),
        ([[(CN, UTF8, b"a\nO=b\0")]], "CN=a\nO\\=b\\00"),
        ([[(CN, UTF8, "zoé".encode())]], "CN=zoé"),
        ([[(CN, T61, b"zo\xe9")]], "CN=zo\ufffd"),
        ([[(CN, BMP, b"\0a")]], r"CN=\00a"),
        ([[(CN, UNIVERSAL, b"\0\0\0a")]], "CN=#1c0400000061"),
        ([[(CN, NUMBER, b"\5")]], "CN=#020105"),
        ([[(EMAIL, IA5, b"a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[(SERIAL, PRINTABLE, b"5")]], "2.5.4.5=#130135"),
        ([[(OTHER, UTF8, b"x")]], "2.999.3=#0c0178"),
        ([[(OTHER, UTF8, b"x" * 200)]], "2.999.3=#0c8200c8" + "78" * 200),
    ],
)
def test_subject(parts: list[list[Pair]], name: str) -> None:
    assert subject_of(certificate(*parts)) == name


def test_certificate_of_the_first_version_has_no_version() -> None:
    whole = der(0x30, der(0x30, der(2, b"\1"), der(0x30), der(0x30), der(0x30), der(0x30), der(0x30)))
    assert subject_of(whole) == ""


@given(st.binary(max_size=100))
def test_data_that_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableCertificateError):
        subject_of(data)


@given(st.integers(0, 70), st.integers(0, 255))
def test_broken_certificate_is_read_or_refused(at: int, value: int) -> None:
    broken = bytearray(certificate([(ORG, PRINTABLE, b"us")], [(CN, UTF8, b"client")]))
    broken[at % len(broken)] = value
    try:
        assert isinstance(subject_of(bytes(broken)), str)
    except UnreadableCertificateError:
        pass


@pytest.mark.parametrize(
    "text",
    [
        "CN=client", "", "CN=a,O=b", "cn=a; o=b", "CN=a+OU=b", "1.2.3=x", "OID.1.2.3=x", 'CN="a,b"', r"CN=a\,b", "CN=",
        "CN = a , O = b", " CN=a", "CN=#0403616263", "CN=a=b", "UID=x,DC=y", "EMAILADDRESS=a@b", "CN=a\nO=b", "CN=é",
        r"CN=a\41", "CN=a #b", "CN= ", "2.999=y", "C=de",
    ],
)  # fmt: skip
def test_name_that_an_acl_may_have(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "CN", "alice", "CN=a,", "FOO=x", "E=a", "CN=a,b", "CN=a\\", "CN=#04", "CN=#zz", "CN=<a>", "=x", "9.9=x", "1=x",
        ",", "CN=a,,O=b", 'CN="a', 'CN=a"b', r"CN=a\zz", "ST=x+", "+CN=a", "1.40=x", "1.2.=x", "CN=a;",
    ],
)  # fmt: skip
def test_name_that_an_acl_may_not_have(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize("text", ["CN=" + " " * 300_000, "CN=a," * 60_000, " " * 300_000, 'CN="' + "\\," * 60_000])
def test_long_malformed_data_is_refused_in_linear_time(text: str) -> None:
    """Quadratic time would exceed the bound of a test by far."""
    assert not is_name(text + "<")
