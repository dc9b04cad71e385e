"""Forks, and the end of the process.

A forked child has one thread, locks in an arbitrary state, and copies of the parent's sockets. Each
client therefore discards its state in the child, where it has no session and no holds, and opens a
session of its own at its first use.

A child that os.fork() made does so at once. A fork of uWSGI, of a C extension or of libc runs none
of Python's hooks, and a hook that was registered before distsync's runs earlier. So whatever uses
state of this process compares the process id first (`notice_fork`), and takes no lock before that.
In such a child the parent's threads still look alive.

A forked child of the standard library's multiprocessing ends with ``os._exit``, which skips atexit.
Its clients are closed by a multiprocessing finalizer instead, because its locks would otherwise
stay held until its session times out.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from distsync import _log_thread
from distsync._import_gate import before_fork, importing

if TYPE_CHECKING:
    from mmap import mmap

Thing = TypeVar("Thing")


class ForkAware(Protocol):
    """A client that registers for forks and for the end of the process."""

    def after_fork_in_child(self) -> None:
        """Discard the parent's state in a forked child."""

    def close(self) -> None:
        """Close the client at the end of the process."""


class ForkShared(Protocol):
    """An object that no other process knows yet."""

    def mark_shared(self) -> None:
        """Note that another process will know the object."""


_living: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_ours: weakref.WeakSet[ForkShared] = weakref.WeakSet()
_forks: list[None] = []
_generations: list[None] = []
_before_end_callbacks: list[Callable[[], object]] = []
#: The fork depth at which a multiprocessing finalizer was registered.
_registered_depth: list[int] = []
#: Called in a forked child, in this order, to discard the parent's state. They can be repeated.
_resets: list[Callable[[], object]] = []
#: The locks under which a process resets its state, by process id. A thread of the parent may hold the parent's.
_reset_locks: dict[int, threading.RLock] = {}

#: Option on the command line of a spawned child.
SPAWNED = "--multiprocessing-fork"
#: Priority of the last multiprocessing finalizer.
LAST_PRIORITY = -(1 << 30)


#: How long a call in a daemon thread does not end at the end of the process, in seconds. Limited, because an
#: atexit handler of the program may wait for the thread.
DAEMON_S = 5.0

#: Advice of madvise(2): the kernel clears the memory in a forked child, whatever forked it.
MADV_WIPEONFORK = 18


class ProcessIdMark:
    """The mark of a process that has not started a client, or whose system has no MADV_WIPEONFORK."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, _: int) -> int:
        return int(self._pid == os.getpid())


def _memory_mark() -> mmap | ProcessIdMark:
    """Return a mark that takes a tenth of the time of getpid(), if this system has it."""
    try:
        with importing():
            from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
        page = mmap(-1, PAGESIZE, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        page.madvise(MADV_WIPEONFORK)
    except (ImportError, OSError, AttributeError):
        return ProcessIdMark()
    page[0] = 1
    return page


class CurrentProcess:
    """The process whose state this is: the parent, until a child notices the fork.

    Attributes:
        pid: Its id.
        mark: An object whose item 0 is 1 in this process, and 0 in all its forked children.
        ended_by: Identifier of the thread that closes all clients at the end of the process; None before.
    """

    __slots__ = ("ended_by", "mark", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.mark: mmap | ProcessIdMark = ProcessIdMark()
        self.ended_by: int | None = None


process = CurrentProcess()


def notice_fork() -> None:
    """Discard the parent's state, if this is a forked child that has not done so yet."""
    pid = os.getpid()
    if process.pid == pid:
        return
    with _reset_locks.setdefault(pid, threading.RLock()):
        for reset in _resets:
            if process.pid == pid:  # a signal handler or finalizer, in this thread, has noticed it too
                return
            reset()
        process.pid = pid


def on_fork_in_child(reset: Callable[[], object]) -> None:
    """Call ``reset`` in each forked child, after the functions registered before it.

    It must discard the parent's state, not use it. If interrupted, it is called again.
    """
    _resets.append(reset)


