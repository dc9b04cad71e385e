"""Disks that can be filled: a small file system, where one can be mounted, and a limit on the size of files."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

DISK_BYTES = 8 << 20
FILE_BYTES = 1 << 20
"""Limit on the size of files: less than the space that a server needs to start, more than the files of a test run."""


class SmallDisk:
    """A file system of `DISK_BYTES`, mounted at a folder."""

    error = "No space left on device"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def fill(self, server_pid: int = 0) -> None:
        """Use all space."""
        with open(self.folder / "ballast", "ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class FileLimit:
    """A limit on the size of the files of this process, of those that it starts, and of a server. Needs no rights."""

    error = "File too large"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, server_pid: int = 0) -> None:
        """Let the running server write no more, and others no large files."""
        hard = self._before[1]
        if server_pid:
            journal = next(self.folder.rglob("journal.log"))
            resource.prlimit(server_pid, resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, hard))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)

    def close(self) -> None:
        self.free()


FullDisk = SmallDisk | FileLimit


def drafts(*folders: Path) -> list[str]:
    """Return the names of unfinished files."""
    return [
        name
        for folder in folders
        for _, _, names in os.walk(folder)
        for name in names
        if name.startswith((".address.", ".secret.")) or name == "journal.new"
    ]
