"""A pool of processes for units of work.

It ends the processes that it started, however it ends itself; a process whose parent has exited
exits at once.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import wait
from typing import Any

#: A fresh interpreter, so that threads or a debugger of the parent are not inherited.
CONTEXT = multiprocessing.get_context("spawn")


def each_done(jobs: int, do: Callable[[Any], Any], units: Iterator[Any]) -> Generator[tuple[Any, Any], None, None]:
    """Yield pairs of a unit and the result of ``do`` for it, as they are done.

    The next unit is requested when a worker is free, so it may depend on earlier results. ``do``
    must be a function of a module.
    """
    if jobs <= 1:
        yield from ((unit, do(unit)) for unit in units)
        return
    workers = [_start(do) for _ in range(jobs)]
    busy: dict[Any, Any] = {}
    try:
        idle = [pipe for _, pipe in workers]
        while True:
            while idle and (unit := next(units, None)) is not None:
                pipe = idle.pop()
                pipe.send(unit)
                busy[pipe] = unit
            if not busy:
                return
            ready: list[Any] = wait([*busy])
            for pipe in ready:
                idle.append(pipe)
                unit, answer = busy.pop(pipe), pipe.recv()
                if isinstance(answer, BaseException):
                    raise answer
                yield unit, answer
    finally:
        for process, pipe in workers:
            process.terminate()
            process.join()
            pipe.close()


def _start(do: Callable[[Any], Any]) -> tuple[Any, Any]:
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_work, args=(do, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _work(do: Callable[[Any], Any], pipe: Any) -> None:
    """Work in the child. Ctrl-C is left to the parent, which ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.freeze()  # everything that exists now stays alive
    while True:
        try:
            unit = pipe.recv()
        except EOFError:
            return
        try:
            answer = do(unit)
        except Exception as error:
            answer = error
        pipe.send(answer)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
