"""What other processes do in tests: functions that travel to a Peer by name."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path
from types import FrameType
from typing import Any

import distsync
import distsync.multiprocessing
from distsync._client import default_client as default
from distsync._client.client import Client
from distsync._protocols.locks import revocation
from distsync.multiprocessing import process
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Credentials, Running, credentials, waiting_calls

OURS = os.path.dirname(distsync.__file__)


def attributes(obj: Any) -> tuple[Any, ...]:
    """What makes an object the same as another one."""
    own = [getattr(obj, name, None) for name in ("maxsize", "parties", "_initial")]
    return type(obj).__name__, obj.name, obj.path, obj.client.origin, *own


def session_id() -> int | None:
    return default.default_client().session_id


def held(lock: Any) -> tuple[bool, int]:
    """Whether it is held here, and its token."""
    return lock.held, int(lock.fencing_token)


def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a call in a thread that has ended."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function(*args)), name="a thread")
    thread.start()
    thread.join()
    return found[0]


def bump(lock: Any, counter: Path, times: int) -> None:
    """Adds to a file in a way that only a lock makes right."""
    for _ in range(times):
        with lock:
            number = int(counter.read_text())
            time.sleep(0)
            counter.write_text(str(number + 1))


def bump_once(lock: Any, counter: Path, door: Any) -> None:
    """Only as many connect at the same time, and close, as go through the door."""
    with door:
        lock.locked()
    bump(lock, counter, 1)
    with door:
        lock.client.close()


def bump_in_threads(lock: Any, counter: Path, times: int, threads: int) -> None:
    running = [threading.Thread(target=bump, args=(lock, counter, times)) for _ in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()


def pid() -> int:
    return os.getpid()


def catch(function: Callable[..., Any], *args: Any) -> str:
    """The name of the error that it raises, or what it returns."""
    try:
        return repr(function(*args))
    except BaseException as error:
        return type(error).__name__


class Unordered:
    """An item that cannot be compared with any other: ``error`` is raised."""

    def __init__(self, error: BaseException | None = None, name: str = "") -> None:
        self.error = TypeError("it has no order") if error is None else error
        self.name = name

    def __lt__(self, other: Any) -> bool:
        raise self.error

    __gt__ = __lt__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unordered) and self.name == other.name

    __hash__ = None  # type: ignore[assignment]


def outcome(queue: Any, timeout: float = PATIENCE) -> tuple[str, Any]:
    """What a get has: "item" and the item, or the name of its error and the item that the error has."""
    try:
        return "item", queue.get(timeout=timeout)
    except Exception as error:
        return type(error).__name__, getattr(error, "item", None)


def counted_outcome(queue: Any, timeout: float) -> tuple[tuple[str, Any], int]:
    """As outcome, with the number of requests."""
    client = default.default_client()
    before = sum(client.statistics().requests.values())
    return outcome(queue, timeout), sum(client.statistics().requests.values()) - before


def outcomes_until_empty(queue: Any, limit: int = 100) -> list[tuple[str, Any]]:
    """The outcomes of gets until there is no item, up to a limit."""
    found: list[tuple[str, Any]] = []
    while len(found) < limit and (last := outcome(queue, UNIT))[0] != "Empty":
        found.append(last)
    return found


def finish(queue: Any) -> None:
    """Mark the item that this process got as done, if it would be delivered again otherwise."""
    if isinstance(queue, distsync.JoinableQueue):
        queue.task_done()


def catch_and_tell(waits: Path, function: Callable[..., Any], *args: Any) -> str:
    """As catch; the file ``waits`` is there as soon as the call has looked, and waits for a change."""

    def tell() -> None:
        eventually(lambda: waiting_calls(default.default_client()) == 1)
        waits.touch()

    Running(tell)
    return catch(function, *args)


def in_turn(*functions: Callable[[], Any]) -> list[Any]:
    """What each returns; methods of one object are those of one copy of it."""
    return [function() for function in functions]


def repeat(times: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    return [function(*args) for _ in range(times)]


def most_inside(slots: Any, folder: Path, times: int, threads: int) -> int:
    """Return the maximum number inside, as seen by those inside: each has a file in the folder at that
    time.
    """
    seen: list[int] = []

    def work(number: int) -> None:
        mine = folder / f"{os.getpid()}-{number}"
        for _ in range(times):
            with slots:
                mine.touch()
                seen.append(len(list(folder.iterdir())))
                time.sleep(0)
                mine.unlink()

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert len(seen) == times * threads
    return max(seen)


def wait_in(condition: Any, timeout: float | None = None) -> bool:
    """One wait under the condition's lock; whether it was notified, and the lock is held again."""
    with condition:
        notified: bool = condition.wait(timeout)
        return notified and condition._is_owned()


