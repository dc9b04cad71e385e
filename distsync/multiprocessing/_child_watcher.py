"""The child processes of this process, whose sessions it ends as soon as they exit.

So the locks of a killed child are free at once. A session is ended only after its process has
exited.

One thread waits for the exit of all children, as long as there are any. Without ``pidfd_open``
(outside of Linux), there is no thread, and only ``join`` notices an exit.

A forked child closes its copies of the files. A fork may happen at any moment, also while a file is
being closed here. So a file is removed from the records before it is closed. Otherwise, the child
would close an unrelated file with the same number.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from distsync._client import lifecycle, session_handover
from distsync._client.session_handover import SessionHandover
from distsync._log import OwnLogger

logger = OwnLogger("distsync.multiprocessing")


class Child:
    """A process that was started here, and the sessions that it has reported.

    Args:
        pid: The process.
        receiver: The end of the pipe through which it reports its sessions.
    """

    def __init__(self, pid: int, receiver: Any) -> None:
        os.set_blocking(receiver.fileno(), False)
        self.pid = pid
        self.pidfd = _pidfd(pid)
        self.is_joined = False
        self._receiver = receiver
        self._partial_line = b""
        self._handovers: dict[int, SessionHandover] = {}
        self._lock = threading.Lock()

    def watched(self) -> list[int]:
        """Return the file descriptors to wait for.

        Returns:
            The file descriptors that are ready if the process exits or reports a session.
        """
        with self._lock:
            receiver = [] if self._receiver is None else [self._receiver.fileno()]
            return receiver if self.pidfd is None else [self.pidfd, *receiver]

    def receive(self) -> None:
        """Read the reports that have arrived."""
        with self._lock:
            self._read_reports()

    def _read_reports(self) -> None:
        while self._receiver is not None:
            try:
                text = os.read(self._receiver.fileno(), 65536)
            except BlockingIOError:
                return
            if not text:
                self._close_receiver()
            lines, newline, self._partial_line = (self._partial_line + text).rpartition(b"\n")
            for handover in session_handover.parse(lines + newline):
                self._record(handover)

    def _close_receiver(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _record(self, handover: SessionHandover | None) -> None:
        """Record the session of a client. Reports of other processes on the same pipe are ignored."""
        if handover is None:
            self._handovers.clear()
        elif handover.pid == self.pid:
            self._handovers[handover.client] = handover

    def handle_death(self) -> None:
        """End the sessions of the process, which has exited. Idempotent and thread-safe."""
        with self._lock:
            self._read_reports()
            while self._handovers:
                _close_session(self._handovers.popitem()[1])

    def is_dead(self) -> bool:
        """Return whether the process has really exited.

        If its forkserver is lost, the Process object reports an exit although the process may still
        run.

        Returns:
            True if the process has exited, or if this cannot be found out.
        """
        with self._lock:
            return self.pidfd is None or bool(connection.wait([self.pidfd], 0))

    def close(self) -> None:
        """Close the files of the process."""
        with self._lock:
            self._close_receiver()
            pidfd, self.pidfd = self.pidfd, None
            if pidfd is not None:
                os.close(pidfd)


def _close_session(handover: SessionHandover) -> None:
    try:
        session_handover.close_session(handover)
    except Exception as error:
        logger.warning(
            "cannot close the session of process %d, which exited; it ends by timeout: %s", handover.pid, error
        )


def _pidfd(pid: int) -> int | None:
    """Return a file descriptor that is ready if the process exits; None if there cannot be one."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class Watcher:
    """The thread that waits for the exit of children. It ends with the last child."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._children: list[Child] = []
        #: The pipe that wakes the thread, which has ended without one. Another thread has another one.
        self._wake: tuple[int, int] | None = None
        self._thread: Callable[[], threading.Thread | None] = lambda: None

    def add(self, child: Child) -> None:
        """Watch a process from now on, if the platform permits it.

        Args:
            child: The process.
        """
        if child.pidfd is None:
            return
        lifecycle.notice_fork()
        with self._lock:
            self._children.append(child)
            if self._wake is None:
                wake = os.pipe()
                try:
                    self._wake = wake
                    thread = threading.Thread(target=self._run, args=(wake,), name="distsync-children", daemon=True)
                    self._thread = weakref.ref(thread)  # so that nothing is left of a thread that has ended
                    thread.start()
                except BaseException:  # it may have been started all the same, and ends then
                    self._children.clear()
                    child.close()
                    self._stop(wake)
                    raise
            else:
                os.write(self._wake[1], b"\0")

    def on_joined(self, child: Child) -> None:
        """Handle the join of a process; wait for the end of the thread if it was the last one.

        Args:
            child: The process.
        """
        child.is_joined = child.is_dead()
        lifecycle.notice_fork()
        with self._lock:
            self._changed.wait_for(lambda: self._wake is None or not all(each.is_joined for each in self._children))
            thread = self._thread() if self._wake is None else None
        if thread is not None:
            thread.join()

    def _run(self, wake: tuple[int, int]) -> None:
        try:
            self._watch(wake)
        except BaseException:
            with self._lock:  # no child is watched any more: release the threads that wait for it
                if self._wake is wake:
                    self._children.clear()
                    self._stop(wake)
            raise

    def _watch(self, wake: tuple[int, int]) -> None:
        wakeup_fd, _ = wake
        while self._has_children(wake):
            children = {file: child for child in tuple(self._children) for file in child.watched()}
            for file in connection.wait([wakeup_fd, *children]):
                if file == wakeup_fd:
                    os.read(wakeup_fd, 4096)
                else:
                    self._on_ready(children[file], file)  # type: ignore[index]

    def _has_children(self, wake: tuple[int, int]) -> bool:
        with self._lock:
            if self._wake is wake and not self._children:
                self._stop(wake)
            return self._wake is wake

    def _stop(self, wake: tuple[int, int]) -> None:
        self._wake = None
        for file in wake:
            os.close(file)
        self._changed.notify_all()

    def _on_ready(self, child: Child, file: object) -> None:
        if file != child.pidfd:
            child.receive()
            return
        try:
            child.handle_death()
        finally:
            with self._lock:
                self._children.remove(child)
                self._changed.notify_all()
            child.close()

    def forget(self) -> None:
        """Forget all children, in a forked child: they are its siblings."""
        children, wake = self._children, self._wake
        self.__init__()  # type: ignore[misc]
        for child in children:
            child._lock = threading.Lock()
            with suppress(OSError):  # a process that becomes a daemon closes every file
                child.close()
        for file in wake or ():
            with suppress(OSError):
                os.close(file)


watcher = Watcher()
lifecycle.on_fork_in_child(watcher.forget)
