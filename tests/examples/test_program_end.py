"""Programs that end while something is under way: as with the standard library, what was begun is done first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.leak_census import Observer
from helpers.servers import EmbeddedProcess, ServerProcess
from helpers.subprocesses import LIMIT, ROOT, Home, Shells

CHILDREN = """
import atexit, sys
from distsync.multiprocessing import get_context

def work(queue, lock, total, over):
    over.wait()
    for _ in range(8):
        queue.get()
        with lock:
            total.value += 1
    print("worked", total.value >= 8, flush=True)

def main(context):
    queue, lock, total, over = context.Queue(), context.Lock(), context.Value("i", 0), context.Event()
    for number in range(16):
        queue.put(number)
    for _ in range(2):
        context.Process(target=work, args=(queue, lock, total, over)).start()
    atexit.register(over.set)

if __name__ == "__main__":
    main(get_context(sys.argv[1]))
"""
"""The main program is over when the children begin. What they use was made by it, without a name."""

CALLS = """
import sys
from helpers.remote_functions import pool as chores
from distsync.futures import Executor

def main(what):
    executor = Executor(2)
    for number in range(10):
        future = executor.submit(chores.slow_square, number)
    future.add_done_callback(lambda future: print("done", future.result(), flush=True))
    if what == "shutdown":
        executor.shutdown(wait=False)

if __name__ == "__main__":
    main(sys.argv[1])
"""

POOLS = """
from helpers.remote_functions import pool as chores
from distsync import Event
from distsync.multiprocessing import Pool

def main():
    with Pool(2) as pool:
        pool.map(chores.square, range(9))
    with Pool(2) as pool:
        pool.map_async(chores.wait_for, ["never"] * 8, chunksize=1)
        assert Event(name="never-begun").wait()
    pool = Pool(2, name="p")
    pool.map_async(chores.wait_for, ["no"] * 8, chunksize=1)
    assert Event(name="no-begun").wait()
    return pool

if __name__ == "__main__":
    pool = main()
"""

IMPORTS = """
import sys, threading

seen = []

class Recorder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            seen.append(name)

sys.meta_path.insert(0, Recorder())
from helpers.remote_functions import pool as chores
from distsync.multiprocessing import Pool, Queue
queue = Queue(name="q")
queue.put(1)
assert queue.get() == 1
with Pool(1, name="p") as pool:
    assert pool.map(chores.square, [3]) == [9]
print([name for name in seen if name.startswith(("distsync", "kazoo", "platformdirs"))])
"""

FORKED = """
from distsync.multiprocessing import get_context

def main():
    event = get_context("fork").Event()
    child = get_context("fork").Process(target=event.set)
    child.start()
    print(event.wait())
    child.join()

main()
"""
"""The client is made during the fork, which the child's name for the event depends on."""

DAEMONS = """
import asyncio, atexit, sys, threading, time

atexit.register(time.sleep, 0.3)  # runs after the clients were closed
import multiprocessing
import distsync.asyncio
from distsync.queue import Queue
from distsync.threading import Event, Lock

busy, taken = Queue(name="busy"), Lock(name="taken")

def get():
    while True:
        busy.get()
        busy.task_done()

def acquire():
    taken.acquire()

def use():
    while True:
        with Lock(name="free"):
            busy.put(1)

def use_later():
    time.sleep(0.5)
    use()

def use_in_loop():
    async def get(name):
        await distsync.asyncio.Queue(name=name).get()

    async def main():
        await asyncio.gather(get("a"), get("b"))

    asyncio.run(main())

def main():
    taken.acquire()
    for target in (get, acquire, use, use_later, use_in_loop):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.4)

if __name__ == "__main__":
    if sys.argv[1] == "child":
        child = multiprocessing.get_context("fork").Process(target=main)
        child.start()
        child.join()
    else:
        main()
"""

JOINED = """
import atexit, threading

thread = None
atexit.register(lambda: thread.join())
from distsync._client import lifecycle
from distsync.threading import Event

lifecycle.DAEMON_S = 0.2

def wait():
    while True:
        try:
            Event(name="never").wait()
        except Exception as error:
            print("goes on after", error)

Event(name="never").is_set()
thread = threading.Thread(target=wait, daemon=True)
thread.start()
"""

