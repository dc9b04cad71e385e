"""Authentication by certificate and SASL, and what is refused without it."""

from __future__ import annotations

import pytest
from helpers.digest_md5_client import NONCE, response
from helpers.engine_harness import Bench, Client

from distsync._server.acl import digest_of
from distsync._server.auth.digest_md5 import DigestMd5Exchange
from distsync._server.effects import Drop, Reply
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode

BOTH = frozenset({"x509", "sasl"})
PASSWORDS = {"alice": "a-secret", "bob": "b-secret"}
CREATOR_ALL = (r.Acl(31, "auth", ""),)
CLOSED = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH


def only(scheme: str, id: str) -> tuple[r.Acl, ...]:
    return (r.Acl(31, scheme, id),)


def talking(bench: Bench) -> Client:
    """Return a client that may authenticate by SASL."""
    return bench.client(sasl=DigestMd5Exchange(NONCE, PASSWORDS))


def shown(client: Client, user: str = "alice") -> Client:
    client.body(r.SaslRequest(b""))
    assert client.body(r.SaslRequest(response(user, PASSWORDS[user]))).token.startswith(b"rspauth=")
    return client


class TestCertificates:
    def test_auth_entry_means_the_subject_of_the_certificate(self) -> None:
        client = Bench(schemes=BOTH).client(subject="CN=client,O=us")
        client.create("/a", acl=CREATOR_ALL)
        assert client.body(r.GetAclRequest("/a")).acl == only("x509", "CN=client,O=us")
        assert ("x509", "CN=client,O=us") in client.body(r.WhoAmIRequest()).client_info

    def test_another_subject_is_refused(self) -> None:
        bench = Bench(schemes=BOTH)
        bench.client(subject="CN=a").create("/a", acl=CREATOR_ALL)
        assert bench.client(subject="CN=a").err(r.GetDataRequest("/a")) == 0
        assert bench.client(subject="CN=b").err(r.GetDataRequest("/a")) == ErrorCode.NO_AUTH
        assert bench.client().err(r.GetDataRequest("/a")) == ErrorCode.NO_AUTH

    def test_session_that_moves_to_a_connection_without_one_has_no_identity(self) -> None:
        client = Bench(schemes=BOTH).client(subject="CN=a")
        client.create("/a", acl=CREATOR_ALL)
        assert client.again().err(r.GetDataRequest("/a")) == ErrorCode.NO_AUTH

    def test_only_a_client_with_a_certificate_may_use_the_x509_scheme(self) -> None:
        bench = Bench(schemes=BOTH)
        assert bench.client(subject="CN=a").err(r.AuthRequest(0, "x509", b"")) == 0
        other = bench.client()
        assert other.err(r.AuthRequest(0, "x509", b"CN=a")) == ErrorCode.AUTH_FAILED
        assert other.dropped


class TestSasl:
    def test_auth_entry_means_the_sasl_user(self) -> None:
        client = shown(talking(Bench(schemes=BOTH)))
        client.create("/a", acl=CREATOR_ALL)
        assert client.body(r.GetAclRequest("/a")).acl == only("sasl", "alice")

    def test_another_user_is_refused(self) -> None:
        bench = Bench(schemes=BOTH)
        shown(talking(bench)).create("/a", acl=CREATOR_ALL)
        assert shown(talking(bench), "bob").err(r.GetDataRequest("/a")) == ErrorCode.NO_AUTH

    def test_challenge_alone_gives_no_identity(self) -> None:
        client = talking(Bench(schemes=BOTH))
        client.body(r.SaslRequest(b""))
        assert client.err(r.CreateRequest("/a", acl=CREATOR_ALL)) == ErrorCode.INVALID_ACL

    @pytest.mark.parametrize(("required", "code"), [(frozenset(), ErrorCode.AUTH_FAILED), (BOTH, CLOSED)])
    def test_wrong_password_closes_the_connection(self, required: frozenset[str], code: int) -> None:
        client = talking(Bench(schemes=BOTH, required_schemes=required))
        client.body(r.SaslRequest(b""))
        refused = client.send(r.SaslRequest(response("alice", "wrong")))
        assert refused == [Reply(client.peer, client.xid, 0, code, r.SaslReply(None)), Drop(client.peer)]

    def test_second_proof_closes_the_connection(self) -> None:
        client = shown(talking(Bench(schemes=BOTH)))
        assert client.err(r.SaslRequest(b"")) == ErrorCode.AUTH_FAILED
        assert client.dropped


class TestRequiredSchemes:
    @pytest.mark.parametrize(
        "request_",
        [
            r.GetDataRequest("/"),
            r.PingRequest(),
            r.CloseSessionRequest(),
            r.MultiRequest(()),
            r.WhoAmIRequest(),
            r.UnknownRequest(777),
            r.MalformedRequest(1),
        ],
    )
    def test_unauthenticated_client_may_do_nothing(self, request_: r.Request) -> None:
        client = talking(Bench(schemes=BOTH, required_schemes=frozenset({"sasl"})))
        before = client.bench.engine.zxid
        assert client.send(request_) == [Reply(client.peer, client.xid, 0, CLOSED, None), Drop(client.peer)]
        assert client.bench.engine.zxid == before

    def test_digest_is_not_enough(self) -> None:
        client = talking(Bench(schemes=BOTH, required_schemes=BOTH))
        assert client.auth(b"alice:a-secret") == 0
        assert client.err(r.GetDataRequest("/")) == CLOSED

    def test_either_scheme_is_enough(self) -> None:
        bench = Bench(schemes=BOTH, required_schemes=BOTH)
        assert shown(talking(bench)).err(r.GetDataRequest("/")) == 0
        assert bench.client(subject="CN=a").err(r.GetDataRequest("/")) == 0

    def test_secret_is_required_in_addition(self) -> None:
        bench = Bench(schemes=BOTH, required_schemes=BOTH, required_digest=digest_of(b"distsync:s"))
        client = shown(talking(bench))
        assert client.err(r.GetDataRequest("/")) == ErrorCode.NO_AUTH
        client.auth(b"distsync:s")
        assert client.err(r.GetDataRequest("/")) == 0
        other = talking(bench)
        other.auth(b"distsync:s")
        assert other.err(r.GetDataRequest("/")) == CLOSED


def test_shared_secret_is_no_owner_if_there_is_another_identity() -> None:
    bench = Bench(schemes=BOTH, required_digest=digest_of(b"distsync:s"))
    alone, alice, owner = bench.client(), talking(bench), bench.client(subject="CN=a")
    for client in (alone, alice, owner):
        client.auth(b"distsync:s")
    shown(alice)
    for name, client in (("alone", alone), ("alice", alice), ("owner", owner)):
        client.create(f"/{name}", acl=CREATOR_ALL)
    assert alice.body(r.GetAclRequest("/alice")).acl == only("sasl", "alice")
    assert owner.body(r.GetAclRequest("/owner")).acl == only("x509", "CN=a")
    assert alone.body(r.GetAclRequest("/alone")).acl == only("digest", digest_of(b"distsync:s"))


@pytest.mark.parametrize("entry", [("x509", "CN=a"), ("sasl", "alice")])
def test_entry_of_a_scheme_that_the_server_does_not_know_is_invalid(entry: tuple[str, str]) -> None:
    for schemes, code in ((frozenset[str](), ErrorCode.INVALID_ACL), (BOTH, 0)):
        assert Bench(schemes=schemes).client().err(r.CreateRequest("/a", acl=only(*entry))) == code
