"""What all worker processes of pools have in common: settings, signals, messages, and the encoding of results."""

from __future__ import annotations

import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import connection, parent_process, util
from multiprocessing import pool as _stdlib
from typing import Any, ClassVar, NoReturn

from distsync._client import default_client, lifecycle, session_handover
from distsync._client.client import Client
from distsync._client.payload_codec import reason_of
from distsync._client.settings import Settings
from distsync.errors import PayloadPickleError, PayloadTooLargeError
from distsync.multiprocessing._pool.pool_codec import PoolCodec

#: Seconds between checks of the parent. Every fifth one also checks the pool's callers.
POLL_S = 1.0
#: Maximum wait in seconds for a server when the worker must stop.
EXIT_TIMEOUT_S = 5.0

DRAIN, TERMINATE, READY, FAILED = "drain", "terminate", "ready", "failed"
"""Messages between parent and worker. DRAIN: exit after the current task. TERMINATE: exit now. READY:
accepts tasks. FAILED: could not start.
"""


@dataclass(frozen=True)
class WorkerSpec:
    """Configuration of a worker process.

    Attributes:
        settings: Settings of its client.
        path: Path of the pool.
        limit_bytes: Maximum size of one task or one result, in bytes.
        max_deliveries: Number of workers that may exit while they run a task; 0 means no limit.
        initializer: Called before the first task; None calls nothing.
        initargs: Arguments of ``initializer``.
        maxtasks: Number of tasks after which the worker stops; None means no limit.
        caller: GUID of the caller that started the worker, empty if it has no znodes; None if the worker was
            started by a command.
        default: Whether its client is the default client of the process.
        initializer_text: Description of ``initializer``; None if it is not known.
    """

    settings: Settings = field(repr=False)
    path: str
    limit_bytes: int
    max_deliveries: int
    initializer: Callable[..., Any] | None = None
    initargs: Iterable[Any] = ()
    maxtasks: int | None = None
    caller: str | None = None
    default: bool = True
    initializer_text: str | None = None


class WorkerInterrupt(KeyboardInterrupt):
    """Ctrl-C in a worker. Its process exits, and another worker runs the task again.

    A KeyboardInterrupt that a function raises itself is an exception like any other.
    """


def client_with(settings: Settings) -> Client:
    """Return a new client.

    Args:
        settings: Its settings.

    Returns:
        The client.
    """
    return Client(**{each.name: getattr(settings, each.name) for each in fields(settings)})


def run_with_client(spec: WorkerSpec, control: Any, make_worker: Callable[[Client], BaseWorker]) -> None:
    """Run a worker process with a client until it is asked to stop, or its parent has exited.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
        make_worker: Returns the worker, given the client.
    """
    client = client_with(spec.settings)
    if spec.default:
        default_client.set_default(client)
    try:
        make_worker(client).run()
    finally:  # the end of the process closes the default client, once its queues have sent their items
        if not spec.default:
            client.close()
        control.close()


class BaseWorker(ABC):
    """A process that runs tasks in its main thread, and listens to its parent in another one.

    Args:
        spec: Configuration of the worker.
        control: Pipe to the parent.
    """

    #: Path of the pool whose tasks this process runs; None in a process that is no worker.
    served_path: ClassVar[str | None] = None

    def __init__(self, spec: WorkerSpec, control: Any) -> None:
        self._spec, self._control = spec, control
        #: Whether the parent or a signal asks for the end. Otherwise another worker replaces this one.
        self._must_end = False
        self._is_orphan = self._is_terminating = False
        self._has_ended = threading.Event()
        self._parent = os.getppid()

    def run(self) -> None:
        """Run tasks until the worker must stop, and send the results of all that were started."""
        BaseWorker.served_path = self._spec.path
        _handle_sigterm(lambda *_: self._end())
        if self._spec.caller is None:  # the command that started this process handles Ctrl-C
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        self.work()

    def work(self) -> None:
        """Do the work of `run`, in any thread and without signal handlers."""
        threading.Thread(target=self._listen, name="distsync-worker", daemon=True).start()
        try:
            self._prepare()
        except BaseException as error:
            if self._is_terminating:
                self._wait_for_end()
            self._send_message(FAILED, reason_of(error))
            raise
        self._send_message(READY)
        try:
            self._run_tasks()
        finally:
            if self._is_terminating:
                self._wait_for_end()
            self._stop()

    @abstractmethod
    def _prepare(self) -> None:
        """Call the initializer, and do what else the first task requires."""

    @abstractmethod
    def _run_tasks(self) -> None:
        """Run tasks until the worker must stop."""

    @abstractmethod
    def _stop(self) -> None:
        """Send the remaining results, and set `_has_ended`."""

    @abstractmethod
    def drain(self) -> None:
        """Stop after the current task. Safe in a signal handler."""

    def _end(self) -> None:
        """Stop after the current task, for the end of the program. Safe in a signal handler."""
        self._must_end = True
        self.drain()

    def _send_message(self, kind: str, more: str | None = None) -> None:
        try:
            self._control.send((kind, more))
        except OSError:  # the parent has exited, which the listening thread notices too
            pass

    # ---- in the listening thread

    def _listen(self) -> None:
        looks = 0
        while not self._has_ended.is_set():
            try:
                if connection.wait([self._control], POLL_S):
                    self._on_command(self._control.recv())
                elif not self._parent_is_alive():
                    raise EOFError
            except (EOFError, OSError):
                self._is_orphan = True
                self.drain()
                self._on_orphaned()
                return
            looks += 1
            if looks % 5 == 0:
                self._look_around()

    @abstractmethod
    def _on_orphaned(self) -> None:
        """Do what the exit of the parent requires, besides `drain`."""

    @abstractmethod
    def _look_around(self) -> None:
        """Do what is to be done now and then."""

    def _on_command(self, message: str) -> None:
        if message == DRAIN:
            self._end()
        else:
            self._is_terminating = True
            lifecycle.close_for_exit()
            session_handover.finish()
            os._exit(1)

    def _wait_for_end(self) -> None:
        """Wait for the listening thread to end this process."""
        threading.Event().wait()

    def _parent_is_alive(self) -> bool:
        """Return whether the process that started this one is alive."""
        parent = parent_process()
        return os.getppid() == self._parent and (parent is None or parent.is_alive())


