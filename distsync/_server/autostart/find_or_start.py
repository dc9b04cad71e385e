"""Find or start the embedded server of the user.

Invariant: clients import this module, so it must not import asyncio, the engine, kazoo or click.

A server is found by its address file, in the runtime folder or in its data folder, and only if it
proves that it has the secret in that file. A stale file, or another program on the port, is thus not
mistaken for it. If there is none, a process takes a lock, looks again, and starts one, so that only
one server is started. (The server itself holds another lock on its data while it runs.) Port, secret
and data survive a restart, so that connected clients reconnect to their sessions.

Other users of the machine cannot read the secret, and their requests are refused. Between a crash of
the server and its restart, another user could listen on its port. Clients therefore ask for the proof
before each connection. (kazoo alone, given the address and the secret, does not.)
"""

from __future__ import annotations

import errno
import json
import os
import site
import socket
import subprocess
import sys
from pathlib import Path

import platformdirs

import distsync.errors
from distsync._server.autostart.address_file import (
    ADDRESS,
    PROBE_S,
    ServerAddress,
    is_alive,
    make_secret,
    monotonic,
    read_address,
)
from distsync._server.autostart.directories import STATE, runtime_folder, state_folder
from distsync._server.file_lock import LockedByAnotherError, locked, open_private
from distsync.errors import ConfigurationError, ServerStartError

__all__ = ["ServerAddress", "find", "find_or_start", "is_alive"]

START_S = 30.0
"""Maximum wait in seconds for the server, also if another process is starting it."""

#: Variables with secrets of clients, which are not passed on to the server.
SECRETS = frozenset(f"DISTSYNC_{name}" for name in ("AUTH", "AUTHKEY", "AUTHKEYS_ACCEPTED", "TLS_KEY_PASSWORD"))

#: Errors of a disk without free space, or on which this user may occupy no more.
DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

IDLE_EXIT = "DISTSYNC_IDLE_EXIT"
IDLE_EXIT_S = 600.0
LOG_BYTES = 1 << 20
"""Size of the log above which it is rotated. One old log is kept."""


def identity() -> str:
    """Return the user, host and folder of the user's server, which tell it from all other servers."""
    return f"{os.getuid()}@{socket.gethostname()}:{state_folder(create=False)}"


def find(create_folders: bool = True, timeout: float = PROBE_S) -> ServerAddress | None:
    """Return the running server of this user, which has proved its identity; None if there is none.

    ``timeout`` is the maximum wait for the proof, in seconds.
    """
    files = (runtime_folder(create_folders) / ADDRESS, state_folder(create_folders) / "data" / ADDRESS)
    written = dict.fromkeys(address for address in map(read_address, files) if address and address.secret)
    return next((address for address in written if is_alive(address, timeout)), None)


def find_or_start(timeout: float = START_S) -> ServerAddress:
    """Return the running server of this user, which has proved its identity; start it if needed.

    Args:
        timeout: Maximum wait in seconds.

    Returns:
        The address of the server.

    Raises:
        ServerStartError: The server could not be started.
        ConfigurationError: A folder or setting is invalid.
    """
    return find() or _start_once(monotonic() + timeout)


def _start_once(deadline: float) -> ServerAddress:
    state = state_folder()
    try:
        with locked(state / "start.lock", max(0.0, deadline - monotonic())):
            return find() or _start(state, deadline)
    except ServerStartError:
        raise
    except LockedByAnotherError:
        raise ServerStartError("timed out while another process was starting it", state / "server.log") from None
    except OSError as error:
        if error.errno in DISK_FULL:
            raise ServerStartError(str(error), state / "server.log") from error
        raise ConfigurationError(STATE, str(state), f"the folder must be writable: {error}") from error


def _start(state: Path, deadline: float) -> ServerAddress:
    """Start the server. Must be called with the lock held."""
    log = state / "server.log"
    try:
        reason = _launch(state, log, max(1.0, deadline - monotonic()))
    except OSError as error:
        reason = str(error)
    except subprocess.TimeoutExpired:
        reason = "timed out"
    address = None if reason else find(timeout=max(PROBE_S, deadline - monotonic()))
    if address is None:
        raise ServerStartError(reason or "it ended again, or did not prove its identity", log)
    return address


def _launch(state: Path, log: Path, timeout: float) -> str:
    """Start the server in a detached process and wait until it is ready. Return the error; "" if none."""
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
    return (
        ""
        if process.returncode == 0
        else process.stdout.decode(errors="replace").strip() or f"{process.args[0]} exited without a message"
    )


def _idle_exit() -> float:
    setting = os.environ.get(IDLE_EXIT) or IDLE_EXIT_S
    try:
        seconds = float(setting)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ConfigurationError(IDLE_EXIT, setting, "it must be a number of seconds above 0")
    return seconds


def _python() -> str:
    """Return the Python interpreter.

    In a program that embeds Python, such as uWSGI, ``sys.executable`` is that program, and the
    interpreter is in the folder of the virtual environment or of the installation.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = [
        os.path.join(prefix, folder, file)
        for prefix in (sys.prefix, sys.base_prefix)
        for folder, file in (("bin", name), ("bin", "python3"), ("bin", "python"), ("", "python.exe"))
    ]
    if os.path.basename(sys.executable or "").lower().startswith(("python", "pypy")):
        return sys.executable
    found = next(filter(os.path.isfile, installed), sys.executable)
    if not found:
        raise ConfigurationError("sys.executable", sys.executable, "the server needs a Python interpreter")
    return found


def server_environment() -> dict[str, str]:
    """Return environment variables with which the server finds distsync and platformdirs even if not installed."""
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    roots = [str(Path(str(module.__file__)).resolve().parents[1]) for module in (distsync.errors, platformdirs)]
    added = [root for root in roots if root not in installed]
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), *dict.fromkeys(added)]
    passed_on = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return {**passed_on, **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}
