"""TLS: trusted clients are served, others are refused; and the addresses on which a server listens."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers.certificates import Certificates, TlsProcess, greeting, is_greeted
from helpers.custom_server import TunedProcess
from helpers.frame_client import LOOPBACK, linked, says
from helpers.servers import EmbeddedProcess
from helpers.timing import PATIENCE, eventually
from kazoo.client import KazooClient

from distsync._client.client import Client
from distsync._server.options import Tls
from distsync.testing import EmbeddedServer
from distsync.threading import Lock

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl program makes the certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "made")


@pytest.fixture(scope="module")
def encrypted(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProcess]:
    server = TlsProcess(tmp_path_factory.mktemp("encrypted"), certificates)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProcess]:
    """Require certificates of clients."""
    server = TlsProcess(tmp_path_factory.mktemp("mutual"), certificates, "--tls-ca", str(certificates.authority))
    server.start()
    yield server
    server.stop()


@contextmanager
def kazoo(server: EmbeddedProcess, **tls: object) -> Iterator[KazooClient]:
    client = KazooClient(server.hosts, use_ssl=True, timeout=4.0, **tls)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_kazoo_speaks_tls(encrypted: TlsProcess, certificates: Certificates) -> None:
    with kazoo(encrypted, ca=str(certificates.authority)) as client:
        client.start(PATIENCE)
        client.create("/kazoo", bytes(500_000))
        assert len(client.get("/kazoo")[0]) == 500_000
        client.delete("/kazoo")


def test_distsync_speaks_tls(encrypted: TlsProcess, certificates: Certificates) -> None:
    with Client(encrypted.hosts, tls_ca=str(certificates.authority)) as client, Lock(name="tls", client=client) as held:
        assert held


def test_server_in_this_process_ends_with_a_connection_that_has_just_been_closed(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # asyncio's own TLS
    tls = Tls(str(certificates.server), str(certificates.key(certificates.server)), None)  # type: ignore[arg-type]
    for _ in range(10):
        with EmbeddedServer(tls=tls) as server:
            client = Client(server.hosts, tls_ca=str(certificates.authority))
            with Lock(name="tls", client=client):
                pass
            client.close()


def test_client_that_does_not_trust_the_certificate_does_not_connect(
    encrypted: TlsProcess, certificates: Certificates
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        greeting(encrypted.port, ssl.create_default_context(cafile=str(certificates.client)))
    assert greeting(encrypted.port, ssl.create_default_context(cafile=str(certificates.authority)))


def test_client_without_tls_is_disconnected(encrypted: TlsProcess) -> None:
    with linked(encrypted.port, greeted=False) as link:
        link.send(bytes(44))
        assert link.at_end()
    assert says(encrypted.port, b"ruok\n\n") == b""


def test_connections_count_before_their_handshake_is_complete(certificates: Certificates, tmp_path: Path) -> None:
    own = Tls(str(certificates.server), str(certificates.key(certificates.server)))  # type: ignore[arg-type]
    before = "from distsync._server.options import Tls"
    server = TunedProcess(tmp_path, before=before, tls=own, limits={"connections": 10, "handshake_seconds": 60})
    context = ssl.create_default_context(cafile=str(certificates.authority))
    server.start()
    try:
        with ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(linked(server.port, greeted=False))
            with linked(server.port, greeted=False) as late:
                assert late.at_end()
            eventually(lambda: "connection limit reached" in server.output())
        eventually(lambda: is_greeted(server.port, context))
    finally:
        server.kill()


def test_four_letter_word_over_tls(encrypted: TlsProcess, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    with socket.create_connection((LOOPBACK, encrypted.port), timeout=PATIENCE) as plain:
        with context.wrap_socket(plain, server_hostname=LOOPBACK) as link:
            link.sendall(b"ruok")
            assert link.recv(100) == b"imok"


def test_certificate_of_the_client_is_required(mutual: TlsProcess, certificates: Certificates) -> None:
    trusted = {"ca": str(certificates.authority)}
    own = {"certfile": str(certificates.client), "keyfile": str(certificates.key(certificates.client))}
    with kazoo(mutual, **trusted, **own) as client:
        client.start(PATIENCE)
        assert client.exists("/")
    assert greeting(mutual.port, ssl.create_default_context(cafile=trusted["ca"])) == b""


def test_example_of_the_documentation_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/security.md").read_text()
    server, client = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    makes, _, serves = server.strip().rpartition("\n")
    home = {"cwd": tmp_path, "env": {**os.environ, "DISTSYNC_STATE_DIR": str(tmp_path / "state")}, "text": True}
    subprocess.run(["sh", "-e", "-c", makes], check=True, capture_output=True, **home)
    words = [sys.executable, *shlex.split(serves.replace("--port 2281", "--port 0"))[1:]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, **home) as serving:
        try:
            assert serving.stdout is not None
            port = serving.stdout.readline().strip().rpartition(":")[2]

            def told(user: str) -> subprocess.CompletedProcess[str]:
                script = client.replace("2281", port).replace("python ", f"{sys.executable} ").replace("alice:", user)
                return subprocess.run(["sh", "-e", "-c", script], capture_output=True, timeout=PATIENCE, **home)

            assert told("alice:").stdout == "one\n"
            assert "AccessDeniedError: /alice" in told("bob:").stderr
        finally:
            serving.terminate()


def refusal(*arguments: str) -> str:
    command = [sys.executable, "-m", "distsync", "serve", "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_unusable_certificate_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    other = str(certificates.key(certificates.client))
    data = ("--data-dir", str(tmp_path / "data"))
    assert "for TLS: " in refusal(*data, "--tls-cert", str(certificates.server), "--tls-key", other)
    assert "--tls-key" in refusal(*data, "--tls-cert", str(certificates.server))
    assert not (tmp_path / "data").exists()


def test_tls_alone_does_not_allow_remote_clients(certificates: Certificates, tmp_path: Path) -> None:
    words = TlsProcess(tmp_path, certificates).words
    assert "--allow-remote" in refusal("--data-dir", str(tmp_path), "--host", "0.0.0.0", *words)


def test_tls_with_client_certificates_allows_remote_clients(certificates: Certificates, tmp_path: Path) -> None:
    server = TlsProcess(tmp_path, certificates, "--tls-ca", str(certificates.authority), "--host", "0.0.0.0")
    server.start()
    server.stop()
    assert "listening on 0.0.0.0:" in server.output()