def _interrupt(*_: object) -> None:
    """Handle SIGINT."""
    raise WorkerInterrupt


def _handle_sigterm(handler: Callable[..., object]) -> None:
    """Call ``handler`` on SIGTERM in this process. A child that a task forks handles it as before.

    A SIGTERM that arrives during a fork waits for its end. Otherwise it would be lost.
    """
    previous, masks = signal.signal(signal.SIGTERM, handler), threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def outcome(function: Any, args: Any, kwds: Any) -> tuple[bool, Any]:
    """Call a function.

    Args:
        function: The function.
        args: Its positional arguments.
        kwds: Its keyword arguments.

    Returns:
        Whether it returned, and the value or the exception with its traceback.

    Raises:
        WorkerInterrupt: The process was interrupted.

    Note:
        A child that the function forks does not return from this call. Its end is that of a program.
    """
    process = lifecycle.process.pid
    try:
        result = True, function(*args, **kwds)
    except BaseException as error:
        if lifecycle.process.pid != process:
            _end_forked_child(error)
        if isinstance(error, WorkerInterrupt):
            raise
        # also that of sys.exit(), as in concurrent.futures
        if function is _stdlib._helper_reraises_exception:  # type: ignore[attr-defined]
            return False, error
        return False, _stdlib.ExceptionWithTraceback(error, error.__traceback__)  # type: ignore[attr-defined]
    if lifecycle.process.pid != process:
        _end_forked_child(None)
    return result


def _end_forked_child(error: BaseException | None) -> NoReturn:
    """End a child process that a task has forked. It must not send a result, and run no task of the worker.

    Args:
        error: What the task raised in the child; None if it returned.
    """
    status = 0
    try:
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            if error.code is not None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
        elif error is not None:
            status = 1
            sys.excepthook(type(error), error, error.__traceback__)
        lifecycle.close_all()
    finally:
        util._flush_std_streams()  # type: ignore[attr-defined]
        os._exit(status & 0xFF)


def encode_outcome(codec: PoolCodec, place: str, success: bool, value: Any) -> bytes:
    """Encode what a task of a pool with a name returned or raised, or why that cannot be sent.

    Args:
        codec: Codec of the pool.
        place: Path of the caller, with job and part, for which the result is signed.
        success: Whether the function returned.
        value: The value, or the exception.

    Returns:
        The payload.

    Raises:
        WorkerInterrupt: The process was interrupted.
    """
    try:
        return codec.encode_result(place, success, value)
    except PayloadTooLargeError as error:
        return codec.encode_result(place, False, error)
    except PayloadPickleError as error:
        cause = error.__cause__
    except WorkerInterrupt:
        raise
    except BaseException as error:  # a method of the value calls sys.exit(), for example
        cause = error
    encode, decode = partial(codec.encode_result, place), partial(codec.decode_result, place)
    return encode_refusal(encode, decode, cause, value)


def encode_refusal(
    encode: Callable[[bool, Any], bytes], decode: Callable[[bytes], Any], error: BaseException | None, value: Any
) -> bytes:
    """Encode the error of a value that does not pickle, with the original error if the caller can read that.

    Args:
        encode: Encodes whether a function returned, and the value or the exception.
        decode: Decodes what ``encode`` returned.
        error: What the attempt to encode the value raised; None if that is unknown.
        value: The value.

    Returns:
        The encoded MaybeEncodingError.

    Raises:
        WorkerInterrupt: The process was interrupted.
    """
    shown = _stdlib.MaybeEncodingError(_showable(error), _showable(value))  # type: ignore[attr-defined]
    if error is not None:
        shown.error = _stdlib.ExceptionWithTraceback(error, error.__traceback__)  # type: ignore[attr-defined]
        try:
            payload = encode(False, shown)
            decode(payload)
            return payload
        except WorkerInterrupt:
            raise
        except BaseException:  # methods of the error may raise anything
            del shown.error
    return encode(False, shown)


def _showable(value: Any) -> Any:
    """Return the value; if its `repr` raises, the default representation of its type."""
    try:
        repr(value)
    except WorkerInterrupt:
        raise
    except BaseException:
        return object.__repr__(value)
    return value
