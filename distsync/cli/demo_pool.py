"""The pools of ``distsync demo``: two programs share their workers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from distsync.cli.demo_processes import Report, Workers

PROGRAMS = Path(__file__).parent / "programs"
SHARED, ALONE = PROGRAMS / "worker_pool.py", PROGRAMS / "worker_pool_stdlib.py"
PARTS = 2
#: Number of finished batches after which one worker is killed.
KILL_AFTER = 5

Display = Callable[[Console, int], AbstractContextManager[Report]]


class PoolDemo:
    """Runs two programs that process half of the files each, with the workers of both, and one that
    processes all alone.
    """

    def __init__(self, console: Console, place: Path, namespace: str, options: list[str], display: Display) -> None:
        self._console, self._place, self._namespace = console, place, namespace
        self._options, self._display = options, display
        self._running: list[Workers] = []
        self._lock = threading.Lock()
        self._killed: int | None = None

    def run(self) -> bool:
        """Run all programs; return whether their results are the same."""
        self._print(f"pools: {PARTS} x python {SHARED.name} --part .../{PARTS}, which share their workers")
        began = time.monotonic()
        together = self._run([(SHARED, f"{number}/{PARTS}") for number in range(1, PARTS + 1)])
        seconds = time.monotonic() - began
        if self._killed is not None:
            self._print(f"  worker process {self._killed} was killed, others did its batch")
        self._print(f"pool: python {ALONE.name}")
        began = time.monotonic()
        alone = self._run([(ALONE, "1/1")])
        alone_seconds = time.monotonic() - began
        if together != alone:
            different = sum(together.get(file) != alone.get(file) for file in {*together, *alone})
            self._print(f"they differ: {different} files of {len(alone)}")
            return False
        times = f"{seconds:.1f} s together, {alone_seconds:.1f} s alone"
        self._print(f"both pools hash and compress {len(alone)} files to the same: {times}")
        return True

    def _run(self, programs: list[tuple[Path, str]]) -> dict[str, Any]:
        """Run these programs at the same time; return their results."""
        found: dict[str, Any] = {}
        with self._display(self._console, 1) as report, ExitStack() as ends:
            done: dict[int, tuple[int, int]] = {}
            self._running = []
            for place, (program, part) in enumerate(programs):
                self._running.append(self._start(program, part, place, done, report))
                ends.callback(self._running[-1].end)
            for workers in self._running:
                workers.wait()
        for place, (program, _) in enumerate(programs):
            found.update(json.loads(self._result(program, place).read_text()))
        return found

    def _result(self, program: Path, place: int) -> Path:
        return self._place / f"{program.stem}-{place + 1}.json"

    def _start(self, program: Path, part: str, place: int, done: dict[int, tuple[int, int]], report: Report) -> Workers:
        def heard(_: int, now: int, total: int) -> None:
            with self._lock:
                done[place] = now, total
                if len(done) == len(self._running):
                    report(0, sum(each for each, _ in done.values()), sum(each for _, each in done.values()))
                if program is SHARED and self._killed is None and sum(each for each, _ in done.values()) >= KILL_AFTER:
                    self._kill()

        command = [str(program), "--part", part, "--result", str(self._result(program, place)), *self._options]
        logs = self._place / f"part-{place + 1}"
        logs.mkdir(exist_ok=True)
        return Workers(command, 1, logs, {"DISTSYNC_NAMESPACE": self._namespace}, heard)

    def _kill(self) -> None:
        """Kill a worker process of the first program, if /proc shows its children."""
        program = self._running[0].processes[0].pid
        for task in Path(f"/proc/{program}/task").glob("*/children"):
            for pid in task.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
                self._killed = int(pid)
                return

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)
