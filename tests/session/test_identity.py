"""Who a client is, by each scheme that ZooKeeper knows, and whom it talks to: real servers, real certificates."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates, SaslZooKeeper, SecureZooKeeper, TlsProcess
from leaks import Observer
from servers import ServerProcess, need_zookeeper
from timing import eventually

from distsync import AccessDeniedError, ConfigurationError, Lock, UnreachableError
from distsync.session.client import Client
from distsync.testing.proxy import Proxy

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl program makes the certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "made")


@pytest.fixture(scope="module")
def encrypted(
    server_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, str]]:
    """A server with TLS, and where it listens for it. Its certificate is for 127.0.0.1 and localhost."""
    folder = tmp_path_factory.mktemp("tls")
    made: Any
    if server_kind == "zookeeper":
        need_zookeeper()
        made = SecureZooKeeper(folder, certificates)
    else:
        made = TlsProcess(folder, certificates)
    made.start()
    yield made, made.secure if server_kind == "zookeeper" else made.hosts
    made.stop()


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    """Every client shows a certificate, and is known by it."""
    need_zookeeper()
    made = SecureZooKeeper(tmp_path_factory.mktemp("mutual"), certificates, "need")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslZooKeeper]:
    need_zookeeper()
    made = SaslZooKeeper(tmp_path_factory.mktemp("sasl"), {"alice": "a-secret", "bob": "b-secret"})
    made.start()
    yield made
    made.stop()


def uses(client: Client, name: str = "a") -> bool:
    with client, Lock(name=name, client=client) as held:
        return bool(held)


def reason(client: Client) -> str:
    """Why it does not connect. A slow server may not have come so far, so that has to be asked again."""
    with pytest.raises(UnreachableError) as refusal:
        uses(client)
    return str(refusal.value)


# ---- TLS


@needs_openssl
def test_tls_is_spoken_by_address_and_by_name(encrypted: tuple[ServerProcess, str], certificates: Certificates) -> None:
    _, hosts = encrypted
    assert uses(Client(hosts, tls_ca=str(certificates.authority)))
    assert uses(Client(hosts.replace("127.0.0.1", "localhost"), tls_ca=str(certificates.authority)))


@needs_openssl
def test_unknown_authority_is_refused_and_said(
    encrypted: tuple[ServerProcess, str], certificates: Certificates
) -> None:
    for trusted in ({"tls_ca": str(certificates.stranger)}, {"tls": True}):
        made = partial(Client, encrypted[1], connect_timeout=1.0, **trusted)
        eventually(lambda made=made: "certificate verify failed" in reason(made()))  # type: ignore[misc]


@needs_openssl
def test_wrong_host_name_is_refused_and_said(
    server_kind: str, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "server", certificates.elsewhere)
    made: Any
    if server_kind == "zookeeper":
        need_zookeeper()
        made = SecureZooKeeper(tmp_path, certificates)
    else:
        made = TlsProcess(tmp_path, certificates)
    made.start()
    try:
        hosts, trusted = getattr(made, "secure", made.hosts), str(certificates.authority)
        eventually(lambda: "not valid for" in reason(Client(hosts, tls_ca=trusted, connect_timeout=1.0)))
        assert uses(Client(hosts, tls_ca=trusted, tls_verify=False))
    finally:
        made.stop()


@needs_openssl
def test_server_without_tls_is_not_talked_to_in_the_clear(server: ServerProcess, certificates: Certificates) -> None:
    trusted = str(certificates.authority)
    eventually(lambda: "The last attempt" in reason(Client(server.hosts, tls_ca=trusted, connect_timeout=1.0)))


# ---- x509


@needs_openssl
def test_certificate_says_who_a_client_is(mutual: SecureZooKeeper, certificates: Certificates) -> None:
    def client(of: Path) -> Client:
        own = {"tls_cert": str(of), "tls_key": str(certificates.key(of))}
        return Client(mutual.secure, tls_ca=str(certificates.authority), auth="x509", **own)

    with client(certificates.client) as mine, Lock(name="a", client=mine):
        (entry,) = _acl(mine, mine.path("lock", "a"))
        assert (entry.id.scheme, entry.id.id, entry.perms) == ("x509", "CN=client", 31)
        with pytest.raises(AccessDeniedError):
            uses(client(certificates.other_client))


def _acl(client: Client, path: str) -> Any:
    """As the connection under test sees it."""
    kazoo = client._core.link._kazoo  # type: ignore[union-attr]
    return kazoo.get_acls(path)[0]  # type: ignore[union-attr]


@needs_openssl
def test_x509_without_a_certificate_is_refused_at_once(certificates: Certificates) -> None:
    with pytest.raises(ConfigurationError, match="x509 needs tls_cert"):
        Client("h:1", auth="x509", tls_ca=str(certificates.authority))


@needs_openssl
def test_x509_where_the_server_asks_for_no_certificate_is_refused(
    encrypted: tuple[ServerProcess, str], certificates: Certificates
) -> None:
    """Not silently done without: its znodes could not be its own."""
    own = {"tls_cert": str(certificates.client), "tls_key": str(certificates.key(certificates.client))}
    with pytest.raises(ConfigurationError, match="refused these credentials"):
        uses(Client(encrypted[1], tls_ca=str(certificates.authority), auth="x509", **own))


# ---- SASL


def test_password_by_sasl_says_who_a_client_is(sasl: SaslZooKeeper) -> None:
    with Client(sasl.hosts, auth="sasl:alice:a-secret") as mine, Lock(name="a", client=mine):
        (entry,) = _acl(mine, mine.path("lock", "a"))
        assert (entry.id.scheme, entry.id.id, entry.perms) == ("sasl", "alice", 31)
        with pytest.raises(AccessDeniedError):
            uses(Client(sasl.hosts, auth="sasl:bob:b-secret"))


def test_sasl_identity_comes_back_after_a_reconnect(sasl: SaslZooKeeper) -> None:
    with Proxy(sasl.hosts) as proxy, Client(proxy.hosts, auth="sasl:alice:a-secret", session_timeout=10.0) as mine:
        assert Lock(name="again", client=mine).acquire()
        proxy.cut()
        Lock(name="again", client=mine).release()
        assert Lock(name="again", client=mine).acquire(timeout=20)


@pytest.mark.parametrize("credential", ["alice:wrong", "nobody:of-their-own"])
def test_wrong_password_by_sasl_is_refused_and_said(sasl: SaslZooKeeper, credential: str) -> None:
    with pytest.raises(ConfigurationError, match="refused these credentials") as refusal:
        uses(Client(sasl.hosts, auth=f"sasl:{credential}"))
    assert credential not in str(refusal.value)


def test_sasl_needs_its_package_and_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="knows no users"):
        Client(auth="sasl:a:b")
    monkeypatch.setattr("distsync.session.settings.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"distsync\[sasl\]"):
        Client("h:1", auth="sasl:a:b")


# ---- digest


def test_digest_identity_comes_back_after_a_reconnect(proxy: Any, namespace: str, observer: Observer) -> None:
    observer.kazoo.add_auth("digest", "a:b")
    with Client(proxy.hosts, namespace=namespace, auth="digest:a:b") as mine:
        assert Lock(name="a", client=mine).acquire()
        proxy.cut()
        Lock(name="a", client=mine).release()
        assert Lock(name="a", client=mine).acquire(timeout=20)
