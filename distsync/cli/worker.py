"""``distsync worker``: add workers to a pool, on any machine."""

from __future__ import annotations

import os
import sys

import click

from distsync._client.client import Client
from distsync.cli.signals import SignalListener
from distsync.errors import DistsyncError
from distsync.multiprocessing._pool.local_workers import LocalWorkers
from distsync.multiprocessing._pool.pool_codec import LIMIT_BYTES, PoolCodec
from distsync.multiprocessing._pool.pool_worker import new_core
from distsync.multiprocessing._pool.worker_base import WorkerSpec
from distsync.multiprocessing.context import default_context
from distsync.multiprocessing.pool import MAX_DELIVERIES


@click.command("worker", short_help="Work on the tasks of a pool.")
@click.argument("name")
@click.option("--processes", type=click.IntRange(1, 1024), help="Number of processes. Default: one for each CPU.")
@click.option("--max-tasks-per-child", type=click.IntRange(1), help="Replace a process after this number of tasks.")
@click.option(
    "--max-deliveries",
    default=MAX_DELIVERIES,
    show_default=True,
    type=click.IntRange(0),
    help="Give up a task after this number of workers that exited before its end; 0: never.",
)
@click.option("--path", multiple=True, help="Further folder to import modules from. May be repeated.")
def worker_command(
    name: str, processes: int | None, max_tasks_per_child: int | None, max_deliveries: int, path: tuple[str, ...]
) -> None:
    """Work on the tasks of Pool(name="NAME"), wherever it was created, until SIGTERM or Ctrl-C.

    Then each process finishes its current task and exits. A second Ctrl-C interrupts the task, and another worker does
    it. The modules of the functions must be importable here. Each process calls the initializer of the pool before its
    first task.
    """
    sys.path[:0] = [os.getcwd(), *map(os.path.abspath, path)]
    count = processes or os.cpu_count() or 1
    try:
        with Client() as client:
            status = _work(client, client.path("pool", name), count, max_tasks_per_child, max_deliveries)
    except DistsyncError as error:
        click.secho(f"worker: {error}", fg="red", err=True)
        status = 1
    sys.exit(status)


def _work(client: Client, path: str, count: int, maxtasks: int | None, max_deliveries: int) -> int:
    """Return the exit status when all processes have exited."""
    PoolCodec(client.settings)  # fail now if the codec cannot be used
    client.run(new_core(client, path).look())
    spec = WorkerSpec(client.settings, path, LIMIT_BYTES, max_deliveries, maxtasks=maxtasks)
    crew = LocalWorkers(default_context.get_context("spawn"), count, spec, [])
    signals = SignalListener()
    click.echo(f"{count} workers for {path}", err=True)
    try:
        while not signals.signals:
            crew.poll()
            if crew.is_hopeless:
                click.secho(
                    f"worker: {crew.failures} processes ended before they began: {crew.story}", fg="red", err=True
                )
                return 1
            crew.start_missing()
            signals.wait(crew.waitables())
        crew.stop_when_idle()
        while crew.processes and not signals.twice:
            signals.wait(crew.waitables())
            crew.poll()
        return 0
    finally:
        crew.terminate()
        signals.close()
