"""``distsync demo``: run one program as several processes with distsync, and as one process; compare
the results.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from distsync._client.client import Client
from distsync._protocols.retries import ensure, remove_tree
from distsync._server.autostart.find_or_start import find_or_start
from distsync.cli.demo_pool import PoolDemo
from distsync.cli.demo_processes import Report, WorkerFailed, Workers
from distsync.errors import DistsyncError

PROGRAMS = Path(__file__).parent / "programs"
SHARED, ALONE = PROGRAMS / "wordcount.py", PROGRAMS / "wordcount_stdlib.py"
MOST_FREQUENT = 3


@click.command("demo", short_help="Run one program as four processes; compare with one.")
@click.option("--processes", default=4, show_default=True, type=click.IntRange(1, 64), help="Number of processes.")
@click.option("--files", type=click.IntRange(1), help="Count only this number of files.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with Python files. Default: this Python's standard library.",
)
@click.option("--keep", is_flag=True, help="Keep the results, the logs and the znodes, and print where they are.")
def demo_command(processes: int, files: int | None, folder: Path | None, keep: bool) -> None:
    """Count the words of Python's library in four processes, and once more in one.

    The processes are started separately, with the same command line. They share a Queue, a Lock and a Barrier on the
    server of DISTSYNC_HOSTS, or on your embedded server, which is started automatically. Then the same program with the
    standard library's own objects counts alone. After that, two programs hash and compress the same files with pools
    that share their worker processes, one of which is killed, and one does so alone with multiprocessing's own pool.
    The last line says how much was gained. Exit status 1 if results differ.
    """
    options = [*(["--files", str(files)] if files else []), *(["--folder", str(folder.resolve())] if folder else [])]
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no child process behind
    try:
        with _workplace(keep, console) as place:
            gain = Demo(console, place, processes, options).run()
            agree = gain is not None and PoolDemo(console, place, _namespace(place), options, _display).run()
    except (WorkerFailed, DistsyncError) as error:
        click.secho(f"demo: {error}", fg="red", err=True)
        sys.exit(1)
    if not agree:
        sys.exit(1)
    console.print(f"gain: {processes} processes counted {gain:.1f} times as fast as one process", highlight=False)


@contextmanager
def _workplace(keep: bool, console: Console) -> Iterator[Path]:
    """Create a temporary folder, and a namespace of the same name on the server; delete both unless
    ``keep``.
    """
    place = Path(tempfile.mkdtemp(prefix="distsync-demo-"))
    try:
        console.print(f"server: {_server(_namespace(place))}", markup=False, highlight=False, soft_wrap=True)
    except BaseException:
        place.rmdir()
        raise
    try:
        yield place
    finally:
        if keep:
            console.print(f"kept: folder {place}, znodes {_namespace(place)}", highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(place, ignore_errors=True)
            _remove_znodes(_namespace(place))


def _namespace(place: Path) -> str:
    return f"/{place.name}"


def _server(namespace: str) -> str:
    """Create the namespace, and return a description of the server's address."""
    with Client(namespace=namespace) as client:
        client.run(ensure(client.namespace), timeout=30)
        return client.hosts or f"the embedded one of this user, {find_or_start().hosts}"


def _remove_znodes(namespace: str) -> None:
    try:
        with Client(namespace=namespace) as client:
            client.run(remove_tree(client.namespace), timeout=30)
    except DistsyncError as error:
        click.secho(f"demo: the znodes under {namespace} remain: {error}", fg="red", err=True)


class Demo:
    """Runs both programs and prints their results."""

    def __init__(self, console: Console, place: Path, processes: int, options: list[str]) -> None:
        self.console = console
        self.place = place
        self.processes = processes
        self.options = options

    def run(self) -> float | None:
        """Run both programs; return the gain in speed, None if their results differ."""
        together, shared_seconds = self._timed("together", SHARED, self.processes, threads=1)
        alone, alone_seconds = self._timed("alone", ALONE, 1, threads=self.processes)
        names = (f"{self.processes} processes, distsync", "1 process, standard library")
        self.console.print(_table(dict(zip(names, ((together, shared_seconds), (alone, alone_seconds)), strict=True))))
        wrong = _differences(together, alone)
        for line in wrong:
            self._print(f"they differ: {line}")
        if wrong:
            return None
        self._print(f"both agree: {shared_seconds:.1f} s together, {alone_seconds:.1f} s alone")
        return alone_seconds / shared_seconds

    def _timed(self, name: str, program: Path, processes: int, threads: int) -> tuple[dict[str, Any], float]:
        """Run the program; return its result and its duration in seconds."""
        result = self.place / f"{name}.json"
        workers = ["--threads", str(threads), "--parties", str(processes * threads)]
        command = [str(program), *workers, "--result", str(result), *self.options]
        self._print(f"{name}: {processes} x python {program.name} {' '.join(workers)}")
        started = time.monotonic()
        with _display(self.console, processes) as report:
            environment = {"DISTSYNC_NAMESPACE": _namespace(self.place)}
            Workers(command, processes, self.place, environment, _summed(report)).wait()
        return json.loads(result.read_text()), time.monotonic() - started

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


def _summed(report: Report) -> Report:
    """Return a report function for processes that each print a line for each part that they have done."""
    lock = threading.Lock()
    done = 0

    def add(number: int, more: int, total: int) -> None:
        nonlocal done
        with lock:
            done += more
            report(number, done, total)

    return add


@contextmanager
def _display(console: Console, processes: int) -> Iterator[Report]:
    """Yield a report function that shows progress bars on a terminal, and otherwise prints a line for
    each quarter.
    """
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _bars(progress, processes)


def _lines(console: Console) -> Report:
    quarters = {0}

    def report(number: int, done: int, total: int) -> None:
        quarter = done * 4 // total
        if quarter not in quarters:
            quarters.add(quarter)
            console.print(f"  {done} of {total}", highlight=False)

    return report


def _bars(progress: Progress, processes: int) -> Report:
    each: list[TaskID] = []
    if processes > 1:
        each = [progress.add_task(f"process {number}", total=None) for number in range(1, processes + 1)]
    whole = progress.add_task("all", total=None)

    def report(number: int, done: int, total: int) -> None:
        progress.update(whole, completed=done, total=total)
        if each:
            progress.update(each[number], advance=1, total=total)

    return report


def _table(runs: dict[str, tuple[dict[str, Any], float]]) -> Table:
    table = Table()
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    results = [result for result, _ in runs.values()]
    for unit in ("files", "lines", "words"):
        table.add_row(unit, *(f"{result[unit]:,}" for result in results))
    table.add_row("different names", *(f"{len(result['names']):,}" for result in results))
    table.add_row("most frequent", *("\n".join(_most_frequent(result)) for result in results))
    table.add_row("seconds", *(f"{seconds:.1f}" for _, seconds in runs.values()))
    return table


def _most_frequent(result: dict[str, Any]) -> list[str]:
    return [f"{name} {times:,}" for name, times in Counter(result["names"]).most_common(MOST_FREQUENT)]


def _differences(together: dict[str, Any], alone: dict[str, Any]) -> list[str]:
    """Return a line for each difference between the two results."""
    lines = [
        f"{unit}: {together[unit]:,} together, {alone[unit]:,} alone"
        for unit in ("files", "lines", "words")
        if together[unit] != alone[unit]
    ]
    if together["names"] != alone["names"]:
        names = {name for name, _ in set(together["names"].items()) ^ set(alone["names"].items())}
        lines.append(f"names: {len(names):,} are counted differently, such as {', '.join(sorted(names)[:5])}")
    return lines
