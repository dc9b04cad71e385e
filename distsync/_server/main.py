"""Open, run and close a server in this process.

``python -m distsync._server.main`` is only for autostart/find_or_start.py. It takes one JSON object of
arguments, and runs detached and without click.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from distsync._server.acl import digest_of
from distsync._server.autostart.address_file import (
    ADDRESS,
    USER,
    ServerAddress,
    read_address,
    read_private,
    write_address,
)
from distsync._server.autostart.daemonize import daemonize
from distsync._server.autostart.directories import make_folder, state_folder
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._server.file_lock import LockedByAnotherError, locked
from distsync._server.journal.change_records import pack_transaction
from distsync._server.journal.journal import Journal
from distsync._server.journal.journal_errors import JournalCorruptError, JournalError
from distsync._server.net.listener import ServeError, listen, tls_context
from distsync._server.net.log_limit import log_to_standard_error
from distsync._server.net.server import NetworkServer
from distsync._server.options import DEFAULT_OPTIONS, Options
from distsync.errors import DistsyncError

Item = TypeVar("Item")

DIGEST = re.compile(r"[^\s:]+:[A-Za-z0-9+/]{27}=")
USER_NAME = re.compile(r"[^\s:/@#][^\s:/@]*")

LOCK_S = 3.0
"""Maximum wait for the lock of the data folder, in case another server is just stopping."""

log = logging.getLogger("distsync.server")

EPOCH = 1_704_067_200
"""2024-01-01. The upper half of the first zxid of a new tree is the number of seconds since then (at least 1), so
that its zxids are above those of an earlier tree that was deleted."""


def serve(
    host: str,
    port: int | None,
    data_dir: str | os.PathLike[str],
    *,
    secret: str | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
    options: Options = DEFAULT_OPTIONS,
    address_file: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Run a server until SIGTERM, SIGINT, or ``idle_exit`` seconds without a session.

    Args:
        host: Name or address of the interface.
        port: Port number; 0 for any free port; None for the last port of this data folder, or
            otherwise any free port.
        data_dir: The data folder, which is created if needed.
        secret: If not None, clients must add the digest identity ``distsync:<secret>`` first.
        idle_exit: Seconds without a session after which the server stops; None for never.
        allow_remote: Whether to listen on an interface that other machines can reach without both
            encryption and authentication.
        options: Further options.
        address_file: An additional address file, which is deleted when the server stops.
        ready: Called once the server accepts connections.

    Raises:
        ServeError: The server could not be started.
        JournalError: The journal is corrupt, or cannot be written. A failed write is never
            acknowledged.
    """
    opened = open_server(
        host, port, data_dir, secret=secret, idle_exit=idle_exit, allow_remote=allow_remote, options=options
    )
    with opened as (server, listening):
        address = ServerAddress(host, listening.getsockname()[1], secret or "", os.getpid())
        with _published_address(address, Path(data_dir).absolute(), address_file, ready) as announce:
            gc.freeze()  # the loaded tree is long-lived: do not scan it again
            server.run(listening, announce)


@contextmanager
def open_server(
    host: str,
    port: int | None,
    data_dir: str | os.PathLike[str],
    *,
    secret: str | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
    options: Options = DEFAULT_OPTIONS,
) -> Iterator[tuple[NetworkServer, socket.socket]]:
    """Open a server that is ready to run, and its listening socket; close it after the block.

    The socket is bound first, so that a server that cannot listen changes nothing. Raises ServeError
    or JournalError.
    """
    tls = options.tls
    context = tls_context(tls) if tls else None
    _check_schemes(options)
    authenticated = secret or options.required_schemes or (tls is not None and tls.ca and not tls.optional)
    remote = allow_remote or (tls is not None and bool(authenticated))
    with closing(listen(host, port, Path(data_dir), remote=remote)) as listening:
        folder = _create_data_folder(Path(data_dir))
        with _locked(folder), closing(Journal(folder, sync_full=options.sync_full)) as journal:
            journal.check_space()
            engine = _restored_engine(journal, secret, options)
            yield (
                NetworkServer(engine, journal, secret=secret, idle_exit=idle_exit, options=options, tls=context),
                listening,
            )


