"""``distsync serve``: what it refuses, how it stops, and that acknowledged writes survive."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from helpers.custom_server import TunedProcess
from helpers.frame_client import linked
from helpers.servers import LOOPBACK, EmbeddedProcess
from helpers.timing import PATIENCE, UNIT, eventually
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from distsync._server.acl import digest_of
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._server.journal.journal import Journal
from distsync._server.main import read_passwords
from distsync._server.net.listener import ServeError
from distsync._server.options import Options
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode

ROOT = Path(__file__).parents[2]


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedProcess]:
    server = EmbeddedProcess(tmp_path)
    server.start()
    yield server
    server.kill()


@contextmanager
def connected(server: EmbeddedProcess, *auth: tuple[str, str], timeout: float = 10.0) -> Iterator[KazooClient]:
    """Connect, retrying every tenth of a second: kazoo's own pauses become longer than a short
    session.
    """
    often = KazooRetry(max_tries=-1, delay=0.1, backoff=1, max_delay=0.1)
    client = KazooClient(server.hosts, timeout=timeout, auth_data=list(auth), connection_retry=often)
    client.start(PATIENCE)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def refused(*arguments: str, **settings: object) -> str:
    """Return what a server that does not start prints on standard error: one line, and no traceback."""
    command = [sys.executable, "-m", "distsync", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, **settings)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("distsync serve: ")
    return str(done.stderr)


def settled(server: EmbeddedProcess) -> int | None:
    """Return the exit status, once the server has exited."""
    assert server.process
    status = server.process.wait(PATIENCE)
    server.process = None
    return status


def test_data_and_port_survive_a_clean_restart(embedded: EmbeddedProcess) -> None:
    port = embedded.port
    with connected(embedded) as client:
        client.create("/kept", b"data")
        embedded.restart()
        eventually(lambda: client.connected)
        assert client.retry(client.get, "/kept")[0] == b"data"
    assert embedded.port == port


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_it_cleanly(embedded: EmbeddedProcess, number: signal.Signals) -> None:
    with connected(embedded) as client:
        client.create("/kept", b"data")
        os.kill(embedded.pid or 0, number)
        assert settled(embedded) == 0
    assert "Traceback" not in embedded.output()
    assert b"synced" in (embedded.folder / "data" / "journal.mark").read_bytes()


CLOCK_OF_2001 = "import time; time.time = lambda: 1e9"


def test_clock_before_2024_does_not_prevent_a_new_folder(tmp_path: Path) -> None:
    server = TunedProcess(tmp_path, before=CLOCK_OF_2001)
    server.start()
    try:
        with connected(server) as client:
            assert 0 < client.exists(client.create("/made")).czxid < 2 << 32
    finally:
        server.kill()


def test_folder_with_negative_zxids_is_usable(tmp_path: Path) -> None:
    """Earlier versions created such a folder if the clock was set before 2024."""
    server, folder = EmbeddedProcess(tmp_path), tmp_path / "data"
    folder.mkdir(mode=0o700)
    with closing(Journal(folder)) as journal:
        journal.load()
        journal.compact(Engine(EngineConfig(initial_zxid=-7 << 32)).snapshot())
    server.start()
    try:
        with connected(server) as client:
            made = client.exists(client.create("/made")).czxid
            assert made > 0
            server.restart(kill=True)
            eventually(lambda: client.connected)
            assert client.retry(client.exists, "/made").czxid == made
    finally:
        server.kill()


CLOCK_THAT_IS_SET = """
import time
wall, steady = time.time_ns, time.monotonic_ns
began = steady()
time.time_ns = lambda: wall() + (steady() - began) // 100_000_000 * 300_000_000
"""
"""Ten times a second, each time by less than what is taken for a pause."""


def test_clock_that_is_set_repeatedly_expires_no_session_early(tmp_path: Path) -> None:
    server, seconds = TunedProcess(tmp_path, before=CLOCK_THAT_IS_SET), 40 * UNIT
    server.start()
    try:
        with linked(server.port, greeted=False) as silent, linked(server.port) as other:
            began = time.monotonic()
            silent.greet(r.ConnectRequest(timeout_ms=round(1000 * seconds)))
            silent.ask(1, r.CreateRequest("/mine", flags=1), r.CreateReply)
            there = 0
            while there != ErrorCode.NO_NODE and time.monotonic() < began + seconds:
                there = other.ask(1, r.ExistsRequest("/mine"), r.StatReply)[2]
            assert time.monotonic() >= began + seconds
    finally:
        server.kill()


def test_sigkill_under_load_loses_no_acknowledged_write_and_no_session(embedded: EmbeddedProcess) -> None:
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(client: KazooClient, writer: int) -> None:
        number = 0
        while not stop.is_set():
            pending = [client.create_async(f"/w{writer}-{number + ahead}", b"x") for ahead in range(20)]
            done = [one.value for one in pending if one.wait(PATIENCE) and one.successful()]
            acknowledged.extend(done)
            number += 20
            stop.wait(0 if done else UNIT)

    with connected(embedded) as first, connected(embedded) as second:
        ids = [client.client_id for client in (first, second)]
        first.create("/ephemeral", b"", ephemeral=True)
        writers = [threading.Thread(target=write, args=(client, n)) for n, client in enumerate((first, second))]
        for writer in writers:
            writer.start()
        for _ in range(3):
            seen = len(acknowledged)
            eventually(lambda seen=seen: len(acknowledged) > seen + 100)
            embedded.restart(kill=True)
        stop.set()
        for writer in writers:
            writer.join()
        eventually(lambda: first.connected and second.connected)
        assert set(acknowledged) <= {f"/{name}" for name in second.retry(second.get_children, "/")}
        assert first.retry(first.exists, "/ephemeral").ephemeralOwner == ids[0][0]
        assert [client.client_id for client in (first, second)] == ids


def test_client_with_a_refused_write_before_a_kill_can_reconnect(embedded: EmbeddedProcess) -> None:
    with connected(embedded) as client:
        with pytest.raises(KazooException):
            client.delete("/is-not-there")
        session = client.client_id
        embedded.restart(kill=True)
        eventually(lambda: client.connected)
        client.retry(client.create, "/is-there")
        assert client.client_id == session


@pytest.mark.slow
def test_abandoned_session_expires_after_a_restart(embedded: EmbeddedProcess) -> None:
    gone = KazooClient(embedded.hosts, timeout=40 * UNIT)
    gone.start(PATIENCE)
    gone.create("/ephemeral", b"", ephemeral=True)
    embedded.kill()
    gone.stop()
    gone.close()
    embedded.start()
    with connected(embedded) as client:
        assert client.exists("/ephemeral")
        eventually(lambda: not client.exists("/ephemeral"))


@pytest.mark.slow
def test_pause_of_the_server_expires_no_session(embedded: EmbeddedProcess) -> None:
    with connected(embedded, timeout=40 * UNIT) as client:
        session = client.client_id
        client.create("/ephemeral", b"", ephemeral=True)
        embedded.pause()
        threading.Event().wait(60 * UNIT)
        embedded.resume()
        assert client.retry(client.exists, "/ephemeral")
        assert client.client_id == session


def test_full_disk_stops_it_with_a_clear_error_and_loses_nothing(embedded: EmbeddedProcess) -> None:
    journal = embedded.folder / "data" / "journal.log"
    acknowledged = []
    with connected(embedded) as client:
        client.create("/before", b"")
        assert embedded.pid
        limit = journal.stat().st_size + 200_000
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, (limit, limit))
        with suppress(KazooException, KazooTimeoutError):
            for _ in range(1000):
                acknowledged.append(client.create("/item-", bytes(10_000), sequence=True))
        assert 0 < len(acknowledged) < 1000
        assert settled(embedded) == 1
        last = embedded.output().splitlines()[-1]
        assert last.startswith(f"distsync serve: cannot write to the journal {embedded.folder / 'data'}")
        assert "free space on the disk" in last
        embedded.start()
        eventually(lambda: client.connected)
        names = client.retry(client.get_children, "/")
        assert sorted(acknowledged) == sorted(f"/{name}" for name in names if name.startswith("item-"))
        assert "before" in names
        client.create("/after", b"")


def test_full_disk_at_the_start_is_not_called_corruption(embedded: EmbeddedProcess) -> None:
    """After a machine crash; which is not forgotten, either."""
    with connected(embedded) as client:
        client.create("/kept", b"data")
    embedded.kill()
    folder = embedded.folder / "data"
    number, _ = (folder / "journal.mark").read_bytes().split()
    (folder / "journal.mark").write_bytes(b"%s %-36s\n" % (number, b"another-boot"))
    command = [sys.executable, "-m", "distsync", "serve", "--port", "0", "--data-dir", str(folder)]
    limit = (folder / "journal.log").stat().st_size
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, cwd=ROOT, preexec_fn=full)
    assert done.returncode == 1
    assert f"distsync serve: cannot write to the journal {folder}" in done.stderr
    assert "corrupt" not in done.stderr
    embedded.start()
    assert "the machine rebooted" in embedded.output()
    with connected(embedded) as client:
        assert client.get("/kept")[0] == b"data"


@pytest.mark.slow
def test_idle_exit_waits_for_the_last_session(tmp_path: Path) -> None:
    server = IdleProcess(tmp_path)
    server.start()
    with connected(server) as client:
        threading.Event().wait(30 * UNIT)
        assert client.exists("/")
    assert settled(server) == 0
    assert "no session" in server.output()


class IdleProcess(EmbeddedProcess):
    def command(self) -> list[str]:
        return [*super().command(), "--idle-exit", str(20 * UNIT)]


class SecretProcess(EmbeddedProcess):
    """A server whose secret is in its folder."""

    def command(self) -> list[str]:
        return [*super().command(), "--secret-file", str(self.folder / "secret")]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SecretProcess]:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("open sesame\n")
    server = SecretProcess(tmp_path)
    server.start()
    yield server
    server.kill()


def test_client_with_the_secret_is_admitted(guarded: SecretProcess) -> None:
    with connected(guarded, ("digest", "distsync:open sesame")) as client:
        client.create("/mine", b"")
        assert client.exists("/mine")


@pytest.mark.parametrize("auth", [[], [("digest", "distsync:open barley")], [("digest", "other:open sesame")]])
def test_without_the_secret_everything_is_refused(guarded: SecretProcess, auth: list[tuple[str, str]]) -> None:
    refused_calls: list[Callable[[KazooClient], object]] = [
        lambda client: client.get("/"),
        lambda client: client.exists("/"),
        lambda client: client.create("/taken", b"", ephemeral=True),
        lambda client: client.get_children("/"),
        lambda client: client.sync("/"),
        lambda client: client.transaction().commit(),
    ]
    with connected(guarded, *auth) as client:
        for call in refused_calls:
            with pytest.raises(NoAuthError):
                call(client)


@pytest.mark.parametrize(
    ("content", "mode", "what"),
    [("s", 0o644, "mode 0600"), ("", 0o600, "must contain a secret"), ("a:b", 0o600, "must contain a secret")],
)
def test_unusable_secret_file_is_refused(tmp_path: Path, content: str, mode: int, what: str) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(mode)
    assert what in refused("--port", "0", "--data-dir", str(tmp_path), "--secret-file", str(path))


def users_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "users"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"alice", "line 1 must be user:password"),
        (b"# fine\nalice:", "line 2 must be user:password"),
        (b":sesame", "line 1 must be user:password"),
        (b"al/ice:sesame", "line 1 must be user:password"),
        (b"al ice:sesame", "line 1 must be user:password"),
        (b"alice:sesame\n\nalice:other-sesame", "line 3: duplicate user"),
        (b"super:sesame", "line 1: the user super is reserved"),
        (b"alice:sesame\xff", "not UTF-8"),
    ],
)
def test_unusable_users_file_is_refused_by_its_line_without_showing_it(
    tmp_path: Path, content: bytes, what: str
) -> None:
    with pytest.raises(ServeError, match=what) as refusal:
        read_passwords(users_file(tmp_path, content))
    assert "sesame" not in "".join(traceback.format_exception(refusal.value))


def test_users_file_readable_by_other_users_is_refused(tmp_path: Path) -> None:
    path = users_file(tmp_path, b"alice:sesame\n", 0o640)
    assert "mode 0600" in refused("--port", "0", "--data-dir", str(tmp_path / "data"), "--sasl-users", str(path))


def test_users_authenticate_by_name(tmp_path: Path) -> None:
    content = "# who may\n\nalice:in: wonderland \r\nzoé:#päss\n".encode()
    assert read_passwords(users_file(tmp_path, content)) == {"alice": "in: wonderland ", "zoé": "#päss"}


@pytest.mark.parametrize(("scheme", "needs"), [("sasl", "--sasl-users"), ("x509", "--tls-ca")])
def test_unavailable_scheme_cannot_be_required(tmp_path: Path, scheme: str, needs: str) -> None:
    assert needs in refused("--port", "0", "--data-dir", str(tmp_path / "data"), "--require-auth", scheme)


@pytest.mark.parametrize("words", [["--require-auth", "digest"], ["--tls-client-auth", "want"]])
def test_meaningless_option_is_refused(words: list[str]) -> None:
    command = [sys.executable, "-m", "distsync", "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    assert done.returncode == 2
    assert words[0] in done.stderr


def test_secrets_are_not_in_the_reprs_of_options() -> None:
    assert "sesame" not in repr(Options(passwords={"alice": "sesame"}, super_digest="super:sesame"))
    assert "sesame" not in repr(EngineConfig(secret=b"sesame", super_digest="sesame", required_digest="sesame"))


@pytest.mark.parametrize(
    ("content", "mode", "what"),
    [
        (digest_of(b"super:admin"), 0o644, "mode 0600"),
        ("super:admin", 0o600, "must contain USER:BASE64"),
        (digest_of(b"super:admin") + "\n" + digest_of(b"b:c"), 0o600, "must contain USER:BASE64"),
        ("", 0o600, "must contain USER:BASE64"),
    ],
)
def test_unusable_super_file_is_refused_without_showing_it(tmp_path: Path, content: str, mode: int, what: str) -> None:
    path = tmp_path / "super"
    path.write_text(content)
    path.chmod(mode)
    line = refused("--port", "0", "--data-dir", str(tmp_path / "data"), "--super-file", str(path))
    assert what in line
    assert not content or content not in line


def test_port_in_use_prints_one_line(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        line = refused("--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert f"{LOOPBACK}:{port}" in line
    assert "in use" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_remote_address_is_refused_unless_allowed(tmp_path: Path, host: str) -> None:
    assert "--allow-remote" in refused("--host", host, "--port", "0", "--data-dir", str(tmp_path))


def test_unknown_host_prints_one_line(tmp_path: Path) -> None:
    assert "no.such.host.invalid" in refused("--host", "no.such.host.invalid", "--data-dir", str(tmp_path))


@pytest.mark.slow
def test_data_folder_in_use_is_refused_and_names_the_server(embedded: EmbeddedProcess) -> None:
    line = refused("--port", "0", "--data-dir", str(embedded.folder / "data"))
    assert f"in use by the server at {embedded.hosts} (process {embedded.pid})" in line


def test_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused("--port", "0", "--data-dir", str(tmp_path / "file"))


def test_corrupt_journal_is_named_and_never_replaced_by_an_empty_one(embedded: EmbeddedProcess) -> None:
    with connected(embedded) as client:
        client.create("/kept", b"data")
    embedded.stop()
    journal = embedded.folder / "data" / "journal.log"
    good = journal.read_bytes()
    for bad in (b"", b"no journal at all", good[: len(good) // 2], good.replace(b"/kept", b"/lost")):
        journal.write_bytes(bad)
        line = refused("--port", "0", "--data-dir", str(journal.parent))
        assert f"the journal {journal} is corrupt" in line
        assert journal.read_bytes() == bad
    journal.write_bytes(good)
    embedded.start()
    with connected(embedded) as client:
        assert client.get("/kept")[0] == b"data"


def test_compaction_keeps_the_state_and_bounds_the_folder(embedded: EmbeddedProcess) -> None:
    with connected(embedded) as client:
        client.create("/large", b"")
        for number in range(60):
            client.set("/large", bytes([number]) * 500_000)
        embedded.restart(kill=True)
        assert sum(file.stat().st_size for file in (embedded.folder / "data").iterdir()) < 25_000_000
        eventually(lambda: client.connected)
        data, stat = client.retry(client.get, "/large")
        assert (data[:1], stat.version) == (bytes([59]), 60)


def test_snapshot_that_cannot_be_written_does_not_stop_the_server(embedded: EmbeddedProcess) -> None:
    """The disk may have room for more records though not for a snapshot. The server stopped after each write."""
    obstacle = embedded.folder / "data" / "journal.new"
    obstacle.mkdir()
    with connected(embedded) as client:
        client.create("/large", b"")
        for number in range(12):
            client.set("/large", bytes([number]) * 500_000)
        assert embedded.output().count("cannot shorten the journal") == 1
        obstacle.rmdir()
        embedded.restart(kill=True)
        eventually(lambda: client.connected)
        data, stat = client.retry(client.get, "/large")
        assert (data[:1], stat.version) == (bytes([11]), 12)


def test_command_without_click_says_what_to_install() -> None:
    hide = "import sys; sys.modules['click'] = None; from distsync.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr == "the distsync command needs click: pip install distsync[cli]\n"
