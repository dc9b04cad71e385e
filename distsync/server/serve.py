"""``serve``: a server in this process, from the lock on its data folder to its last farewell.

Rules for this file: it opens what a server needs in the order in which it can be refused, and decides nothing else.
``python -m distsync.server.serve`` is for startup.py alone: one JSON object of arguments, detached, no click needed.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import random
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from distsync.errors import DistsyncError, WorldError
from distsync.server.acl import digest_of
from distsync.server.address import ADDRESS, USER, Address, is_private, read_address, write_address
from distsync.server.config import EngineConfig
from distsync.server.detach import detached
from distsync.server.engine import Engine
from distsync.server.folders import state_folder
from distsync.server.journal import Journal, JournalCorruptError
from distsync.server.rim import Rim

LOCK_SECONDS = 3.0
"""A server that is just stopping gives its folder up within that."""

OWN_PORTS = range(20_000, 32_768)
"""Below the ports that systems give to outgoing connections (Linux: from 32768), so that it is free again later."""

BACKLOG = 1024
EPOCH = 1_704_067_200
"""2024-01-01: a new tree's zxids start at the seconds since then, above those of a tree that was thrown away."""


class ServeError(WorldError):
    """The server cannot start. Fields: one sentence that says why."""


def serve(
    host: str,
    port: int | None,
    data_dir: str | os.PathLike[str],
    *,
    secret: str | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
    address_file: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """The server has served and was stopped: by SIGTERM, SIGINT, or ``idle_exit`` seconds without a session.

    Units: ``port`` 0 is any free one; None is the one of last time, or else any free one. ``idle_exit`` None is never.
    With a ``secret``, who does not show it as digest identity ``distsync:<secret>`` is refused everything.
    Raises: ServeError (nothing was started), JournalError (it is corrupt, or the disk is full: nothing that was
    acknowledged is lost)."""
    given = opened(host, port, data_dir, secret=secret, idle_exit=idle_exit, allow_remote=allow_remote)
    with given as (rim, listening):
        address = Address(host, listening.getsockname()[1], secret or "", os.getpid())
        with _announced(address, Path(data_dir).absolute(), address_file, ready) as announce:
            rim.run(listening, announce)


@contextmanager
def opened(
    host: str,
    port: int | None,
    data_dir: str | os.PathLike[str],
    *,
    secret: str | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
) -> Iterator[tuple[Rim, socket.socket]]:
    """A server that can be run, its socket bound, its folder locked, its journal read; all are given up at the end.

    Raises: ServeError, JournalError."""
    with closing(_listen(host, port, Path(data_dir), allow_remote)) as listening:
        folder = _folder(Path(data_dir))
        with _locked(folder), closing(Journal(folder)) as journal:
            yield Rim(_engine(journal, secret), journal, secret=secret, idle_exit=idle_exit), listening


def _folder(data_dir: Path) -> Path:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ServeError(f"{data_dir} cannot be the data folder: {error}") from error
    return data_dir.absolute()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two servers never share a folder."""
    lock = FileLock(folder / "lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        owner = read_address(folder / ADDRESS)
        who = f"the server at {owner.hosts} (process {owner.pid})" if owner else "another server"
        raise ServeError(f"the data folder {folder} is in use by {who}") from None
    except OSError as error:
        raise ServeError(f"the data folder {folder} cannot be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _announced(
    address: Address, folder: Path, user_file: Path | None, ready: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """What is to be called when the server can be found; when the block is over, it can no longer be."""

    def announce() -> None:
        for file in (folder / ADDRESS, user_file):
            if file:
                write_address(file, address)
        print(f"listening on {address.hosts}", flush=True)
        ready()

    try:
        yield announce
    finally:
        if user_file and read_address(user_file) == address:
            user_file.unlink(missing_ok=True)


def _engine(journal: Journal, secret: str | None) -> Engine:
    """The state as it was when the journal was last written to."""
    contents = journal.load()
    required = digest_of(f"{USER}:{secret}".encode()) if secret else None
    first_zxid = int(time.time() - EPOCH) << 32
    engine = Engine(EngineConfig(secret=contents.secret, required_digest=required, initial_zxid=first_zxid))
    try:
        if contents.snapshot:
            engine.restore(contents.snapshot)
        else:
            journal.compact(engine.snapshot())
        for _, payload in contents.records:
            engine.replay(payload)
    except DistsyncError as error:
        raise JournalCorruptError(journal.path, error) from error
    return engine


def _listen(host: str, port: int | None, data_dir: Path, allow_remote: bool) -> socket.socket:
    """Bound before anything else is touched: who cannot listen changes nothing."""
    family, where = _resolve(host, allow_remote)
    refusal = OSError()
    for candidate in _ports(port, data_dir):
        listening = socket.socket(family)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((where, candidate))
            listening.listen(BACKLOG)
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


def _resolve(host: str, allow_remote: bool) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ServeError(f"{host!r} is no address of this machine: {error}") from error
    where = str(address[0])
    if not allow_remote and not ipaddress.ip_address(where.partition("%")[0]).is_loopback:
        raise ServeError(
            f"{host} can be reached from other machines, and nothing here is encrypted: "
            "listen on 127.0.0.1, or say --allow-remote"
        )
    return family, where


def read_secret(path: Path) -> str:
    """The content of a file that nobody else may read, without the line's end."""
    try:
        if not is_private(path):
            raise ServeError(f"{path} must belong to this user with mode 0600, it holds the secret")
        secret = path.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise ServeError(f"the secret cannot be read from {path}: {error}") from error
    if not secret or ":" in secret:
        raise ServeError(f"{path} must hold a secret, in one line without colons")
    return secret


def _prepare_process() -> None:
    """It logs, and may have as many connections as the system allows it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(
    host: str,
    port: int,
    data_dir: Path | None = None,
    *,
    secret_file: Path | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
) -> int:
    """serve() by hand; what it raises is one line on standard error. Returns the exit status."""
    _prepare_process()
    try:
        folder = data_dir or state_folder() / "serve"
        secret = read_secret(secret_file) if secret_file else None
        serve(host, port, folder, secret=secret, idle_exit=idle_exit, allow_remote=allow_remote)
    except DistsyncError as error:
        print(f"distsync serve: {error}", file=sys.stderr)
        return 1
    return 0


def main(argument: str) -> int:
    """The embedded server, in a process of its own."""
    given = json.loads(argument)
    secret = read_secret(Path(given["secret_file"]))

    def work(ready: Callable[[], None]) -> None:
        _prepare_process()
        serve(
            "127.0.0.1",
            None,
            given["data_dir"],
            secret=secret,
            idle_exit=given["idle_exit"],
            address_file=Path(given["address_file"]),
            ready=ready,
        )

    try:
        return detached(work)
    except DistsyncError as error:
        logging.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
