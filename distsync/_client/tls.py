"""TLS connections of a client.

kazoo's own TLS trusts the system's authorities in addition to the given ones, needs the key in a
separate file and, before 2.9, accepts a certificate of any host.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from distsync._client.clocks import wait_clock
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ConfigurationError


def context_of(
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    password: str | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Return a context that trusts only ``ca`` or, without it, the system's authorities.

    The certificate must match the requested host, unless ``verify`` is False. The files are read
    for each connection, so that certificates can be renewed. Raise OSError.
    """
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key, password or _no_password)
    return context


def check_files(ca: str | None, cert: str | None, key: str | None, password: str | None) -> None:
    """Raise ConfigurationError for a file that cannot be read, or has no certificate or key."""
    with_key = "it must be a PEM file of a certificate, with its key or one in tls_key"
    for name, file, of_certificate, allowed in (
        ("tls_ca", ca, (), "it must be a PEM file of certificates"),
        ("tls_cert", cert, (cert, key, password), with_key),
    ):
        try:
            if file is not None:
                context_of(ca, *of_certificate)
        except OSError as error:  # ssl.SSLError is one
            raise_if_from_handler(error)
            raise ConfigurationError(name, file, f"{allowed} ({error})") from None


def _no_password() -> str:
    """Return an empty password. Without a callback OpenSSL would prompt at the terminal."""
    return ""


def connect(address: tuple[str, int], host: str, context: ssl.SSLContext, seconds: float) -> ssl.SSLSocket:
    """Connect to ``address``, and verify that it is ``host``. Raise OSError."""
    until = wait_clock() + seconds
    plain = socket.create_connection(address, seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(max(0.001, until - wait_clock()))
        return context.wrap_socket(plain, server_hostname=host.strip("[]"))
    except BaseException:
        with contextlib.suppress(OSError):
            plain.close()
        raise