POLLED = """
import asyncio, atexit, queue, threading, time

atexit.register(time.sleep, 0.3)  # runs after the clients were closed
import distsync.asyncio
import distsync.multiprocessing
from distsync.threading import Event
from helpers.remote_functions import pool as chores

polled, sent = distsync.multiprocessing.Queue(), distsync.multiprocessing.Queue()

def poll():
    while True:
        try:
            polled.get_nowait()
        except queue.Empty:
            time.sleep(0.001)

def put():
    while True:
        sent.put(1)
        time.sleep(0.001)

def ask():
    while True:
        sent.empty()

def use_in_loop():
    async def main():
        while True:
            async with distsync.asyncio.Lock(name="free"):
                await asyncio.sleep(0.001)

    asyncio.run(main())

def main(pool):
    calls = lambda: pool.apply(chores.wait_for, ["applied"]), lambda: next(pool.imap(chores.wait_for, ["mapped"]))
    for target in (poll, put, ask, use_in_loop, *calls):
        threading.Thread(target=target, daemon=True).start()
    for name in ("applied", "mapped"):
        assert Event(name=f"{name}-begun").wait()

if __name__ == "__main__":
    pool = distsync.multiprocessing.Pool(2)
    main(pool)
"""

SUBMITTED = """
import atexit, threading, time

def submit_at_end():
    try:
        executor.submit(abs, -1)
    except RuntimeError as error:
        print(error)

atexit.register(submit_at_end)  # runs after the executor was closed
from distsync.futures import Executor

def submit():
    while True:
        executor.submit(abs, -1)
        time.sleep(0.01)

def submit_and_wait():
    while True:
        executor.submit(abs, -1).result()

def submit_many():
    while True:
        list(executor.map(abs, [-1, -2]))

if __name__ == "__main__":
    executor = Executor(1)
    assert executor.submit(abs, -1).result() == 1
    for target in (submit, submit_and_wait, submit_many):
        threading.Thread(target=target, daemon=True).start()
    executor.submit(abs, -1).result()
"""

RELEASED = """
import asyncio, atexit
from contextlib import ExitStack
held, blocks = [], ExitStack()

def release():
    for each in held:
        each.release()
    blocks.close()
    print("released by the handler")
    try:
        other.release()
    except ClientClosedError:
        print("not held")

atexit.register(release)

import distsync.multiprocessing
import distsync.asyncio
from distsync import Election, SharedLock, acquire_all
from distsync.errors import ClientClosedError
from distsync.threading import BoundedSemaphore, Condition, Lock, RLock, Semaphore

def use():
    with acquire_all(Lock(name="f"), SharedLock(name="g").reader):
        yield

class Owner:
    def __init__(self):
        self.lock = Lock(name="owner's")
        self.lock.acquire()

    def __del__(self):
        self.lock.release()
        print("released by the finalizer")

shared, other = SharedLock(name="shared"), Lock(name="other")
context = distsync.multiprocessing.get_context("spawn")
held += [Lock(name="a"), RLock(name="b"), Semaphore(2, name="c"), BoundedSemaphore(2, name="d"), Condition()]
held += [shared.reader, SharedLock(name="w").writer, Election(name="e")]
held += [context.Lock(), context.RLock(), context.Semaphore(2), context.BoundedSemaphore(2)]
for each in held:
    each.acquire()
for each in (Lock(name="h"), RLock(name="i"), Semaphore(2, name="j"), SharedLock(name="k").reader, context.Lock()):
    blocks.enter_context(each)
tasks = [distsync.asyncio.Lock(name="l"), distsync.asyncio.Semaphore(2, name="m"), distsync.asyncio.Condition(name="n")]
tasks += [distsync.asyncio.SharedLock(name="o").writer]

async def acquire():
    for each in tasks:
        await each.acquire()

asyncio.run(acquire())
held += [*tasks, acquire_all(Lock(name="p"))]
user, owner = use(), Owner()
next(user)
"""

INTERRUPTED = """
import signal, threading, time, traceback
from pathlib import Path
import distsync.multiprocessing
from distsync import JoinableQueue, default_client
from distsync.queue import Queue
from distsync.threading import Condition, Event, Lock, Semaphore
from helpers.worker_processes import waiting_calls

def wait_for_condition():
    condition = Condition(name="c")
    with condition:
        condition.wait()

def interrupt():
    while not waiting_calls(default_client()):
        time.sleep(0.01)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

if __name__ == "__main__":
    lock = Lock(name="taken")
    lock.acquire()
    queues = Queue(name="q"), JoinableQueue(name="j"), distsync.multiprocessing.Queue(name="m")
    waits = [lock.acquire, wait_for_condition, Event(name="e").wait, Semaphore(0, name="s").acquire]
    for wait in (*waits, *[queue.get for queue in queues]):
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            wait()
        except KeyboardInterrupt as error:
            files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
            print(len(files) <= 6, {file.parent.name for file in files} & {"_client", "driver", "_protocols"})
"""

