"""Process: multiprocessing's own, one class for each start method, whose death is seen.

Rules for this file: it knows multiprocessing's classes and sessions, and nothing of locks.

A child has the default client's settings, also one that begins anew; it closes its clients at its end; and if it dies
otherwise, this process ends its sessions as soon as it sees that.
"""

from __future__ import annotations

import logging
import multiprocessing as _stdlib
import os
from collections.abc import Callable
from functools import partial
from multiprocessing import connection, util
from multiprocessing import context as _contexts
from multiprocessing import process as _processes
from typing import TYPE_CHECKING, Any

from distsync._client import default_client, lifecycle, session_handover
from distsync.multiprocessing._child_watcher import Child, watcher

if TYPE_CHECKING:
    from distsync._client.settings import Settings


logger = logging.getLogger("distsync.multiprocessing")


class ChildBootstrap:
    """What a process has from its parent: the pipe through which it tells its sessions, and settings.

    It stands first in the object of the process, and so arrives before what its pickle needs them for.
    """

    def __init__(self, sender: Any = None) -> None:
        self.sender = sender
        self.receiver: Any = None
        self.child: Child | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (default_client.export_settings(), self.sender)

    def launch(self, start: Callable[[Any], Any], process: Any) -> Any:
        """The process is started, and watched. A forked child does not return from here."""
        self.receiver, self.sender = connection.Pipe(duplex=False)
        try:
            popen = start(process)
        except BaseException:
            self.receiver.close()
            raise
        finally:
            self.sender.close()
            self.sender = None
        self.child, self.receiver = Child(popen.pid, self.receiver), None
        watcher.add(self.child)
        return popen

    def begin(self) -> None:
        """In the child, before anything of its own."""
        try:
            if self.receiver is not None:
                self.receiver.close()
            if self.sender is not None:
                session_handover.attach(os.dup(self.sender.fileno()))
                self.sender.close()
        except OSError as error:  # too many open files, say; what raises here would end the process without a word
            logger.warning("cannot watch process %d; if it exits, its sessions end by timeout: %s", os.getpid(), error)
        self.sender = self.receiver = None


def _unpickle(settings: Settings | None, sender: Any) -> ChildBootstrap:
    default_client.import_settings(settings)
    return ChildBootstrap(sender)


class _TrackedProcess:
    """What our processes do beside the standard library's."""

    _heritage: ChildBootstrap
    _popen: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made._heritage = ChildBootstrap()
        return made

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        """In the child."""
        self._heritage.begin()
        try:
            status: int = super()._bootstrap(parent_sentinel)  # type: ignore[misc]
            return status
        finally:
            lifecycle.close_all()
            session_handover.finish()

    def join(self, timeout: float | None = None) -> None:
        """The process has ended, and so have its sessions; or the time is over. Of the watch over children nothing is
        left when the last one was joined.

        Units: seconds; None: without end.
        Cost: none, or 2 round trips for each session of a process that did not end by itself.
        Source: ``multiprocessing.Process``.
        """
        super().join(timeout)  # type: ignore[misc]
        child = self._heritage.child
        if child is not None and self._popen.returncode is not None:
            child.handle_death()
            watcher.on_joined(child)


def _launched(start: Callable[[Any], Any], process: Any) -> Any:
    return process._heritage.launch(start, process)


class Process(_TrackedProcess, _contexts.Process):
    """A process of the default start method."""

    _Popen = staticmethod(partial(_launched, _contexts.Process._Popen))


class ForkProcess(_TrackedProcess, _contexts.ForkProcess):
    """A process that is a copy of this one."""

    _Popen = staticmethod(partial(_launched, _contexts.ForkProcess._Popen))


class SpawnProcess(_TrackedProcess, _contexts.SpawnProcess):
    """A process that begins anew."""

    _Popen = staticmethod(partial(_launched, _contexts.SpawnProcess._Popen))


class ForkServerProcess(_TrackedProcess, _contexts.ForkServerProcess):
    """A process that is a copy of one that was started for that."""

    _Popen = staticmethod(partial(_launched, _contexts.ForkServerProcess._Popen))


_CLASSES: dict[Any, type[_processes.BaseProcess]] = {
    _stdlib.Process: Process,
    _contexts.ForkProcess: ForkProcess,
    _contexts.SpawnProcess: SpawnProcess,
    _contexts.ForkServerProcess: ForkServerProcess,
}


def class_for(base: Any) -> type[_processes.BaseProcess]:
    """The class of the processes of a context of multiprocessing's."""
    return _CLASSES[base.Process]


def _await_children() -> None:
    """At the end of a program, while there are clients: what multiprocessing does then. Pools and daemons are
    terminated, and the other children have ended: what this process has made for them is there until then."""
    if all(child._parent_pid == os.getpid() for child in _processes._children):  # type: ignore[attr-defined]
        util._exit_function()  # type: ignore[attr-defined]


lifecycle.before_end(_await_children)


def __getattr__(name: str) -> Any:
    """Whatever else ``multiprocessing.process`` has."""
    try:
        return getattr(_processes, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
