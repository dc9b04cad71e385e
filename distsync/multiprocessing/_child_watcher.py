"""Children: the sessions of a process that this one started end with it, so that what it held is free at once.

Rules for this file: it sees deaths, and knows no lock. A session is ended only once its process is seen to be dead.

One thread waits for the death of all children, as long as there are any. Without ``pidfd_open`` (outside Linux) there
is none, and only ``join`` sees a death.

A forked child closes its copies of the files; and a fork may come at any moment, also while one is being closed here.
So a file is forgotten before it is closed: else the child would close whatever has its number meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from distsync._client import session_handover
from distsync._client.session_handover import SessionHandover

logger = logging.getLogger("distsync.multiprocessing")


class Child:
    """A process that was started here, and what it has told of its sessions."""

    def __init__(self, pid: int, receiver: Any) -> None:
        os.set_blocking(receiver.fileno(), False)
        self.pid = pid
        self.pidfd = _pidfd(pid)
        self.seen_off = False
        self._receiver = receiver
        self._rest = b""
        self._wills: dict[int, SessionHandover] = {}
        self._lock = threading.Lock()

    def watched(self) -> list[int]:
        """The files that are ready when there is something to do."""
        with self._lock:
            receiver = [] if self._receiver is None else [self._receiver.fileno()]
            return receiver if self.pidfd is None else [self.pidfd, *receiver]

    def receive(self) -> None:
        """What it has told is known."""
        with self._lock:
            self._read()

    def _read(self) -> None:
        while self._receiver is not None:
            try:
                text = os.read(self._receiver.fileno(), 65536)
            except BlockingIOError:
                return
            if not text:
                self._close_receiver()
            lines, newline, self._rest = (self._rest + text).rpartition(b"\n")
            for will in session_handover.parse(lines + newline):
                self._note(will)

    def _close_receiver(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _note(self, will: SessionHandover | None) -> None:
        """A client has one session; what others say by the same pipe does not count."""
        if will is None:
            self._wills.clear()
        elif will.pid == self.pid:
            self._wills[will.client] = will

    def handle_death(self) -> None:
        """It is dead: its sessions are over. May be called by several threads, and again."""
        with self._lock:
            self._read()
            while self._wills:
                _execute(self._wills.popitem()[1])

    def is_dead(self) -> bool:
        """Who has lost its forkserver says that it has ended, and may live."""
        with self._lock:
            return self.pidfd is None or bool(connection.wait([self.pidfd], 0))

    def close(self) -> None:
        """Its files are closed."""
        with self._lock:
            self._close_receiver()
            pidfd, self.pidfd = self.pidfd, None
            if pidfd is not None:
                os.close(pidfd)


def _execute(will: SessionHandover) -> None:
    try:
        session_handover.close_session(will)
    except Exception as error:
        logger.warning("cannot close the session of process %d, which exited; it ends by timeout: %s", will.pid, error)


def _pidfd(pid: int) -> int | None:
    """A file that is ready when the process has ended; None if that cannot be had, or it has ended already."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class Watcher:
    """The thread that waits for deaths. It goes with the last child."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._children: list[Child] = []
        self._wake: tuple[int, int] | None = None
        self._thread: Callable[[], threading.Thread | None] = lambda: None

    def add(self, child: Child) -> None:
        """It is watched from now on, if that is possible."""
        if child.pidfd is None:
            return
        with self._lock:
            self._children.append(child)
            if self._wake is None:
                self._wake = os.pipe()
                thread = threading.Thread(target=self._work, args=self._wake, name="distsync-children", daemon=True)
                self._thread = weakref.ref(thread)  # when it has ended, nothing is left of it
                try:
                    thread.start()
                except BaseException:
                    self._children.clear()
                    self._go(*self._wake)
                    raise
            else:
                os.write(self._wake[1], b"\0")

    def on_joined(self, child: Child) -> None:
        """It was joined. If all others were too, the thread has ended."""
        child.seen_off = child.is_dead()
        with self._lock:
            self._lock.wait_for(lambda: self._wake is None or not all(each.seen_off for each in self._children))
            thread = self._thread() if self._wake is None else None
        if thread is not None:
            thread.join()

    def _work(self, wakeup_fd: int, wake: int) -> None:
        try:
            self._watch(wakeup_fd, wake)
        except BaseException:
            with self._lock:  # nobody is watched any more, and nobody waits for that
                self._children.clear()
                self._go(wakeup_fd, wake)
            raise

    def _watch(self, wakeup_fd: int, wake: int) -> None:
        while self._has_children(wakeup_fd, wake):
            children = {file: child for child in tuple(self._children) for file in child.watched()}
            for file in connection.wait([wakeup_fd, *children]):
                if file == wakeup_fd:
                    os.read(wakeup_fd, 4096)
                else:
                    self._see(children[file], file)  # type: ignore[index]

    def _has_children(self, wakeup_fd: int, wake: int) -> bool:
        with self._lock:
            if not self._children:
                self._go(wakeup_fd, wake)
            return self._wake is not None

    def _go(self, wakeup_fd: int, wake: int) -> None:
        self._wake = None
        os.close(wakeup_fd)
        os.close(wake)
        self._lock.notify_all()

    def _see(self, child: Child, file: object) -> None:
        if file != child.pidfd:
            child.receive()
            return
        try:
            child.handle_death()
        finally:
            with self._lock:
                self._children.remove(child)
                self._lock.notify_all()
            child.close()

    def forget(self) -> None:
        """In a forked child: these are its siblings."""
        children, wake = self._children, self._wake
        self.__init__()  # type: ignore[misc]
        for child in children:
            child._lock = threading.Lock()
            child.close()
        for file in wake or ():
            os.close(file)


watcher = Watcher()
os.register_at_fork(after_in_child=watcher.forget)