ABANDONED = """
import os, subprocess, sys, time
from contextlib import suppress
from pathlib import Path
import distsync
from distsync.errors import TaskLostError
from distsync.futures import Executor
from distsync.multiprocessing import Manager, Pool, Queue

def wait_for_outage():
    print("connected", flush=True)
    sys.stdin.readline()

def put():
    queue = Queue(name="q")
    queue.put(1)
    assert queue.get() == 1
    wait_for_outage()
    queue.put(2)

def join():
    pool = Pool(0, name="p")
    wait_for_outage()
    result = pool.apply_async(abs, (-2,))
    pool.close()
    pool.join()
    try:
        result.get()
    except TaskLostError:
        print("failed")

def join_local():
    pool = Pool(1, name="p")
    wait_for_outage()
    result = pool.apply_async(abs, (-2,))
    pool.close()
    pool.join()
    print(result.get())

def execute():
    with Executor(0, name="p") as executor:
        wait_for_outage()
        future = executor.submit(abs, -2)
    if isinstance(future.exception(), TaskLostError):
        print("failed")

def terminate():
    with Pool(0, name="p") as pool:
        wait_for_outage()
        result = pool.apply_async(abs, (-2,))
    try:
        result.get()
    except TaskLostError:
        print("failed")

def cancel():
    executor = Executor(0, name="p")
    wait_for_outage()
    future = executor.submit(abs, -2)
    while not executor._pool._submitting._being_put:  # it waits for a server
        time.sleep(0.01)
    executor.shutdown(cancel_futures=True)
    if isinstance(future.exception(), TaskLostError):
        print("failed")

def manage():
    manager = Manager()
    assert len(manager.list([1])) == 1
    wait_for_outage()
    manager.shutdown()

def manage_with_timeout():
    distsync.connect(timeout=1.0)
    manage()

def manage_pool():
    manager = Manager()
    pool = manager.Pool(1)
    assert pool.apply(abs, (-1,)) == 1
    wait_for_outage()
    result = pool.apply_async(abs, (-2,))
    with suppress(TimeoutError):  # no other process can be told
        pool.close()
    pool.join()
    manager.shutdown()
    print(result.get())

def run_until_outage():
    Path("begun").touch()
    while not Path("outage").exists():
        time.sleep(0.01)

def work():
    import abandoned
    command = [sys.executable, "-m", "distsync", "worker", "jobs", "--processes", "1"]
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    pool = Pool(0, name="jobs")
    pool.apply_async(abandoned.run_until_outage)
    while not Path("begun").exists():
        time.sleep(0.01)
    wait_for_outage()
    worker.terminate()
    Path("outage").touch()
    worker.wait()
    os._exit(0)

if __name__ == "__main__":
    globals()[sys.argv[1]]()
"""

PATH = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONWARNINGS": "ignore"}  # Python 3.12 warns of each fork


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    made = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace, **PATH})
    yield made
    made.close()


def run(shells: Shells, text: str, *arguments: str) -> tuple[str, str]:
    """What the program says, and what it complains of."""
    program = shells.folder / "program_that_ends.py"
    program.write_text(text)
    process = shells.start(str(program), *arguments)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    return output, errors


@pytest.mark.slow("starts several programs")
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_children_use_objects_of_the_main_program_until_they_end(shells: Shells, start_method: str) -> None:
    assert run(shells, CHILDREN, start_method) == ("worked True\n" * 2, "")


def test_fork_may_be_the_first_use(shells: Shells) -> None:
    """Whatever is imported during a fork adds nothing to what is done after forks."""
    assert run(shells, FORKED) == ("True\n", "")


@pytest.mark.slow("starts several programs")
@pytest.mark.parametrize("what", ["shutdown", "nothing"])
def test_program_ends_when_the_calls_of_its_executors_are_done(shells: Shells, what: str) -> None:
    assert run(shells, CALLS, what) == ("done 81\n", "")


