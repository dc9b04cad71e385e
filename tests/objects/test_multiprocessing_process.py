"""Process: what a child gets from its parent, forks, and the release of what a killed child held.

A session lasts 10 s here, longer than any test takes. What must be released at once is compared
with what a child of the standard library held: it is not watched, and was killed earlier.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, credentials, expire, waiting_calls

import distsync
from distsync._client import session_handover
from distsync._client.client import Client
from distsync.multiprocessing import Event, Lock, Semaphore, _child_watcher, get_context
from distsync.multiprocessing._child_watcher import watcher

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SESSION_S = 10.0
METHODS = ("fork", "spawn", "forkserver")
PARAMETERS = [pytest.param(method, marks=[] if method == "fork" else pytest.mark.slow) for method in METHODS]


@pytest.fixture(scope="module", autouse=True)
def running_forkserver() -> Iterator[None]:
    """Keep one fork server running for all tests of the module, so that its files are not reported as
    leaks.
    """
    forkserver.ensure_running()
    yield
    forkserver._forkserver._stop()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Iterator[Client]:
    from distsync._client import default_client

    made = make_client(session_timeout=SESSION_S)
    default_client.set_default(made)
    yield made
    default_client.set_default(None)


@pytest.fixture(autouse=True)
def no_child_is_watched() -> Iterator[None]:
    """Check after the test that no child is watched any more.

    A process keeps its pipes open until its object is collected, and the frames of an error may
    reference it.
    """
    yield
    gc.collect()
    eventually(lambda: not watcher._children)


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Restore the handler of SIGCHLD after the test."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


class Child:
    """A process that holds objects until it is killed, or until ``resume`` is set."""

    def __init__(self, context: Any, *held: Any, **options: Any) -> None:
        self.holds, self.resume = context.Event(), context.Event()
        self.process = context.Process(target=remote.hold, args=(self.holds, self.resume, *held), kwargs=options)
        self.process.start()
        assert self.holds.wait(PATIENCE)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        self.resume.set()
        self.process.join(PATIENCE)
        code: int = self.process.exitcode
        return code


# ---- killed and exited children


@pytest.fixture
def late_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the thread that watches the children, before and after each of its steps."""

    def late(function: Callable[..., object]) -> Callable[..., None]:
        def work(*args: object) -> None:
            time.sleep(UNIT)
            function(*args)
            time.sleep(UNIT)

        return work

    for name in ("_on_ready", "_run"):
        monkeypatch.setattr(_child_watcher.Watcher, name, late(getattr(_child_watcher.Watcher, name)))


def test_interrupted_start_of_the_thread_that_watches_closes_no_file_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread was running, and closed the files again, which belonged to others by then."""
    start, threads, errors = threading.Thread.start, [], []

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        threads.append(thread)
        raise KeyboardInterrupt

    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    receiver, sender = connection.Pipe(duplex=False)
    child, watching = _child_watcher.Child(pid, receiver), _child_watcher.Watcher()
    monkeypatch.setattr(threading, "excepthook", errors.append)
    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        watching.add(child)
    monkeypatch.setattr(threading.Thread, "start", start)
    others = [os.pipe() for _ in range(3)]
    threads[0].join(PATIENCE)
    for file in (file for pipe in others for file in pipe):
        os.close(file)
    assert not errors
    watching.add(child)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    watching.on_joined(child)
    assert child.pidfd is None
    sender.close()


@pytest.mark.parametrize("method", PARAMETERS)
@pytest.mark.usefixtures("late_watch")
def test_watcher_thread_ends_when_the_last_child_is_joined(method: str) -> None:
    context = get_context(method)
    for _ in range(2):
        children = [context.Process(target=os.getpid) for _ in range(2)]
        for child in children:
            child.start()
        assert "distsync-children" in [thread.name for thread in threading.enumerate()]
        for child in children:
            child.join()
        assert "distsync-children" not in [thread.name for thread in threading._dangling]  # type: ignore[attr-defined]


def reap_all(*_: object) -> None:
    """Reap every child that has exited, as programs do that know no other way to get rid of zombies."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.parametrize("method", PARAMETERS)
@pytest.mark.parametrize("handler", [reap_all, signal.SIG_IGN], ids=["reaped by a handler", "SIGCHLD ignored"])
def test_child_that_is_reaped_elsewhere_can_be_joined_and_closed(
    method: str, handler: Any, restored_signals: None
) -> None:
    signal.signal(signal.SIGCHLD, handler)
    child = get_context(method).Process(target=os.getpid)
    child.start()
    eventually(lambda: not Path("/proc", str(child.pid)).exists())
    child.join()
    assert child.exitcode == (0 if method == "forkserver" else 255)
    assert not child.is_alive()
    child.close()


