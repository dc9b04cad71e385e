"""The ACL that a new znode gets."""

from __future__ import annotations

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

from distsync._client.acls import SIBLING_ACL, Access

ALICE = make_digest_acl("alice", "a:b", all=True)
SECRET = make_digest_acl("distsync", "secret", all=True)
OTHERS = [make_digest_acl("bob", "b", all=True)]


@pytest.mark.parametrize(
    ("auth", "own"),
    [
        ((), OPEN_ACL_UNSAFE),
        ((("digest", "alice:a:b"),), [ALICE]),
        ((("digest", "alice:a:b"), ("digest", "bob:b")), [ALICE, *OTHERS]),
        ((("digest", "distsync:secret"), ("digest", "alice:a:b")), [ALICE]),
        ((("digest", "distsync:secret"),), [SECRET]),
        ((("x509", ""),), CREATOR_ALL_ACL),
        ((("sasl", "alice:a"),), CREATOR_ALL_ACL),
    ],
)
def test_owner_is_the_identity_of_the_credentials(auth: tuple[tuple[str, str], ...], own: list[object]) -> None:
    assert Access("/distsync", None, auth).of("/distsync/lock/a") == own


def test_explicit_acl_takes_precedence_over_credentials() -> None:
    assert Access("/n", OTHERS, (("digest", "alice:a:b"),)).of("/n/lock") == OTHERS
    assert Access("/n", [(31, "digest", OTHERS[0].id.id)]).of("/n/lock") == OTHERS


def test_znodes_above_the_namespace_are_open_to_other_users() -> None:
    access = Access("/zoo/team/mine", OTHERS)
    assert access.of("/zoo") == access.of("/zoo/team") == [*OTHERS, SIBLING_ACL]
    for path in ("/zoo/team/mine", "/zoo/team/mine/lock", "/zoo/te", "/zoo/team/other", "/elsewhere"):
        assert access.of(path) == OTHERS


def test_znodes_above_an_open_namespace_are_open() -> None:
    assert Access("/zoo/team").of("/zoo") == OPEN_ACL_UNSAFE


def test_acl_of_an_object_applies_to_all_its_znodes_and_no_others() -> None:
    access = Access("/n")
    access.protect("/n/lock/a", OTHERS)
    for path in ("/n/lock/a", "/n/lock/a/b/c", "/n/lock/a-__lock__", "/n/lock/a-__lock__/b"):
        assert access.of(path) == OTHERS
    for path in ("/n/lock/ab", "/n/lock", "/n"):
        assert access.of(path) == OPEN_ACL_UNSAFE
    access.forget("/n/lock/a")
    assert access.of("/n/lock/a") == OPEN_ACL_UNSAFE


def test_acl_of_one_owner_is_one_list_that_is_packed_once() -> None:
    access = Access("/n", OTHERS)
    assert access.of("/n/a") is access.of("/n/b")
