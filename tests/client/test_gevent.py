"""Programs in which gevent has made threads, locks and sockets its own: a thread is a greenlet there, and whatever
waits has to let the others run, those of distsync too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.servers import ServerProcess
from helpers.subprocesses import ROOT, Shells, printed, watches
from helpers.timing import PATIENCE, eventually

from distsync._client.client import Client
from distsync.queue import Queue
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Event, Lock

MakeClient = Callable[..., Client]

SESSION_S = 4.0

PATCHED = """
from gevent import monkey
monkey.patch_all()
import threading, time
import gevent
from helpers.worker_processes import waiting_calls
from helpers.timing import PATIENCE, UNIT, eventually
from distsync.queue import Empty, Queue
from distsync.threading import Barrier, Condition, Event, Lock, RLock, Semaphore

def both(*functions):
    '''Each as a greenlet, and as a thread that was patched; what the greenlets answered.'''
    threads = [threading.Thread(target=one) for one in functions]
    for one in threads:
        one.start()
    greenlets = [gevent.spawn(one) for one in functions]
    for one in [*greenlets, *threads]:
        one.join()
    return [one.get() for one in greenlets]
"""


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    environment = {
        "DISTSYNC_HOSTS": server.hosts,
        "DISTSYNC_NAMESPACE": namespace,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    made = Shells(tmp_path, {**environment, "DISTSYNC_SESSION_TIMEOUT": str(SESSION_S)})
    yield made
    made.close()


@pytest.mark.slow_on("zookeeper")
def test_greenlets_and_threads_exclude_each_other(shells: Shells) -> None:
    work = """
inside, most, turns = 0, 0, 0

def work():
    global inside, most, turns
    for _ in range(5):
        with alone:
            inside += 1
            most = max(most, inside)
            gevent.sleep(UNIT / 50)
            turns += 1
            inside -= 1

for alone in (Lock(name="l"), Lock(name="m", linger=0), RLock(name="r"), Semaphore(1, name="s")):
    most = turns = 0
    both(work, work)
    print(most, turns, len(alone.holders()))
"""
    assert shells.run("-c", PATCHED + work) == "1 20 0\n" * 4


@pytest.mark.slow_on("zookeeper")
def test_items_go_from_thread_to_thread_in_their_order(shells: Shells) -> None:
    work = """
first, second = Queue(2, name="first"), Queue(name="second")

def forward():
    while (item := first.get()) is not None:
        second.put(item)

thread = threading.Thread(target=forward)
thread.start()
put = gevent.spawn(lambda: [first.put(item) for item in [*range(50), None]])
print([second.get() for _ in range(50)] == [*range(50)])
thread.join()
put.join()
print(first.empty(), second.empty())
"""
    assert shells.run("-c", PATCHED + work) == "True\nTrue True\n"


@pytest.mark.slow_on("zookeeper")
def test_greenlets_wait_for_other_processes(client: Client, shells: Shells, server: ServerProcess) -> None:
    """The main greenlet continues at the same time."""
    work = """
waiting = [gevent.spawn(Event(name="e").wait), gevent.spawn(Queue(name="q").get), gevent.spawn(Lock(name="l").acquire)]
Queue(name="back").put("I continue")
print([one.get() for one in waiting])
"""
    with Lock(name="l"):
        before = watches(server)
        running = shells.start("-c", PATCHED + work)
        assert Queue(name="back").get(timeout=6 * PATIENCE) == "I continue"
        eventually(lambda: watches(server) >= before + 3, "they do not wait", 6 * PATIENCE)
        Event(name="e").set()
        Queue(name="q").put("an item")
    assert printed(running) == "[True, 'an item', True]\n"


def test_all_waiters_of_a_condition_or_barrier_continue(shells: Shells) -> None:
    work = """
condition, barrier = Condition(name="c"), Barrier(4, name="b")
there = 0

def wait():
    global there
    barrier.wait()
    with condition:
        there += 1
        return condition.wait()

def notify():
    while there < 4:
        gevent.sleep(UNIT / 5)
    with condition:
        condition.notify_all()

notifier = threading.Thread(target=notify)
notifier.start()
print(both(wait, wait))
notifier.join()
"""
    assert shells.run("-c", PATCHED + work) == "[True, True]\n"


@pytest.mark.slow
def test_timeouts_end_in_time_while_others_run(client: Client, shells: Shells) -> None:
    work = f"""
def empty(timeout):
    try:
        return Queue(name="q").get(timeout=timeout)
    except Empty:
        return False

rounds = 0

def run():
    global rounds
    while True:
        rounds += 1
        gevent.sleep(0)

