"""Short texts for steps and answers in transcripts.

Equal schedules give equal texts, so nothing is named by its address.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from distsync._protocols import steps


class TranscriptFormatter:
    """Formats values; signals are numbered in the order of their appearance."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, value: Any) -> str:
        """Return the text for a step, an answer, or a part of one."""
        if isinstance(value, str):
            return value
        if isinstance(value, steps.Signal):
            return self._signal(value)
        if isinstance(value, steps.Step):
            return self._step(value)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, (steps.Created, steps.Listing, steps.Node, steps.Stat)):
            return self._answer(value)
        if type(value) in (tuple, list):
            return ", ".join(map(self.of, value))
        if isinstance(value, dict):
            return ", ".join(f"{key}={self.of(each)}" for key, each in value.items())
        if hasattr(value, "cr_code"):
            return f"{value.__qualname__}()"
        return repr(value)

    def _signal(self, signal: steps.Signal) -> str:
        number = self._numbers.setdefault(id(signal), len(self._numbers) + 1)
        return f"{type(signal).__name__}#{number}{' (fired)' if signal.fired else ''}"

    def _step(self, step: Any) -> str:
        name = type(step).__name__
        if isinstance(step, steps.Pipeline):
            return f"{name}({'; '.join(map(self.of, step.requests))})"
        if isinstance(step, steps.Wait):
            limit = "" if step.limit is None else f"limit={step.limit}"
            return f"{name}({', '.join(filter(None, (*map(self.of, step.signals), limit)))})"
        given = [(each.name, getattr(step, each.name), each.default) for each in fields(step)]
        return f"{name}({', '.join(self._field(key, value) for key, value, default in given if value != default)})"

    def _field(self, name: str, value: Any) -> str:
        if value is True:
            return name
        return self.of(value) if name in ("path", "watch", "loss", "work", "operations") else f"{name}={self.of(value)}"

    def _answer(self, value: Any) -> str:
        if isinstance(value, steps.Created):
            return f"{value.path}{f' by {value.stat.czxid}' if value.stat else ''}"
        if isinstance(value, steps.Listing):
            return f"[{', '.join(value.names)}]"
        if isinstance(value, steps.Node):
            return f"{value.data!r}, {self._answer(value.stat)}"
        owner = f", owner {value.ephemeral_owner:#x}" if value.ephemeral_owner else ""
        return f"czxid {value.czxid}, version {value.version}, {value.num_children} children{owner}"
