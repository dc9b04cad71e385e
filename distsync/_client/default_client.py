"""The default client: the one that objects use which are given none.

Rules for this file: kazoo is loaded with the first client, not before; nothing is opened here, a client connects at
its first use.

There is one default client a process. A forked child goes on with the same settings: a client that was made before
the fork has in the child nothing of its parent's, and a session of its own from its first use on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.payload_codec import ItemCodec
    from distsync._client.settings import Settings


class CurrentClient:
    """The default client, and the lock under which it is made."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.imported: Settings | None = None
        self.others: dict[tuple[str | None, str], Client] = {}
        self.lock = threading.RLock()  # a signal handler may come in between, in the same thread

    def renew_lock(self) -> None:
        """In a forked child: whichever thread held the lock is not here."""
        self.lock = threading.RLock()


current = CurrentClient()
os.register_at_fork(after_in_child=current.renew_lock)


def connect(
    hosts: str | Sequence[str] | None = None,
    *,
    namespace: str | None = None,
    session_timeout: float | None = None,
    connect_timeout: float | None = None,
    auth: str | Sequence[tuple[str, str]] | None = None,
    authkey: bytes | str | None = None,
    authkeys_accepted: Sequence[bytes | str] | str | None = None,
    codec: str | ItemCodec | None = None,
    acl: Sequence[Any] | None = None,
    tls: bool | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_key_password: str | None = None,
    tls_verify: bool | None = None,
    fast_wire: bool | None = None,
    linger: float | None = None,
    default: bool = True,
) -> Client:
    """There is a client with these settings, the default one of this process unless ``default`` is False.

    Units: seconds. None: what the environment says (``DISTSYNC_HOSTS``, ...), else the default; without any hosts,
    this user's embedded server, which is started if need be.
    Returns: the client. It connects at its first use, and is closed by `close` or at the end of the process. A
    default client from before stays open, for the objects that use it.
    Raises: ConfigurationError for a setting that cannot be used.
    Cost: no request.
    """
    options = {name: value for name, value in locals().items() if name != "default" and value is not None}
    client = _make(**options)
    if default:
        set_default(client)
    return client


def default_client() -> Client:
    """The default client, made with the environment's settings if there is none yet.

    One that was closed stays the default, and each use of it says that it is closed, until `connect`, `set_default`
    or `close_default`: objects do not move to another server by themselves.
    Raises: ConfigurationError for a variable that cannot be used.
    Cost: no request.
    """
    if current.client is None:
        made = _make(**_imported_settings())
        with current.lock:
            if current.client is None:
                current.client = made
    return current.client


def export_settings() -> Settings | None:
    """What a child process that begins anew needs to have the same default client. With the secrets."""
    client = current.client
    return current.imported if client is None else client.settings


def import_settings(settings: Settings | None) -> None:
    """A default client that nobody makes otherwise has these settings, those of the parent process."""
    current.imported = settings


def _imported_settings() -> dict[str, Any]:
    settings = current.imported
    return {} if settings is None else {each.name: getattr(settings, each.name) for each in fields(settings)}


def client_of(origin: tuple[str | None, str]) -> Client:
    """A client of these hosts and this namespace: the default one if it is such a one, else one that all objects
    from there share. Credentials are this process's own, from the environment.

    Cost: no request.
    """
    client = default_client()
    if client.origin == origin:
        return client
    with current.lock:
        found = current.others.get(origin)
        if found is None or found.closed:
            found = current.others[origin] = _make(hosts=origin[0], namespace=origin[1])
        return found


def _make(**options: Any) -> Client:
    from distsync._client.client import Client

    return Client(**options)


def set_default(client: Client | None) -> Client | None:
    """``client`` is the default one from now on; None: the next use makes one. The one before stays open.

    Returns: the one before, None if there was none.
    """
    with current.lock:
        before, current.client = current.client, client
    return before


def close_default() -> None:
    """The default client, if there is one, is closed; the next use of `default_client` makes another."""
    with current.lock:
        client, current.client = current.client, None
    if client is not None:
        client.close()
