"""Identity of a process, by which other processes of the same host know that it does not run any more.

It contains the boot of the host, the namespace of process ids (that of the container), the process
id, and the time at which the process started, since ids are used again. Without procfs nothing can
be proven.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from functools import lru_cache
from pathlib import Path

PROC = Path("/proc")
#: Index of the state and of the start time in /proc/<pid>/stat, after the name of the program.
STATE, STARTED = 0, 19


@lru_cache(maxsize=4)
def identity_of(pid: int) -> str:
    """Return the identity of this process, whose id is ``pid``."""
    return f"{_host()}-{pid}-{_start_time(pid) or 0}"


def is_dead(identity: str) -> bool:
    """Return whether the process provably does not run any more. False if it is one of another host."""
    host, *numbers = identity.split("-")
    if host != _host() or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
        return False
    pid, started = numbers
    now = _start_time(int(pid))
    return not _exists(int(pid)) if now is None else now != int(started)


def is_local(identity: str) -> bool:
    """Return whether it is certain whether the process still runs, because it is one of this host."""
    return identity.partition("-")[0] == _host()


@lru_cache(maxsize=1)
def _host() -> str:
    """Return what identifies the running system and its namespace of process ids."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        text = f"{boot} {os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        text = str(uuid.uuid4())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if there is none, or if it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[STATE] in "ZX" else int(fields[STARTED])


def _exists(pid: int) -> bool:
    """Return whether there is a running process with this id. It may be invisible in procfs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not (PROC / str(pid)).exists()
