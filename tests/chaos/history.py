"""The history as JSON lines: each process writes a file of its own, with the clock that all processes
share.

A line is one write(2), so that a killed process leaves whole lines; its last call then has a
beginning and no end.

* ``{"t": 1.5, "who": "w1", "call": "put", "id": 7, "arg": ..., "within": 3.0}``: a call starts, with this timeout;
* ``{"t": 1.6, "who": "w1", "end": 7, "value": ...}`` or ``"error": "Empty"``: the call has ended;
* ``{"t": 1.6, "who": "w1", "claim": token, "from": 1.59}``: between these times it claimed to hold (``"side"``:
  which side of it);
* ``{"t": 1.6, "who": "w1", "control": 0.05, "from": 1.45}``: the delay of something that needs no server;
* ``{"t": 1.7, "who": "site", "told": "commit", "what": ...}``: any other notification;
* ``{"t": 0.1, "who": "chaos", "servers": "ensemble", "session": 2.0}``: the environment of the run;
* ``{"t": 1.8, "who": "chaos", "fault": "kill", "whose": ...}``: a fault;
* ``{"t": 1.9, "who": "chaos", "fault": "its session has ended", "of": ..., "lasts": 2.0}``: reported by the servers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]

CONFIRMED = "its session has ended"
"""The test has ended a session of this timeout in seconds, and has the servers' reply."""


def now() -> float:
    """Seconds, the same for all processes of this machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Recorder:
    """Writes down what ``who`` does."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        self.folder = folder
        self._file = os.open(folder / f"{who}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._calls = 0

    def write(self, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"t": now(), "who": self.who, **fields}) + "\n").encode())

    def begin(self, call: str, arg: Any = None, within: float | None = None) -> int:
        self._calls += 1
        self.write(call=call, id=self._calls, arg=arg, **({} if within is None else {"within": within}))
        return self._calls

    def end(self, id: int, **how: Any) -> None:
        self.write(end=id, **how)

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True)
class Call:
    """A call, as far as it is known. ``ended`` None: its process was killed in the midst of it."""

    who: str
    name: str
    arg: Any
    begun: float
    ended: float | None = None
    value: Any = None
    error: str | None = None
    within: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.ended is not None and self.error is None

    def meets(self, other: Call) -> bool:
        """There was a time when both had begun and not ended."""
        return (other.ended is None or other.ended > self.begun) and (self.ended is None or other.begun < self.ended)


def calls(events: Iterable[Event], *names: str) -> list[Call]:
    """In the order of their beginnings."""
    begun: dict[tuple[str, int], Event] = {}
    ended: dict[tuple[str, int], Event] = {}
    for event in events:
        if "call" in event and event["call"] in names:
            begun[event["who"], event["id"]] = event
        elif "end" in event:
            ended[event["who"], event["end"]] = event
    found = []
    for key, event in begun.items():
        end = ended.get(key, {})
        found.append(
            Call(
                *(key[0], event["call"], event["arg"], event["t"], end.get("t"), end.get("value"), end.get("error")),
                event.get("within"),
            )
        )
    return sorted(found, key=lambda call: call.begun)


def read(folder: Path) -> list[Event]:
    """All that was written down there, in order of time."""
    found: list[Event] = []
    for file in sorted(folder.glob("*.jsonl")):
        found.extend(_parsed(file.read_text()))
    return sorted(found, key=lambda event: float(event["t"]))


def read_end(file: Path) -> list[Event]:
    """Return the last records of a file, from some call on; nothing if there is no call in it."""
    size = os.path.getsize(file) if file.exists() else 0
    for piece in (PIECE, 16 * PIECE, size):
        start = max(0, size - piece)
        found = list(_parsed(_text_from(file, start))) if size else []
        if not start or any("call" in event for event in found):
            return found
    return []


PIECE = 1 << 12
"""Bytes that are read first for the latest call."""


def _text_from(file: Path, start: int) -> str:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read().decode()


def _parsed(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        # the last line of a killed process, or the first line if the file starts in the middle of
        # one
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