Event(name="e").is_set()  # connects: the first call of a process may take longer than its timeout
gevent.spawn(run)
for wait in (Event(name="e").wait, empty, lambda timeout: Lock(name="l").acquire(timeout=timeout)):
    for timeout in (0, 10 * UNIT):
        begun, before = time.monotonic(), rounds
        told = wait(timeout=timeout) if timeout or wait is not empty else empty(0)
        took = time.monotonic() - begun
        print(told, timeout <= took < timeout + {PATIENCE}, rounds > before)
"""
    with Lock(name="l"):
        assert shells.run("-c", PATCHED + work) == "False True True\n" * 6


@pytest.mark.slow
def test_session_lives_while_a_greenlet_waits_for_longer_than_its_time_out(shells: Shells) -> None:
    work = f"""
lock = Lock(name="l")
lock.acquire()
client, seen = lock.client, []
session = client.session_id
client.on_state(seen.append)
waiting = [gevent.spawn(Lock(name="l").acquire, timeout=1.5 * {SESSION_S}), gevent.spawn(Queue(name="q").get)]
print(Event(name="e").wait(1.5 * {SESSION_S}), waiting[0].get())
print(client.session_id == session, lock.held, client.state, seen)
Queue(name="q").put("an item")
print(waiting[1].get())
"""
    assert shells.run("-c", PATCHED + work) == "False False\nTrue True connected []\nan item\n"


@pytest.mark.slow_on("zookeeper")
def test_broken_connection_is_restored(client: Client, shells: Shells, proxy: Proxy, server: ServerProcess) -> None:
    work = """
lock = Lock(name="l")
lock.acquire()
session = lock.client.session_id
print(Queue(name="q").get(), lock.client.session_id == session, lock.held)
"""
    shells.environment["DISTSYNC_HOSTS"] = proxy.hosts
    before = watches(server)
    running = shells.start("-c", PATCHED + work)
    eventually(lambda: watches(server) > before, "it does not wait", 6 * PATIENCE)
    connections = proxy.connections
    proxy.cut()
    eventually(lambda: proxy.connections > connections, "it does not come again")
    Queue(name="q").put("an item")
    assert printed(running) == "an item True True\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("waiting.kill()", "GreenletExit"),
        ("gevent.kill(waiting, gevent.Timeout(1))", "Timeout"),
        ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
    ],
)
def test_greenlet_that_is_ended_while_it_waits_leaves_nothing(
    client: Client, shells: Shells, end: str, error: str
) -> None:
    """Neither in the queue for the lock nor in that for items; the next waiter is served."""
    work = f"""
import os, signal

def told(call):
    global waiting
    waiting = gevent.getcurrent()
    try:
        return call()
    except BaseException as error:
        return error.__class__.__name__

gevent.signal_handler(signal.SIGINT, lambda: gevent.kill(waiting, KeyboardInterrupt))
ours, lock, items = Event(name="e"), Lock(name="l"), Queue(name="q")
ours.set()
for call in (lock.acquire, items.get):
    calling = gevent.spawn(told, call)
    eventually(lambda: waiting_calls(ours.client) == 1)
    {end}
    print(calling.get())
    eventually(lambda: not ours.client._runtime._calls)
items.put("an item")
print(items.get(), len(lock.waiters()), lock.acquire(timeout=0))
"""
    with Lock(name="l"):
        told = shells.run("-c", PATCHED + work).splitlines()
    assert told == [error, error, "an item 0 False"]


def test_put_that_is_interrupted_when_its_bytes_are_sent_puts_once(client: Client, shells: Shells) -> None:
    """gevent's ``send`` is no operation of C: a signal may come between its bytes and what it returns."""
    work = """
import socket
send = socket.socket.send

def interrupted(*args):
    send(*args)
    socket.socket.send = send
    raise KeyboardInterrupt

queue = Queue(name="q")
queue.put("before")
try:
    socket.socket.send = interrupted
    queue.put("an item")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert shells.run("-c", PATCHED + work) == "interrupted\n"
    items = Queue[str](name="q")
    assert items.get() == "before"
    assert items.qsize() <= 1


HALVES = {
    "no threads": ("monkey.patch_all(thread=False)", "threading"),
    "no queues": ("monkey.patch_all(queue=False)", "queue"),
    "no select": ("monkey.patch_all(select=False)", "select"),
    "too late": ("import distsync._client.client; monkey.patch_all()", "after distsync was imported"),
}


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_program_that_is_half_patched_is_refused(shells: Shells, half: str) -> None:
    """Its session would not be kept alive, or its first call that waits never end."""
    patch, told = HALVES[half]
    work = f"""
from gevent import monkey
{patch}
from distsync import UsageError
from distsync.threading import Lock
try:
    Lock(name="l").acquire()
except UsageError as error:
    print(error)
"""
    said = shells.run("-c", work)
    assert "monkey.patch_all()" in said
    assert told in said
