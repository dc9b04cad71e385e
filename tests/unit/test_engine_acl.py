"""Permissions, schemes and identities (M-19)."""

from __future__ import annotations

import pytest
from helpers.engine_harness import NOW_MS, Bench, Client

from distsync._server.acl import MAX_ENTRIES, MAX_NETWORK_LENGTH, _network, digest_of
from distsync._server.effects import Drop, Reply
from distsync._server.handlers.dispatch import MAX_IDENTITIES, MAX_IDENTITY_LENGTH
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode, Permission

ALICE, BOB = b"alice:secret", b"bob:hidden"
ALL = int(Permission.ALL)


def only(credentials: bytes, permissions: int = ALL) -> tuple[r.Acl, ...]:
    return (r.Acl(permissions, "digest", digest_of(credentials)),)


def world(permissions: int) -> tuple[r.Acl, ...]:
    return (r.Acl(permissions, "world", "anyone"),)


def from_address(address: str) -> Client:
    return Client(Bench(), 1, r.ConnectRequest(), address)


@pytest.fixture
def client() -> Client:
    return Bench().client()


def test_a_digest_is_made_as_zookeeper_makes_it() -> None:
    """The example of ZooKeeper's own documentation of DigestAuthenticationProvider."""
    assert digest_of(b"super:admin") == "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="


class TestPermissions:
    @pytest.mark.parametrize(
        ("permission", "request_"),
        [
            (Permission.READ, r.GetDataRequest("/t")),
            (Permission.READ, r.GetChildrenRequest("/t")),
            (Permission.READ, r.GetChildren2Request("/t")),
            (Permission.WRITE, r.SetDataRequest("/t", b"")),
            (Permission.CREATE, r.CreateRequest("/t/new")),
            (Permission.DELETE, r.DeleteRequest("/t/a")),
            (Permission.ADMIN, r.SetAclRequest("/t", r.OPEN_ACL)),
        ],
    )
    def test_each_request_needs_its_own_permission(self, client: Client, permission: int, request_: r.Request) -> None:
        client.create("/t")
        client.create("/t/a")
        client.body(r.SetAclRequest("/t", world(ALL & ~permission | Permission.ADMIN)))
        if permission != Permission.ADMIN:
            assert client.err(request_) == ErrorCode.NO_AUTH
            client.body(r.SetAclRequest("/t", world(permission)))
        assert client.err(request_) == 0

    def test_admin_is_needed_to_set_an_acl(self, client: Client) -> None:
        client.create("/t", acl=world(ALL & ~Permission.ADMIN))
        assert client.err(r.SetAclRequest("/t", r.OPEN_ACL)) == ErrorCode.NO_AUTH

    def test_exists_needs_no_permission(self, client: Client) -> None:
        client.create("/t", acl=only(ALICE))
        assert client.err(r.ExistsRequest("/t")) == 0

    def test_a_nodes_own_acl_does_not_guard_its_deletion(self, client: Client) -> None:
        client.create("/t", acl=only(ALICE))
        assert client.err(r.DeleteRequest("/t")) == 0

    def test_a_check_needs_read(self, client: Client) -> None:
        client.create("/t", acl=only(ALICE))
        reply = client.body(r.MultiRequest((r.CheckVersionRequest("/t"),)))
        assert reply.results == (r.ErrorReply(ErrorCode.NO_AUTH),)


