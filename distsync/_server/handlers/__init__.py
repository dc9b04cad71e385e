"""How the checks of the engine say no.

Rules for this file: one exception, which never leaves the engine: it becomes the ``err`` of a reply.
"""

from __future__ import annotations


class RequestRefused(Exception):
    """The request is answered with this code, and has changed nothing."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = int(code)
