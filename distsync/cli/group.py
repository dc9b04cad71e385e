"""The group that the commands belong to.

Rules for this file: a command is added here by one import and one line; what it does stands in its own module.
"""

from __future__ import annotations

import logging

import click

from distsync.cli.demo_command import demo_command
from distsync.cli.serve_command import serve_command
from distsync.cli.worker_command import worker_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Locks, queues and the other tools of threading and queue, across processes and hosts.

    Commands that need a server take the one of DISTSYNC_HOSTS (host:port,host:port), or else your embedded server,
    which starts by itself.
    """
    logging.getLogger("distsync").addHandler(logging.NullHandler())  # a command says itself, once, what went wrong


group.add_command(demo_command)
group.add_command(serve_command)
group.add_command(worker_command)
