"""TLS as a client: whom it trusts, and how a connection is made.

Rules for this file: sockets and ssl only; no kazoo. kazoo's own way takes any authority of the system beside the given
one, a certificate only together with a file for its key, and, before 2.9, any host's name in a certificate.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from distsync._client.clocks import wait_clock
from distsync.errors import ConfigurationError


def context_of(
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    password: str | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """``ca`` alone is trusted, without one the system's authorities are; the certificate has to name the host that was
    asked for. The files are read anew for each connection, so certificates may be renewed. Raises OSError."""
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key, password or _no_password)
    return context


def check_files(ca: str | None, cert: str | None, key: str | None, password: str | None) -> None:
    """Raises: ConfigurationError for what cannot be read, or is no certificate or key, now."""
    with_key = "it must be a PEM file of a certificate, with its key or one in tls_key"
    for name, file, of_certificate, allowed in (
        ("tls_ca", ca, (), "it must be a PEM file of certificates"),
        ("tls_cert", cert, (cert, key, password), with_key),
    ):
        try:
            if file is not None:
                context_of(ca, *of_certificate)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(name, file, f"{allowed} ({error})") from None


def _no_password() -> str:
    """Else OpenSSL would ask at the terminal."""
    return ""


def connect(address: tuple[str, int], host: str, context: ssl.SSLContext, seconds: float) -> ssl.SSLSocket:
    """A connection to ``address``, which has shown to be ``host``. Raises OSError."""
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
