"""Process: multiprocessing's own, one class for each start method, whose exit is noticed.

A child uses the settings of its parent's default client, also if it starts as a new interpreter. It
closes its clients at its end. If it exits in another way, its parent ends its sessions as soon as
it notices.
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
from distsync._client.naming import inference
from distsync.multiprocessing._child_watcher import Child, watcher

if TYPE_CHECKING:
    from distsync._client.settings import Settings


logger = logging.getLogger("distsync.multiprocessing")


class ChildBootstrap:
    """The settings and the pipe that a child gets from its parent.

    It comes first in the pickle of the process object, because later parts need it. Through the
    pipe, the child reports its sessions.

    Args:
        sender: The child's end of the pipe; None before the start.
    """

    def __init__(self, sender: Any = None) -> None:
        self.sender = sender
        self.receiver: Any = None
        self.child: Child | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (default_client.export_settings(), self.sender)

    def launch(self, start: Callable[[Any], Any], process: Any) -> Any:
        """Start the process, and watch it. A forked child does not return from this call.

        Args:
            start: Function that starts a process object, and returns its Popen.
            process: The process object.

        Returns:
            The Popen.
        """
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
        """Attach the pipe. Called in the child before the user's code."""
        try:
            if self.receiver is not None:
                self.receiver.close()
            if self.sender is not None:
                session_handover.attach(os.dup(self.sender.fileno()))
                self.sender.close()
        except OSError as error:  # such as too many open files; an exception here would end the process silently
            logger.warning("cannot watch process %d; if it exits, its sessions end by timeout: %s", os.getpid(), error)
        self.sender = self.receiver = None


def _unpickle(settings: Settings | None, sender: Any) -> ChildBootstrap:
    default_client.import_settings(settings)
    return ChildBootstrap(sender)


class _TrackedProcess:
    """Mixin of distsync's process classes."""

    _child_bootstrap: ChildBootstrap
    _popen: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made._child_bootstrap = ChildBootstrap()
        return made

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        """Run in the child: attach the pipe, run the target, and close the clients."""
        self._child_bootstrap.begin()
        try:
            status: int = super()._bootstrap(parent_sentinel)  # type: ignore[misc]
            return status
        finally:
            lifecycle.close_all()
            session_handover.finish()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has exited and its sessions have ended.

        Once the last child is joined, the thread that watches children has ended too.

        Args:
            timeout: Maximum wait in seconds; None waits forever.

        Note:
            Costs no request, and 2 round trips for each session of a process that was killed.

            Source: ``multiprocessing.Process``.
        """
        super().join(timeout)  # type: ignore[misc]
        child = self._child_bootstrap.child
        if child is not None and self._popen.returncode is not None:
            child.handle_death()
            watcher.on_joined(child)


def _launched(start: Callable[[Any], Any], process: Any) -> Any:
    if inference.bound_modules:
        with lifecycle.importing():
            from distsync._objects import module_membership  # deferred: it is for objects without a given name

        module_membership.join_all()
    return process._child_bootstrap.launch(start, process)


class Process(_TrackedProcess, _contexts.Process):
    """A process of the default start method, like ``multiprocessing.Process``.

    If the process is killed, its parent ends its sessions, so that the locks that it held are free
    at once.

    Args:
        *args: Positional arguments of ``multiprocessing.Process``.
        **kwargs: Keyword arguments of ``multiprocessing.Process``.
    """

    _Popen = staticmethod(partial(_launched, _contexts.Process._Popen))


class ForkProcess(_TrackedProcess, _contexts.ForkProcess):
    """A process that starts as a copy of this one.

    Args:
        *args: Positional arguments of ``multiprocessing.Process``.
        **kwargs: Keyword arguments of ``multiprocessing.Process``.
    """

    _Popen = staticmethod(partial(_launched, _contexts.ForkProcess._Popen))


class SpawnProcess(_TrackedProcess, _contexts.SpawnProcess):
    """A process that starts as a new interpreter.

    Args:
        *args: Positional arguments of ``multiprocessing.Process``.
        **kwargs: Keyword arguments of ``multiprocessing.Process``.
    """

    _Popen = staticmethod(partial(_launched, _contexts.SpawnProcess._Popen))


class ForkServerProcess(_TrackedProcess, _contexts.ForkServerProcess):
    """A process that starts as a copy of a server process.

    Args:
        *args: Positional arguments of ``multiprocessing.Process``.
        **kwargs: Keyword arguments of ``multiprocessing.Process``.
    """

    _Popen = staticmethod(partial(_launched, _contexts.ForkServerProcess._Popen))


_CLASSES: dict[Any, type[_processes.BaseProcess]] = {
    _stdlib.Process: Process,
    _contexts.ForkProcess: ForkProcess,
    _contexts.SpawnProcess: SpawnProcess,
    _contexts.ForkServerProcess: ForkServerProcess,
}


def class_for(base: Any) -> type[_processes.BaseProcess]:
    """Return the class for the processes of a context.

    Args:
        base: The context of multiprocessing.

    Returns:
        The process class of distsync with the same start method.
    """
    return _CLASSES[base.Process]


def _await_children() -> None:
    """Terminate pools and daemons, and join other children, as multiprocessing does at exit.

    This runs while the clients are still open, because children may use what this process created.
    """
    if all(child._parent_pid == os.getpid() for child in _processes._children):  # type: ignore[attr-defined]
        util._exit_function()  # type: ignore[attr-defined]


lifecycle.before_end(_await_children)


def __getattr__(name: str) -> Any:
    """Return a name of ``multiprocessing.process`` that distsync does not replace."""
    try:
        return getattr(_processes, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