@pytest.mark.parametrize("where", ["program", "child"])
def test_daemon_threads_in_calls_end_in_silence_with_the_process(shells: Shells, where: str) -> None:
    assert run(shells, DAEMONS, where) == ("", "")


def test_daemon_thread_that_an_atexit_handler_waits_for_ends(shells: Shells) -> None:
    """Its call raised an Exception, so that a loop that catches these went on, without a pause in the end."""
    assert run(shells, JOINED) == ("", "")


def test_daemon_threads_that_poll_queues_or_wait_for_pools_end_in_silence(shells: Shells) -> None:
    """The end of a queue's feeder closed the queue for them, and that of a pool failed the results."""
    assert run(shells, POLLED) == ("", "")


def test_daemon_threads_that_submit_calls_end_in_silence(shells: Shells) -> None:
    """They printed tracebacks, some of them of a ValueError. Another thread gets the error of the standard library."""
    assert run(shells, SUBMITTED) == ("cannot schedule new futures after interpreter shutdown\n", "")


def test_handler_registered_before_the_import_and_finalizer_release_what_is_held_at_the_end(shells: Shells) -> None:
    """Both run after the clients were closed, which has released it."""
    assert run(shells, RELEASED) == ("released by the handler\nnot held\nreleased by the finalizer\n", "")


def test_traceback_of_an_interrupted_wait_has_no_line_of_the_inside(shells: Shells) -> None:
    """It had 48 lines, of which the last ones showed the driver."""
    assert run(shells, INTERRUPTED) == ("True set()\n" * 7, "")


def test_pools_that_end_or_are_open_at_the_end_are_put_away_in_silence(shells: Shells, observer: Observer) -> None:
    assert run(shells, POOLS) == ("", "")
    assert [path for path in observer.tree(f"{shells.environment['DISTSYNC_NAMESPACE']}/pool") if "/i_" in path] == []
    assert not any("/alive" in path for path in observer.tree(f"{shells.environment['DISTSYNC_NAMESPACE']}/pool"))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("put", "1 items of the queue /distsync/queue/q were not sent"),
        ("join", "1 jobs of the pool"),
        ("join_local", "could not clean up pool"),
        ("terminate", "1 jobs of the pool"),
        pytest.param("cancel", "1 jobs of the pool", marks=pytest.mark.slow("waits for timeouts")),
        pytest.param("execute", "1 jobs of the pool", marks=pytest.mark.slow("waits for timeouts")),
        pytest.param("manage", "the objects of the manager", marks=pytest.mark.slow("waits for timeouts")),
        pytest.param("manage_with_timeout", "the objects of the manager", marks=pytest.mark.slow("waits for timeouts")),
        pytest.param("manage_pool", "could not clean up pool", marks=pytest.mark.slow("waits for timeouts")),
        pytest.param("work", "exits, and its results are lost", marks=pytest.mark.slow("waits for timeouts")),
    ],
)
def test_program_ends_without_a_server_and_says_what_it_gave_up(tmp_path: Path, what: str, says: str) -> None:
    """It still ran after 75 s. `Pool.terminate` said nothing, and took longer than the session timeout."""
    server = EmbeddedProcess(tmp_path / "server")
    server.start()
    shells = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_SESSION_TIMEOUT": "1", **PATH})
    try:
        (tmp_path / "abandoned.py").write_text(ABANDONED)
        program = shells.start(str(tmp_path / "abandoned.py"), what)
        assert program.stdout is not None
        assert program.stdout.readline() == "connected\n"
        server.kill()
        output, errors = program.communicate("\n", timeout=LIMIT)
        assert program.returncode == 0, errors
        assert says in errors
        assert "no server has answered for 1 s" in errors
        is_silent = what in ("put", "manage", "manage_with_timeout", "work")
        is_local = what in ("join_local", "manage_pool")
        assert output == ("" if is_silent else "2\n" if is_local else "failed\n")
        assert "Traceback" not in errors
    finally:
        shells.close()
        server.kill()


def test_what_threads_need_was_imported_before_they_began(tmp_path: Path) -> None:
    """A child that is forked while a thread imports a module has a partial module forever."""
    home = Home(tmp_path)
    home.environment.update(PATH)
    try:
        assert run(home, IMPORTS) == ("[]\n", "")
    finally:
        home.close()
