"""The worker processes that this process has started for a pool.

Rules for this file: it starts, counts, hears and ends processes; it knows nothing of tasks and of znodes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from distsync.multiprocessing._pool_worker import DRAIN, FAILED, READY, TERMINATE, WorkerSpec, work

#: So many processes may end in a row before they were ready; as many as there are workers, if that is more.
MAX_FAILED_STARTS = 3
#: Seconds after which a worker that was told to go at once is killed.
STOP_TIMEOUT_S = 2.0


@dataclass
class WorkerProcess:
    """A worker process, and the pipe to it."""

    process: Any
    control: Any
    is_ready: bool = False
    is_silent: bool = False
    said: str | None = None


class LocalWorkers:
    """Worker processes, ``count`` of them as long as it is kept so; ``processes`` is the list that the pool shows."""

    def __init__(self, context: Any, count: int, spec: WorkerSpec, processes: list[Any]) -> None:
        self._context, self._count, self._spec = context, count, spec
        self.processes = processes
        self._members: list[WorkerProcess] = []
        self._lock = threading.RLock()
        #: So many have ended in a row before they were ready, or could not go on.
        self.failures = 0
        #: How the last one of those ended.
        self.story = ""

    def start_missing(self) -> None:
        """There are as many as there should be."""
        with self._lock:
            while len(self._members) < self._count:
                self._start()

    def _start(self) -> None:
        ours, theirs = Pipe()
        process = self._context.Process(target=work, args=(self._spec, theirs))
        process.name = process.name.replace("Process", "PoolWorker")
        process.daemon = True
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._members.append(WorkerProcess(process, ours))
        self.processes.append(process)

    @property
    def is_hopeless(self) -> bool:
        """Whether further starts would end as the ones before."""
        return self.failures >= max(MAX_FAILED_STARTS, self._count)

    def waitables(self) -> list[Any]:
        """What is to be waited for: one of them ends, or says something."""
        talking = [each.control for each in self._members if not each.is_silent]
        return [*talking, *(each.process.sentinel for each in self._members)]

    def poll(self) -> None:
        """What they said is heard, those that have ended are counted out."""
        with self._lock:
            for member in list(self._members):
                ended = member.process.exitcode is not None
                self._receive(member)
                if ended:
                    self._remove(member)

    def _receive(self, member: WorkerProcess) -> None:
        try:
            while member.control.poll():
                kind, said = member.control.recv()
                if kind == READY:
                    member.is_ready, self.failures = True, 0
                elif kind == FAILED:
                    member.said = said
        except (EOFError, OSError):
            member.is_silent = True

    def _remove(self, member: WorkerProcess) -> None:
        self._members.remove(member)
        self.processes.remove(member.process)
        if member.said is not None or not member.is_ready:
            self.failures += 1
            self.story = member.said or f"its process ended with exit code {member.process.exitcode}"
        self._close(member)

    def stop_when_idle(self) -> None:
        """Each goes when its task at hand is done."""
        self._send(DRAIN)

    def terminate(self) -> None:
        """None is left; what they were at is broken off."""
        self._send(TERMINATE)
        until = time.monotonic() + STOP_TIMEOUT_S
        for member in self._members:
            member.process.join(max(0.0, until - time.monotonic()))
            if member.process.exitcode is None:
                member.process.kill()
        self.join()

    def join(self) -> None:
        """All have ended, and nothing of them is left."""
        for member in self._members:
            self._close(member)
        self._members.clear()
        self.processes.clear()

    def _close(self, member: WorkerProcess) -> None:
        """The process has ended, and its files are closed, whoever still knows it."""
        member.process.join()
        member.process.close()
        member.control.close()

    def _send(self, message: str) -> None:
        for member in self._members:
            try:
                member.control.send(message)
            except OSError:  # it has ended
                pass
