"""The automatically started server: one per user, found or started, and no other program is mistaken
for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import distsync
from distsync._server.autostart.address_file import is_alive, read_address, write_address, write_private
from distsync._server.autostart.find_or_start import ServerAddress, find, find_or_start
from distsync.errors import ConfigurationError, ServerStartError

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
LOOKS = 5000
HERE, EXCHANGE = -100, 2  # of renameat2


class Home:
    """The two folders of a user, and the servers that were started in them."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.state = folder / "runtime", folder / "state"
        self.address_file = self.runtime / "address"
        self.pids: set[int] = set()

    @property
    def log(self) -> str:
        return (self.state / "server.log").read_text()

    def start(self) -> ServerAddress:
        address = find_or_start()
        self.pids.add(address.pid)
        return address

    def end(self, pid: int, number: signal.Signals = signal.SIGTERM) -> None:
        """Wait until the process has exited."""
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: not is_running(pid))
        self.pids.discard(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def servers_of(home: Home) -> list[int]:
    """Return all processes that run a server on this user's data."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"distsync._server.main" in words and str(home.state).encode() in b" ".join(words):
                found.append(int(entry.parent.name))
    return [pid for pid in found if is_running(pid)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    one = Home(tmp_path)
    monkeypatch.setenv("DISTSYNC_RUNTIME_DIR", str(one.runtime))
    monkeypatch.setenv("DISTSYNC_STATE_DIR", str(one.state))
    yield one
    for pid in {*one.pids, *servers_of(one)}:
        one.end(pid, signal.SIGKILL)


@contextmanager
def connected(address: ServerAddress, **settings: Any) -> Iterator[KazooClient]:
    client = KazooClient(**{"hosts": address.hosts, "auth_data": [address.credential], "timeout": 10.0, **settings})
    client.start(PATIENCE)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def stranger(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """Run another program that listens, and sends a fixed reply to the first bytes of a connection;
    return its port.
    """
    listening = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                link, _ = listening.accept()
                with link:
                    link.sendall(answer(link.recv(100)))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_first_call_starts_one_and_the_second_finds_it(home: Home) -> None:
    first = home.start()
    assert is_alive(first)
    assert find_or_start() == find() == first
    assert servers_of(home) == [first.pid]


def test_no_server_is_found_if_none_was_started(home: Home) -> None:
    assert find() is None
    eventually(lambda: not servers_of(home))


@pytest.mark.slow
def test_search_for_other_clients_finds_the_server_and_creates_no_folder(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert distsync.find_embedded_server() is None
    assert not home.runtime.exists()
    assert not home.state.exists()
    started = home.start()
    assert distsync.find_embedded_server() == started
    monkeypatch.setenv("DISTSYNC_STATE_DIR", "/proc/nowhere")
    assert distsync.find_embedded_server() == started
    home.runtime.chmod(0o777)
    with pytest.raises(ConfigurationError, match="must belong to this user"):
        distsync.find_embedded_server()
    home.runtime.chmod(0o700)


def test_fifty_processes_at_once_get_the_same_server(home: Home) -> None:
    code = (
        "import sys; from distsync._server.autostart.find_or_start import find_or_start; sys.stdin.read();"
        "a = find_or_start(); print(a.host, a.port, a.secret, a.pid)"
    )
    gate_out, gate_in = os.pipe()
    starters = [
        subprocess.Popen([sys.executable, "-c", code], stdin=gate_out, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        for _ in range(50)
    ]
    os.close(gate_out)
    os.close(gate_in)  # all of them read the end at once
    answers = {starter.communicate(timeout=6 * PATIENCE)[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0] * 50
    assert len(answers) == 1
    assert len(servers_of(home)) == 1
    assert home.log.count("listening on") == 1


def test_threads_at_once_get_the_same_server(home: Home) -> None:
    found: list[ServerAddress] = []
    threads = [threading.Thread(target=lambda: found.append(find_or_start())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_files_are_private(home: Home) -> None:
    home.start()
    private = [home.address_file, home.state / "secret", home.state / "data" / "address"]
    assert {oct(path.stat().st_mode & 0o777) for path in private} == {"0o600"}
    assert {path.stat().st_mode & 0o777 for path in (home.runtime, home.state, home.state / "data")} == {0o700}


def test_address_file_contains_the_address(home: Home) -> None:
    address = home.start()
    fields = {"host": LOOPBACK, "port": address.port, "secret": address.secret, "pid": address.pid}
    assert json.loads(home.address_file.read_text()) == fields


def test_private_file_is_on_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, file = os.fsync, tmp_path / "secret"

    def recorded(number: int) -> None:
        synced.append((os.fstat(number).st_size, file.exists()))
        sync(number)

    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", recorded)
    write_private(file, b"123456")
    assert synced == [(6, False)]
    assert file.read_bytes() == b"123456"


def test_private_file_that_cannot_be_written_leaves_nothing_and_is_named(tmp_path: Path) -> None:
    """Each start on a full disk left a draft of the address file."""
    file = tmp_path / "address"
    write_private(file, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=f"{file}"):
            write_private(file, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.name for each in tmp_path.iterdir()] == ["address"]
    assert file.read_bytes() == b"old"


def test_secret_is_shown_neither_by_repr_nor_to_other_processes(home: Home) -> None:
    address = home.start()
    assert address.secret not in repr(address)
    assert address.secret.encode() not in Path(f"/proc/{address.pid}/cmdline").read_bytes()
    assert address.secret not in home.log


@pytest.mark.parametrize("auth", [[], [("digest", "distsync:" + 64 * "0")]])
def test_client_without_its_secret_is_refused(home: Home, auth: list[tuple[str, str]]) -> None:
    with connected(home.start(), auth_data=auth) as client:
        with pytest.raises(NoAuthError):
            client.create("/taken", b"", ephemeral=True)
        with pytest.raises(NoAuthError):
            client.get_children("/")


def test_server_is_detached_and_keeps_no_files_of_its_starter(home: Home) -> None:
    code = "from distsync._server.autostart.find_or_start import find_or_start; print(find_or_start().pid)"
    starter = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=2 * PATIENCE, cwd=ROOT, check=True
    )  # returns only when all copies of its pipes are closed
    pid = int(starter.stdout)
    home.pids.add(pid)
    assert is_running(pid)
    assert os.getsid(pid) not in (os.getsid(0), os.getpid())
    links = {entry.name: os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    log = str(home.state / "server.log")
    assert (links["0"], links["1"], links["2"]) == ("/dev/null", log, log)


def test_starting_works_from_any_folder_and_without_click(home: Home, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['click'] = None;"
        "from distsync._server.autostart.find_or_start import find_or_start; print(find_or_start().port)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "elsewhere", timeout=2 * PATIENCE)
    assert done.stdout.strip().isdigit(), done.stderr


def test_import_of_startup_loads_no_server(home: Home) -> None:
    code = (
        "import sys; import distsync._server.autostart.find_or_start;"
        "print([name for name in ('distsync._server.engine', 'kazoo', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert done.stdout == "[]\n"


def test_killed_server_is_replaced_on_its_port_and_clients_resume_their_sessions(home: Home) -> None:
    first = home.start()
    with connected(first) as client:
        session = client.client_id
        client.create("/mine", b"data", ephemeral=True)
        home.end(first.pid, signal.SIGKILL)
        assert find() is None
        second = home.start()
        assert (second.port, second.secret) == (first.port, first.secret)
        assert second.pid != first.pid
        eventually(lambda: client.connected)
        assert client.retry(client.get, "/mine")[0] == b"data"
        assert client.client_id == session


def test_stopped_server_removes_its_address_and_its_successor_reuses_its_port(home: Home) -> None:
    first = home.start()
    home.end(first.pid, signal.SIGTERM)
    assert not home.address_file.exists()
    assert home.start().port == first.port


@pytest.mark.slow
def test_server_whose_port_was_taken_uses_another_port_with_the_same_data(home: Home) -> None:
    first = home.start()
    with connected(first) as client:
        client.create("/kept", b"data")
    home.end(first.pid, signal.SIGKILL)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, first.port))
        other.listen()
        second = home.start()
    assert second.port != first.port
    with connected(second) as client:
        assert client.get("/kept")[0] == b"data"


def test_lost_address_file_finds_the_running_server_by_its_data(home: Home) -> None:
    first = home.start()
    home.address_file.unlink()
    assert find_or_start() == first


def test_other_runtime_folder_with_the_same_state_finds_the_same_server(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = home.start()
    monkeypatch.setenv("DISTSYNC_RUNTIME_DIR", str(tmp_path / "other"))
    assert find_or_start() == first


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"host": 1, "port": 2, "secret": 3, "pid": 4}', b"\xff"]
)
def test_malformed_address_file_is_replaced(home: Home, content: bytes) -> None:
    home.runtime.mkdir(mode=0o700)
    home.address_file.write_bytes(content)
    home.address_file.chmod(0o600)
    assert read_address(home.address_file) is None
    assert find() is None


def test_stale_address_file_is_replaced(home: Home) -> None:
    home.runtime.mkdir(mode=0o700)
    write_address(home.address_file, ServerAddress(LOOPBACK, 1, "secret", os.getpid()))
    address = home.start()
    assert read_address(home.address_file) == address


def test_address_file_readable_by_other_users_is_not_trusted(home: Home) -> None:
    first = home.start()
    home.address_file.chmod(0o644)
    assert read_address(home.address_file) is None
    assert find() == first  # by the file beside the data


def test_address_file_replaced_between_two_checks_is_not_trusted(tmp_path: Path) -> None:
    """A user who may rename files in a folder above ours cannot make it read any file but ours."""
    names = ours, theirs = tmp_path / "address", tmp_path / "theirs"
    for path in names:
        write_address(path, ServerAddress(LOOPBACK, 1, path.name))
    theirs.chmod(0o644)
    over = threading.Event()
    swap = partial(ctypes.CDLL(None).renameat2, HERE, bytes(ours), HERE, bytes(theirs), EXCHANGE)
    swapping = Running(lambda: [swap() for _ in iter(over.is_set, True)])
    try:
        read = {address.secret for address in (read_address(ours) for _ in range(LOOKS)) if address}
    finally:
        over.set()
    assert set(swapping.result()) == {0}
    assert read <= {"address"}


def test_default_runtime_folder_of_another_user_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTSYNC_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError("runtime directory /tmp/runtime-1 is owned by uid 2, not 1")

    monkeypatch.setattr(platformdirs, "user_runtime_dir", refuse)
    with pytest.raises(ConfigurationError, match="DISTSYNC_RUNTIME_DIR=None cannot be used.*owned by uid 2"):
        find_or_start()


@pytest.mark.parametrize(
    "answer",
    [lambda asked: b"", lambda asked: b"imok", lambda asked: asked, lambda asked: bytes(32), lambda asked: bytes(4096)],
    ids=["nothing", "imok", "echo", "zeros", "much"],
)
def test_other_program_on_the_port_is_not_mistaken_for_the_server(home: Home, answer: Callable[[bytes], bytes]) -> None:
    home.runtime.mkdir(mode=0o700)
    with stranger(answer) as port:
        write_address(home.address_file, ServerAddress(LOOPBACK, port, "secret", os.getpid()))
        assert find() is None


def test_relay_on_the_port_is_not_mistaken_for_the_server(home: Home) -> None:
    true = home.start()

    def ask_the_true_one(asked: bytes) -> bytes:
        with socket.create_connection((LOOPBACK, true.port), timeout=PATIENCE) as link:
            link.sendall(asked)
            return link.recv(100)

    with stranger(ask_the_true_one) as port:
        assert not is_alive(ServerAddress(LOOPBACK, port, true.secret))
    assert is_alive(true)


def test_server_with_another_secret_is_not_accepted(home: Home) -> None:
    address = home.start()
    assert not is_alive(ServerAddress(address.host, address.port, "another secret"))


def test_silent_program_on_the_port_times_out(home: Home) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        assert not is_alive(ServerAddress(LOOPBACK, silent.getsockname()[1], "secret"), timeout=UNIT)


def test_corrupt_journal_is_reported_to_the_caller(home: Home) -> None:
    home.end(home.start().pid)
    journal = home.state / "data" / "journal.log"
    journal.write_bytes(b"")
    with pytest.raises(ServerStartError, match=r"journal\.log is corrupt \(empty\).*server\.log"):
        find_or_start()
    assert journal.read_bytes() == b""
    eventually(lambda: not servers_of(home))


@pytest.mark.slow
def test_idle_exit_is_set_by_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_IDLE_EXIT", str(20 * UNIT))
    first = home.start()
    with connected(first) as client:
        client.create("/kept", b"data")
        threading.Event().wait(30 * UNIT)
        assert is_running(first.pid)
    eventually(lambda: not is_running(first.pid))
    assert not home.address_file.exists()
    with connected(home.start()) as client:
        assert client.get("/kept")[0] == b"data"


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan"])
def test_invalid_idle_exit_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DISTSYNC_IDLE_EXIT", value)
    with pytest.raises(ConfigurationError, match="DISTSYNC_IDLE_EXIT"):
        find_or_start()


@pytest.mark.parametrize("name", ["runtime", "state"])
def test_folder_writable_by_other_users_is_refused(home: Home, name: str) -> None:
    folder = getattr(home, name)
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match=f"DISTSYNC_{name.upper()}_DIR.*no other may write"):
        find_or_start()


def test_folder_that_cannot_be_created_is_refused(home: Home) -> None:
    home.state.write_bytes(b"")
    with pytest.raises(ConfigurationError, match="DISTSYNC_STATE_DIR"):
        find_or_start()


def test_folder_in_which_no_file_can_be_created_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_STATE_DIR", "/proc/self/fdinfo")
    with pytest.raises(ConfigurationError, match="DISTSYNC_STATE_DIR='/proc/self/fdinfo'.*must be writable"):
        home.start()


@pytest.mark.slow
def test_suspended_server_is_not_replaced_by_a_second_one(home: Home) -> None:
    first = home.start()
    os.kill(first.pid, signal.SIGSTOP)
    with pytest.raises(ServerStartError, match=rf"in use by the server at {first.hosts} \(process {first.pid}\)"):
        find_or_start()
    os.kill(first.pid, signal.SIGCONT)
    assert find_or_start() == first
    eventually(lambda: servers_of(home) == [first.pid])  # the second one, which was refused, ends
