"""ACLs of the znodes that a client creates.

=========================== ======================================================================
znode                       ACL
=========================== ======================================================================
of an object with ``acl=``  that ACL, for the object's znode and all znodes below it
the namespace, and below    the client's ``acl=`` if given; otherwise, with ``auth=``, all permissions
                            for these identities only; otherwise open to all users
above the namespace         the same; in addition, all users may read it and create children, so that
                            users of one ensemble can each have a namespace below a common parent
=========================== ======================================================================

ZooKeeper checks the ACL of the *parent* when a znode is created or deleted, so the whole namespace
belongs to its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl_credential

SIBLING_ACL = ACL(Permissions.READ | Permissions.CREATE, Id("world", "anyone"))

#: Prefix of the digest credential that all clients of an embedded server present
#: (_server/autostart/address_file.py). It is the owner's identity only of a client without another
#: one: a client with its own identity does not share its znodes with all of them.
SERVERS_SECRET = "distsync:"

#: Suffix of the sibling ``path-__lock__`` of a semaphore that is shared with kazoo.
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
        """Whether all users have all permissions."""
        return bool(self.own == OPEN_ACL_UNSAFE)

    def protect(self, path: str, acl: Iterable[Any]) -> None:
        """Use this ACL for znodes that are created at ``path`` and below from now on."""
        if path not in self._of_objects:
            self._of_objects[path] = entries(acl)

    def forget(self, path: str) -> None:
        """Forget the ACL of the object at ``path``."""
        self._of_objects.pop(path, None)

    def of(self, path: str) -> Acl:
        """Return the ACL for a new znode at ``path``. Many znodes share one list object."""
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
    """Return an ACL with all permissions for these identities only.

    Digest identities are named. ZooKeeper's ``auth`` entry for the creator would include all
    identities of the connection, and so the secret of the embedded server.
    """
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
    """Return kazoo ACLs for entries that are kazoo ACLs or (permissions, scheme, id)."""
    return [_entry(entry) for entry in acl]


def _entry(entry: Any) -> Any:
    if isinstance(entry, ACL):
        return entry
    permissions, scheme, identity = entry
    return ACL(permissions, Id(scheme, identity))
