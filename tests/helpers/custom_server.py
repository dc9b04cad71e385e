"""A server process whose options a test chooses, also those that no command line offers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from helpers.servers import LOOPBACK, EmbeddedProcess

PROGRAM = """
import sys
from pathlib import Path
from distsync._server import main as serve
from distsync._server.options import Limits, Options
{before}
serve._prepare_process()
serve.serve({host!r}, {port}, {data!r}, secret={secret!r}, options=Options(limits=Limits(**{limits!r}), **{options!r}))
"""


class TunedProcess(EmbeddedProcess):
    """``before`` is Python code that runs first."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: dict[str, Any] | None = None,
        secret: str | None = None,
        before: str = "",
        **options: Any,
    ) -> None:
        super().__init__(folder)
        self.secret = secret
        self.limits = limits or {}
        self.before = before
        self.options = options

    def command(self) -> list[str]:
        data = str(self.folder / "data")
        program = PROGRAM.format(
            host=LOOPBACK,
            port=self.port,
            data=data,
            secret=self.secret,
            limits=self.limits,
            options=self.options,
            before=self.before,
        )
        return [sys.executable, "-c", program]