class TestIdentities:
    def test_auth_grants_access_to_a_restricted_node(self, client: Client) -> None:
        client.create("/t", acl=only(ALICE))
        assert client.err(r.GetDataRequest("/t")) == ErrorCode.NO_AUTH
        assert client.auth(ALICE) == 0
        assert client.err(r.GetDataRequest("/t")) == 0

    def test_identities_add_up(self, client: Client) -> None:
        client.create("/a", acl=only(ALICE))
        client.create("/b", acl=only(BOB))
        client.auth(ALICE)
        client.auth(BOB)
        assert client.err(r.GetDataRequest("/a")) == client.err(r.GetDataRequest("/b")) == 0

    def test_number_of_identities_is_limited(self) -> None:
        client = Bench(required_digest=digest_of(ALICE)).client()
        for one in range(MAX_IDENTITIES - 1):  # and the address
            assert client.auth(b"%d:secret" % one) == 0
        assert client.auth(b"0:secret") == 0
        reply, drop = client.send(r.AuthRequest(0, "digest", ALICE))
        assert reply == Reply(client.peer, client.xid, 0, ErrorCode.AUTH_FAILED, None)
        assert drop == Drop(client.peer)

    def test_length_of_an_identity_is_limited(self) -> None:
        client = Bench(required_digest=digest_of(ALICE)).client()
        assert client.auth(b"x" * (MAX_IDENTITY_LENGTH - 29) + b":" + b"long" * 10_000) == 0
        assert client.auth(b"x" * (MAX_IDENTITY_LENGTH - 28) + b":short") == ErrorCode.AUTH_FAILED
        assert client.dropped

    def test_identities_are_lost_with_the_connection(self, client: Client) -> None:
        client.create("/t", acl=only(ALICE))
        client.auth(ALICE)
        assert client.again().err(r.GetDataRequest("/t")) == ErrorCode.NO_AUTH

    def test_unknown_scheme_ends_the_connection(self, client: Client) -> None:
        reply, drop = client.send(r.AuthRequest(0, "sasl", b""))
        assert reply == Reply(client.peer, client.xid, 0, ErrorCode.AUTH_FAILED, None)
        assert drop == Drop(client.peer)

    def test_super_user_may_do_everything(self) -> None:
        client = Bench(super_digest=digest_of(BOB)).client()
        client.create("/t", acl=only(ALICE, Permission.READ))
        client.auth(BOB)
        assert client.err(r.SetDataRequest("/t", b"")) == 0
        assert client.err(r.SetAclRequest("/t", r.OPEN_ACL)) == 0

    @pytest.mark.parametrize(
        ("network", "allowed"), [("10.1.2.3", True), ("10.1.0.0/16", True), ("10.2.0.0/16", False), ("::1", False)]
    )
    def test_an_address_is_an_identity(self, network: str, allowed: bool) -> None:
        client = from_address("10.1.2.3")
        client.create("/t", acl=(r.Acl(ALL, "ip", network),))
        assert client.err(r.GetDataRequest("/t")) == (0 if allowed else ErrorCode.NO_AUTH)

    def test_client_without_an_address_has_no_ip_identity(self) -> None:
        bench = Bench()
        other, nowhere = bench.client(), Client(bench, 7, r.ConnectRequest(), "")
        assert nowhere.err(r.ExistsRequest("/t", True)) == ErrorCode.NO_NODE
        other.create("/t", acl=(r.Acl(ALL, "ip", "127.0.0.1"),))
        assert nowhere.events() == []
        assert nowhere.err(r.GetDataRequest("/t")) == ErrorCode.NO_AUTH
        reply = nowhere.body(r.MultiRequest((r.CheckVersionRequest("/t"),)))
        assert reply.results == (r.ErrorReply(ErrorCode.NO_AUTH),)

    def test_required_digest_admits_the_client(self) -> None:
        client = Bench(required_digest=digest_of(ALICE)).client()
        client.auth(BOB)
        assert client.err(r.GetDataRequest("/")) == ErrorCode.NO_AUTH
        client.auth(ALICE)
        assert client.err(r.GetDataRequest("/")) == 0


