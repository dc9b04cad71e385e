"""The commands. ``main`` is what the script ``distsync`` and ``python -m distsync`` call.

Rules for this package: one module per command; before click is known to be there, none of them is loaded.
"""

from __future__ import annotations

import sys


def main() -> int:
    """The command of the command line has run; returns the exit status."""
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
    run()  # out of the hands of click, and with no exception in progress
    return 0