def fork_count() -> int:
    """Return the number of forks by this process and its forked ancestors.

    Another process may know any object that was created before the last fork. A process does not
    know of its own forks that ran no hooks.
    """
    notice_fork()
    return len(_forks)


def fork_depth() -> int:
    """Return the number of forks between the first process and this one; constant for a process."""
    notice_fork()
    return len(_generations)


def register(one: ForkAware) -> None:
    """Notify ``one`` of forks, and close it at exit."""
    _living.add(one)


def register_before_fork(one: ForkShared) -> None:
    """Notify ``one`` before the next fork."""
    _ours.add(one)


def _before_fork() -> None:
    global _ours
    _forks.append(None)
    ours, _ours = _ours, weakref.WeakSet()
    for one in _copy_of(ours):
        one.mark_shared()


def _copy_of(things: weakref.WeakSet[Thing]) -> list[Thing]:
    """Return a copy of the set, which other threads may be changing."""
    while True:
        with suppress(RuntimeError):  # "Set changed size during iteration"
            return list(things)


def _discard_state_of_parent() -> None:
    process.mark, process.ended_by = ProcessIdMark(), None
    _generations.append(None)
    _forks.append(None)
    for one in _copy_of(_living):
        one.after_fork_in_child()


def before_end(callback: Callable[[], object]) -> None:
    """Call ``callback`` at the end of the process, before the clients are closed."""
    _before_end_callbacks.append(callback)


def close_all() -> None:
    """Run the `before_end` callbacks and close all clients, even if some of these fail."""
    notice_fork()
    try:
        for callback in _before_end_callbacks:
            callback()
        _log_thread.end()
    finally:
        process.ended_by = threading.get_ident()
        close_clients()


def in_use() -> None:
    """Make a fast mark of this process, and close all clients at the end of a forked multiprocessing child.

    To be called whenever a client is started.
    """
    if isinstance(process.mark, ProcessIdMark):
        process.mark = _memory_mark()
    processes, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if processes is None or util is None or processes.parent_process() is None or _registered_depth == [fork_depth()]:
        return
    if _generations or SPAWNED not in sys.orig_argv:  # a spawned child runs atexit like any program
        _registered_depth[:] = [fork_depth()]
        util.Finalize(None, _close_if_alone, exitpriority=LAST_PRIORITY)


def _close_if_alone() -> None:
    """Close all clients, unless other non-daemon threads still run, which are joined after this."""
    here = threading.current_thread()
    if all(thread is here or thread.daemon for thread in threading.enumerate()):
        _log_thread.end()
        process.ended_by = threading.get_ident()
        close_clients()


def is_outlived() -> bool:
    """Return whether this is a daemon thread, and all clients are closed because the process ends.

    A failed call should not return then, as one of the standard library does not. Its error would be
    none of the program's, and its traceback would be printed.
    """
    ended_by = process.ended_by
    return ended_by is not None and ended_by != threading.get_ident() and threading.current_thread().daemon


def end_thread() -> None:
    """Wait for the end of the process, for up to `DAEMON_S`, and end this thread in silence after that.

    No ``except Exception`` catches SystemExit, and no traceback of it is printed. But asyncio prints that of a
    task, so if an event loop runs here, this returns. The caller then raises its error.
    """
    threading.Event().wait(DAEMON_S)
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running_loop is None or running_loop() is None:
        raise SystemExit


def end_daemon_thread() -> None:
    """Do as `end_thread` at the end of the process, if this is a daemon thread of the program, not of distsync."""
    here = threading.current_thread()
    if here.daemon and not here.name.startswith("distsync-"):
        end_thread()


def close_for_exit() -> None:
    """Close all clients in a process that exits at once. Log handlers, which may use them, get no more records."""
    _log_thread.stop()
    process.ended_by = threading.get_ident()
    close_clients()


def close_clients() -> None:
    """Close every client, even if closing another one fails."""
    notice_fork()
    with ExitStack() as each:
        for one in _copy_of(_living):
            each.callback(one.close)


on_fork_in_child(_discard_state_of_parent)
before_fork.append(_before_fork)
os.register_at_fork(after_in_child=notice_fork)
atexit.register(close_all)
