"""The group that the commands belong to.

Rules for this file: a command is added here by one import and one line; what it does stands in its own module.
"""

from __future__ import annotations

import click

from distsync.cli.serve_command import serve_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Locks, queues and the other tools of threading and queue, across processes and hosts."""


group.add_command(serve_command)
