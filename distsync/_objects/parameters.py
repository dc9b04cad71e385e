"""Registration of this process as a user of the parameters of an object."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe, read
from distsync._client.json_data import fields
from distsync._client.naming.paths import users_path
from distsync._client.process_identity import identity_of, is_dead
from distsync._protocols.state import parameter_users
from distsync._protocols.state.parameter_users import ParameterUser

if TYPE_CHECKING:
    from distsync._client.client import Client


def as_user(
    client: Client,
    core: Any,
    path: str,
    acl: tuple[Any, ...] | None,
    on_mismatch: str,
    protocol: Callable[[], Coroutine[Any, Any, Any]],
) -> Coroutine[Any, Any, Any]:
    """Return a protocol that registers this process as a user of the object with this state first."""
    if core.user is None:
        folder = users_path(client.namespace, path)
        if acl is not None:
            client.protect(folder, acl)
        core.user = ParameterUser(core, folder, identity_of(os.getpid()), is_dead, _shown)
    return parameter_users.as_user(core.user, fields(describe()), on_mismatch, protocol)


def _shown(data: bytes) -> str:
    """Return the text by which an error names a user."""
    return str(read(data, "", 0))
