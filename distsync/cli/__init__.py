"""The ``distsync`` command: ``main`` runs it. Each command is a module, loaded when it is used."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command of the command line. Return the exit status."""
    try:
        import click  # noqa: F401
    except ImportError:
        print("the distsync command needs click: pip install distsync[cli]", file=sys.stderr)
        return 1
    from distsync.cli.command_group import group
    from distsync.cli.script_runner import ReplaceCommand

    try:
        group(prog_name="distsync")
    except ReplaceCommand as chosen:
        run = chosen.run
    run()  # outside of click, and with no exception in progress
    return 0
