"""Compare a pool of 4 local processes with multiprocessing's own: the same tasks, in turn, in one run.

    python bench/pool.py [--tasks 10000] [--milliseconds 1] [--processes 4] [--rounds 3] [--single 1000]

Times are from the creation of the pool to the end of its ``join``; the best of several rounds
counts. The server is that of DISTSYNC_HOSTS, or this user's embedded one. Exit status 1 if ``map``
takes more than 1.5 times as long.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from functools import partial
from typing import Any

import distsync.multiprocessing
from distsync import Event

LIMIT = 1.5


def work(milliseconds: float, number: int) -> int:
    """Compute for this time."""
    until = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < until:
        pass
    return number


def rest(milliseconds: float, number: int) -> int:
    """Sleep for this time."""
    time.sleep(milliseconds / 1000)
    return number


def mapped(module: Any, processes: int, task: Any, count: int) -> float:
    """Return the seconds of a ``map`` with its default chunks."""
    began = time.perf_counter()
    with module.Pool(processes) as pool:
        assert pool.map(task, range(count)) == list(range(count))
        pool.close()
        pool.join()
    return time.perf_counter() - began


def single(module: Any, processes: int, task: Any, count: int) -> float:
    """Return the seconds of submitting the tasks one by one."""
    began = time.perf_counter()
    with module.Pool(processes) as pool:
        assert sum(pool.imap_unordered(task, range(count))) == sum(range(count))
        pool.close()
        pool.join()
    return time.perf_counter() - began


def ratio(what: str, measure: Any, options: argparse.Namespace, task: Any, count: int) -> float:
    """Return, and print, our time relative to the standard library's."""
    rounds = [
        [measure(module, options.processes, task, count) for module in (multiprocessing, distsync.multiprocessing)]
        for _ in range(options.rounds)
    ]
    theirs, ours = (min(times) for times in zip(*rounds, strict=True))
    print(f"{what:44} stdlib {theirs:6.2f} s   distsync {ours:6.2f} s   ratio {ours / theirs:5.2f}", flush=True)
    return ours / theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--milliseconds", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--single", type=int, default=1000, help="tasks that go one by one; 0: none")
    options = parser.parse_args()
    Event(name="bench").is_set()  # start the server
    tasks = f"{options.tasks} tasks of {options.milliseconds:g} ms"
    resting, working = partial(rest, options.milliseconds), partial(work, options.milliseconds)
    ratios = [
        ratio(f"map, {tasks} of waiting", mapped, options, resting, options.tasks),
        ratio(f"map, {tasks} of work", mapped, options, working, options.tasks),
    ]
    if options.single:
        ratio(f"imap_unordered, {options.single} one by one", single, options, resting, options.single)
    return 0 if max(ratios) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
