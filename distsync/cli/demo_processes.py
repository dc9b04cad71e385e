"""Several processes of one program: their progress, and whether one has failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_S = 0.1
STOP_S = 5.0
DONE = re.compile(r"(\d+) of (\d+) (?:batches|parts)")

Report = Callable[[int, int, int], None]
"""Called with the number of the process, and the two numbers of its line ``... of ... batches`` or
``... of ... parts``.
"""


class WorkerFailed(Exception):
    """A process has failed. The message contains its output."""


class Workers:
    """Processes that are started at the same time, with the same command line."""

    def __init__(
        self, command: Sequence[str], count: int, folder: Path, environment: Mapping[str, str], report: Report
    ) -> None:
        self._report = report
        self._logs = [folder / f"{Path(command[0]).stem}-{number}.log" for number in range(1, count + 1)]
        self.processes = [self._start(command, environment, log) for log in self._logs]
        self._readers = [
            threading.Thread(target=self._read, args=(number,), daemon=True) for number in range(len(self.processes))
        ]
        for reader in self._readers:
            reader.start()

    def _start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[str]:
        with log.open("w") as errors:
            return subprocess.Popen(
                [sys.executable, *command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _read(self, number: int) -> None:
        """Report the progress of process ``number``, in a thread."""
        output = self.processes[number].stdout
        assert output is not None
        for line in output:
            found = DONE.search(line)
            if found:
                self._report(number, int(found[1]), int(found[2]))

    def wait(self) -> None:
        """Wait until all processes have exited. If one fails, end the others, which may wait for it,
        and raise WorkerFailed.
        """
        try:
            while None in self._checked():
                time.sleep(POLL_S)
        finally:
            self.end()

    def _checked(self) -> list[int | None]:
        """Return the exit codes, None for running processes. Raises WorkerFailed."""
        codes = [process.poll() for process in self.processes]
        for number, process in enumerate(self.processes):
            if process.returncode:
                raise WorkerFailed(self._story(number, process))
        return codes

    def _story(self, number: int, process: subprocess.Popen[str]) -> str:
        code = process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        lines = self._logs[number].read_text(errors="replace").strip().splitlines()
        return "\n".join([f"process {number + 1} (pid {process.pid}) {how}", *lines[-20:]])

    def end(self) -> None:
        """Terminate all processes. Idempotent."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process, reader in zip(self.processes, self._readers, strict=True):
            reader.join()
            if process.stdout:
                process.stdout.close()