def wait_deep_in(condition: Any, depth: int) -> int:
    """How deep the lock is held after a wait that began so deep."""
    for _ in range(depth):
        condition.acquire()
    condition.wait()
    deep = 0
    while condition._is_owned():
        condition.release()
        deep += 1
    return deep


def notify(condition: Any, count: int = 1) -> None:
    with condition:
        condition.notify(count)


def consume(condition: Any, counter: Path, times: int) -> int:
    """Waits until the file's number is above zero and takes one off, so often."""
    for _ in range(times):
        with condition:
            assert condition.wait_for(lambda: int(counter.read_text()) > 0, 20)
            counter.write_text(str(int(counter.read_text()) - 1))
    return times


def produce(condition: Any, counter: Path, times: int) -> int:
    for _ in range(times):
        with condition:
            counter.write_text(str(int(counter.read_text()) + 1))
            condition.notify()
    return times


def cycles(barrier: Any, times: int, threads: int) -> list[list[int]]:
    """The indices that each thread got, cycle by cycle."""
    got: list[list[int]] = [[] for _ in range(threads)]

    def work(mine: list[int]) -> None:
        for _ in range(times):
            mine.append(barrier.wait())

    running = [threading.Thread(target=work, args=(mine,)) for mine in got]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return got


class Note:
    """A callable that notes in a file that it was called, and may fail."""

    def __init__(self, file: Path, fails: bool = False) -> None:
        self.file, self.fails = file, fails

    def __call__(self) -> None:
        with self.file.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.fails:
            raise LookupError("the action fails")


def put_all(queue: Any, who: str, count: int) -> None:
    for number in range(count):
        queue.put((who, number))


def put_all_and_count(queue: Any, who: str, count: int) -> int:
    """What this very object's feeder had to send has been sent."""
    put_all(queue, who, count)
    return int(queue.qsize())


def get_until(queue: Any, last: Any, done: bool = False) -> list[Any]:
    """All items that it gets before it gets ``last``."""
    got: list[Any] = []
    while (item := queue.get()) != last:
        got.append(item)
        if done:
            queue.task_done()
    return got


def put_and_watch(queue: Any, count: int) -> int:
    """The greatest size that was seen right after a put."""
    most = 0
    for number in range(count):
        queue.put(number)
        most = max(most, queue.qsize())
    return most


def get_many(queue: Any, count: int) -> list[Any]:
    return [queue.get() for _ in range(count)]


def storm(lock: Any, seed: int, rounds: int) -> tuple[int, int]:
    """Acquires and releases, interrupted at random moments. How often it was inside, and how often interrupted."""
    chance, inside, interrupted = random.Random(seed), 0, 0
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for _ in range(rounds):
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 8e-3))
            try:
                with lock:
                    inside += 1
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return inside, interrupted


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Not in others' lines: the interpreter calls some where an exception cannot be raised, finalizers for one."""
    if frame is None or not frame.f_code.co_filename.startswith(OURS):
        return
    while frame is not None:
        if frame.f_code is Client.run.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back


def error_text(function: Callable[..., Any], *args: Any) -> str:
    """The error that it raises, in full."""
    try:
        return repr(function(*args))
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def take_part(transaction: Any, site: str, stuck: bool = False) -> tuple[str | None, list[Any]]:
    """One transaction at a site that votes for it, and what it was asked to do. ``stuck``: it never votes."""
    said: list[Any] = []

    def prepare(item: Any) -> bool:
        said.append("prepare")
        time.sleep(3600 * stuck)
        return True

    side = transaction.participant(site, prepare, lambda item: said.append(("commit", item)))
    return side.take_part(), said


def get_batches(queue: Any, most: int) -> list[Any]:
    """All items that are there, several at once."""
    got: list[Any] = []
    while True:
        try:
            got += queue.get_many(most, False)
        except distsync.Empty:
            return got


def work_off(queue: Any) -> list[Any]:
    """The items that this process has got and done, until the queue is shut down."""
    done: list[Any] = []
    while True:
        try:
            done.append(queue.get())
        except distsync.ShutDown:
            return done
        queue.task_done()


def put_keyed(queue: Any, item: Any, key: str) -> bool:
    put: bool = queue.put(item, key=key)
    return put


# ---- children of our own Process


def hold(holds: Any, goes_on: Any, *held: Any, then: Any = None, last: Any = None, **details: Any) -> None:
    """Hold these until the file appears, run ``work`` in between, and exit without a release."""
    for one in held:
        one.acquire()
    if then is not None:
        then(**details)
    holds.set()
    goes_on.wait()
    if then is write_credentials:
        held[0].acquire()
        signal.pause()
    if last is not None:
        last(3)


def write_credentials(file: Path) -> None:
    hosts, (session, password) = credentials()
    file.write_text(f"{hosts} {session} {password.hex()}")


def credentials_in(file: Path) -> Credentials:
    hosts, session, password = file.read_text().split()
    return hosts, (int(session), bytes.fromhex(password))


