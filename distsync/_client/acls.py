"""Who may do what with the znodes that a client makes: the ACL of each.

Rules for this file: it knows kazoo's ACLs and paths; it sends nothing.

=========================== =================================================================================
znode                       its ACL
=========================== =================================================================================
of an object with ``acl=``  that one, for the object's znode and all below it
the namespace, and below    the client's ``acl=``; else, with ``auth=``, everything for these identities and nothing
                            for anybody else; else open to all
above the namespace         the same, and everybody may read it and make further znodes beside ours, so that users
                            who share an ensemble can each have a namespace below a common one
=========================== =================================================================================

ZooKeeper asks the ACL of the *parent* whether a znode may be made or deleted, so a namespace is its owner's as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl_credential

SIBLING_ACL = ACL(Permissions.READ | Permissions.CREATE, Id("world", "anyone"))

#: The user as whom all clients of an embedded server show its secret (_server/autostart/address_file.py): who has
#: nothing else is told apart from nobody by it, and who has an identity of his own does not share his znodes with all
#: of them.
SERVERS_SECRET = "distsync:"

#: ``path-__lock__`` stands beside the semaphore ``path`` that we share with kazoo.
SIBLING_SUFFIX = "-__lock__"

Acl = list[Any]


class Access:
    """The ACLs of one client's znodes."""

    def __init__(
        self, namespace: str = "", acl: Iterable[Any] | None = None, auth: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.own: Acl = entries(acl) if acl else owners(auth)
        self.above: Acl = self.own if self.is_open else [*self.own, SIBLING_ACL]
        self._namespace = f"{namespace}/"
        self._of_objects: dict[str, Acl] = {}

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return bool(self.own == OPEN_ACL_UNSAFE)

    def protect(self, path: str, acl: Iterable[Any]) -> None:
        """What is made at ``path`` and below from now on has this ACL."""
        if path not in self._of_objects:
            self._of_objects[path] = entries(acl)

    def forget(self, path: str) -> None:
        """Nothing special is known of ``path`` any more."""
        self._of_objects.pop(path, None)

    def of(self, path: str) -> Acl:
        """The ACL that a new znode at ``path`` gets. The same list for many, which are then packed once."""
        if self._of_objects:
            found = self._of_object(path)
            if found is not None:
                return found
        return self.above if self._namespace.startswith(f"{path}/") and path != self._namespace[:-1] else self.own

    def _of_object(self, path: str) -> Acl | None:
        while path:
            found = self._of_objects.get(path) or self._of_objects.get(path.removesuffix(SIBLING_SUFFIX))
            if found is not None:
                return found
            path = path.rpartition("/")[0]
        return None


def owners(auth: Sequence[tuple[str, str]]) -> Acl:
    """Everything for these identities, by their names where these are known here: ZooKeeper's own entry for "who makes
    it" would stand for all identities of the connection, the server's secret among them."""
    if not auth:
        return list(OPEN_ACL_UNSAFE)
    if any(scheme != "digest" for scheme, _ in auth):
        return list(CREATOR_ALL_ACL)
    own = [credential for _, credential in auth if not credential.startswith(SERVERS_SECRET)]
    return [_everything(credential) for credential in own or [credential for _, credential in auth]]


def _everything(credential: str) -> Any:
    user, _, password = credential.partition(":")
    return ACL(Permissions.ALL, Id("digest", make_digest_acl_credential(user, password)))


def entries(acl: Iterable[Any]) -> Acl:
    """ACL entries, each given as kazoo's ACL or as (permissions, scheme, id)."""
    return [_entry(entry) for entry in acl]


def _entry(entry: Any) -> Any:
    if isinstance(entry, ACL):
        return entry
    permissions, scheme, identity = entry
    return ACL(permissions, Id(scheme, identity))
