"""Participants of a test besides the main thread: threads with results, and processes.

A Peer is a process with a client of its own. It executes one command after another: functions of
importable modules, and methods of objects that are pickled (``peer.do(lock.acquire)``).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any

from distsync._client import default_client as default
from distsync._client.client import Client
from distsync._client.driver.pending_steps import AwaitSignal
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect, encode_request
from distsync._wire.records import CloseSessionRequest, ConnectRequest
from distsync.testing.connection_faults import say
from helpers.timing import PATIENCE

Credentials = tuple[str, tuple[int, bytes]]


class Running(threading.Thread):
    """A call in a thread of its own, whose result, or error, is asked for."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._function, self._args = function, args
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._function(*self._args)
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = PATIENCE) -> Any:
        self.join(timeout)
        assert not self.is_alive(), "the call has not ended"
        if self._error is not None:
            raise self._error
        return self._value


def results(running: Iterable[Running], timeout: float = PATIENCE) -> list[Any]:
    return [one.result(timeout) for one in running]


def waiting_calls(client: Client) -> int:
    """How many calls of this client have looked, and wait for a change."""
    calls = () if client._runtime is None else tuple(client._runtime._calls)
    return sum(isinstance(task._pending, AwaitSignal) for task in calls)


def is_quiet(client: Client) -> bool:
    """Whether it does nothing in the background, nor is about to."""
    if client._runtime is None:
        return True
    begun = threading.Event()

    async def pass_by() -> None:
        """Begins when all that was asked for before has begun."""
        begun.set()

    client.background(pass_by())
    assert begun.wait(PATIENCE)
    return not client._runtime.background_thread._runs


class Peer:
    """A process that executes commands."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.is_busy = False

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def use(self, hosts: str, namespace: str, session_timeout: float) -> Peer:
        """Its default client is a new one, with these settings."""
        self.do(_use, hosts, namespace, session_timeout)
        return self

    def leave(self) -> None:
        """Its clients are closed."""
        self.do(_leave)

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """It begins to do this; ``result`` waits for the end."""
        self.is_busy = True
        self._pipe.send((function, args))

    def result(self, timeout: float = PATIENCE) -> Any:
        assert self._pipe.poll(timeout), "the peer has not answered"
        error, value = self._pipe.recv()
        self.is_busy = False
        if error is not None:
            raise error
        return value

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        self.start(function, *args)
        return self.result()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """It is dead, and had no chance to say so to anybody."""
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        self._pipe.close()
        if not self.is_busy:
            self._process.join(PATIENCE)
        self.kill()
        self._process.close()


def _serve(pipe: Any) -> None:
    while True:
        try:
            function, args = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            answer = (None, function(*args))
        except BaseException as error:
            answer = (error, None)
        pipe.send(answer)
    _leave()


def _use(hosts: str, namespace: str, session_timeout: float) -> None:
    _leave()
    default.set_default(Client(hosts, namespace=namespace, session_timeout=session_timeout))


def _leave() -> None:
    default.close_default()
    for other in list(default.current.others.values()):
        other.close()
    default.current.others.clear()


def credentials(client: Client | None = None) -> Credentials:
    """Return what another client needs to close the session of this process."""
    client = client or default.default_client()
    kazoo = client._runtime.zk_session._kazoo  # type: ignore[union-attr]
    return str(client.hosts), kazoo.client_id


def expire(whose: Client | Credentials) -> None:
    """End the session as if it had timed out; its owner notices when it reconnects.

    All is sent at once: a client whose session is attached to another connection soon takes it
    back. A ZooKeeper that is just ending an earlier connection of the session may not read the rest of this one
    (seen once): then it is asked again.
    """
    hosts, (session_id, password) = whose if isinstance(whose, tuple) else credentials(whose)
    host, _, port = hosts.rpartition(":")
    hello = ConnectRequest(timeout_ms=4000, session_id=session_id, password=password)
    request = framed(encode_connect(hello)) + framed(encode_request(1, CloseSessionRequest()))
    try:
        say((host, int(port)), request, PATIENCE / 2)
    except TimeoutError:
        say((host, int(port)), request, PATIENCE)
