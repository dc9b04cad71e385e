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
def test_owner_is_who_shows_credentials(auth: tuple[tuple[str, str], ...], own: list[object]) -> None:
    assert Access("/distsync", None, auth).of("/distsync/lock/a") == own


def test_given_acl_comes_before_credentials() -> None:
    assert Access("/n", OTHERS, (("digest", "alice:a:b"),)).of("/n/lock") == OTHERS
    assert Access("/n", [(31, "digest", OTHERS[0].id.id)]).of("/n/lock") == OTHERS


def test_above_the_namespace_there_is_room_for_others() -> None:
    access = Access("/zoo/team/mine", OTHERS)
    assert access.of("/zoo") == access.of("/zoo/team") == [*OTHERS, SIBLING_ACL]
    for path in ("/zoo/team/mine", "/zoo/team/mine/lock", "/zoo/te", "/zoo/team/other", "/elsewhere"):
        assert access.of(path) == OTHERS


def test_open_namespace_is_open_above_too() -> None:
    assert Access("/zoo/team").of("/zoo") == OPEN_ACL_UNSAFE


def test_object_has_its_own_down_to_the_last_znode_and_in_nothing_beside() -> None:
    access = Access("/n")
    access.protect("/n/lock/a", OTHERS)
    for path in ("/n/lock/a", "/n/lock/a/b/c", "/n/lock/a-__lock__", "/n/lock/a-__lock__/b"):
        assert access.of(path) == OTHERS
    for path in ("/n/lock/ab", "/n/lock", "/n"):
        assert access.of(path) == OPEN_ACL_UNSAFE
    access.forget("/n/lock/a")
    assert access.of("/n/lock/a") == OPEN_ACL_UNSAFE


def test_znodes_of_one_owner_have_one_list_which_is_packed_once() -> None:
    access = Access("/n", OTHERS)
    assert access.of("/n/a") is access.of("/n/b")
