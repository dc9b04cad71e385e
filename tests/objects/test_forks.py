"""A forked child holds nothing of its parent's, also if the fork ran none of Python's hooks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.forked_children import FORKS, Fork, check, in_child
from helpers.leak_census import Observer
from helpers.servers import ServerProcess
from helpers.subprocesses import LIMIT, ROOT, Shells
from helpers.timing import PATIENCE, UNIT, eventually

from distsync import Config, Election, Event, FencingToken, Group, Lock, RLock, Semaphore, SharedLock
from distsync._client.client import Client
from distsync.errors import LockLostError, NotHeldError
from distsync.testing.java_process import reserved_port

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORKS_PAGE = ROOT / "docs" / "architecture.md"


@pytest.fixture(params=FORKS)
def fork(request: pytest.FixtureRequest) -> Fork:
    return FORKS[request.param]


KINDS: dict[str, Callable[[], Any]] = {
    "Lock": lambda: Lock(name="ours", linger=0),
    "cacheable Lock": lambda: Lock(name="ours", linger=PATIENCE),
    "RLock": lambda: RLock(name="ours"),
    "Semaphore": lambda: Semaphore(name="ours"),
    "writer": lambda: SharedLock(name="ours").writer,
}


@pytest.mark.parametrize("kind", KINDS)
def test_object_held_by_the_parent_is_not_held_by_the_child(client: Client, kind: str, fork: Fork) -> None:
    held = KINDS[kind]()
    held.acquire()
    token = held.fencing_token

    def child() -> None:
        check(held.acquire(timeout=UNIT) is False, "the child has acquired it")
        check(not held.held, "the child holds it")
        with pytest.raises(NotHeldError):
            held.fencing_token  # noqa: B018
        client.close()

    assert in_child(child, fork=fork) == 0
    assert held.held
    assert held.fencing_token == token
    held.release()


CALLBACKS: dict[str, tuple[Callable[[], Any], str, Callable[[Any], object], Callable[[Any], object]]] = {
    "Election": (lambda: Election(name="ours"), "on_change", lambda made: made.acquire(), lambda made: made.release()),
    "Config": (lambda: Config(name="ours"), "on_change", lambda made: made.update(a=1), lambda made: made.clear()),
    "Group": (lambda: Group(name="ours"), "on_join", lambda made: made.join(), lambda made: made.leave()),
}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_callback_for_changes_that_the_child_sets_again_is_called(client: Client, kind: str, fork: Fork) -> None:
    """It was taken for one that is set already, and never called."""
    make, name, change, change_back = CALLBACKS[kind]
    made = make()
    setattr(made, name, lambda *_: None)

    def child() -> None:
        calls: list[Any] = []
        setattr(made, name, lambda *args: calls.append(args))

        def has_called() -> list[Any]:
            change(made)  # a change before the first read of the state, which is in the background, is not reported
            change_back(made)
            return calls

        eventually(has_called)
        client.close()

    assert in_child(child, fork=fork) == 0
    setattr(made, name, None)


@pytest.mark.parametrize("kind", ["held", "fencing_token", "release", "transaction", "end of its block", "exit"])
def test_first_call_of_the_child_notices_the_fork(
    client: Client, namespace: str, observer: Observer, kind: str, fork: Fork
) -> None:
    lock = RLock(name="ours")
    lock.acquire()
    transaction = lock.transaction()
    transaction.create(f"{namespace}/twice")
    calls: dict[str, tuple[Callable[[], object], type[Exception] | None]] = {
        "held": (lambda: check(not lock.held, "the child holds it"), None),
        "fencing_token": (lambda: lock.fencing_token, NotHeldError),
        "release": (lock.release, NotHeldError),
        "transaction": (transaction.commit, LockLostError),
        "end of its block": (lambda: transaction.__exit__(None, None, None), LockLostError),
        "exit": (lambda: lock.__exit__(None, None, None), NotHeldError),
    }
    call, error = calls[kind]

    def child() -> None:
        if error is None:
            call()
        else:
            with pytest.raises(error):
                call()
        client.close()

    assert in_child(child, fork=fork) == 0
    assert lock.held
    assert f"{namespace}/twice" not in observer.tree(namespace)
    lock.release()


def test_cached_lock_of_the_parent_is_not_cached_in_the_child(client: Client, fork: Fork) -> None:
    lock = Lock(name="ours", linger=PATIENCE)
    with lock:
        cached = lock.fencing_token

    def child() -> None:
        with lock:  # the parent gives its cached lock up
            check(lock.fencing_token > cached, "the child has the parent's grant")
        client.close()

    assert in_child(child, fork=fork) == 0
    with lock:
        assert lock.fencing_token > FencingToken(cached + 1)
    client.close()  # it would stay cached


def test_cached_value_of_the_parent_is_not_read_in_the_child(client: Client, fork: Fork) -> None:
    event = Event(name="ours")
    assert not event.is_set()

    def child() -> None:
        event.set()
        check(event.is_set(), "the child has read the parent's copy")
        client.close()

    assert in_child(child, fork=fork) == 0
    eventually(event.is_set)


def test_unnamed_object_that_the_child_drops_stays_the_parents(client: Client, fork: Fork) -> None:
    locks = [Lock()]
    locks[0].acquire()

    def child() -> None:
        locks.clear()
        client.sync()
        client.close()

    assert in_child(child, fork=fork) == 0
    client.sync()
    assert locks[0].held
    locks[0].release()


# ---- programs

HOOK_BEFORE_IMPORT = """
import os
answers = []
os.register_at_fork(after_in_child=lambda: answers.extend([lock.held, lock.acquire(timeout=0.2)]))
from distsync.threading import Lock
lock = Lock(name="early", linger={linger})
lock.acquire()
child = os.fork()
if child == 0:
    os._exit(0 if answers == [False, False] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lock.held)
