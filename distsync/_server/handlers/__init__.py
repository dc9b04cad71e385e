"""Handlers of requests."""

from __future__ import annotations


class RequestRefused(Exception):
    """A request is invalid and has changed nothing. ``code`` becomes the ``err`` of the reply."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = int(code)
