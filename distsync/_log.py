"""The loggers of distsync, which call no code of the program in the thread that logs.

The thread of _log_thread.py does that, once it is imported. This module is pure.
"""

from __future__ import annotations

import logging
import sys
from types import FrameType
from typing import Any


def put_record(record: logging.LogRecord) -> None:
    """Pass ``record`` to the program's handlers. Replaced by _log_thread.py."""
    logging.getLogger(record.name).handle(record)


class OwnLogger:
    """A logger of distsync. It calls no handler, filter or record factory in the thread that logs.

    It has the methods of `logging.Logger` that distsync and kazoo call.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a record of ``level`` is logged. Acquires no lock, unlike logging's own method."""
        logger = self._logger
        return logger.getEffectiveLevel() <= level and not logger.disabled and logger.manager.disable < level

    def debug(self, message: object, *arguments: object, exc_info: object = None) -> None:
        self._put(logging.DEBUG, message, arguments, exc_info, sys._getframe(1))

    def info(self, message: object, *arguments: object, exc_info: object = None) -> None:
        self._put(logging.INFO, message, arguments, exc_info, sys._getframe(1))

    def warning(self, message: object, *arguments: object, exc_info: object = None) -> None:
        self._put(logging.WARNING, message, arguments, exc_info, sys._getframe(1))

    warn = warning

    def error(self, message: object, *arguments: object, exc_info: object = None) -> None:
        self._put(logging.ERROR, message, arguments, exc_info, sys._getframe(1))

    def exception(self, message: object, *arguments: object, exc_info: object = True) -> None:
        self._put(logging.ERROR, message, arguments, exc_info, sys._getframe(1))

    def log(self, level: int, message: object, *arguments: object, exc_info: object = None) -> None:
        self._put(level, message, arguments, exc_info, sys._getframe(1))

    def _put(
        self, level: int, message: object, arguments: tuple[object, ...], exc_info: object, frame: FrameType
    ) -> None:
        if self.isEnabledFor(level):
            info: Any = None
            if isinstance(exc_info, BaseException):
                info = type(exc_info), exc_info, exc_info.__traceback__
            elif exc_info:
                info = sys.exc_info()
            code = frame.f_code
            put_record(
                logging.LogRecord(
                    self._logger.name, level, code.co_filename, frame.f_lineno, message, arguments, info, code.co_name
                )
            )
