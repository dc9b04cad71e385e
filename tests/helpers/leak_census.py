"""Leaks after a test: threads, open files, child processes; and on the server sessions, watches,
znodes.

A census before the test is compared with one after it. Slow clean-up gets some time: the condition
is polled.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT

CONTAINER = -(2**63)
"""The ephemeralOwner of a container: an empty one is deleted by the server, some time."""

ANONYMOUS = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/|$)")
"""A GUID as one part of a path: the object has a fresh name, so nobody can come back to it."""

FIGURES = ("zk_global_sessions", "zk_num_alive_connections", "zk_watch_count", "zk_ephemerals_count")
"""What ``mntr`` counts and a test must not add to."""


@dataclass(frozen=True)
class Census:
    """What this process and a server hold at one moment."""

    threads: frozenset[threading.Thread]
    files: frozenset[str]
    children: frozenset[int]
    figures: tuple[tuple[str, int], ...] = ()

    @classmethod
    def take(cls, server: ServerProcess | None, spared: frozenset[int] = frozenset()) -> Census:
        return cls(
            frozenset(threading.enumerate()),
            frozenset(open_links()),
            frozenset(children()) - spared,
            tuple(figures(server)) if server else (),
        )

    def more_than(self, before: Census) -> list[str]:
        """A line for each thing that is here and was not before."""
        allowed = dict(before.figures)
        return [
            *(f"thread {thread.name!r} {place_of(thread)}" for thread in self.threads - before.threads),
            *(f"open {link}" for link in self.files - before.files),
            *(f"child process {pid}: {command_of(pid)}" for pid in self.children - before.children),
            *(
                f"server's {name}: {allowed[name]} before, {count} now"
                for name, count in self.figures
                if count > allowed.get(name, count)
            ),
        ]


def place_of(thread: threading.Thread) -> str:
    """The innermost calls of the thread, to tell why it still runs."""
    frame = sys._current_frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame)[-6:] if frame else []
    return "in " + " > ".join(f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls)


def nothing_more(look: Callable[[], Iterable[str]], limit: float = PATIENCE) -> list[str]:
    """What ``look()`` still finds when ``limit`` seconds are over; empty as soon as it finds nothing."""
    deadline = time.monotonic() + limit
    while (found := list(look())) and time.monotonic() < deadline:
        time.sleep(UNIT / 5)
    return found


def open_links() -> Iterator[str]:
    """Sockets and pipes of this process. Pollers come and go: kazoo makes one for each wait."""
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{entry}")
            if link.startswith(("socket:", "pipe:")):
                yield link


def children(parent: int | str = "self") -> Iterator[int]:
    """Return the unreaped children of ``parent``, except pytest's own helpers. Threads and processes
    may end at any time.
    """
    for task in Path(f"/proc/{parent}/task").glob("*"):
        with suppress(OSError):
            for pid in (task / "children").read_text().split():
                if "resource_tracker" not in command_of(int(pid)):
                    yield int(pid)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(ended)"


def figures(server: ServerProcess) -> Iterator[tuple[str, int]]:
    told = server.figures()
    return ((name, int(told[name])) for name in FIGURES if name in told)


class Observer:
    """Eyes on a server, and hands: an own session that is not under test."""

    def __init__(self, server: ServerProcess) -> None:
        self.kazoo = KazooClient(server.hosts, timeout=10.0)
        self.kazoo.start()

    def tree(self, top: str) -> dict[str, int]:
        """Every znode under ``top``, ``top`` itself left out, with its ephemeralOwner."""
        found: dict[str, int] = {}
        with suppress(NoNodeError):
            for name in self.kazoo.get_children(top):
                path = f"{top.rstrip('/')}/{name}"
                stat = self.kazoo.exists(path)
                if stat is not None:
                    found[path] = stat.ephemeralOwner
                    found.update(self.tree(path))
        return found

    def contents(self, top: str) -> dict[str, bytes]:
        """Return the data of every znode there; znodes that are deleted at the same time have none."""
        found: dict[str, bytes] = {}
        for path in self.tree(top):
            with suppress(NoNodeError):
                found[path] = self.kazoo.get(path)[0]
        return found

    def ephemerals(self, top: str) -> list[str]:
        return [path for path, owner in self.tree(top).items() if owner not in (0, CONTAINER)]

    def orphans(self, top: str) -> list[str]:
        """Znodes under ``top`` that nobody will delete: ephemeral ones, and all of an object without a name of its
        own, empty containers left out, which the server deletes."""
        tree = self.tree(top)
        return [path for path, owner in tree.items() if not _goes_by_itself(path, owner, tree) and _owned(path, owner)]

    def wipe(self, top: str) -> None:
        """``top`` and all under it is gone."""
        with suppress(NoNodeError):
            self.kazoo.delete(top, recursive=True)

    def close(self) -> None:
        self.kazoo.stop()
        self.kazoo.close()


def _owned(path: str, owner: int) -> bool:
    return owner not in (0, CONTAINER) or ANONYMOUS.search(path) is not None


def _goes_by_itself(path: str, owner: int, tree: dict[str, int]) -> bool:
    under = [other for other in tree if other.startswith(path + "/")]
    return owner == CONTAINER and all(tree[other] == CONTAINER for other in under)
