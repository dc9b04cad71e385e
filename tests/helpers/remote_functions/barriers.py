"""What other processes do in the tests of gates, barriers, latches, counters, rates and ids: functions that travel to a
Peer by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any


def in_threads(count: int, work: Any) -> list[Any]:
    """What ``work(number)`` returns, each in a thread of its own."""
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        found[number] = work(number)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return found


def meet(barrier: Any, folder: Path, who: str, turns: int, threads: int = 1) -> list[tuple[int, int]]:
    """Enters and leaves so often, each thread. How many were inside, as their files say, right after each enter and
    right after each leave: those of one turn have files in a folder of its own."""

    def work(number: int) -> list[tuple[int, int]]:
        seen = []
        for turn in range(turns):
            (folder / str(turn)).mkdir(exist_ok=True)
            begun, ended = folder / str(turn) / f"b-{who}-{number}", folder / str(turn) / f"e-{who}-{number}"
            begun.touch()
            with barrier:
                inside = len(list(begun.parent.glob("b-*")))
                ended.touch()
            seen.append((inside, len(list(ended.parent.glob("e-*")))))
        return seen

    return [each for seen in in_threads(threads, work) for each in seen]


def enter_then(barrier: Any, leave: bool) -> str:
    """In and, perhaps, out again."""
    barrier.enter()
    return str(barrier.leave()) if leave else "inside"


def enter_in_threads(barrier: Any, count: int) -> list[str]:
    """So many of this process are inside."""
    return in_threads(count, lambda number: enter_then(barrier, False))


def add_all(counter: Any, amounts: list[int], threads: int = 1) -> list[int]:
    """The numbers after each addition."""

    def work(number: int) -> list[int]:
        return [counter.add(amount) for amount in amounts]

    return [each for numbers in in_threads(threads, work) for each in numbers]


def plus(counter: Any, times: int) -> None:
    for _ in range(times):
        counter += 1


def append_all(value: Any, items: list[Any]) -> None:
    for item in items:
        value.update(lambda old: [*old, item])  # noqa: B023


def take_ids(ids: Any, count: int, threads: int = 1) -> list[int]:
    return [each for taken in in_threads(threads, lambda number: [next(ids) for _ in range(count)]) for each in taken]


def use(limiter: Any, times: int) -> list[float]:
    """When each token was used, on a clock that all processes of this machine share."""
    import time

    used = []
    for _ in range(times):
        limiter.acquire()
        used.append(time.monotonic())
    return used