"""


@pytest.mark.parametrize("linger", [0, 100])
def test_hook_registered_before_the_import_does_not_hold_in_the_child(server: ServerProcess, linger: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", HOOK_BEFORE_IMPORT.format(linger=linger)]
    settings = {"HOSTS": server.hosts, "NAMESPACE": f"/hook-{os.getpid()}", "SESSION_TIMEOUT": "2"}
    environment = {**os.environ, **{f"DISTSYNC_{name}": value for name, value in settings.items()}}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "0 True\n", done.stderr


APPLICATION = """
import json, os, time
from distsync.threading import Lock, RLock
first, other = RLock(name="first"), Lock(name="other")
first.acquire()
token, master = int(first.fencing_token), os.getpid()
pause = 0.5 * float(os.environ["DISTSYNC_TEST_UNIT"])
time.sleep(pause)  # let threads become idle: if one has the GIL when uWSGI forks, the workers hang in CPython itself

def application(environ, start_response):
    answer = {"pid": os.getpid(), "master": master, "masters_token": token, "held": first.held}
    answer["acquired"] = first.acquire(timeout=0.2)
    if answer["acquired"]:
        answer["token"] = int(first.fencing_token)
        first.release()
    with other:
        answer["other"] = other.held
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""
UWSGI = "--need-app --master --processes 2 --enable-threads --die-on-term --http-socket {address} --wsgi-file app.py"
COMMANDS = {
    "uwsgi": UWSGI,
    "uwsgi with threads": f"{UWSGI} --threads 2",
    "uwsgi with hooks": f"{UWSGI} --py-call-uwsgi-fork-hooks",
    "gunicorn": "--workers 2 --preload --bind {address} app:application",
}


@contextmanager
def web_server(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a web server that forks after it has loaded the application. Yield its address."""
    program = Path(sys.executable).with_name(command.split()[0])
    if not program.exists():
        pytest.skip(f"{program.name} is not installed")
    with reserved_port() as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    (folder / "app.py").write_text(APPLICATION)
    words = [str(program), *COMMANDS[command].format(address=address).split()]
    if program.name == "uwsgi":
        words += ["--virtualenv", sys.prefix]
    paths = os.pathsep.join((str(ROOT), str(folder)))
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **environment, "PYTHONPATH": paths},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield address
    except BaseException:
        print((folder / "output").read_text())
        raise
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(address: str) -> dict[str, Any] | None:
    with suppress(OSError), urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer
    return None


def answers_of_both_workers(address: str) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}

    def both() -> bool:
        for answer in filter(None, requests.map(ask, [address] * 4)):  # at once, so that one worker is too slow for all
            found.setdefault(answer["pid"], answer)
        return len(found) == 2

    with ThreadPoolExecutor(4) as requests:
        eventually(both, "not both workers answer", 2 * PATIENCE)
    return list(found.values())


@pytest.mark.slow("starts a web server")
@pytest.mark.parametrize("command", COMMANDS)
def test_workers_of_a_web_server_do_not_hold_what_the_application_acquired_at_its_import(
    server: ServerProcess, tmp_path: Path, command: str
) -> None:
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": f"/web-{tmp_path.name}"}
    with web_server(command, tmp_path, environment) as address:
        answers = answers_of_both_workers(address)
    assert [one["held"] for one in answers] == [False, False]
    assert [one["other"] for one in answers] == [True, True]
    # The master's threads do not run in uWSGI, so its session ends in time.
    tokens = [one["token"] for one in answers if one["acquired"]]
    assert all(token > answers[0]["masters_token"] for token in tokens)
    assert len(set(tokens)) == len(tokens)


@pytest.mark.slow("starts a web server and an embedded server")
def test_embedded_server_is_started_from_within_uwsgi(tmp_path: Path) -> None:
    """``sys.executable`` is uWSGI there."""
    environment = {
        "DISTSYNC_RUNTIME_DIR": str(tmp_path / "runtime"),
        "DISTSYNC_STATE_DIR": str(tmp_path / "state"),
        "DISTSYNC_IDLE_EXIT": "1",
        "DISTSYNC_HOSTS": "",
    }
    with web_server("uwsgi", tmp_path, environment) as address:
        assert [one["other"] for one in answers_of_both_workers(address)] == [True, True]


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    started = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace})
    yield started
    started.close()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.skipif(sys.version_info < (3, 12), reason="earlier versions do not warn of a fork beside threads")
@pytest.mark.parametrize("is_filtered", [True, False])
def test_documented_filter_silences_the_warning_of_a_fork(shells: Shells, is_filtered: bool) -> None:
    (documented,) = re.findall(r"^warnings.filterwarnings\(.*\)$", FORKS_PAGE.read_text(), re.MULTILINE)
    program = """
import os, warnings
from distsync.threading import Lock

with Lock(name="used"):
    pass
warnings.simplefilter("always")
%s
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    process = shells.start("-c", program % (documented if is_filtered else ""))
    _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, "is multi-threaded" in errors) == (0, not is_filtered)