def _schemes(options: Options) -> frozenset[str]:
    """Return the schemes by which clients can authenticate."""
    by_certificate = options.tls is not None and options.tls.ca is not None
    offered = {"x509": by_certificate, "sasl": options.passwords is not None}
    return frozenset(scheme for scheme, is_offered in offered.items() if is_offered)


def _check_schemes(options: Options) -> None:
    for scheme in options.required_schemes - _schemes(options):
        needs = {"x509": "--tls-ca", "sasl": "--sasl-users"}[scheme]
        raise ServeError(f"--require-auth {scheme} needs {needs}")


def _create_data_folder(data_dir: Path) -> Path:
    try:
        make_folder(data_dir.absolute())
    except OSError as error:
        raise ServeError(f"cannot create the data folder {data_dir}: {error}") from error
    return data_dir.absolute()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the data folder during the block."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / "lock", LOCK_S))
        except LockedByAnotherError:
            raise ServeError(f"the data folder {folder} is in use by {_lock_holder(folder)}") from None
        except OSError as error:
            raise ServeError(f"cannot lock the data folder {folder}: {error}") from error
        yield


def _lock_holder(folder: Path) -> str:
    owner = read_address(folder / ADDRESS)
    return f"the server at {owner.hosts} (process {owner.pid})" if owner else "another server"


