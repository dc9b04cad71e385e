"""``distsync serve``: a server by hand.

Rules for this file: it names the options; what they mean is decided in server/serve.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distsync.server import serve


@click.command("serve", short_help="Run a server that speaks the ZooKeeper protocol.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=2181, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder that keeps znodes and sessions; it is made if need be. Default: in the user's state folder.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="File of mode 0600 with a secret: who does not show it as digest identity distsync:SECRET is refused.",
)
@click.option(
    "--idle-exit", type=click.FloatRange(0, min_open=True), help="Stop after so many seconds without sessions."
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow a --host that other machines can reach. Nothing is encrypted."
)
def serve_command(
    host: str,
    port: int,
    data_dir: Path | None,
    secret_file: Path | None,
    idle_exit: float | None,
    allow_remote: bool,
) -> None:
    """Run a server that speaks the ZooKeeper protocol, until SIGTERM or Ctrl-C."""
    sys.exit(
        serve.run(
            host=host,
            port=port,
            data_dir=data_dir,
            secret_file=secret_file,
            idle_exit=idle_exit,
            allow_remote=allow_remote,
        )
    )
