"""What workers of pools do in tests: functions that travel by name."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from distsync import Barrier, Event, OutcomeUnknownError
from distsync._client import default_client
from distsync._protocols.pool.tasks import MAX_CLAIMED, PoolCore
from distsync._protocols.receipts import Operation
from distsync._protocols.steps import SetData, Wait
from distsync.futures import Executor
from distsync.multiprocessing import Manager
from distsync.multiprocessing._pool.pool_worker import Worker
from distsync.multiprocessing.pool import Pool
from helpers.pools import worker_spec
from helpers.timing import UNIT, eventually


def square(number: int) -> int:
    return number * number


def nested_square(number: int) -> int:
    """Let a worker of a worker compute the square."""
    with Executor(1) as executor:
        return executor.submit(square, number).result(60)


def slow_square(number: int) -> int:
    time.sleep(0.05)
    return number * number


def pid(_: Any = None) -> int:
    time.sleep(0.02)
    return os.getpid()


def answer_slowly() -> None:
    """For a worker: report a result later than the next task starts."""
    finish = PoolCore.finish

    async def later(core: PoolCore, answers: Any) -> None:
        await Wait(limit=UNIT)
        await finish(core, answers)

    PoolCore.finish = later  # type: ignore[method-assign]


def work(name: str) -> None:
    """Be a worker of a pool."""
    client = default_client.default_client()
    ours, theirs = multiprocessing.Pipe()
    Worker(worker_spec(client, name), client, theirs).work()
    ours.close()


def doubt(mark: str) -> None:
    """For a worker: nobody can know what becomes of its first claim, and of all that it gives back, as the file
    ``mark`` says. It claims many tasks at once."""
    claim, commit = PoolCore.claim, PoolCore._commit_mine

    async def claim_nothing(*_: Any) -> Any:
        PoolCore.claim = claim  # type: ignore[method-assign]
        raise OutcomeUnknownError("a transaction", "/", "session")

    async def commit_in_doubt(core: PoolCore, mine: Operation, *others: Operation, **options: Any) -> Any:
        outcome = await commit(core, mine, *others, **options)
        if outcome is None or not isinstance(mine, SetData):
            return outcome
        Path(mark).touch()
        raise OutcomeUnknownError("a transaction", "/", "session")

    PoolCore.claim = claim_nothing  # type: ignore[method-assign]
    PoolCore._commit_mine = commit_in_doubt  # type: ignore[method-assign]
    Worker._claim_batch_size = lambda _: MAX_CLAIMED  # type: ignore[method-assign]


def die(_: Any = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_: Any = None) -> None:
    sys.exit(7)


def count_and_raise(calls: str, error: BaseException) -> None:
    """Write a line to the file ``calls`` for each call."""
    with Path(calls).open("a") as file:
        file.write(f"{os.getpid()}\n")
    raise error


def die_first(marks: str, number: int) -> int:
    """Exit in the first worker that gets an odd number."""
    mark = Path(marks, str(number))
    if number % 2 and not mark.exists():
        mark.touch()
        die()
    return number * number


def wait_for(name: str) -> int:
    """Begun, as the event ``name``-begun says; ended when the event ``name`` is set."""
    Event(name=f"{name}-begun").set()
    assert Event(name=name).wait(60)
    return os.getpid()


def wait_for_file(begun: Path, may_end: Path, ended: Path) -> None:
    begun.touch()
    eventually(may_end.exists)
    ended.touch()


def wait_to_be_told(name: str) -> int:
    """Set the event ``name``-begun, and wait until the worker is asked to stop."""
    Event(name=f"{name}-begun").set()
    handler: Any = signal.getsignal(signal.SIGTERM)
    worker = inspect.getclosurevars(handler).nonlocals["self"]
    eventually(lambda: worker._draining)
    return os.getpid()


def meet(name: str, parties: int) -> int:
    Barrier(parties, name=name).wait(30)
    return os.getpid()


def raise_it(error: Exception) -> None:
    raise error


def some_lambda(_: Any = None) -> Callable[[], None]:
    return lambda: None


def same(value: Any) -> Any:
    return value


_label: list[object] = []


def set_label(label: object) -> None:
    _label.append(label)


def set_other_label(label: object) -> None:
    _label.append(label)


def labels(_: Any = None) -> list[object]:
    """Return what the initializers of this process set."""
    return _label


def fail_to_begin() -> None:
    raise LookupError("no model file")


def exit_at_begin() -> None:
    os._exit(3)


def fork_child(end: str) -> int:
    """Fork a child that ends like this, and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if end == "raises":
        raise LookupError("in a forked child")
    if end == "exits":
        sys.exit(3)
    return 0


