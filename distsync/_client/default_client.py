"""The default client, for objects without an explicit one.

There is one default client for each process. kazoo is imported with the first client, not before. A
forked child continues with the same settings: its copy of the client has none of the parent's
state, and opens a session of its own at its first use.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from distsync._client import lifecycle
from distsync._import_gate import importing

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.payload_codec import ItemCodec
    from distsync._client.settings import Settings


DEFAULT_PORT = 2181
"""The port of a server whose address has none."""


class CurrentClient:
    """The default client, and the lock under which it is created."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.imported: Settings | None = None
        self.others: dict[tuple[frozenset[str], str], Client] = {}
        self._lock = threading.RLock()  # reentrant for signal handlers

    @property
    def lock(self) -> threading.RLock:
        """The lock of this process."""
        lifecycle.notice_fork()
        return self._lock

    def renew_lock(self) -> None:
        """Replace the lock in a forked child, which does not have the thread that may hold it."""
        self._lock = threading.RLock()


current = CurrentClient()
lifecycle.on_fork_in_child(current.renew_lock)


def connect(
    hosts: str | Sequence[str] | None = None,
    *,
    namespace: str | None = None,
    session_timeout: float | None = None,
    connect_timeout: float | None = None,
    timeout: float | None = None,
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
    require_hosts: bool | None = None,
    default: bool = True,
) -> Client:
    """Create a client, and make it the default one of this process.

    The client connects at its first use. It is closed by `Client.close`, or at the end of the
    process. The previous default client stays open, for the objects that use it.

    For each setting, None uses the environment variable ``DISTSYNC_<SETTING>`` and, if that is not
    set, the default.

    Args:
        hosts: The servers, such as ``"host:port,host:port/chroot"``, or a list of them. The default
            is this user's embedded server, which is started if it does not run.
        namespace: Path of all objects; ``"/distsync"`` by default.
        session_timeout: Timeout of the session in seconds, as requested from the server; 10 by
            default.
        connect_timeout: Maximum wait for the first connection, in seconds; 10 by default.
        timeout: Maximum wait of a call for replies of the server, in seconds, if the call has no
            parameter ``timeout`` or was given None. It does not limit how long a call waits for
            another process, as ``Lock.acquire`` and ``Queue.get`` do. By default, calls wait until a
            server answers.
        auth: Credentials, such as ``"digest:user:password"``, ``"sasl:user:password"`` (DIGEST-MD5,
            with the extra ``sasl``) or ``"x509:"`` (the identity of ``tls_cert``). Several are
            separated by commas, or are a list of pairs of scheme and credential.
        authkey: Secret that signs the contents of objects.
        authkeys_accepted: Further secrets whose signatures are accepted, as a list, or separated by
            commas; none of them signs.
        codec: ``"pickle"``, ``"cloudpickle"``, ``"json"`` or a codec object; pickle by default.
        acl: kazoo ACLs for the znodes that the client creates. The default allows only the
            identities in ``auth``, and all users if there are none. It has no environment variable.
        tls: Whether to use TLS; by default, if ``tls_ca``, ``tls_cert`` or ``tls_key`` is given.
        tls_ca: File of the trusted certification authorities.
        tls_cert: File of the client's certificate.
        tls_key: File of the client's private key.
        tls_key_password: Password of the private key.
        tls_verify: Whether to verify the certificates of servers; True by default.
        fast_wire: Whether to use distsync's fast I/O instead of kazoo's; True by default.
        linger: Seconds for which a released lock stays cached; 0 disables caching, 0.1 by default.
        require_hosts: Whether to refuse the embedded server, so that a process whose environment lacks
            DISTSYNC_HOSTS does not silently use it; False by default.
        default: Whether to make the client the default one.

    Returns:
        The client.

    Raises:
        ConfigurationError: A setting is not valid.

    Note:
        Costs no request.
    """
    options = {name: value for name, value in locals().items() if name != "default" and value is not None}
    client = _make(**options)
    if default:
        set_default(client)
    return client


