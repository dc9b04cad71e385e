"""The real Curator: a Java process (tests/interop/CuratorPeer.java) that executes commands.

If its jars or a JDK are missing, the modules that import this one are skipped; ``make interop``
downloads the jars.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pytest
from curator_jars import found, lacking

from helpers.timing import PATIENCE

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

JARS = ":".join(map(str, found()))  # now: the tests see nobody's environment
SOURCE = Path(__file__).parents[1] / "interop" / "CuratorPeer.java"
START_LIMIT = 3 * PATIENCE
WORDS = {"true": True, "false": False, "ok": True, "null": None}


def cycle(lock: Any, times: int, folder: Path) -> int:
    """Acquire and release this many times; return the maximum number inside, each of which has a file
    in the folder. Curator's actors can do the same.
    """
    most = 0
    for _ in range(times):
        with lock:
            with tempfile.NamedTemporaryFile(dir=folder):
                most = max(most, len(list(folder.iterdir())))
    return most


class CuratorError(Exception):
    """What Curator threw."""


def compiled(target: Path) -> str:
    """The class path of the program, made of its source."""
    subprocess.run(["javac", "-cp", JARS, "-d", str(target), str(SOURCE)], check=True)
    return f"{JARS}:{target}"


class Curator:
    """A Java process with one session, and as many actors (threads) as are asked for."""

    def __init__(self, classpath: str, hosts: str, session_ms: int) -> None:
        flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dslf4j.internal.verbosity=ERROR"]
        command = ["java", *flags, "-cp", classpath, "CuratorPeer", hosts, str(session_ms)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answers: defaultdict[str, deque[str]] = defaultdict(deque)
        self._part = b""
        self._count = 0
        try:
            self.answer("all", START_LIMIT)
        except AssertionError:
            self.kill()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def actor(self, *recipe: object) -> Actor:
        """A thread over there with this recipe: its kind, its path, and what else it takes."""
        self._count += 1
        made = Actor(self, str(self._count))
        made.do(*recipe)
        return made

    def tell(self, actor: str, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, (actor, *words))).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, actor: str, timeout: float) -> str:
        """The next one to ``actor``."""
        deadline = time.monotonic() + timeout
        while not self._answers[actor]:
            assert self._read(deadline - time.monotonic()), "Curator has not answered"
        return self._answers[actor].popleft()

    def has_answered(self, actor: str) -> bool:
        while self._read(0):
            pass
        return bool(self._answers[actor])

    def _read(self, timeout: float) -> bool:
        """Some answers have come; False at the end of the time, or of the process."""
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        ready, _, _ = select.select([number], [], [], max(0.0, timeout))
        read = os.read(number, 65536) if ready else b""
        *lines, self._part = (self._part + read).split(b"\n")
        for line in lines:
            actor, _, text = line.decode().partition(" ")
            self._answers[actor].append(text)
        return bool(read)

    def kill(self) -> None:
        """It is dead, and had no chance to say so to anybody."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Its session is closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Actor:
    """One thread of a Java process, which does one thing after another."""

    def __init__(self, curator: Curator, name: str) -> None:
        self.curator = curator
        self._name = name

    def start(self, *words: object) -> Actor:
        """It begins to do this; ``result`` waits for the end."""
        self.curator.tell(self._name, *words)
        return self

    def result(self, timeout: float = PATIENCE) -> Any:
        text = self.curator.answer(self._name, timeout)
        if text.startswith("!"):
            raise CuratorError(text[1:])
        return WORDS.get(text, text)

    @property
    def has_answered(self) -> bool:
        return self.curator.has_answered(self._name)

    def do(self, *words: object) -> Any:
        return self.start(*words).result()
