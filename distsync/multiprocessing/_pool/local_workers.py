"""The worker processes that this process has started for a pool: starts, messages and exits."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from distsync._client.clocks import wait_clock
from distsync.multiprocessing._pool.pool_worker import run_worker
from distsync.multiprocessing._pool.worker_base import DRAIN, FAILED, READY, TERMINATE, WorkerSpec

#: Number of processes that may exit in a row before they are ready, or the number of workers if it is
#: greater.
MAX_FAILED_STARTS = 3
#: Seconds after which a worker that was asked to stop at once is killed.
STOP_TIMEOUT_S = 2.0


@dataclass
class WorkerProcess:
    """A worker process, and the pipe to it.

    Attributes:
        process: The process object.
        control: This end of the pipe.
        is_ready: Whether the worker has reported that it is ready.
        is_silent: Whether the worker has closed its end of the pipe.
        is_closed: Whether the process object is closed, or about to be.
        said: Why the worker failed, as it reported; None if it reported nothing.
    """

    process: Any
    control: Any
    is_ready: bool = False
    is_silent: bool = False
    is_closed: bool = False
    said: str | None = None


class LocalWorkers:
    """The local worker processes of a pool.

    Args:
        context: The context that starts the processes.
        count: Number of processes.
        spec: Configuration of each worker.
        processes: The pool's list of process objects, which this object updates.
        daemon: Whether the processes are daemonic, and so may have no children of their own.
    """

    def __init__(self, context: Any, count: int, spec: WorkerSpec, processes: list[Any], daemon: bool = True) -> None:
        self._context, self.count, self._spec, self._daemon = context, count, spec, daemon
        self.processes = processes
        self._members: list[WorkerProcess] = []
        self._lock = threading.RLock()
        #: Number of processes that exited in a row before they were ready, or that failed.
        self.failures = 0
        #: How the last one of these exited.
        self.story = ""

    def start_missing(self) -> None:
        """Start processes until there are as many as configured."""
        with self._lock:
            while len(self._members) < self.count:
                self._start()

    def _start(self) -> None:
        ours, theirs = Pipe()
        try:
            process = self._new_process(theirs)
            process.name = process.name.replace("Process", "PoolWorker")
            process.daemon = self._daemon
            try:
                process.start()
            except BaseException:
                self._on_failed_start(process)
                raise
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._on_started(process)
        self._members.append(WorkerProcess(process, ours))
        self.processes.append(process)

    def _new_process(self, theirs: Any) -> Any:
        """Return a process object for a worker with this end of the pipe."""
        return self._context.Process(target=run_worker, args=(self._spec, theirs))

    def _on_started(self, process: Any) -> None:
        """Close what only the new process needs."""

    def _on_failed_start(self, process: Any) -> None:
        """Free what belongs to a process that could not be started."""

    @property
    def is_failing(self) -> bool:
        """Whether further processes would fail too, because the last ones failed in a row."""
        return self.failures >= max(MAX_FAILED_STARTS, self.count)

    @property
    def is_hopeless(self) -> bool:
        """Whether further processes would fail too, and none runs tasks."""
        return self.is_failing and not any(member.is_ready for member in self._members)

    def waitables(self) -> list[Any]:
        """Return objects for ``connection.wait``, ready if a worker exits or sends a message.

        Returns:
            Pipes and sentinels.
        """
        talking = [each.control for each in self._members if not each.is_silent]
        return [*talking, *(each.process.sentinel for each in self._members)]

    def poll(self) -> None:
        """Read the messages of the workers, and remove the workers that have exited."""
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
                    self._on_ready(member)
                elif kind == FAILED:
                    member.said = said
        except (EOFError, OSError):
            member.is_silent = True

    def _on_ready(self, member: WorkerProcess) -> None:
        """Do what has to be done when a worker accepts tasks."""

    def _remove(self, member: WorkerProcess) -> None:
        self._members.remove(member)
        self.processes.remove(member.process)
        if member.said is not None or not member.is_ready:
            self.failures += 1
            self.story = member.said or f"its process ended with exit code {member.process.exitcode}"
        self._close(member)

    def stop_when_idle(self) -> None:
        """Ask all workers to stop after their current task."""
        self._send(DRAIN)

    def terminate(self, seconds: float = STOP_TIMEOUT_S) -> None:
        """Stop all workers at once, interrupting their current tasks.

        Args:
            seconds: When to kill a worker that has not exited.
        """
        self._send(TERMINATE)
        until = wait_clock() + min(seconds, STOP_TIMEOUT_S)
        for member in self._members:
            if member.is_closed:
                continue
            member.process.join(max(0.0, until - wait_clock()))
            if member.process.exitcode is None:
                member.process.kill()
        self.join()

    def abandon(self) -> None:
        """Stop all workers of a pool that cannot be started. The files of their process objects close with these."""
        for member in self._members:
            if member.process.exitcode is None:
                member.process.terminate()
        for member in self._members:
            member.process.join()
            member.is_closed = True
        self.join()

    def kill(self) -> None:
        """Kill all workers, without waiting for their exit."""
        for process in list(self.processes):
            with suppress(ValueError):  # closed by another thread
                process.kill()

    def join(self) -> None:
        """Wait until all workers have exited, and close their pipes."""
        while self._members:
            self._close(self._members[-1])
            self._members.pop()
        self.processes.clear()

    def _close(self, member: WorkerProcess) -> None:
        """Join a process, and close its files, even if other objects still reference it."""
        if not member.is_closed:
            member.process.join()
            member.is_closed = True
            member.process.close()
        member.control.close()

    def _send(self, message: str) -> None:
        for member in self._members:
            try:
                member.control.send(message)
            except OSError:  # the process has exited
                pass
