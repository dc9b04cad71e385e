"""The click group of all commands. A command's module is loaded only when the command is used."""

from __future__ import annotations

import logging
from importlib import import_module

import click

COMMANDS = ("demo", "ensemble", "run", "serve", "worker")
"""Names of the commands. ``demo`` is ``demo_command`` in ``demo.py``, and so on."""


class Commands(click.Group):
    """A group that loads only the requested command: a program started by ``run`` must not find the
    others loaded.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"distsync.cli.{cmd_name}"), f"{cmd_name}_command")
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Locks, queues and the other tools of threading and queue, across processes and hosts.

    Commands that need a server use that of DISTSYNC_HOSTS (host:port,host:port), or your embedded server, which is
    started automatically.
    """
    logging.getLogger("distsync").addHandler(logging.NullHandler())  # each command reports its errors itself, once
