"""The listening socket of a server, and its TLS context."""

from __future__ import annotations

import ipaddress
import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from distsync._server.autostart.address_file import ADDRESS, read_address
from distsync._server.net.event_loop import backlog
from distsync._server.options import Tls
from distsync.errors import UnavailableError

OWN_PORTS = range(20_000, 32_768)
"""Ports below those of outgoing connections (on Linux from 32768), so that the port is free again after a restart."""


class ServeError(UnavailableError):
    """The server cannot start. Its ``args`` are the reason."""


def listen(host: str, port: int | None, data_dir: Path, *, remote: bool) -> socket.socket:
    """Open a listening socket.

    Args:
        host: Name or address of the interface.
        port: Port number; 0 for any free port; None for the last port of this data folder, or
            otherwise any free port.
        data_dir: The server's data folder.
        remote: Whether the interface may be reachable from other machines.

    Returns:
        The listening socket.

    Raises:
        ServeError: The socket cannot be opened.
    """
    family, where = _resolve(host, remote)
    refusal = OSError()
    for candidate in _ports(port, data_dir):
        listening = socket.socket(family)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((where, candidate))
            listening.listen(backlog())
        except (OSError, OverflowError) as error:
            listening.close()
            refusal = OSError(*error.args[:2])
        else:
            return listening
    reason = refusal.strerror or refusal
    raise ServeError(f"cannot listen on {host}:{port}: {reason}. Stop the program that uses it, or pass another --port")


def _ports(port: int | None, data_dir: Path) -> Iterator[int]:
    if port is not None:
        yield port
        return
    last = read_address(data_dir / ADDRESS)
    if last:
        yield last.port
    yield from random.sample(OWN_PORTS, 20)
    yield 0


def _resolve(host: str, remote: bool) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ServeError(f"{host!r} is not an address of this machine: {error}") from error
    where = str(address[0])
    if not remote and not ipaddress.ip_address(where.partition("%")[0]).is_loopback:
        raise ServeError(
            f"{host} can be reached from other machines, which requires both encryption and authentication: "
            "listen on 127.0.0.1; or pass --tls-cert with --tls-ca, --secret-file or --require-auth; or pass "
            "--allow-remote"
        )
    return family, where


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Create the TLS context of a server. Raises ServeError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    path = tls.certificate
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")  # never prompt on the terminal
        if tls.ca:
            path = tls.ca
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_OPTIONAL if tls.optional else ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ServeError(f"cannot use {path} (with its key) for TLS: {error}") from error
    return context