def take_once(lock: Any) -> None:
    """It is this process's to the end."""
    globals().setdefault("taken", []).append(lock)
    with lock:
        pass


def take_again_at_the_end(lock: Any, file: Path) -> None:
    """The child's main thread ends; another one continues when multiprocessing has done its own
    clean-up.
    """
    take_once(lock)
    write_credentials(file.parent / "credentials")

    def go_on() -> None:
        eventually(lambda: not util._finalizer_registry)  # type: ignore[attr-defined]
        take_once(lock)
        file.write_text("done")

    threading.Thread(target=go_on).start()


def hold_and_die(lock: Any, file: Path | None = None) -> None:
    lock.acquire()
    if file is not None:
        write_credentials(file)
    os.kill(os.getpid(), signal.SIGKILL)


def revoke_and_die_before_the_delete(lock: Any) -> None:
    """Mark the holder's znode as revoked, and do not live to delete it."""
    mark = revocation.mark_revoked

    async def mark_and_die(*args: Any) -> Any:
        await mark(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    revocation.mark_revoked = mark_and_die  # type: ignore[assignment]
    lock.revoke(0)


def fork_and_hold(lock: Any, end: Any) -> None:
    """A child that is nobody's business but ours holds the lock until the end."""
    if os.fork() == 0:
        lock.acquire()
        end.wait()
        default.close_default()
        os._exit(0)


def write_settings(file: Path) -> None:
    client = default.default_client()
    client.sync()
    file.write_text(f"{client.hosts} {client.namespace} {client.settings.session_timeout}")


class Counted:
    """What the processes of each start method do alike."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.counter_name = name

    def run(self) -> None:
        distsync.Counter(name=self.counter_name).add(1)


class ForkCounted(Counted, process.ForkProcess):
    pass


class SpawnCounted(Counted, process.SpawnProcess):
    pass


class ForkServerCounted(Counted, process.ForkServerProcess):
    pass


def counted_process(method: str) -> Any:
    return {"fork": ForkCounted, "spawn": SpawnCounted, "forkserver": ForkServerCounted}[method]


def put_by_name(name: str, *items: Any) -> None:
    """Into a queue of multiprocessing's face, of which nothing is known but the name."""
    queue = distsync.multiprocessing.Queue(name=name)
    for item in items:
        queue.put(item)
    queue.close()
    queue.join_thread()


def add_to(value: Any, times: int) -> None:
    """Adds to a Value in the way that its lock makes right."""
    for _ in range(times):
        with value.get_lock():
            value.value += 1


def add_to_place(array: Any, place: int, times: int) -> None:
    """Adds to one element, with no lock."""
    for _ in range(times):
        array[place] += 1


def set_keys(shared: Any, who: str, times: int) -> None:
    for number in range(times):
        shared[who, number] = number


def append_all(shared: Any, who: str, times: int) -> None:
    for number in range(times):
        shared.append((who, number))


def set_attribute(obj: Any, name: str, value: Any) -> None:
    setattr(obj, name, value)


def get_attribute(obj: Any, name: str) -> Any:
    return getattr(obj, name)


def manage(manager: str, name: str, key: str, value: Any) -> None:
    """Into a dict of a manager, of which nothing is known but the names."""
    distsync.multiprocessing.Manager(name=manager).dict(name=name)[key] = value


def same(value: Any) -> Any:
    return value


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("name", ctypes.c_double), ("path", ctypes.c_short * 3)]


class Line(ctypes.Structure):
    _fields_ = [("ends", Point * 2), ("label", ctypes.c_char * 8)]


def held_after_the_gil_was_taken(lock: Any, holds: Path, seconds: float) -> bool:
    """No thread of the process can run during that time: the answer afterwards comes from the clock
    alone.
    """
    lock.acquire()
    holds.touch()
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return bool(lock.held)


def held_after_standing_still(lock: Any, holds: Path, seconds: float) -> bool:
    """Read it right after the process was suspended for that long, which it notices as soon as the
    file is there.
    """
    lock.acquire()
    last = now = time.monotonic()
    holds.touch()
    while now - last < seconds:
        last, now = now, time.monotonic()
    return bool(lock.held)


def seen(lock: Any, queue: Any) -> tuple[bool, Any, str, str]:
    """Return whether the lock is held, the next item of the queue, and both paths."""
    return lock.locked(), queue.get(timeout=PATIENCE), lock.path, queue.path


def place(obj: Any) -> tuple[Any, Any]:
    """Return the path of an object, and the place of its client."""
    for part in ("_sync", "_raw", "_cell"):
        obj = getattr(obj, part, obj)
    return obj.path, obj.client.origin


def locked_item(items: Any, key: str) -> bool:
    """Return whether the lock in a dict is held."""
    return bool(items[key].locked())
