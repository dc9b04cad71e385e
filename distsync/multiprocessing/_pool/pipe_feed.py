"""The parent's side of the pipes to one local worker of a pool."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

from distsync._client.clocks import wait_clock
from distsync.errors import TaskLostError
from distsync.multiprocessing._pool.local_workers import LocalWorkers, WorkerProcess
from distsync.multiprocessing._pool.pipe_codec import LEAVING, RESULT
from distsync.multiprocessing._pool.pipe_worker import WorkerPipes, run_pipe_worker
from distsync.multiprocessing._pool.worker_base import WorkerSpec

if TYPE_CHECKING:
    from distsync._protocols.queues.claim_layout import ClaimedItem

#: Duration in seconds of the work that a worker gets at once, and the maximum number of tasks.
AHEAD_S, MAX_AHEAD = 0.02, 500
#: Maximum bytes of the tasks that wait in a worker's pipe, besides the first one.
MAX_WAITING_BYTES = 60_000
READ_BYTES = 65_536


@dataclass(eq=False, repr=False, slots=True)
class PipeTask:
    """A task without a result.

    Attributes:
        job: Number of the job.
        part: Number of the task in the job.
        frame: The encoded task.
        function: Name of the function.
        items: Number of items in the task.
        payload_at: Where in the frame the payload begins.
        caller: GUID of the caller under which it was encoded; empty if it has none.
        delivery: The item of the queue, if this process has claimed it; None if this caller has put the task.
        is_exported: Whether the task is in the queue, or about to be, for workers elsewhere.
        deliveries: Number of workers that have exited while they ran the task.
        feed: Pipes to the worker that has it; None if it waits.
        is_done: Whether its result has arrived.
        ended: Why its worker was killed; None if it was not.
    """

    job: int
    part: int
    frame: bytes
    function: str
    items: int
    payload_at: int = 0
    caller: str = ""
    delivery: ClaimedItem | None = None
    is_exported: bool = False
    deliveries: int = 0
    feed: WorkerFeed | None = None
    is_done: bool = False
    ended: TaskLostError | None = None

    def __repr__(self) -> str:
        return f"the task {self.function} (job {self.job}, part {self.part})"


class WorkerFeed:
    """The pipes to one worker, and the tasks in them. The caller's lock guards all methods.

    No method waits for the worker.

    Args:
        method: Start method of the worker; None if it is not known, and the default one is assumed.
        maxtasks: Number of tasks after which the worker exits; None means no limit.
    """

    def __init__(self, method: str | None, maxtasks: int | None) -> None:
        with ExitStack() as made:
            self._taken, self._tasks = _pipe(made)
            self._results, self._put = _pipe(made)
            self._lock = get_context(method).Lock()
            made.pop_all()
        self.pipes = WorkerPipes(self._taken, self._put, self._lock)
        self.tasks_file, self.results_file = self._tasks.fileno(), self._results.fileno()
        os.set_blocking(self.tasks_file, False)
        os.set_blocking(self.results_file, False)
        self._may_take = select.poll()
        self._may_take.register(self._taken.fileno(), select.POLLIN)
        #: The tasks that the worker has, the oldest first, which it runs.
        self.tasks: deque[PipeTask] = deque()
        self._waiting_bytes = 0
        self._left = maxtasks
        #: What the pipe did not take yet.
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        #: Whether the worker has closed its end of the pipe of results.
        self.is_silent = False
        self.is_closed = self.is_killed = False
        #: Whether the worker accepts tasks.
        self.is_ready = False
        #: Whether the process has exited, or is about to.
        self.has_exited = self.is_leaving = False
        #: The process of the worker, once it is started.
        self.process: Any = None
        #: When the worker was given, or had finished what was before, the task that it runs, or last sent a part of
        #: its result.
        self.began_at = 0.0
        #: Whether the task that it runs takes so long that others must not wait for it.
        self.is_late = False
        #: Approximate duration of a task.
        self.task_seconds = AHEAD_S

    def room(self, share: float = 1.0) -> int:
        """Return how many more tasks the worker may have.

        Args:
            share: Which part of the tasks that it may have it should have.

        Returns:
            The number, which may be negative.
        """
        if not self.is_ready or self.has_exited or self.is_leaving or self.is_killed:
            return 0
        if self.tasks and (self.is_late or self._waiting_bytes >= MAX_WAITING_BYTES):
            return 0
        depth = max(1, min(MAX_AHEAD, int(share * AHEAD_S / (self.task_seconds + 1e-9))))
        room = depth - len(self.tasks)
        return room if self._left is None else min(room, self._left)

    def send(self, tasks: Iterable[PipeTask]) -> None:
        """Send tasks. Call `flush` if `is_flushed` is False then.

        Args:
            tasks: The tasks.
        """
        frames = []
        if not self.tasks:
            self.began_at = wait_clock()
        for task in tasks:
            task.feed = self
            self.tasks.append(task)
            self._waiting_bytes += len(task.frame)
            frames.append(task.frame)
        if self._left is not None:
            self._left -= len(frames)
        self._unsent.append(memoryview(frames[0] if len(frames) == 1 else b"".join(frames)))
        self.flush()

    @property
    def is_flushed(self) -> bool:
        """Whether all tasks are in the pipe."""
        return not self._unsent

    def flush(self) -> None:
        """Write as much as the pipe takes."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent[0] = self._unsent[0][os.write(self.tasks_file, self._unsent[0]) :]
                if not self._unsent[0]:
                    self._unsent.popleft()

    def take_back(self) -> list[PipeTask] | None:
        """Take back the tasks that the worker has not read.

        Returns:
            The tasks, the oldest first; None if the worker is reading one.
        """
        if not self._lock.acquire(block=False):
            return None
        try:
            size = sum(map(len, self._unsent))
            while self._may_take.poll(0):
                size += len(os.read(self._taken.fileno(), READ_BYTES))
        finally:
            self._lock.release()
        self._unsent.clear()
        taken: list[PipeTask] = []
        while size > 0:
            task = self.tasks.pop()
            task.feed = None
            size -= len(task.frame)
            self._waiting_bytes -= len(task.frame)
            taken.append(task)
        if self._left is not None:
            self._left += len(taken)
        taken.reverse()
        return taken

    def receive(self) -> list[tuple[PipeTask, int, bytes]]:
        """Read the results that have arrived.

        Returns:
            The finished tasks, each with the kind of its result and the result.
        """
        received = self._received
        try:
            data = os.read(self.results_file, READ_BYTES)
        except BlockingIOError:
            return []
        self.is_silent = not data
        received += data
        finished = []
        begin, size = 0, len(received)
        while size - begin >= RESULT.size:
            _, _, length, seconds, kind = RESULT.unpack_from(received, begin)
            end = begin + RESULT.size + length
            if end > size:
                break
            if kind == LEAVING:
                self.is_leaving = True
            else:
                task = self.tasks.popleft()
                task.is_done, self.is_late = True, False
                self._waiting_bytes -= len(task.frame)
                self.task_seconds = (self.task_seconds + 3 * seconds) / 4
                finished.append((task, kind, bytes(received[begin + RESULT.size : end])))
            begin = end
        del received[:begin]
        if data:  # a result that arrives in parts is not late, however long this process did not read it
            self.began_at = wait_clock()
        return finished

    def receive_all(self) -> list[tuple[PipeTask, int, bytes]]:
        """Read all results of a worker that has exited.

        Returns:
            What `receive` returns.
        """
        finished = []
        while True:
            size = len(self._received)
            some = self.receive()
            finished += some
            if not some and len(self._received) == size:
                return finished

    def kill(self, reason: TaskLostError) -> None:
        """Kill the worker, because the task that it runs must end.

        Args:
            reason: The result of the task.
        """
        self.tasks[0].ended, self.is_killed = reason, True
        with suppress(ValueError):  # it has exited, and another thread has closed it
            self.process.kill()

    def close(self) -> None:
        """Close the pipes."""
        self.is_closed = True
        for each in (self._taken, self._tasks, self._results, self._put):
            each.close()