def default_client() -> Client:
    """Return the default client, and create it from the environment if there is none.

    A default client that is closed stays the default one, and its use raises ClientClosedError,
    until `connect`, `set_default` or `close_default` is called. Objects never move to another
    server by themselves.

    Returns:
        The client.

    Raises:
        ConfigurationError: An environment variable is not valid.

    Note:
        Costs no request.
    """
    if current.client is None:
        made = _make(**_imported_settings())
        with current.lock:
            if current.client is None:
                current.client = made
    return current.client


def export_settings() -> Settings | None:
    """Return the settings, with secrets, that give a child process the same default client."""
    client = current.client
    return current.imported if client is None else client.settings


def import_settings(settings: Settings | None) -> None:
    """Use the settings of the parent process for a default client that is created on demand."""
    current.imported = settings


def _imported_settings() -> dict[str, Any]:
    settings = current.imported
    return {} if settings is None else _as_arguments(settings)


def _as_arguments(settings: Settings) -> dict[str, Any]:
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def client_of(origin: tuple[str | None, ...]) -> Client:
    """Return a client of this server and this namespace, with this process's own credentials.

    It is the default client if it matches, and otherwise one that all objects of this origin share.
    If the default client uses the same server, that one has its settings.

    Args:
        origin: The `Client.origin` of the sender. Earlier versions did not add the identity of the
            embedded server.

    Returns:
        The client.

    Raises:
        ConfigurationError: The sender used the embedded server of another host or user.

    Note:
        Costs no request.
    """
    from distsync._client.settings import EMBEDDED

    hosts, namespace, *identity = origin
    if hosts is None and identity:
        _check_embedded_server(str(identity[0]))
    client, place = default_client(), _place(hosts, str(namespace))
    if _place_of(client) == place:
        return client
    with current.lock:
        found = current.others.get(place)
        if found is None or found.closed:
            same_server = _place_of(client)[0] == place[0]
            settings = _as_arguments(client.settings) if same_server else {}
            found = _make(**{**settings, "hosts": EMBEDDED if hosts is None else hosts, "namespace": namespace})
            current.others[place] = found
        return found


def _check_embedded_server(theirs: str) -> None:
    with importing():
        from distsync._client.embedded_locator import embedded_server_identity
        from distsync.errors import ConfigurationError

    ours = embedded_server_identity()
    if theirs != ours:
        reason = (
            f"an object arrived that uses the embedded server of {theirs}, and this process is {ours}: set "
            "DISTSYNC_HOSTS, here and there, to servers that both reach"
        )
        raise ConfigurationError("DISTSYNC_HOSTS", None, reason)


def _place(hosts: str | None, namespace: str) -> tuple[frozenset[str], str]:
    """Return the servers and the full namespace, which are the same for all notations of them."""
    servers, slash, chroot = (hosts or "").partition("/")
    has_port = re.compile(r".*:\d+")  # an IPv6 address is in brackets
    each = servers.lower().split(",") if servers else []
    addresses = frozenset(one if has_port.fullmatch(one) else f"{one}:{DEFAULT_PORT}" for one in each)
    return addresses, f"/{chroot}".rstrip("/") + namespace if slash else namespace


def _place_of(client: Client) -> tuple[frozenset[str], str]:
    return _place(client.settings.hosts, client.settings.namespace)


def _make(**options: Any) -> Client:
    with importing():
        from distsync._client.client import Client

    return Client(**options)


def set_default(client: Client | None) -> Client | None:
    """Set the default client. The previous one stays open.

    Args:
        client: The new default client; None lets the next use create one.

    Returns:
        The previous default client; None if there was none.
    """
    with current.lock:
        before, current.client = current.client, client
    return before


def close_default() -> None:
    """Close the default client, if there is one.

    The next use of `default_client` creates another.
    """
    with current.lock:
        client, current.client = current.client, None
    if client is not None:
        client.close()
