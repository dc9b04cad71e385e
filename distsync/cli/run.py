"""``distsync run``: run an unmodified program with distsync's objects.

The program runs after click has returned, so its exceptions and its exit status are its own.
"""

from __future__ import annotations

import atexit
import os
import sys

import click

from distsync._import_gate import importing
from distsync.cli.script_runner import Program, ProgramNotFound, ReplaceCommand
from distsync.errors import PatchError
from distsync.patch import patch


class RunCommand(click.Command):
    """A command whose options end at the module of ``-m``, as Python's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = _end_of_options(args)
        return super().parse_args(ctx, [*args[:end], "--", *args[end:]] if end is not None else args)


def _end_of_options(args: list[str]) -> int | None:
    """Return the index of the first argument of the module, or None without ``-m``."""
    place = 0
    while place < len(args) and args[place].startswith("--"):
        place += 2 if args[place] == "--swap" else 1
    if place < len(args) and args[place].startswith("-m"):
        return place + (2 if args[place] == "-m" else 1)
    return None


@click.command(
    "run",
    cls=RunCommand,
    short_help="Run an unmodified program with distsync's objects.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--swap",
    "swaps",
    multiple=True,
    metavar="MODULE",
    help="Also swap in this module; package.* is a package with everything in it. May be repeated.",
)
@click.option("-m", "module", metavar="MODULE", help="Run this module, as python -m does.")
@click.option(
    "--report",
    is_flag=True,
    help="List what is not swapped before the program starts, and the objects that it created at its end.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGUMENTS]...")
def run_command(swaps: tuple[str, ...], module: str | None, report: bool, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT, or with -m a module, as Python does, with distsync in place of threading, queue and multiprocessing.

    They are replaced in the script or module itself, in the modules named by --swap, and in the processes that the
    program starts by multiprocessing. Objects of the script are named after it, so two runs of it share them.
    """
    if module is None and not arguments:
        raise click.UsageError("name a script, or a module with -m")
    target, rest = (module, arguments) if module is not None else (arguments[0], arguments[1:])
    raise ReplaceCommand(lambda: _run(Program(target, rest, module is not None), swaps, report))


def _run(program: Program, swaps: tuple[str, ...], report: bool) -> None:
    try:
        program.prepare()
        done = patch("__main__", *swaps)
    except (ProgramNotFound, PatchError) as error:
        click.secho(f"run: {error}", fg="red", err=True)
        sys.exit(2)
    if report:
        for finding in done.kept:
            click.echo(f"run: kept: {finding}", err=True)
        _report_created_objects()
    program.run()


def _report_created_objects() -> None:
    """List the objects that this process creates from now on at its end. Its forked children list nothing."""
    with importing():
        from distsync.patch.created_objects import CreatedObjects

    created, pid = CreatedObjects(), os.getpid()

    def report() -> None:
        if os.getpid() == pid:
            for line in created.lines():
                click.echo(f"run: created: {line}", err=True)

    atexit.register(report)
