"""What happened, as JSON lines: each process writes a file of its own, by the clock that all processes share.

Rules for this file: records only. A line is one write(2), so that a process that is killed leaves whole lines; its last
call then has a beginning and no end.

* ``{"t": 1.5, "who": "w1", "call": "put", "id": 7, "arg": ..., "within": 3.0}``: it begins to call, with this time-out;
* ``{"t": 1.6, "who": "w1", "end": 7, "value": ...}`` or ``"error": "Empty"``: the call has ended;
* ``{"t": 1.6, "who": "w1", "claim": token, "from": 1.59}``: between these two times it said that it holds (``"side"``:
  which side of it);
* ``{"t": 1.6, "who": "w1", "control": 0.05, "from": 1.45}``: so late did something end that needs no server;
* ``{"t": 1.7, "who": "site", "told": "commit", "what": ...}``: whatever else it was told;
* ``{"t": 0.1, "who": "chaos", "servers": "ensemble", "session": 2.0}``: what it all runs on;
* ``{"t": 1.8, "who": "chaos", "fault": "kill", "whose": ...}``: what was done to it;
* ``{"t": 1.9, "who": "chaos", "fault": "its session has ended", "of": ..., "lasts": 2.0}``: the servers have said so.
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
"""Somebody has ended a session of so many seconds, and has the servers' answer."""


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
    """What was written down last, from some call on; nothing if there is no call in it."""
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
        with suppress(ValueError):  # the last line of who was killed, the first where it begins in the midst of one
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
