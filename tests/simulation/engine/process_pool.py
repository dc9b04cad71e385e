"""Jobs: pieces of work in several processes.

Rules for this file: it ends what it started, however it ends itself; a process whose parent is gone ends at once.
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

#: Started afresh: what runs in the parent (threads, a debugger) stays there.
CONTEXT = multiprocessing.get_context("spawn")


def each_done(jobs: int, do: Callable[[Any], Any], pieces: Iterator[Any]) -> Generator[tuple[Any, Any], None, None]:
    """Yield each piece with the result of ``do``, in order of completion.

    The next piece is requested when a worker is free, so that it may depend on earlier results.
    ``do`` is a function of a module.
    """
    if jobs <= 1:
        yield from ((piece, do(piece)) for piece in pieces)
        return
    workers = [_start(do) for _ in range(jobs)]
    busy: dict[Any, Any] = {}
    try:
        idle = [pipe for _, pipe in workers]
        while True:
            while idle and (piece := next(pieces, None)) is not None:
                pipe = idle.pop()
                pipe.send(piece)
                busy[pipe] = piece
            if not busy:
                return
            ready: list[Any] = wait([*busy])
            for pipe in ready:
                idle.append(pipe)
                piece, answer = busy.pop(pipe), pipe.recv()
                if isinstance(answer, BaseException):
                    raise answer
                yield piece, answer
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
    """In the child. Ctrl-C is the parent's matter, who ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    gc.freeze()  # what is there now stays for good
    while True:
        try:
            piece = pipe.recv()
        except EOFError:
            return
        try:
            answer = do(piece)
        except Exception as error:
            answer = error
        pipe.send(answer)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