class TestAcls:
    @pytest.mark.parametrize(
        "acl",
        [
            (),
            (r.Acl(ALL, "world", "somebody"),),
            (r.Acl(ALL, "auth", ""),),
            (r.Acl(ALL, "nothing", "x"),),
            (r.Acl(ALL, "digest", "alice"),),
            (r.Acl(ALL, "ip", "10.1"),),
            (*r.OPEN_ACL, r.Acl(ALL, "auth", "")),
        ],
    )
    def test_malformed_acl_is_refused(self, client: Client, acl: tuple[r.Acl, ...]) -> None:
        assert client.err(r.CreateRequest("/t", acl=acl)) == ErrorCode.INVALID_ACL
        assert client.err(r.SetAclRequest("/", acl)) == ErrorCode.INVALID_ACL

    @pytest.mark.parametrize("scheme", ["ip", "digest"])
    def test_acl_with_too_many_entries_is_refused(self, client: Client, scheme: str) -> None:
        suffix = ":x" if scheme == "digest" else ""
        acl = tuple(r.Acl(ALL, scheme, f"10.0.{one >> 8}.{one & 255}{suffix}") for one in range(MAX_ENTRIES + 1))
        assert client.err(r.CreateRequest("/t", acl=acl)) == ErrorCode.INVALID_ACL
        assert client.err(r.SetAclRequest("/", acl)) == ErrorCode.INVALID_ACL
        client.create("/t", acl=acl[:-1] * 2)
        assert len(client.bench.engine.tree.nodes["/t"].acl) == MAX_ENTRIES

    def test_auth_entry_with_too_many_identities_is_refused(self, client: Client) -> None:
        for one in range(31):
            client.auth(b"%d:secret" % one)
        acl = tuple(r.Acl(permissions, "auth", "") for permissions in range(1, 10))
        assert client.err(r.CreateRequest("/t", acl=acl)) == ErrorCode.INVALID_ACL
        client.create("/t", acl=acl[:8])

    def test_overlong_network_is_refused_and_not_cached(self, client: Client) -> None:
        known = _network.cache_info().currsize
        acl = (r.Acl(ALL, "ip", "::1%" + "x" * MAX_NETWORK_LENGTH),)
        assert client.err(r.CreateRequest("/t", acl=acl)) == ErrorCode.INVALID_ACL
        assert _network.cache_info().currsize == known

    def test_auth_entry_means_the_identities_of_the_client(self, client: Client) -> None:
        client.auth(ALICE)
        client.auth(BOB)
        client.create("/t", acl=(r.Acl(ALL, "auth", "ignored"),))
        assert client.body(r.GetAclRequest("/t")).acl == only(ALICE) + only(BOB)

    def test_duplicates_are_removed(self, client: Client) -> None:
        client.create("/t", acl=r.OPEN_ACL * 3)
        assert client.body(r.GetAclRequest("/t")).acl == r.OPEN_ACL

    def test_setting_one_moves_aversion_only(self, client: Client) -> None:
        client.create("/t")
        before = client.stat("/t")
        assert client.body(r.SetAclRequest("/t", world(ALL), 0)).stat == before._replace(aversion=1)
        assert client.err(r.SetAclRequest("/t", world(ALL), 0)) == ErrorCode.BAD_VERSION

    def test_digests_are_hidden_from_clients_that_may_only_read(self, client: Client) -> None:
        acl = only(ALICE) + world(Permission.READ)
        client.create("/t", acl=acl)
        assert client.body(r.GetAclRequest("/t")).acl == (r.Acl(ALL, "digest", "alice:x"), *world(Permission.READ))
        client.auth(ALICE)
        assert client.body(r.GetAclRequest("/t")).acl == acl

    def test_the_configuration_is_read_only(self, client: Client) -> None:
        assert client.err(r.SetDataRequest("/zookeeper/config", b"")) == ErrorCode.NO_AUTH


def test_a_handshake_takes_the_address_of_the_connection() -> None:
    bench = Bench()
    bench.engine.connect(7, r.ConnectRequest(), NOW_MS, "192.0.2.1")
    (reply,) = bench.engine.step(7, 1, r.AuthRequest(0, "ip", None), NOW_MS)
    assert isinstance(reply, Reply)
    assert reply.err == 0
