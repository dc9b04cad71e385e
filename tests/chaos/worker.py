"""One process under chaos: it performs its work repeatedly, and records the results.

``python -m chaos.worker SPEC`` (JSON). Its standard input contains, a line each, faults from
inside: ``fork``, ``clock SECONDS``, ``stop``. It ends when its input ends.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chaos.history import Recorder, now
from chaos.workloads import ALL, Workload

from distsync._client import default_client as default
from distsync._client.client import Client

CONTROL_S = 0.1
LATE_S = 0.02
"""Minimum delay in seconds that is recorded."""


class Desk:
    """Where a workload writes down what it does."""

    def __init__(self, recorder: Recorder, dice: random.Random, poll_s: float = 0.002) -> None:
        self.recorder, self.dice, self.poll_s = recorder, dice, poll_s
        self.stopping = threading.Event()

    @property
    def who(self) -> str:
        return self.recorder.who

    def call(self, name: str, function: Callable[[], Any], arg: Any = None, within: float | None = None) -> Any:
        """It is done, and written down, however it ends. ``within``: its time-out."""
        id = self.recorder.begin(name, arg, within)
        try:
            value = function()
        except BaseException as error:
            self.recorder.end(id, error=type(error).__name__, text=str(error)[:200])
            raise
        self.recorder.end(id, value=value)
        return value

    def claim(self, holds: Callable[[], bool], token: int, **of: Any) -> bool:
        """What it says of itself at this moment."""
        since = now()
        held = holds()
        if held:
            self.recorder.write(claim=token, **{"from": since}, **of)
        return held

    @contextmanager
    def noted(self) -> Iterator[None]:
        """An error ends what was being done, not the process; the calls have written it down."""
        try:
            yield
        except KeyboardInterrupt:
            self.recorder.write(interrupted=True)
        except Exception as error:
            self.recorder.write(error=type(error).__name__, text=str(error)[:200])


def work(desk: Desk, workload: Workload) -> None:
    while not desk.stopping.is_set():
        with suppress(KeyboardInterrupt):  # between two steps
            while not desk.stopping.is_set():
                with desk.noted():
                    workload.step()


def forked(spec: dict[str, Any], count: int) -> None:
    """A child that has all of the parent's objects, and does as it does for a while."""
    recorder = Recorder(Path(spec["folder"]), f"{spec['who']}.fork{count}")
    desk = Desk(recorder, random.Random(f"{spec['seed']} {count}"))
    note_states(desk, default.default_client())
    threading.Thread(target=note_lateness, args=(desk,), daemon=True).start()
    workload = ALL[spec["workload"]](desk, spec["role"])
    for _ in range(3):
        with desk.noted():
            workload.step()
    with desk.noted():
        workload.end()
        default.close_default()


def note_states(desk: Desk, client: Client) -> None:
    """Record when the connection breaks, and when it is restored, from now on; not in forked children."""
    here = os.getpid()
    client.on_state(lambda state: desk.recorder.write(state=state) if os.getpid() == here else None)


def note_lateness(desk: Desk) -> None:
    """In a thread of its own: how late something ends that needs no server, if that is late at all."""
    quiet = threading.Condition()
    while True:
        since = now()
        with quiet:
            quiet.wait(CONTROL_S)
        late = now() - since - CONTROL_S
        if late > LATE_S:
            desk.recorder.write(control=late, **{"from": since})


def listen(desk: Desk, spec: dict[str, Any]) -> None:
    """In a thread of its own."""
    children: list[int] = []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "stop":
            desk.stopping.set()
        elif word == "clock":
            step_clock(float(rest))
        elif word == "fork":
            child = os.fork()
            if child == 0:
                try:
                    forked(spec, len(children))
                finally:
                    os._exit(0)
            children.append(child)
    os._exit(1)


def step_clock(seconds: float) -> None:
    """The wall clock of this process is so much ahead."""
    real = time.time
    time.time = lambda: real() + seconds
    real_ns = time.time_ns
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


def main(text: str) -> None:
    spec = json.loads(text)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    desk = Desk(Recorder(Path(spec["folder"]), spec["who"]), random.Random(spec["seed"]), spec["poll_s"])
    client = Client(spec["hosts"], namespace=spec["namespace"], session_timeout=spec["session_timeout"])
    default.set_default(client)
    note_states(desk, client)
    threading.Thread(target=listen, args=(desk, spec), daemon=True).start()
    threading.Thread(target=note_lateness, args=(desk,), daemon=True).start()
    workload = ALL[spec["workload"]](desk, spec["role"])
    work(desk, workload)
    with desk.noted():
        workload.end()
    with desk.noted():
        client.close()
    desk.recorder.write(closed=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
