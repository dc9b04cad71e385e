"""``find_or_start()``: this user's embedded server, started if there is none.

Rules for this file: clients import it, so it imports no asyncio, no engine and no kazoo; and it works without click.

A server is found by its address file, in the runtime folder or beside its data, and only if it proves that it has the
secret written there: a stale file, or another program on the port, is not mistaken for it. Who finds none takes the
lock, looks again, and starts one: so there is one server, however many processes look at once. (The server itself
holds another lock on its data, as long as it lives.) The server keeps its port, its secret and its data over restarts:
clients that were connected come back to it by themselves, in their sessions.

Whoever runs the user's processes can read the secret; other users of the machine cannot, and get nothing answered.
Between the death of a server and its restart another user could listen on its port: so clients ask for the proof
before each connection, the first and the later ones. (kazoo alone, given the address and the secret, would not.)
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import time
from pathlib import Path

import filelock

import distsync.errors
from distsync._server.autostart.address_file import ADDRESS, ServerAddress, is_alive, make_secret, read_address
from distsync._server.autostart.directories import runtime_folder, state_folder
from distsync._server.file_lock import LockedByAnotherError, locked, open_private
from distsync.errors import ConfigurationError, ServerStartError

__all__ = ["ServerAddress", "find", "find_or_start", "is_alive"]

START_S = 30.0
"""A process waits so long for a server, its own or one that another process is just starting."""

#: Variables that are the clients', and that a server which outlives them has no need to know.
SECRETS = frozenset(f"DISTSYNC_{name}" for name in ("AUTH", "AUTHKEY", "AUTHKEYS_ACCEPTED", "TLS_KEY_PASSWORD"))

IDLE_EXIT = "DISTSYNC_IDLE_EXIT"
IDLE_EXIT_S = 600.0
LOG_BYTES = 1 << 20
"""A longer log is put aside, in the place of the one put aside before."""


def find(create_folders: bool = True) -> ServerAddress | None:
    """Return the running server of this user, proven; None if there is none."""
    files = (runtime_folder(create_folders) / ADDRESS, state_folder(create_folders) / "data" / ADDRESS)
    written = dict.fromkeys(address for address in map(read_address, files) if address and address.secret)
    return next(filter(is_alive, written), None)


def find_or_start(timeout: float = START_S) -> ServerAddress:
    """The running server of this user, which proved itself just now.

    Units: ``timeout`` in seconds.
    Raises: ServerStartError (the reason is the server's own), ConfigurationError (a folder or setting of no use).
    Cost: one connection to loopback when it runs; a new Python process when not."""
    return find() or _start_once(time.monotonic() + timeout)


def _start_once(deadline: float) -> ServerAddress:
    state = state_folder()
    try:
        with locked(state / "start.lock", max(0.0, deadline - time.monotonic())):
            return find() or _start(state, deadline)
    except LockedByAnotherError:
        raise ServerStartError("another process has been starting it for too long", state / "server.log") from None


def _start(state: Path, deadline: float) -> ServerAddress:
    """Called with the lock held."""
    log = state / "server.log"
    try:
        reason = _launch(state, log, max(1.0, deadline - time.monotonic()))
    except OSError as error:
        reason = str(error)
    except subprocess.TimeoutExpired:
        reason = "it takes too long"
    address = None if reason else find()
    if address is None:
        raise ServerStartError(reason or "it did not prove to be the server that was started", log)
    return address


def _launch(state: Path, log: Path, timeout: float) -> str:
    """The server is ready, as nobody's child; or what it said instead."""
    arguments = {
        "data_dir": str(state / "data"),
        "address_file": str(runtime_folder() / ADDRESS),
        "secret_file": str(make_secret(state)),
        "idle_exit": _idle_exit(),
    }
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".old"))
    with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
        process = subprocess.run(
            [_python(), "-m", "distsync._server.main", json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=state,
            env=server_environment(),
            timeout=timeout,
            check=False,
        )
    return "" if process.returncode == 0 else process.stdout.decode(errors="replace").strip() or "it ended at once"


def _idle_exit() -> float:
    setting = os.environ.get(IDLE_EXIT) or IDLE_EXIT_S
    try:
        seconds = float(setting)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ConfigurationError(IDLE_EXIT, setting, "it is a number of seconds above 0")
    return seconds


def _python() -> str:
    if not sys.executable:
        raise ConfigurationError("sys.executable", sys.executable, "there is no Python to start the server with")
    return sys.executable


def server_environment() -> dict[str, str]:
    """The server finds the packages that were found here, also where they are not installed."""
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    roots = [str(Path(str(module.__file__)).resolve().parents[1]) for module in (distsync.errors, filelock)]
    added = [root for root in roots if root not in installed]
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), *dict.fromkeys(added)]
    passed_on = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return {**passed_on, **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}
