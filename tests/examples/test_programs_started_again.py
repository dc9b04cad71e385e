"""Programs whose objects are at module level, stopped by Ctrl-C and started again: the next run is fresh."""

from __future__ import annotations

import os
import signal
import textwrap

import pytest
from helpers.subprocesses import LIMIT, Shells

PROGRAM = """
    import sys, time
    {imports}

    jobs, stop = JoinableQueue(), Event()

    def consume():
        while not stop.is_set():
            try:
                jobs.get(timeout=0.05)
            except Empty:
                continue
            time.sleep(0.001)
            jobs.task_done()

    def produce(rounds):
        for number in range(rounds):
            for item in range(20):
                jobs.put(item)
            jobs.join()
            print("round", number, flush=True)

    if __name__ == "__main__":
        print(stop.is_set(), jobs.qsize(), flush=True)
        consumers = [Worker(target=consume) for _ in range(2)]
        for consumer in consumers:
            consumer.start()
        try:
            produce(int(sys.argv[1]))
        finally:
            stop.set()
            for consumer in consumers:
                consumer.join()
"""

IMPORTS = {
    "processes": """
    from queue import Empty
    from distsync.multiprocessing import Event, JoinableQueue, Process as Worker
    """,
    "threads": """
    from distsync.queue import Empty, Queue as JoinableQueue
    from distsync.threading import Event, Thread as Worker
    """,
    "redelivering": """
    from queue import Empty
    from distsync import JoinableQueue
    from distsync.threading import Event, Thread as Worker
    """,
}


@pytest.mark.parametrize("imports", IMPORTS)
def test_program_that_ctrl_c_has_stopped_finds_nothing_of_that_run_when_it_is_started_again(
    shells: Shells, imports: str
) -> None:
    shells.environment["PYTHONWARNINGS"] = "ignore"  # of the fork
    program = shells.folder / "rounds.py"
    program.write_text(textwrap.dedent(PROGRAM.format(imports=IMPORTS[imports])))
    first = shells.start(program, 1_000_000)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(3)] == ["False 0\n", "round 0\n", "round 1\n"]
    os.killpg(first.pid, signal.SIGINT)
    _, errors = first.communicate(timeout=LIMIT)
    assert "KeyboardInterrupt" in errors
    assert shells.run(program, 3).splitlines() == ["False 0", "round 0", "round 1", "round 2"]
