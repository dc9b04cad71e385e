"""The address file of a server, readable by its user only, and the proof of its identity.

The secret is never sent to a server that has not proved its identity.

For the proof, a client sends the word ``prov`` and 32 random bytes. The server answers with an HMAC
of them and of its own port under the secret. Another program on the port is therefore recognized
and learns nothing. It cannot forward the request to the true server, whose answer would contain
another port.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from distsync._pickle import public_in

PROVE = b"prov"
NONCE_BYTES = 32
PROOF_BYTES = 32
SECRET_BYTES = 32
PROBE_S = 2.0
USER = "distsync"
ADDRESS = "address"
"""File name, in the data folder (permanent) and in the user's runtime folder (while the server runs)."""

#: A steady clock. freezegun replaces ``time.monotonic``, also in modules that have imported it, but no partial.
monotonic = (
    partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    if hasattr(time, "CLOCK_MONOTONIC")
    else partial(time.monotonic)  # Windows
)


@public_in("distsync")
@dataclass(frozen=True)
class ServerAddress:
    """The address of a user's embedded server, and the secret that it requires.

    Attributes:
        host: Address of an interface, usually loopback.
        port: TCP port.
        secret: Part of `credential`.
        pid: Process id; 0 if unknown.
    """

    host: str
    port: int
    secret: str = field(repr=False)
    pid: int = 0

    @property
    def hosts(self) -> str:
        """Host and port, as ``kazoo.client.KazooClient(hosts=...)`` accepts them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def credential(self) -> tuple[str, str]:
        """Scheme and credential for kazoo's ``auth_data``.

        Without it, the server rejects every request with NoAuth.
        """
        return "digest", f"{USER}:{self.secret}"


def make_secret(folder: Path) -> Path:
    """Return the file with the user's secret, creating it only once, so that it stays valid after a restart."""
    path = folder / "secret"
    if not path.exists():
        write_private(path, secrets.token_hex(SECRET_BYTES).encode())
    return path


def write_address(path: Path, address: ServerAddress) -> None:
    """Write an address file atomically, with mode 0600."""
    write_private(path, json.dumps(asdict(address)).encode() + b"\n")


def read_address(path: Path) -> ServerAddress | None:
    """Read an address file. Return None if it is missing, invalid or not private."""
    try:
        content = read_private(path)
        address = None if content is None else ServerAddress(**json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    if address is None:
        return None
    expected = {"host": str, "port": int, "secret": str, "pid": int}
    return address if all(type(getattr(address, name)) is kind for name, kind in expected.items()) else None


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, with mode 0600. An OSError names the file, and leaves nothing behind."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # otherwise a crash of the machine may leave an empty file
        os.replace(draft, path)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)
        raise


def read_private(path: Path) -> bytes | None:
    """Return the content of a file; None if another user owns it, or can read or write it.

    The open file is checked, not its path: a user who can rename files in a folder above could
    replace it in between.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        is_private = found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
        return file.read() if is_private else None


def prove(secret: str, nonce: bytes, port: int) -> bytes:
    """Return the proof that a server on ``port`` knows ``secret``."""
    return hmac.digest(secret.encode(), b"distsync server %d " % port + nonce, "sha256")


def is_alive(address: ServerAddress, timeout: float = PROBE_S) -> bool:
    """Whether the server at ``address`` answers and proves that it has this secret. ``timeout`` is in seconds."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    deadline = monotonic() + timeout
    try:
        with socket.create_connection((address.host, address.port), timeout) as sock:
            sock.sendall(PROVE + nonce)
            proof = _receive(sock, deadline)
    except OSError:
        return False
    return hmac.compare_digest(proof, prove(address.secret, nonce, address.port))


def _receive(sock: socket.socket, deadline: float) -> bytes:
    proof = b""
    while len(proof) < PROOF_BYTES:
        sock.settimeout(max(0.001, deadline - monotonic()))
        data = sock.recv(PROOF_BYTES - len(proof))
        if not data:
            break
        proof += data
    return proof
