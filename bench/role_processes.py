"""Processes that perform a role together, on command.

A role is a context manager at module level, so that it can be pickled. It yields a function that is
called with each command and returns the answer.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any

Role = Callable[..., AbstractContextManager[Callable[[Any], Any]]]
SPAWN = multiprocessing.get_context("spawn")


class Crew:
    """Starts one process for each tuple of arguments, and waits until all are ready."""

    def __init__(self, role: Role, arguments: Sequence[tuple[Any, ...]]) -> None:
        self._pipes: list[Connection] = []
        self.processes: list[Any] = []
        for each in arguments:
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=serve, args=(theirs, role, each), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)
        self.answers()

    def do(self, command: Any) -> list[Any]:
        """Let all processes perform a command at the same time."""
        return self.begin(command).answers()

    def begin(self, command: Any) -> Crew:
        for pipe in self._pipes:
            pipe.send(command)
        return self

    def answers(self) -> list[Any]:
        return [pipe.recv() for pipe in self._pipes]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self.processes:
            process.join()
            process.close()


def serve(pipe: Connection, role: Role, arguments: tuple[Any, ...]) -> None:
    with role(*arguments) as act:
        pipe.send(None)
        while True:
            try:
                command = pipe.recv()
            except EOFError:
                return
            pipe.send(act(command))
