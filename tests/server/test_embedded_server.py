"""The server for users' tests: its life cycle, its faults, and that it leaves nothing (checked by
conftest.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.certificates import Certificates
from helpers.leak_census import children, command_of
from helpers.sample_protocols import ask
from helpers.subprocesses import is_running
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from distsync._client.client import Client
from distsync._protocols.steps import Exists
from distsync.errors import ConfigurationError, DistsyncError, UsageError
from distsync.testing import EmbeddedServer, OpCode, Tls
from distsync.threading import Lock

HOLD_ON = """
import sys, time
from distsync.testing import EmbeddedServer
server = EmbeddedServer(sys.argv[1], process=True)
server.start()
if sys.argv[2] == "paused":
    server.pause()
print(server._host._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def embedded(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(process=request.param) as server:
        yield server


@pytest.fixture
def user(embedded: EmbeddedServer) -> Iterator[Client]:
    with Client(embedded.hosts, namespace="/test") as client:
        yield client


def test_restarted_server_has_address_data_and_sessions(embedded: EmbeddedServer, user: Client) -> None:
    lock = Lock(name="kept", client=user)
    before = embedded.hosts, embedded.address
    with lock:
        session = user.session_id
        embedded.restart()
        assert len(lock.holders()) == 1
        assert lock.held
    assert (embedded.hosts, embedded.address) == before
    assert user.session_id == session


def test_killed_server_keeps_all_acknowledged_writes() -> None:
    with EmbeddedServer(process=True) as server, Client(server.hosts, namespace="/test") as user:
        with Lock(name="kept", client=user):
            nodes = server.counts().nodes
            server.restart(kill=True)
            assert server.counts().nodes == nodes


def test_server_in_a_thread_cannot_be_killed() -> None:
    with EmbeddedServer() as server, pytest.raises(UsageError, match="process=True"):
        server.kill()


def test_own_folder_is_kept_for_the_next_server_and_a_temporary_one_is_not(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data") as server, Client(server.hosts, namespace="/test") as user:
        with Lock(name="kept", linger=0, client=user):
            pass
        nodes = server.counts().nodes
    with EmbeddedServer(tmp_path / "data") as server:
        assert server.counts().nodes == nodes
    with EmbeddedServer() as server:
        folder = Path(server._temporary.name)  # type: ignore[union-attr]
        assert folder.exists()
    assert not folder.exists()


def test_stopped_server_does_not_answer_until_it_is_started(embedded: EmbeddedServer) -> None:
    embedded.stop()
    with pytest.raises(OSError):  # noqa: PT011
        embedded.counts()
    embedded.start()
    assert embedded.counts().sessions == 0


def test_server_that_is_not_started_or_already_running_raises_an_error(embedded: EmbeddedServer) -> None:
    with pytest.raises(UsageError, match="not started"):
        EmbeddedServer().hosts  # noqa: B018
    with pytest.raises(UsageError, match="is running"):
        embedded.start()


@pytest.mark.slow
def test_folder_in_use_raises_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path):
        for process in (False, True):
            with pytest.raises(DistsyncError, match=r"in use|server\.log"), EmbeddedServer(tmp_path, process=process):
                pass


def test_paused_server_keeps_connections_and_answers_later(embedded: EmbeddedServer, user: Client) -> None:
    lock = Lock(name="later", linger=0, client=user)
    with lock:
        session = user.session_id
    with embedded.paused():
        answer = Running(lock.acquire)
        answer.join(4 * UNIT)
        assert answer.is_alive()
    assert answer.result()
    lock.release()
    assert user.session_id == session


@pytest.mark.parametrize("given", ["client", "kazoo", "id"])
def test_expired_session_loses_its_locks(embedded: EmbeddedServer, given: str) -> None:
    kazoo = KazooClient(embedded.hosts)
    kazoo.start()
    kazoo.create("/held", ephemeral=True)
    with Client(embedded.hosts, namespace="/test") as user:
        lock = Lock(name="held", client=user)
        lock.acquire()
        whose: dict[str, Any] = {"client": user, "kazoo": kazoo, "id": user.session_id}
        embedded.expire(whose[given])
        if given == "kazoo":
            assert user.run(ask(Exists("/held"))) is None
            lock.release()
        else:
            eventually(lambda: not lock.held)
    kazoo.stop()
    kazoo.close()


def test_expiring_an_unknown_session_raises_an_error(embedded: EmbeddedServer) -> None:
    with pytest.raises(UsageError, match="0x5"):
        embedded.expire(5)
    with pytest.raises(UsageError, match="no session"):
        embedded.drop_connection(Client(embedded.hosts))


def test_drop_affects_the_connection_of_that_client_only(embedded: EmbeddedServer, user: Client) -> None:
    lock = Lock(name="kept", client=user)
    with lock, Client(embedded.hosts, namespace="/test") as other:
        with Lock(name="other", client=other):
            states: list[str] = []
            others: list[str] = []
            user.on_state(states.append)
            other.on_state(others.append)
            embedded.drop_connection(user)
            eventually(lambda: states == ["suspended", "connected"])
            assert others == []
        assert lock.held


@pytest.mark.parametrize("lost", ["reply", "request"])
def test_dropped_reply_was_executed_and_dropped_request_was_not(embedded: EmbeddedServer, lost: str) -> None:
    drop = {"reply": embedded.drop_next_reply, "request": embedded.drop_next_request}[lost]
    nodes = embedded.counts().nodes
    kazoo = KazooClient(embedded.hosts)
    kazoo.start()
    happened = drop(OpCode.CREATE, kazoo)
    with pytest.raises(ConnectionLoss):
        kazoo.create("/made")
    assert happened.is_set()
    assert embedded.counts().nodes == nodes + (lost == "reply")
    kazoo.stop()
    kazoo.close()


def test_counts_include_sessions_watches_and_nodes(embedded: EmbeddedServer) -> None:
    before = embedded.counts()
    kazoo = KazooClient(embedded.hosts)
    kazoo.start()
    kazoo.create("/one", ephemeral=True)
    kazoo.exists("/two", watch=print)
    after = embedded.counts()
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1, 1]
    kazoo.stop()
    kazoo.close()


def test_four_letter_words_work_through_the_proxy(embedded: EmbeddedServer, user: Client) -> None:
    (server,) = user.ensemble()
    assert (server.role, f"{server.host}:{server.port}") == ("embedded", embedded.hosts)


def test_healed_server_runs_and_accepts_connections(embedded: EmbeddedServer, user: Client) -> None:
    embedded.drop_next_request()
    embedded.refuse_connections()
    embedded.pause()
    embedded.heal()
    embedded.stop()
    embedded.heal()
    with Lock(name="well", client=user):
        pass


@pytest.mark.parametrize("state", ["running", "paused"])
def test_server_process_ends_with_a_killed_test(tmp_path: Path, state: str) -> None:
    command = [sys.executable, "-c", HOLD_ON, str(tmp_path), state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        server = int(test.stdout.readline())
        assert is_running(server)
        os.kill(test.pid, signal.SIGKILL)
    eventually(lambda: not is_running(server))


@pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl program makes the certificates")
@pytest.mark.parametrize("process", [False, True])
def test_users_and_certificates_work_through_the_proxy(process: bool, tmp_path: Path) -> None:
    made = Certificates(tmp_path / "made")
    tls = Tls(made.server, made.key(made.server), made.authority)
    mine = {"tls_ca": made.authority, "tls_cert": made.client, "tls_key": made.key(made.client)}
    with EmbeddedServer(process=process, tls=tls, users={"alice": "a-sesame"}, require_auth=["sasl"]) as server:
        with Client(server.hosts, auth="sasl:alice:a-sesame", session_timeout=30.0, **mine) as client:
            with (lock := Lock(name="a", client=client)):
                server.drop_connection()
                client.sync(timeout=PATIENCE)
                server.restart()
                client.sync(timeout=PATIENCE)
                assert lock.held
            for unseen in (
                lambda: server.expire(client),
                lambda: server.drop_connection(client),
                server.drop_next_reply,
                server.drop_next_request,
                server.counts,
            ):
                with pytest.raises(UsageError):
                    unseen()
        with pytest.raises(ConfigurationError), Client(server.hosts, auth="sasl:alice:wrong", **mine) as wrong:
            wrong.sync(timeout=PATIENCE)
        assert not any("sesame" in command_of(pid) for pid in children())