def _pipe(made: ExitStack) -> tuple[Any, Any]:
    """Return a new pipe, which ``made`` closes."""
    reader, writer = Pipe(duplex=False)
    for each in (reader, writer):
        made.callback(each.close)
    return reader, writer


class FedWorkers(LocalWorkers):
    """The worker processes that are fed by pipes.

    Args:
        context: The context that starts the processes.
        count: Number of processes.
        spec: Configuration of each worker.
        processes: The pool's list of process objects, which this object updates.
        daemon: Whether the processes are daemonic, and so may have no children of their own.
        on_change: Called with the pipes to a worker that has become ready, or has exited.
        run: The function that each process runs.
    """

    def __init__(
        self,
        context: Any,
        count: int,
        spec: WorkerSpec,
        processes: list[Any],
        daemon: bool,
        on_change: Callable[[WorkerFeed], object],
        run: Callable[[WorkerSpec, Any, WorkerPipes], None] = run_pipe_worker,
    ) -> None:
        super().__init__(context, count, spec, processes, daemon)
        self._on_change, self._run = on_change, run
        self._feeds: dict[Any, WorkerFeed] = {}

    def _new_process(self, theirs: Any) -> Any:
        method = self._context.get_start_method()
        feed = WorkerFeed(method if method in get_all_start_methods() else None, self._spec.maxtasks)
        process = self._context.Process(target=self._run, args=(self._spec, theirs, feed.pipes))
        self._feeds[process], feed.process = feed, process
        return process

    def _on_started(self, process: Any) -> None:
        self._feeds[process].pipes.results.close()

    def _on_failed_start(self, process: Any) -> None:
        self._feeds.pop(process).close()

    def _on_ready(self, member: WorkerProcess) -> None:
        feed = self._feeds[member.process]
        feed.is_ready = True
        self._on_change(feed)

    def _close(self, member: WorkerProcess) -> None:
        super()._close(member)
        feed = self._feeds.get(member.process)
        if feed is not None:  # otherwise this was done, and then interrupted
            feed.has_exited = True
            self._on_change(feed)
            del self._feeds[member.process]