def terminate_child() -> int:
    """Terminate a forked child at once, and return its exit code."""
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Textless:
    """It has no text. It does not pickle, or cannot be read from its pickle; the errors have no text either."""

    def __init__(self, pickles: bool = False) -> None:
        self._pickles = pickles

    def __repr__(self) -> str:
        raise TextlessError

    def __reduce__(self) -> Any:
        if self._pickles:
            return raise_it, (TextlessError(),)
        raise TextlessError


def textless(_: Any = None) -> Textless:
    return Textless()


class SlowWhenPickled:
    def __reduce__(self) -> Any:
        time.sleep(UNIT / 2)
        return SlowWhenPickled, ()


def put_slow_items(queue: Any, count: int) -> None:
    """Put items that the feeder thread of this process sends later."""
    for _ in range(count):
        queue.put(SlowWhenPickled())


class ExitsWhenPickled:
    def __reduce__(self) -> Any:
        sys.exit(7)


class ExitsWhenUnpickled:
    def __reduce__(self) -> Any:
        return sys.exit, (7,)


def fail() -> NoReturn:
    raise LookupError("of the value")


class FailsToUnpickle:
    def __reduce__(self) -> Any:
        return fail, ()


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt("of the item")


class RaisesInterruptWhenUnpickled:
    def __reduce__(self) -> Any:
        return raise_interrupt, ()


class RaisesInterruptWhenCompared:
    def __lt__(self, other: object) -> bool:
        raise_interrupt()

    __gt__ = __lt__


#: Signals that `interrupt_once` has sent.
SENT: list[int] = []


def interrupt_once() -> str:
    """Send SIGINT to this process, as Ctrl-C does, unless it was sent before."""
    if not SENT:
        SENT.append(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    return "unpickled"


class InterruptsOnceWhenUnpickled:
    def __reduce__(self) -> Any:
        return interrupt_once, ()


def interrupt_worker(calls: str) -> str:
    """Interrupt the first worker, as Ctrl-C does."""
    with Path(calls).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(Path(calls).read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return "done"


class Unreadable:
    """It pickles, and no other process can read it."""

    def __reduce__(self) -> Any:
        return _import, ("a_module_that_is_not_there",)


def _import(name: str) -> Any:
    return __import__(name)


def pids_of(name: str, count: int) -> set[int]:
    """Which processes did the tasks of a caller without workers of its own."""
    with Pool(0, name=name) as pool:
        found = set(pool.map(pid, range(count), chunksize=1))
        pool.close()
        pool.join()
    return found


def pids_of_waiting(name: str, event: str) -> int:
    """Which process waited for an event, as a task of a caller without workers of its own."""
    with Pool(0, name=name) as pool:
        pid = pool.apply(wait_for, (event,))
        pool.close()
        pool.join()
    return int(pid)


def create_pool(processes: int, initializer: Any, initargs: Any, name: str) -> None:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    Pool(processes, initializer, initargs, name=name)


_kept: list[Any] = []


def begin(name: str | None, processes: int, function: Any, *args: Any) -> list[int]:
    """A pool of this process is at work. Its local workers."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    pool = Pool(processes, name=name)
    _kept.append((pool, pool.apply_async(function, args)))
    _kept.append(pool.map_async(slow_square, range(50), chunksize=1))
    return [process.pid for process in pool._pool]


def map_with(pool: Any, function: Any, items: list[Any]) -> list[Any]:
    """Map with a pool that was passed to this process."""
    return list(pool.map(function, items, chunksize=1))


def end_with(pool: Any, method: str) -> None:
    """Close or terminate a pool that was passed to this process, and wait for its end."""
    getattr(pool, method)()
    pool.join()


def report_and_wait(started: Any, gate: Any) -> bool:
    started.set()
    return bool(gate.wait(60))


def own_pool(connection: Any) -> None:
    """Send a pool of a manager and two events through a pipe, and stay until this process is killed."""
    with Manager() as manager:
        connection.send((manager.Pool(1), manager.Event(), manager.Event()))
        threading.Event().wait()


class Made:
    """A result that can be referenced weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


def sleep_and_print(seconds: float, text: str) -> None:
    time.sleep(seconds)
    print(text, flush=True)


def sleep_with_alarm(seconds: float) -> None:
    """Sleep until SIGALRM, which raises TimeoutError."""

    def end(*_: object) -> None:
        raise TimeoutError("the alarm")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        time.sleep(600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
