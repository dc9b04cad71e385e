"""Process: multiprocessing's own, one class for each start method, whose exit is noticed.

A child uses the settings of its parent's default client, also if it starts as a new interpreter. It
closes its clients at its end. If it exits in another way, its parent ends its sessions as soon as
it notices.

The operating system reports an exit once, to the first that reaps the process: another thread in
``active_children()`` or ``start()``, a handler of SIGCHLD, or the system itself if SIGCHLD is
ignored. In the standard library, ``exitcode`` then stays None, so that ``close()`` raises ValueError.
Here, the exit code is that of the process, or 255 if it is lost.

In the standard library, the sentinel of a process is the end of a pipe of which the children of the process
have the other one, so that the exit of the process is noticed only when they have exited too. Here, the
sentinel is a file of the process itself, if the system has such files.
"""

from __future__ import annotations

import functools
import multiprocessing as _stdlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing import connection, util
from multiprocessing import context as _contexts
from multiprocessing import process as _processes
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from distsync._client import default_client, lifecycle, session_handover
from distsync._client.naming import inference
from distsync._import_gate import importing
from distsync._log import OwnLogger
from distsync.multiprocessing._child_watcher import Child, watcher

if TYPE_CHECKING:
    from distsync._client.settings import Settings


logger = OwnLogger("distsync.multiprocessing")

#: Exit code of a process that was reaped elsewhere, as in asyncio.
UNKNOWN_EXIT_CODE = 255
#: Seconds between checks whether another thread, which has reaped a process, has stored its exit code.
REAPING_S = 0.001


class _ReapedElsewhere:
    """Mixin of the Popen classes of fork and spawn: ``poll`` notices the exit of a process reaped elsewhere."""

    returncode: int | None
    pid: int
    _parent: int
    #: The threads that may have reaped the process, and not stored its exit code yet.
    _reaping: list[int]

    @classmethod
    def adopt(cls, popen: Any) -> None:
        """Add the mixin to a Popen."""
        popen._parent, popen._reaping = os.getpid(), []
        popen_class: Any = type(popen)
        popen.__class__ = _with_mixin(popen_class)

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code; None if the process runs. ``flag`` 0 waits for the exit."""
        if self.returncode is None and self._parent == os.getpid():
            me = threading.get_ident()
            try:
                self._reaping.append(me)
                super().poll(flag)  # type: ignore[misc]
            finally:
                if me in self._reaping:  # a signal handler can raise before it is added
                    self._reaping.remove(me)
            if self.returncode is None and self._is_reaped():
                while self.returncode is None and any(thread != me for thread in tuple(self._reaping)):
                    time.sleep(REAPING_S)
                self.returncode = UNKNOWN_EXIT_CODE if self.returncode is None else self.returncode
        return self.returncode

    def _is_reaped(self) -> bool:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False


@functools.cache
def _with_mixin(popen_class: Any) -> type:
    return type(popen_class.__name__, (_ReapedElsewhere, popen_class), {})


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
            _open_and_close_files()
            popen = start(process)
        except BaseException:
            self.receiver.close()
            raise
        finally:
            self.sender.close()
            self.sender = None
        if popen.method != "forkserver" and isinstance(os.waitpid, BuiltinFunctionType):  # gevent's loop reaps
            _ReapedElsewhere.adopt(popen)
        self.child, self.receiver = Child(popen.pid, self.receiver), None
        if popen.method != "forkserver" and self.child.pidfd is not None:
            os.dup2(self.child.pidfd, popen.sentinel, inheritable=False)  # otherwise grandchildren keep it open
        try:
            watcher.add(self.child)
        except BaseException:  # there are too many threads or open files: the process is not started
            popen.kill()
            popen.wait()
            popen.close()
            self.child.close()
            self.child = None
            raise
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


def _open_and_close_files() -> None:
    """Raise OSError if the two pipes of a new process cannot be opened: with one of them, multiprocessing leaks it."""
    with ExitStack() as opened:
        for _ in range(2):
            for file in os.pipe():
                opened.callback(os.close, file)


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
        with importing():
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


def _forget_siblings() -> None:
    """Forget the children of the parent, in a forked child: it cannot join them at its end."""
    _processes._children.difference_update(  # type: ignore[attr-defined]
        [child for child in _processes._children if child._parent_pid != os.getpid()]  # type: ignore[attr-defined]
    )


def _await_children() -> None:
    """Terminate pools and daemons, and join other children, as multiprocessing does at exit.

    This runs while the clients are still open, because children may use what this process created.
    """
    if all(child._parent_pid == os.getpid() for child in _processes._children):  # type: ignore[attr-defined]
        util._exit_function()  # type: ignore[attr-defined]


lifecycle.on_fork_in_child(_forget_siblings)
lifecycle.before_end(_await_children)


def __getattr__(name: str) -> Any:
    """Return a name of ``multiprocessing.process`` that distsync does not replace."""
    try:
        return getattr(_processes, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
