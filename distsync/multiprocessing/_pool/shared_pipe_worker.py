"""A local worker of a pool with a name. Its parent sends it tasks by a pipe, those of other callers too."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import Any

from distsync._client.client import Client
from distsync._protocols.pool.callers import remove_caller
from distsync.errors import DistsyncError, PayloadRefusedError
from distsync.multiprocessing._pool.pipe_codec import DONE, REFUSED, split_shared_task
from distsync.multiprocessing._pool.pipe_worker import PipeWorker, WorkerPipes
from distsync.multiprocessing._pool.pool_codec import PoolCodec, StaleProgramError
from distsync.multiprocessing._pool.pool_worker import new_core
from distsync.multiprocessing._pool.worker_base import (
    EXIT_TIMEOUT_S,
    WorkerInterrupt,
    WorkerSpec,
    encode_outcome,
    outcome,
    run_with_client,
)


def run_shared_pipe_worker(spec: WorkerSpec, control: Any, pipes: WorkerPipes) -> None:
    """Run a worker process until it is asked to stop, or its parent has exited.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
        pipes: Pipes of tasks and results.
    """
    run_with_client(spec, control, lambda client: SharedPipeWorker(spec, client, control, pipes))


class SharedPipeWorker(PipeWorker):
    """A process that runs the tasks that its parent sends.

    Args:
        spec: Configuration of the worker.
        client: The client with which it removes its caller if that has exited.
        control: Pipe to the parent.
        pipes: Pipes of tasks and results.
    """

    def __init__(self, spec: WorkerSpec, client: Client, control: Any, pipes: WorkerPipes) -> None:
        super().__init__(spec, control, pipes)
        self._client = client
        self._pool_codec = PoolCodec(spec.settings, spec.limit_bytes)

    def _execute(self, job: int, part: int, payload: bytes) -> None:
        began = perf_counter()
        place, own, body = split_shared_task(payload)
        try:
            kind, result = self._run_task(place, own, body)
        except StaleProgramError:  # another process must run it
            self._is_draining = True
            return
        if self._is_terminating:  # the task may have failed because the clients were closed
            self._wait_for_end()
        self._send(job, part, kind, result, perf_counter() - began)

    def _run_task(self, place: str, own: bool, body: bytes) -> tuple[int, bytes]:
        """Run a task, and return the kind of its result and the encoded result."""
        codec = self._pool_codec
        try:
            with codec.decode_call(place, body, own) as (function, args, kwds):
                return DONE, encode_outcome(codec, place, *outcome(function, args, kwds))
        except PayloadRefusedError as error:
            return REFUSED, str(error.args[1]).encode(errors="replace")[:1000]
        except (StaleProgramError, WorkerInterrupt):
            raise
        except BaseException as error:  # the task calls sys.exit() when it is unpickled, for example
            return DONE, encode_outcome(codec, place, False, error)

    def _stop(self) -> None:
        super()._stop()
        if self._is_orphan:
            self._on_orphaned()

    def _on_orphaned(self) -> None:
        """Remove the caller's znodes: other callers may wait for that."""
        with suppress(DistsyncError):
            core = new_core(self._client, self._spec.path)
            self._client.run(remove_caller(core, str(self._spec.caller)), EXIT_TIMEOUT_S)