def test_exit_code_is_known_while_another_thread_reaps_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    child = get_context("fork").Process(target=os._exit, args=(7,))
    child.start()
    assert child.pid is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its sentinel is ready before it can be reaped
    has_reaped, convert = threading.Event(), os.waitstatus_to_exitcode

    def convert_late(status: int) -> int:
        has_reaped.set()
        time.sleep(5 * UNIT)
        return convert(status)

    monkeypatch.setattr(os, "waitstatus_to_exitcode", convert_late)
    other = threading.Thread(target=multiprocessing.active_children)
    other.start()
    assert has_reaped.wait(PATIENCE)
    child.join()
    assert child.exitcode == 7
    child.close()
    other.join()


@pytest.mark.parametrize("method", PARAMETERS)
def test_exit_of_a_child_is_noticed_although_its_own_child_runs(method: str, tmp_path: Path) -> None:
    """The grandchild has the other end of the pipe that was the sentinel."""
    grandchild = tmp_path / "grandchild"
    child = get_context(method).Process(target=fork_and_sleep, args=(str(grandchild),))
    child.start()
    eventually(grandchild.is_symlink)
    child.kill()
    try:
        assert connection.wait([child.sentinel], PATIENCE) == [child.sentinel]
        child.join(PATIENCE)
        assert child.exitcode == -signal.SIGKILL
    finally:
        os.kill(int(os.readlink(grandchild)), signal.SIGKILL)
        child.join()


