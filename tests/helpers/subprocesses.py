"""Programs started as a user starts them: apart, with nothing but a command line and an environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from distsync._server.autostart.address_file import ADDRESS, read_address
from helpers.servers import ServerProcess
from helpers.timing import UNIT, eventually

ROOT = Path(__file__).parents[2]
LIMIT = 1600 * UNIT
"""Seconds that a program may take: several of them start on few processors."""


class Shells:
    """Starts Python programs with one environment, and knows all that it started."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment}
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *command: object) -> subprocess.Popen[str]:
        """A program runs; it is a file of examples/, or options of Python."""
        words = [str(ROOT / "examples" / str(word)) if str(word).endswith(".py") else str(word) for word in command]
        process = subprocess.Popen(
            [sys.executable, *words],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *command: object) -> str:
        """What the program printed; it has ended well."""
        return printed(self.start(*command))

    def together(self, *commands: tuple[object, ...]) -> list[str]:
        """What each of these printed, all of them started at once."""
        return [printed(process) for process in [self.start(*command) for command in commands]]

    def close(self) -> None:
        """No process is left, nor any that these have started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def printed(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, f"{process.args}: {errors}"
    return output


def watches(server: ServerProcess) -> int:
    """Return the number of watches. A waiter for a change has one."""
    return int(server.figures()["zk_watch_count"])


class Home(Shells):
    """A user's own folders, and the server in them."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.state = folder / "runtime", folder / "state"
        super().__init__(folder, {"DISTSYNC_RUNTIME_DIR": str(self.runtime), "DISTSYNC_STATE_DIR": str(self.state)})

    def server_pid(self) -> int:
        """Of the server that runs, or ran last; 0 if none did."""
        address = read_address(self.state / "data" / ADDRESS)
        return address.pid if address else 0

    def kill_server(self) -> int:
        """The server is dead, without a chance to clean up; its pid."""
        pid = self.server_pid()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_running(pid))
        return pid

    def close(self) -> None:
        super().close()
        if self.server_pid():
            self.kill_server()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