@contextmanager
def _published_address(
    address: ServerAddress, folder: Path, user_file: Path | None, ready: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Yield a function that writes the address files. After the block, delete the additional one."""

    def announce() -> None:
        try:
            for file in (folder / ADDRESS, user_file):
                if file:
                    write_address(file, address)
            print(f"listening on {address.hosts}", flush=True)
        except OSError as error:
            raise ServeError(f"cannot announce the address {address.hosts}: {error}") from error
        ready()

    try:
        yield announce
    finally:
        if user_file and read_address(user_file) == address:
            user_file.unlink(missing_ok=True)


def _restored_engine(journal: Journal, secret: str | None, options: Options) -> Engine:
    """Create an engine with the state from the journal."""
    contents = journal.load()
    required = digest_of(f"{USER}:{secret}".encode()) if secret else None
    first_zxid = max(1, int(time.time() - EPOCH)) << 32
    config = EngineConfig(
        secret=contents.secret,
        required_digest=required,
        initial_zxid=first_zxid,
        jute_maxbuffer=options.jute_maxbuffer,
        super_digest=options.super_digest,
        schemes=_schemes(options),
        required_schemes=options.required_schemes,
        enforce_quota=options.enforce_quota,
        container_interval_ms=max(1, round(options.reaping_seconds * 1000)),
    )
    engine = Engine(config)
    try:
        if contents.snapshot:
            engine.restore(_consume(contents.snapshot))
        else:
            journal.compact(engine.snapshot())
        for _, payload in _consume(contents.records):
            engine.replay(payload)
        engine.tree.recount_quotas()
        if contents.may_have_lost_appends:
            _begin_epoch(engine, journal, contents.lost)
        if engine.zxid < 0:  # tree of an earlier version, created on a clock before 2024
            _advance_zxid(first_zxid, engine, journal)
    except JournalError:
        raise
    except DistsyncError as error:
        raise JournalCorruptError(journal.path, error) from error
    return engine


def _begin_epoch(engine: Engine, journal: Journal, lost: int) -> None:
    """Continue above all zxids that were lost, because clients that have seen them refuse a server with lower ones."""
    lost_writes = f"the last {lost} or more groups of writes are" if lost else "some of the last writes may be"
    log.error("the server was killed and the machine rebooted: %s lost (use --sync full to prevent this)", lost_writes)
    _advance_zxid(((engine.zxid >> 32) + 1) << 32, engine, journal)


def _advance_zxid(zxid: int, engine: Engine, journal: Journal) -> None:
    payload = pack_transaction(zxid, time.time_ns() // 1_000_000, ())
    engine.replay(payload)
    journal.append([(zxid, payload)], synced=True)  # another crash must not reuse the same zxids


def _consume(items: list[Item]) -> Iterator[Item]:
    """Iterate over the items, freeing each, because together they are as large as the state."""
    items.reverse()
    while items:
        yield items.pop()


def read_secret(path: Path) -> str:
    """Read a secret from a private file. Raises ServeError."""
    secret = _read_private(path, "the secret").strip()
    if not secret or ":" in secret:
        raise ServeError(f"{path} must contain a secret, in one line without colons")
    return secret


def read_passwords(path: Path) -> dict[str, str]:
    """Read passwords by user from a private file.

    Its lines are ``user:password``, blank, or comments that start with ``#``. Raises ServeError,
    which contains the line number but not the content of the line.
    """
    passwords: dict[str, str] = {}
    for number, line in enumerate(_read_private(path, "passwords").split("\n"), 1):
        user, _, password = line.removesuffix("\r").partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not (USER_NAME.fullmatch(user) and password):
            raise ServeError(
                f"{path}, line {number} must be user:password, and the user must not contain blanks, / or @"
            )
        if user == "super" or user in passwords:
            why = (
                "the user super is reserved, ACLs of ZooKeeper do not apply to it"
                if user == "super"
                else "duplicate user"
            )
            raise ServeError(f"{path}, line {number}: {why}")
        passwords[user] = password
    return passwords


def read_digest(path: Path) -> str:
    """Read the super user's digest from a private file. Raises ServeError."""
    digest = _read_private(path, "the super user's digest").strip()
    if not DIGEST.fullmatch(digest):
        raise ServeError(f"{path} must contain USER:BASE64(SHA1(USER:PASSWORD)), in one line")
    return digest


def _read_private(path: Path, what: str) -> str:
    try:
        content = read_private(path)
        if content is None:
            raise ServeError(f"{path} contains {what}: it must belong to this user and have mode 0600")
        return io.StringIO(content.decode(), newline=None).read()
    except UnicodeError:
        raise ServeError(f"cannot read {path}: it is not UTF-8") from None  # the error would show its content
    except OSError as error:
        raise ServeError(f"cannot read {path} ({what}): {error}") from error


def _prepare_process() -> None:
    """Set up logging, garbage collection, the umask, and the limit of open files."""
    log_to_standard_error()
    gc.set_threshold(20_000, 20, 100)  # most new objects are znodes, which are long-lived
    os.umask(0o077)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(
    host: str,
    port: int,
    data_dir: Path | None = None,
    *,
    secret_file: Path | None = None,
    users_file: Path | None = None,
    super_file: Path | None = None,
    idle_exit: float | None = None,
    allow_remote: bool = False,
    options: Options = DEFAULT_OPTIONS,
) -> int:
    """Run `serve` for the command line. Print errors to standard error, and return the exit status."""
    _prepare_process()
    try:
        folder = data_dir or state_folder() / "serve"
        secret = read_secret(secret_file) if secret_file else None
        if users_file:
            options = replace(options, passwords=read_passwords(users_file))
        if super_file:
            options = replace(options, super_digest=read_digest(super_file))
        serve(host, port, folder, secret=secret, idle_exit=idle_exit, allow_remote=allow_remote, options=options)
    except DistsyncError as error:
        print(f"distsync serve: {error}", file=sys.stderr)
        return 1
    return 0


def main(argument: str) -> int:
    """Run the embedded server in a detached process."""
    options = json.loads(argument)
    secret = read_secret(Path(options["secret_file"]))

    def work(ready: Callable[[], None]) -> None:
        _prepare_process()
        serve(
            "127.0.0.1",
            None,
            options["data_dir"],
            secret=secret,
            idle_exit=options["idle_exit"],
            address_file=Path(options["address_file"]),
            ready=ready,
        )

    try:
        return daemonize(work)
    except DistsyncError as error:
        logging.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
