"""DIGEST-MD5 as in RFC 2831: its examples, and what is refused."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from helpers.digest_md5_client import NONCE, response
from hypothesis import given
from hypothesis import strategies as st

from distsync._server.auth.digest_md5 import TOKEN_BYTES, DigestMd5Exchange, ProofRefusedError

USERS = {"alice": "a-secret", "zoé": "pässword", "li": "密码"}


def talk(token: bytes = b"") -> DigestMd5Exchange:
    """Return an authenticator that has sent its challenge."""
    made = DigestMd5Exchange(NONCE, USERS)
    made.answer(token)
    return made


RFC = [
    (
        "imap",
        "OA6MG9tEQGm2hh",
        "OA6MHXh6VqTrRk",
        "d388dad90d4bbd760a152321f2143af7",
        "ea40f60335c427b5527b84dbabcdfffd",
    ),
    (
        "acap",
        "OA9BSXrbuRhWay",
        "OA9BSuZWMSpW8m",
        "6084c6db3fede7352c551284490fd0fc",
        "2f0b3d7c3c2e486600ef710726aa2eae",
    ),
]


@pytest.mark.parametrize(("service", "nonce", "cnonce", "shown", "proof"), RFC, ids=["imap", "acap"])
def test_examples_of_the_rfc(service: str, nonce: str, cnonce: str, shown: str, proof: str) -> None:
    """Section 4."""
    host = "elwood.innosoft.com"
    example = DigestMd5Exchange(nonce, {"chris": "secret"}, host, f"{service}/{host}")
    challenge = f'realm="{host}",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'
    assert example.answer(b"") == challenge.encode()
    token = (
        f'charset=utf-8,username="chris",realm="{host}",nonce="{nonce}",nc=00000001,cnonce="{cnonce}",'
        f'digest-uri="{service}/{host}",response={shown},qop=auth'
    )
    assert example.user is None
    assert example.answer(token.encode()) == b"rspauth=" + proof.encode()
    assert example.user == "chris"


def test_right_password_authenticates_the_user() -> None:
    mine = talk()
    assert re.fullmatch(rb"rspauth=[0-9a-f]{32}", mine.answer(response("alice", "a-secret")))
    assert mine.user == "alice"


def test_first_token_is_ignored() -> None:
    assert talk(b"junk").answer(response("alice", "a-secret"))


@pytest.mark.parametrize("encodings", [("utf-8",), ("iso-8859-1", "utf-8")])
@pytest.mark.parametrize("user", ["zoé", "li"])
def test_non_ascii_letters_are_accepted_in_both_encodings(user: str, encodings: tuple[str, ...]) -> None:
    mine = talk()
    mine.answer(response(user, USERS[user], encodings=encodings))
    assert mine.user == user


def test_authorization_id_is_ignored() -> None:
    mine = talk()
    mine.answer(response("alice", "a-secret", authzid="bob"))
    assert mine.user == "alice"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("alice", ""), ("nobody", "x"), ("li", "pässword")])
def test_wrong_user_or_password_is_refused_in_the_same_words(user: str, password: str) -> None:
    mine = talk()
    with pytest.raises(ProofRefusedError, match="^unknown user or wrong password$"):
        mine.answer(response(user, password))
    assert mine.user is None


@pytest.mark.parametrize(("password", "user"), [("a-secret", "alice"), ("wrong", None)])
def test_nonce_is_accepted_once(password: str, user: str | None) -> None:
    mine = talk()
    with suppress(ProofRefusedError):
        mine.answer(response("alice", password))
    for token in (response("alice", "a-secret"), b""):
        with pytest.raises(ProofRefusedError, match="already finished"):
            mine.answer(token)
    assert mine.user == user


def test_response_to_another_nonce_is_refused() -> None:
    other = DigestMd5Exchange("another", USERS)
    other.answer(b"")
    with pytest.raises(ProofRefusedError, match="nonce"):
        other.answer(response("alice", "a-secret"))


RIGHT = response("alice", "a-secret")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"nc=00000001", b"nc=00000002"),
        (b"qop=auth", b"qop=auth-int"),
        (b'realm="zk-sasl-md5"', b'realm="elsewhere"'),
        (b"zookeeper/zk-sasl-md5", b"imap/zk-sasl-md5"),
        (b"qop=auth", b"charset=latin-1"),
        (b"qop=auth", b"nc=00000001"),
        (b"qop=auth", b'username="bob"'),
        (b'username="alice",', b""),
        (b"response=", b"answer="),
        (b"cnonce=", b"c-nonce="),
        (b"nc=00000001,", b""),
        (b'username="alice"', b'username="alice'),
        (b'username="alice"', b"username="),
        (b'username="alice"', b'username="alice" more'),
        (b"qop=auth", b"qop"),
        (b"qop=auth", b"=auth"),
        (b"qop=auth", b"x" * TOKEN_BYTES),
        (RIGHT, b""),
    ],
)
def test_malformed_response_is_refused(old: bytes, new: bytes) -> None:
    assert old in RIGHT
    with pytest.raises(ProofRefusedError):
        talk().answer(RIGHT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b",", b" ,, \t"),
        (b'username="alice"', b"USERNAME = alice"),
        (b'username="alice"', b'username="al\\ice"'),
        (b"qop=auth", b"other=what,maxbuf=1"),
        (b"zookeeper/zk-sasl-md5", b"ZooKeeper/ZK-SASL-MD5"),
    ],
)
def test_response_is_accepted_in_other_spellings(old: bytes, new: bytes) -> None:
    """The digest-uri is part of what is hashed."""
    mine = talk()
    token = RIGHT.replace(old, new)
    if b"ZooKeeper" in new:
        token = response("alice", "a-secret", uri=new.decode())
    mine.answer(token)
    assert mine.user == "alice"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(token: bytes) -> None:
    mine = talk()
    with pytest.raises(ProofRefusedError):
        mine.answer(token)
    assert mine.user is None


@given(st.lists(st.tuples(st.integers(0, len(RIGHT) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_response_is_refused_or_means_the_same(changes: list[tuple[int, int]]) -> None:
    token = bytearray(RIGHT)
    for at, value in changes:
        token[at] = value
    mine = talk()
    try:
        mine.answer(bytes(token))
    except ProofRefusedError as refusal:
        assert mine.user is None
        assert "a-secret" not in str(refusal)
    else:
        assert mine.user == "alice"


def test_refusal_shows_nothing_of_the_response() -> None:
    for token in (response("sesame", "sesame"), b"sesame", RIGHT.replace(b"qop=auth", b"qop=sesame")):
        with pytest.raises(ProofRefusedError) as refusal:
            talk().answer(token)
        assert "sesame" not in str(refusal.value)
