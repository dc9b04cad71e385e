"""A worker process of a pool without a name, which gets tasks from its parent by a pipe.

The parent may take back tasks that this process has not read. So each reads whole tasks only, under a lock.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from time import perf_counter
from typing import Any

from distsync._client import default_client
from distsync._client.payload_codec import reason_of
from distsync.errors import PayloadTooLargeError
from distsync.multiprocessing._pool.pipe_codec import DONE, LEAVING, REFUSED, RESULT, TASK, PipeCodec
from distsync.multiprocessing._pool.pool_codec import later_function_advice
from distsync.multiprocessing._pool.worker_base import (
    BaseWorker,
    WorkerInterrupt,
    WorkerSpec,
    client_with,
    encode_refusal,
    outcome,
)

#: Seconds between checks of whether the parent has exited, during a wait for the rest of a task or for the lock.
WATCH_S = 1.0


@dataclass(frozen=True)
class WorkerPipes:
    """What a worker has of the connection to its parent.

    Attributes:
        tasks: Readable end of the pipe of tasks.
        results: Writable end of the pipe of results.
        lock: Held to read a task.
    """

    tasks: Connection
    results: Connection
    lock: Lock


def run_pipe_worker(spec: WorkerSpec, control: Any, pipes: WorkerPipes) -> None:
    """Run a worker process until it is asked to stop, or its parent has exited.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
        pipes: Pipes of tasks and results.
    """
    if spec.default:
        default_client.set_default(client_with(spec.settings))
    try:
        PipeWorker(spec, control, pipes).run()
    finally:  # the end of the process closes the clients, once its queues have sent their items
        control.close()


class PipeWorker(BaseWorker):
    """A process that runs the tasks that its parent sends.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
        pipes: Pipes of tasks and results.
    """

    def __init__(self, spec: WorkerSpec, control: Any, pipes: WorkerPipes) -> None:
        super().__init__(spec, control)
        self._codec, self._pipes = PipeCodec(spec.settings), pipes
        self._tasks, self._results, self._lock = pipes.tasks.fileno(), pipes.results.fileno(), pipes.lock
        os.set_blocking(self._results, False)
        os.set_blocking(self._tasks, False)
        self._wakeup, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._has_task, self._has_event = select.poll(), select.poll()
        self._has_task.register(self._tasks, select.POLLIN)
        for file in (self._tasks, self._wakeup):
            self._has_event.register(file, select.POLLIN)
        self._is_draining = False

    def drain(self) -> None:
        self._is_draining = True
        try:
            os.write(self._waker, b".")
        except BlockingIOError:  # many signals
            pass

    def _prepare(self) -> None:
        if self._spec.initializer is not None:
            self._spec.initializer(*self._spec.initargs)

    def _run_tasks(self) -> None:
        left = self._spec.maxtasks
        while left != 0 and (task := self._next()) is not None:
            self._execute(*task)
            task = None
            if left is not None:
                left -= 1
        self._send(-1, -1, LEAVING, b"", 0.0)

    def _stop(self) -> None:
        self._has_ended.set()

    def _next(self) -> tuple[int, int, bytes] | None:
        """Wait for the next task; return None if the worker must stop."""
        try:
            while not self._is_draining:
                while not self._lock.acquire(timeout=WATCH_S):
                    self._check_parent()
                try:
                    if self._has_task.poll(0):  # otherwise the parent has taken it back
                        job, part, length = TASK.unpack(self._read(TASK.size))
                        return job, part, self._read(length)
                finally:
                    self._lock.release()
                self._has_event.poll()
        except EOFError:  # the parent has exited
            self._is_orphan = True
        return None

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                data = os.read(self._tasks, length)
            except BlockingIOError:  # forked workers have the writable end, too, so that no end of file may come
                if not self._has_task.poll(1000 * WATCH_S):
                    self._check_parent()
                continue
            if not data:
                raise EOFError
            length -= len(data)
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_parent(self) -> None:
        """Raise EOFError if the parent has exited, perhaps while it sent a task or took one back."""
        if self._is_orphan:
            raise EOFError

    def _execute(self, job: int, part: int, payload: bytes) -> None:
        began = perf_counter()
        try:
            function, args, kwds = self._codec.loads(payload)
        except WorkerInterrupt:
            raise
        except Exception as error:
            reason = f"{reason_of(error)}{later_function_advice(error)}"
            text = f"a worker cannot decode it, {reason}".encode(errors="replace")[:1000]
            self._send(job, part, REFUSED, text, perf_counter() - began)
            return
        except BaseException as error:  # the task calls sys.exit() when it is unpickled, for example
            result = self._encode(False, error)
        else:
            result = self._encode(*outcome(function, args, kwds))
        if self._is_terminating:  # the task may have failed because the clients were closed
            self._wait_for_end()
        self._send(job, part, DONE, result, perf_counter() - began)

    def _encode(self, success: bool, value: Any) -> Any:
        dumps = self._codec.dumps
        try:
            payload = dumps((success, value))
        except WorkerInterrupt:
            raise
        except BaseException as error:  # methods of the value may raise anything
            return encode_refusal(lambda *result: bytes(dumps(result)), self._codec.loads, error, value)
        if len(payload) > self._spec.limit_bytes:
            too_large = PayloadTooLargeError(f"a result of {self._spec.path}", len(payload), self._spec.limit_bytes)
            return dumps((False, too_large))
        return payload

    def _send(self, job: int, part: int, kind: int, payload: Any, seconds: float) -> None:
        """Send a result, unless the parent has exited."""
        frame = b"".join((RESULT.pack(job, part, len(payload), seconds, kind), payload))
        try:
            sent = os.write(self._results, frame)
            if sent < len(frame):
                self._send_rest(memoryview(frame)[sent:])
        except BlockingIOError:
            self._send_rest(memoryview(frame))
        except BrokenPipeError:
            self.drain()

    def _send_rest(self, rest: memoryview) -> None:
        may_go_on = select.poll()
        may_go_on.register(self._results, select.POLLOUT)
        while rest and not self._is_orphan:
            may_go_on.poll(1000 * WATCH_S)
            try:
                rest = rest[os.write(self._results, rest) :]
            except BlockingIOError:
                pass

    def _on_orphaned(self) -> None:
        """Do nothing: `drain` ends the main thread, too, if it waits for a task or for the parent."""

    def _look_around(self) -> None:
        """Do nothing."""
