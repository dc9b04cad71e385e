"""The socket that a server listens on, and the certificate that it shows there.

Rules for this file: it opens what was asked for, or says in one sentence why not; it knows no server.
"""

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
"""Below the ports that systems give to outgoing connections (Linux: from 32768), so that it is free again later."""


class ServeError(UnavailableError):
    """The server cannot start. Fields: one sentence that says why."""


def listen(host: str, port: int | None, data_dir: Path, *, remote: bool) -> socket.socket:
    """Bound before anything else is touched: who cannot listen changes nothing.

    Units: ``port`` 0 is any free one; None is the one of last time, or else any free one. ``remote`` says whether
    other machines may reach it. Raises ServeError."""
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
    raise ServeError(f"cannot listen on {host}:{port}: {reason}. Stop the program that does, or take another --port")


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
        raise ServeError(f"{host!r} is no address of this machine: {error}") from error
    where = str(address[0])
    if not remote and not ipaddress.ip_address(where.partition("%")[0]).is_loopback:
        raise ServeError(
            f"{host} can be reached from other machines, and not both encryption and authentication are on: "
            "listen on 127.0.0.1; or give --tls-cert with --tls-ca, --secret-file or --require-auth; or say "
            "--allow-remote"
        )
    return family, where


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What the server shows, and what it wants to be shown. Raises ServeError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    path = tls.certificate
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")  # never asks at the terminal
        if tls.ca:
            path = tls.ca
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_OPTIONAL if tls.optional else ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ServeError(f"{path} (with its key) cannot be used for TLS: {error}") from error
    return context