def test_forked_child_forgets_the_children_of_its_parent() -> None:
    """At its end, it printed an AssertionError, because it tried to join them."""
    process = get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    child = os.fork()
    if not child:
        os._exit(len(multiprocessing.active_children()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process in multiprocessing.active_children()
    process.kill()
    process.join()


def fork_and_sleep(path: str) -> None:
    """Fork a child, whose id the link ``path`` says."""
    child = os.fork()
    if child:
        os.symlink(str(child), path)
    time.sleep(60)


@pytest.mark.parametrize("method", PARAMETERS)
def test_objects_held_by_a_killed_child_are_free_once_its_parent_has_joined_it(method: str, client: Client) -> None:
    lock, slots = Lock(name="a"), Semaphore(2, name="s")
    child = Child(get_context(method), lock, slots, slots)
    assert lock.acquire(False) is False
    assert slots.get_value() == 0
    child.kill()
    child.process.join(PATIENCE)
    assert child.process.exitcode == -signal.SIGKILL
    assert lock.acquire(False) is True
    assert slots.get_value() == 2
    lock.release()


def test_lock_held_by_a_killed_child_is_free_even_if_the_child_is_not_joined(client: Client, tmp_path: Path) -> None:
    """And sooner than that of a child of the standard library that was killed before it."""
    lock, theirs, file = Lock(name="ours"), Lock(name="theirs"), tmp_path / "credentials"
    stdlibs = multiprocessing.get_context("fork").Process(target=remote.hold_and_die, args=(theirs, file))
    ours = get_context("fork").Process(target=remote.hold_and_die, args=(lock,))
    for process in (stdlibs, ours):
        process.start()
    stdlibs.join(PATIENCE)
    assert lock.acquire(timeout=SESSION_S) is True
    assert theirs.acquire(False) is False
    lock.release()
    ours.join(PATIENCE)
    expire(remote.credentials_in(file))


@pytest.mark.parametrize("method", PARAMETERS)
def test_exited_child_of_the_standard_library_caches_no_lock(method: str, client: Client) -> None:
    lock = distsync.Lock(name="cached", linger=SESSION_S)
    child = multiprocessing.get_context(method).Process(target=remote.take_once, args=(lock,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert lock.acquire(False) is True
    client.close()


def test_thread_of_a_standard_library_child_can_use_a_lock_after_the_finalizers_ran(
    client: Client, tmp_path: Path
) -> None:
    lock, file = distsync.Lock(name="cached", linger=SESSION_S), tmp_path / "done"
    child = multiprocessing.get_context("fork").Process(target=remote.take_again_at_the_end, args=(lock, file))
    child.start()
    child.join(PATIENCE)
    assert file.read_text() == "done"
    expire(remote.credentials_in(tmp_path / "credentials"))


def test_lock_of_a_killed_child_is_granted_to_its_sibling(client: Client) -> None:
    """While the parent waits for the sibling in ``join``."""
    lock = Lock(name="a")
    first = Child(get_context("fork"), lock)
    second = get_context("fork").Process(target=lock.acquire)
    second.start()
    eventually(lambda: lock.waiters())
    first.kill()
    second.join(PATIENCE)
    assert second.exitcode == 0
    first.process.join(PATIENCE)


@pytest.mark.parametrize("method", PARAMETERS)
def test_lock_of_a_child_that_calls_os_exit_is_released(method: str, client: Client) -> None:
    lock = Lock(name="a")
    child = Child(get_context(method), lock, last=os._exit)
    assert child.end() == 3
    assert lock.acquire(False) is True
    lock.release()


@pytest.mark.parametrize("method", PARAMETERS)
def test_child_that_exits_normally_closes_its_clients(method: str, client: Client) -> None:
    """Also a forked child, for which Python does not call atexit functions."""
    lock = Lock(name="a")
    child = Child(get_context(method), lock)
    assert child.end() == 0
    assert lock.acquire(False) is True
    lock.release()


def test_new_session_after_a_session_loss_ends_when_the_child_is_killed(client: Client, tmp_path: Path) -> None:
    lock, file = Lock(name="a"), tmp_path / "credentials"
    child = Child(get_context("fork"), lock, then=remote.write_credentials, file=file)
    expire(remote.credentials_in(file))
    assert lock.acquire(timeout=PATIENCE) is True
    child.resume.set()
    lock.release()
    eventually(lambda: lock.holders() and lock.holders()[0].pid == child.process.pid)
    child.kill()
    child.process.join(PATIENCE)
    assert lock.acquire(False) is True
    lock.release()


def test_live_grandchild_still_holds_its_lock_after_the_child_was_killed(client: Client, tmp_path: Path) -> None:
    """It has inherited the pipe of the child from which it was forked."""
    lock, end = Lock(name="a"), Event(name="end")
    child = Child(get_context("fork"), then=remote.fork_and_hold, lock=lock, end=end)
    eventually(lambda: lock.holders())
    child.kill()
    child.process.join()  # without a timeout, which would use a pipe that the grandchild has inherited too
    eventually(lambda: not watcher._children)
    assert lock.acquire(False) is False
    assert lock.holders()
    end.set()
    assert lock.acquire(timeout=PATIENCE) is True
    lock.release()


def test_session_that_a_child_reports_for_another_process_is_not_closed(client: Client) -> None:
    reader, writer = os.pipe()
    child = Child(get_context("fork"))
    watched = _child_watcher.Child(child.process.pid, connection.Connection(reader))
    session, password = credentials(client)[1]
    handover = session_handover.SessionHandover(os.getpid(), 1, client.hosts, session, password.hex(), {})
    os.write(writer, json.dumps(asdict(handover)).encode() + b"\n")
    os.close(writer)
    assert child.end() == 0
    watched.handle_death()
    watched.close()
    client.sync()
    assert client.session_id == session


@pytest.mark.slow_on("zookeeper")
def test_join_of_a_killed_child_succeeds_if_the_server_of_its_session_is_unreachable(
    client: Client, unused_address: str
) -> None:
    child = Child(get_context("fork"))
    child.process._child_bootstrap.child._handovers[0] = session_handover.SessionHandover(
        child.process.pid, 0, unused_address, 7, "00" * 16, {"timeout": 1.0}
    )
    child.kill()
    child.process.join(PATIENCE)
    assert child.process.exitcode == -signal.SIGKILL


@pytest.mark.slow("waits for timeouts")
def test_joins_of_many_killed_children_wait_for_an_unreachable_server_once(client: Client, unused_address: str) -> None:
    """Each waited, one after the other."""

    def end_session() -> float:
        began = time.monotonic()
        session_handover.close_session(
            session_handover.SessionHandover(1, 0, unused_address, 7, "00" * 16, {"timeout": 1.0})
        )
        return time.monotonic() - began

    first = end_session()
    assert min(end_session() for _ in range(3)) < first / 2


@pytest.fixture
def unused_address() -> str:
    """Return an address at which no server listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


# ---- inheritance


@pytest.mark.parametrize("method", PARAMETERS)
def test_child_has_the_default_client_of_its_parent(method: str, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    child = get_context(method).Process(target=remote.write_settings, args=(file,))
    child.start()
    child.join(PATIENCE)
    assert file.read_text() == f"{client.hosts} {client.namespace} {client.settings.session_timeout}"


@pytest.mark.slow
def test_subclass_of_process_is_started_by_any_method(client: Client) -> None:
    for method in METHODS:
        child = remote.counted_process(method)("counts")
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
    assert distsync.Counter(name="counts").value == len(METHODS)


def test_unnamed_object_used_only_by_a_child_is_deleted_when_the_parents_client_closes(
    make_client: Callable[..., Client], namespace: str, observer: Observer
) -> None:
    unconnected = make_client()
    semaphore = Semaphore(2, client=unconnected)
    child = get_context("fork").Process(target=semaphore.acquire)
    child.start()
    child.join(PATIENCE)
    assert unconnected.state == "connecting"
    assert observer.kazoo.exists(semaphore.path)
    unconnected.close()
    assert not observer.kazoo.exists(semaphore.path)


# ---- forks


def forked(work: Callable[[], object]) -> int | None:
    """Run ``work`` in a forked child, and return its exit code."""
    child = get_context("fork").Process(target=work)
    child.start()
    child.join(PATIENCE)
    code: int | None = child.exitcode
    if code is None:
        child.kill()
        child.join()
    return code


def check(condition: object) -> None:
    assert condition


def test_forked_child_excludes_its_parent_from_a_lock_that_it_used_before(client: Client) -> None:
    lock = Lock(name="a")
    with lock:
        pass
    child = Child(get_context("fork"), lock)
    assert lock.acquire(False) is False
    assert child.end() == 0
    with lock:
        pass


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_child_forked_while_its_parent_holds_a_lock_does_not_hold_it(kind: str, client: Client) -> None:
    lock = getattr(get_context("fork"), kind)(name="a")

    def child() -> None:
        assert not lock.held
        assert lock.acquire(False) is False

    with lock:
        assert forked(child) == 0
        assert lock.held


def test_child_forked_while_its_parent_holds_may_release_a_lock_but_not_an_rlock(client: Client) -> None:
    lock, rlock = Lock(name="a"), get_context("fork").RLock(name="b")

    def child() -> None:
        lock.release()
        assert remote.catch(rlock.release) == "NotOwnerError"

    lock.acquire()
    with rlock:
        assert forked(child) == 0
    assert lock.acquire(False) is True
    lock.release()


def test_child_forked_during_an_acquire_of_another_thread_can_acquire(client: Client) -> None:
    lock, free = Lock(name="a"), Lock(name="b")
    lock.acquire()
    waiting = Running(lock.acquire)
    eventually(lambda: waiting_calls(client))

    def child() -> None:
        with free:
            assert lock.acquire(False) is False
            assert lock.acquire(timeout=PATIENCE) is True
        lock.release()

    process = get_context("fork").Process(target=child)
    process.start()
    eventually(lambda: lock.waiters())
    lock.release()
    assert waiting.result() is True
    lock.release()
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_child_forked_while_threads_acquire_and_release_does_not_hang(client: Client) -> None:
    lock, over = Lock(name="a"), threading.Event()

    def use() -> None:
        while not over.is_set():
            with lock:
                pass

    busy = [Running(use) for _ in range(3)]

    def child() -> None:
        with lock:
            pass

    try:
        assert [forked(child) for _ in range(5)] == [0] * 5
    finally:
        over.set()
    for one in busy:
        one.result()


def test_child_forked_while_the_pipe_of_an_exited_sibling_is_closed_reports_its_sessions(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own pipe may have got the file descriptor that was just closed."""
    context = get_context("fork")
    closing, resume = threading.Event(), threading.Event()
    close = connection.Connection._close  # type: ignore[attr-defined]

    def close_slowly(self: Any) -> None:
        close(self)
        if threading.current_thread().name == "distsync-children":
            closing.set()
            resume.wait(PATIENCE)

    monkeypatch.setattr(connection.Connection, "_close", close_slowly)
    lock = context.Lock()
    first, second = context.Process(), context.Process(target=remote.hold_and_die, args=(lock,))
    first.start()
    assert closing.wait(PATIENCE)
    second.start()
    resume.set()
    for process in (first, second):
        process.join()
    assert second.exitcode == -signal.SIGKILL
    assert lock.acquire(block=False)
    lock.release()


@pytest.mark.slow
def test_two_hundred_children_acquire_a_lock_in_turn(make_client: Callable[..., Client], tmp_path: Path) -> None:
    """All of them enqueue first."""
    context, counter = get_context("fork"), tmp_path / "counter"
    lock = Lock(name="a", client=make_client(connect_timeout=6 * PATIENCE, session_timeout=10.0))
    counter.write_text("0")
    observed = distsync.Lock(path=lock.path, client=lock.client)
    door = multiprocessing.get_context("fork").Semaphore(3)
    children = [context.Process(target=remote.bump_once, args=(lock, counter, door)) for _ in range(200)]
    with lock:
        for child in children:
            child.start()
        eventually(lambda: len(observed.waiters()) == 200, limit=6 * PATIENCE)
    for child in children:
        child.join(6 * PATIENCE)
    assert {child.exitcode for child in children} == {0}
    assert counter.read_text() == "200"


def test_process_whose_exit_cannot_be_watched_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran although ``start`` had raised an error."""
    start, pids = threading.Thread.start, list[int]()

    def start_most(thread: threading.Thread) -> None:
        if thread.name == "distsync-children":
            pids.extend(child.pid for child in _child_watcher.watcher._children)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_most)
    with pytest.raises(RuntimeError, match="can't start"):
        get_context("fork").Process(target=time.sleep, args=(PATIENCE,)).start()
    (pid,) = pids
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
