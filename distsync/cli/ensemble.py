"""``distsync ensemble``: run a ZooKeeper ensemble for a developer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from distsync._client.ensemble_status import Role, Server
from distsync.cli.signals import SignalListener
from distsync.errors import DistsyncError
from distsync.testing.ensemble import TICK_MS, Ensemble

POLL_S = 1.0


@click.command("ensemble", short_help="Run a ZooKeeper ensemble, with observers.")
@click.option("--participants", default=3, show_default=True, type=click.IntRange(1, 99), help="Servers that vote.")
@click.option("--observers", default=0, show_default=True, type=click.IntRange(0, 99), help="Servers that do not.")
@click.option(
    "--tick-ms", default=TICK_MS, show_default=True, type=click.IntRange(50, 60_000), help="ZooKeeper's tickTime."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder for znodes and logs. Default: a temporary one, removed at the end.",
)
def ensemble_command(participants: int, observers: int, tick_ms: int, data_dir: Path | None) -> None:
    """Run a ZooKeeper ensemble on loopback until SIGTERM or Ctrl-C, and print the roles of its servers on each change.

    Requires Java and ZooKeeper: Debian's package zookeeper, or the jars named by ZOOKEEPER_CLASSPATH.
    """
    signals = SignalListener()
    try:
        with Ensemble(participants, observers, tick_ms=tick_ms, data_dir=data_dir) as ensemble:
            _print_changes(ensemble, signals)
    except DistsyncError as error:
        click.secho(f"ensemble: {error}", fg="red", err=True)
        sys.exit(1)
    finally:
        signals.close()


def _print_changes(ensemble: Ensemble, signals: SignalListener) -> None:
    """Print the ensemble's address, and all servers whenever the role or epoch of one changes."""
    click.echo("DISTSYNC_HOSTS=" + ",".join("{}:{}".format(*server.address) for server in ensemble.servers))
    before: list[tuple[Role, int | None]] = []
    while not signals.signals:
        status = ensemble.status()
        now = [(server.role, server.epoch) for server in status]
        if before != now:
            before = now
            click.echo("\n".join(_lines(ensemble, status)))
        signals.wait(seconds=POLL_S)


def _lines(ensemble: Ensemble, status: list[Server]) -> Iterator[str]:
    for server, says in zip(ensemble.servers, status, strict=True):
        where = f"{says.host}:{says.port}"
        known = says.problem if says.zxid is None else f"epoch {says.epoch}  counter {says.counter}"
        yield f"server {server.number}  {where:<15}  {says.role.value:<11}  pid {server.pid or '-':<8}  {known}"
