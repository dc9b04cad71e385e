"""Log records of distsync, which one thread passes to the program's log handlers.

A log handler is code of the program: it may acquire a lock that another thread holds, use an object of
distsync, raise, or never return. A session must not depend on it. So a thread that logs only puts the
record into a queue, without a lock, and a thread that ends once the queue is empty calls the handlers.

What a handler itself makes distsync log is dropped, because each record would cause more of them.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from distsync import _log

#: Maximum number of records that wait for a handler. Later ones are dropped, and counted.
MAX_RECORDS = 10_000

#: Maximum wait in seconds for the handlers at the end of the process.
END_S = 1.0

#: What describes the thread that logged, in a record that another one makes.
ORIGIN = (
    *("created", "msecs", "relativeCreated"),
    *("thread", "threadName", "process", "processName", "taskName"),
)


class _Worker(threading.Thread):
    """A thread that passes records to handlers."""

    #: Whether it does not look into the queue again. A thread that has not begun may never do.
    is_over = True


class _RecordQueue:
    """The records of one process, and the thread for them."""

    def __init__(self) -> None:
        self._records: deque[logging.LogRecord] = deque()
        self._handling = threading.Lock()
        self._handling_thread: int | None = None
        self._worker: _Worker | None = None
        self._dropped = 0
        self.has_ended = False

    def is_handling(self) -> bool:
        """Return whether this thread calls the handlers."""
        return threading.get_ident() == self._handling_thread

    def put(self, record: logging.LogRecord) -> None:
        """Pass ``record`` to the handlers soon. Never waits for them."""
        if self.has_ended or self.is_handling():
            return
        if len(self._records) >= MAX_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)
        if self._worker is None or self._worker.is_over:
            self._worker = worker = _Worker(target=self._run, name="distsync-log", daemon=True)
            with suppress(RuntimeError):  # no thread is available: the next record or `flush` tries again
                worker.start()

    def _run(self) -> None:
        worker = threading.current_thread()
        assert isinstance(worker, _Worker)
        with self._handling:  # of an earlier worker, whose last record was followed by another one
            is_empty = False
            while not is_empty:
                worker.is_over = False
                self._handle_all()
                worker.is_over = True  # a record that is put after this starts another thread
                is_empty = self.has_ended or not self._records

    def flush(self, seconds: float) -> None:
        """Wait for up to ``seconds`` until the handlers have got all records."""
        if not self.is_handling() and self._handling.acquire(timeout=seconds):
            try:
                self._handle_all()
            finally:
                self._handling.release()

    def _handle_all(self) -> None:
        self._handling_thread = threading.get_ident()
        try:
            while self._records and not self.has_ended:
                _handle(self._records.popleft())
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    text = "%d log records were dropped: a log handler has not returned"
                    _handle(logging.LogRecord("distsync.client", logging.WARNING, __file__, 0, text, (dropped,), None))
        finally:
            self._handling_thread = None


#: The queue of each process, by process id: a forked child has none of the parent's threads.
_queues: dict[int, _RecordQueue] = {}


def _queue() -> _RecordQueue:
    pid = os.getpid()
    return _queues.get(pid) or _queues.setdefault(pid, _RecordQueue())


def _put(record: logging.LogRecord) -> None:
    _queue().put(record)


def is_handling() -> bool:
    """Return whether this thread passes a record of distsync to the program's handlers."""
    return _queue().is_handling()


def flush(seconds: float) -> None:
    """Wait for up to ``seconds`` until the program's handlers have got all records."""
    _queue().flush(seconds)


def end() -> None:
    """Give the program's handlers the records so far, and drop all later ones.

    To be called before the clients are closed, which a handler may use.
    """
    _queue().flush(END_S)
    stop()


def stop() -> None:
    """Drop all records that no handler has got yet, and all later ones. Never waits."""
    _queue().has_ended = True


def _handle(record: logging.LogRecord) -> None:
    """Pass ``record`` to the program's handlers. Report what they raise as the end of a thread."""
    logger = logging.getLogger(record.name)
    try:
        if logger.isEnabledFor(record.levelno):
            logger.handle(_as_made_by_program(logger, record))
    except BaseException:
        with suppress(BaseException):  # the hook may be the program's own
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _as_made_by_program(logger: logging.Logger, record: logging.LogRecord) -> logging.LogRecord:
    """Return ``record`` as the program's record factory makes it."""
    info: Any = record.exc_info
    made = logger.makeRecord(
        record.name, record.levelno, record.pathname, record.lineno, str(record.msg), record.args or (), info,
        record.funcName,
    )  # fmt: skip
    made.__dict__.update({name: value for name, value in record.__dict__.items() if name in ORIGIN})
    return made


_log.put_record = _put
os.register_at_fork(after_in_child=_queues.clear)
atexit.register(flush, END_S)
