"""A test's server, in a thread of the test's process or as a process of its own.

Both have the same methods, but only a process can be killed. Faults of connections are the proxy's
task. The process, ``python -m distsync.testing.server_host PORT FOLDER``, ends with the test even
if that is killed: it reads its standard input until the other end is closed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from distsync._server.autostart.find_or_start import server_environment
from distsync._server.file_lock import open_private
from distsync._server.main import open_server, serve
from distsync._server.net.server import NetworkServer
from distsync._server.options import DEFAULT_OPTIONS, Options, Tls
from distsync.errors import ServerStartError, UsageError

LOOPBACK = "127.0.0.1"
STOP_S = 10.0
"""Seconds after which a process that has not ended is killed."""


class Host:
    """A running server with its data in ``folder``."""

    def __init__(self, folder: Path, options: Options = DEFAULT_OPTIONS) -> None:
        self.folder, self.options = folder, options

    def start(self, port: int | None) -> int:
        """Start the server on ``port`` (None for a free one). Return the port."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the server in good order."""
        raise NotImplementedError

    def pause(self) -> None:
        """Suspend the server; its sockets stay open."""
        raise NotImplementedError

    def resume(self) -> None:
        """Resume the server. Does nothing if it is not paused."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill the server, without a chance to clean up."""
        raise UsageError("a server in a thread cannot be killed: make it with EmbeddedServer(process=True)")


class ThreadHost(Host):
    """A server in a thread."""

    def start(self, port: int | None) -> int:
        self._resumed = threading.Event()
        self._resumed.set()
        self._failure: BaseException | None = None
        self._ready: Future[tuple[NetworkServer, int]] = Future()
        self._thread = threading.Thread(target=self._serve, args=(port,), name="distsync-server", daemon=True)
        self._thread.start()
        self._server, given = self._ready.result()
        return given

    def stop(self) -> None:
        self.resume()
        with suppress(RuntimeError):  # it has stopped already
            self._server.stop()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        self._resumed.clear()
        self._server.call_soon_threadsafe(self._resumed.wait)

    def resume(self) -> None:
        self._resumed.set()

    def _serve(self, port: int | None) -> None:
        try:
            with open_server(LOOPBACK, port, self.folder, options=self.options) as (server, listening):
                server.run(listening, lambda: self._ready.set_result((server, listening.getsockname()[1])))
        except BaseException as error:
            if self._ready.done():
                self._failure = error
            else:
                self._ready.set_exception(error)


class ProcessHost(Host):
    """A server as a child process."""

    def start(self, port: int | None) -> int:
        log = self.folder / "server.log"
        words = [sys.executable, "-m", __name__, str(port or ""), str(self.folder)]
        with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=server_environment()
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(_packed(self.options))
            self._process.stdin.flush()
        line = self._process.stdout.readline().decode()
        if not line:
            self.kill()
            raise ServerStartError("it ended at once", log)
        return int(line.rpartition(":")[2])

    def stop(self) -> None:
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        # until all its threads are stopped
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def _packed(options: Options) -> bytes:
    """Encode the options that a test gives as one line for standard input, because they contain
    passwords.
    """
    tls = options.tls
    files = tls and [tls.optional, *map(str, (tls.certificate, tls.key, tls.ca or ""))]
    passwords = None if options.passwords is None else dict(options.passwords)
    return json.dumps([files, passwords, sorted(options.required_schemes)]).encode() + b"\n"


def _parse_options() -> Options:
    """Read the options from standard input, without a buffer, as in _end_with_parent."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1) or b"\n"
    files, passwords, schemes = json.loads(line)
    tls = None
    if files is not None:
        optional, certificate, key, ca = files
        tls = Tls(Path(certificate), Path(key), Path(ca) if ca else None, optional)
    return Options(tls=tls, passwords=passwords, required_schemes=frozenset(schemes))


def _end_with_parent() -> None:
    """Terminate this process when standard input ends. A buffered reader that is waiting could not be
    closed at exit.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(port: str, folder: str) -> None:
    """Run a server in this process until SIGTERM.

    It has a process group of its own, because the system ends a group with stopped members when its
    parent exits.
    """
    os.setpgrp()
    options = _parse_options()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(LOOPBACK, int(port) if port else None, folder, options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
