"""A client without hosts finds or starts this user's embedded server, and restarts it if it was
killed.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE, UNIT, eventually

from distsync._client import embedded_locator
from distsync._client.client import Client
from distsync._client.embedded_locator import EmbeddedServerLocator
from distsync._client.own_threads import OwnThread
from distsync._client.transport.kazoo_client import Handler
from distsync._protocols.retries import read
from distsync._protocols.steps import Connected, Create, Exists, GetData, Signal, Wait
from distsync._server.autostart import find_or_start
from distsync._server.autostart.directories import state_folder
from distsync._server.autostart.find_or_start import ServerAddress, find
from distsync._server.file_lock import locked


def kill_server() -> None:
    address = find()
    if address is not None:
        os.kill(address.pid, signal.SIGKILL)
        eventually(lambda: find() is None)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Client]:
    """A client without hosts, of a user without a server."""
    tmp_path.chmod(0o700)
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with Client() as client:
        yield client
    kill_server()


def test_first_use_starts_the_server(own: Client) -> None:
    assert own.run(ask(Exists("/"))) is not None
    assert "embedded" in repr(own)


def test_started_server_gets_no_secret_of_its_clients(own: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTH", "AUTHKEY", "AUTHKEYS_ACCEPTED", "TLS_KEY_PASSWORD"):
        monkeypatch.setenv(f"DISTSYNC_{name}", "digest:me:sesame")
    own.run(ask(Exists("/")))
    address = find()
    assert address is not None
    for told in ("cmdline", "environ"):
        text = Path(f"/proc/{address.pid}/{told}").read_text()
        assert "sesame" not in text
        assert address.secret not in text
        assert "\0" in text


def test_first_use_may_be_one_that_does_not_wait(own: Client) -> None:
    assert own.run(ask(Exists("/")), timeout=0) is not None


def test_server_that_was_killed_is_started_again_with_its_data(own: Client, in_thread: Callable[..., Any]) -> None:
    own.run(ask(Create("/kept", b"x")))
    waiting = in_thread(own.run, ask(Wait(Signal(), limit=0.5)))
    kill_server()
    assert own.run(read(GetData("/kept"))).data == b"x"  # sent again if it was outstanding when the server was killed
    waiting.result()


@pytest.mark.parametrize(("kind", "method"), [(OwnThread, "start"), (Handler, "create_socket_pair")])
def test_server_that_cannot_be_looked_for_or_connected_to_is_the_callers_error_and_is_tried_again(
    own: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Any], method: str
) -> None:
    def fails(*args: Any) -> None:
        raise OSError("none is available")

    with monkeypatch.context() as patch:
        patch.setattr(kind, method, fails)
        with pytest.raises(OSError, match="none is available"):
            own.sync(timeout=PATIENCE)
    own.sync(timeout=PATIENCE)


def test_dead_server_is_started_again_even_if_no_thread_was_available_at_first(
    own: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.sync()
    failures: list[None] = []

    def fails(self: OwnThread) -> None:
        failures.append(None)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(OwnThread, "start", fails)
        kill_server()
        eventually(lambda: len(failures) > 1)
    own.sync(timeout=PATIENCE)


def test_server_that_cannot_start_is_the_callers_error_and_is_tried_again(
    own: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "file"
    file.touch()
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(file))
        with pytest.raises(Exception, match="file"):
            own.run(ask(Connected()))
    assert own.run(ask(Exists("/"))) is not None


def test_server_that_was_not_found_is_looked_for_again_though_there_was_no_thread_at_first(
    own: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, method, error in (
        (find_or_start, "find_or_start", OSError("none found")),
        (OwnThread, "start", RuntimeError("can't start new thread")),
    ):

        def fails(*args: Any, raised: Exception = error) -> None:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(what, method, fails)
            with pytest.raises(type(error), match=str(error)):
                own.sync(timeout=PATIENCE)
    own.sync(timeout=PATIENCE)


def test_other_program_on_the_port_of_a_dead_server_gets_no_secret(own: Client) -> None:
    own.run(ask(Create("/kept", b"x")))
    address = find()
    assert address is not None
    with locked(state_folder() / "start.lock", PATIENCE):  # no client restarts it in between
        kill_server()
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind((address.host, address.port))
            stranger.listen()
            stranger.settimeout(PATIENCE)
            heard = [first_words(stranger) for _ in range(4)]
    assert [words[:4] for words in heard] == [b"prov"] * 4
    assert all(address.secret.encode() not in words for words in heard)
    assert own.run(ask(GetData("/kept"))).data == b"x"


def first_words(listening: socket.socket) -> bytes:
    """What the next one who connects says, answered as a server would that takes any session."""
    link, _ = listening.accept()
    with link:
        link.settimeout(PATIENCE)
        words = link.recv(1000)
        link.sendall(bytes(64))
        return words


def test_pauses_between_searches_double_while_none_succeeds(
    own: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that did not live, on a full disk for example, was started twice a second by each client."""
    pause, longest = 0.4 * UNIT, 2 * UNIT
    monkeypatch.setattr(embedded_locator, "PAUSE_S", pause)
    monkeypatch.setattr(embedded_locator, "MAX_PAUSE_S", longest)
    searched: list[float] = []
    find = find_or_start.find_or_start

    def record() -> ServerAddress:
        searched.append(time.monotonic())
        return find()

    monkeypatch.setattr(find_or_start, "find_or_start", record)
    found: list[str] = []
    failed: list[Exception] = []
    locator = EmbeddedServerLocator(lambda hosts, auth: found.append(hosts), failed.append, ())
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        eventually(lambda: locator.search_again() or len(searched) == 5)
        locator.join(PATIENCE)
    assert len(failed) == 5
    for shortest, before, after in zip((1, 2, 4, 5), searched[:-1], searched[1:], strict=True):
        assert after - before >= pause * shortest
    eventually(lambda: locator.search_again() or found)
    assert len(searched) == 6
    time.sleep(3 * longest)
    for number in (7, 8):  # that server has lived: no pause after the first of them
        locator.search_again()
        locator.join(PATIENCE)
        assert len(searched) == number
