"""Interface through which drivers use the client. Implemented by runtime.py, and by the tests."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.transport.reply_futures import Batch, ReplyFuture
from distsync._client.wait_log import WaitProgress
from distsync._protocols.steps import Hold, Loss, Request, SessionInfo, Signal

ProtocolCoroutine = Coroutine[Any, Any, Any]


class DriverContext(Protocol):
    """The client, as seen by its drivers."""

    mutex: Any

    @abstractmethod
    def unlock(self) -> None: ...

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch: ...

    @abstractmethod
    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None: ...

    @abstractmethod
    def withdraw(self, batch: Batch) -> None: ...

    @abstractmethod
    def session(self) -> SessionInfo | None: ...

    @abstractmethod
    def session_changes(self) -> Signal: ...

    @abstractmethod
    def is_proven(self, session_id: int, fresh: bool) -> bool: ...

    @abstractmethod
    def hold(self, step: Hold) -> None: ...

    @abstractmethod
    def unhold(self, loss: Loss) -> None: ...

    @abstractmethod
    def mark_lost(self, path: str) -> None: ...

    @abstractmethod
    def watch_hold(self, loss: Loss, on_data: Callable[[bytes], object]) -> None: ...

    @abstractmethod
    def is_active(self, loss: Loss) -> bool: ...

    @abstractmethod
    def background(self, protocol: ProtocolCoroutine | Callable[[], ProtocolCoroutine]) -> None: ...

    @abstractmethod
    def at_close(self, protocol: Callable[[], ProtocolCoroutine], key: object = None) -> None: ...

    @abstractmethod
    def abandon_results(self, leftovers: list[LeftoverNode], losses: list[Loss]) -> None: ...

    @abstractmethod
    def on_long_wait(self, progress: WaitProgress) -> None: ...

    @abstractmethod
    def guid(self) -> str: ...
