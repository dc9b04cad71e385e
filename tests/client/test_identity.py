"""Identities by each scheme that ZooKeeper knows, and the identity of the server: real servers, real
certificates.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES, one_of_each
from helpers.certificates import Certificates, SecureZooKeeper, TlsProcess, asking_for_certificates, knowing_users
from helpers.leak_census import Observer
from helpers.servers import ServerProcess, need_zookeeper
from helpers.timing import eventually
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from distsync import AccessDeniedError, ConfigurationError, Lock, UnreachableError
from distsync._client import default_client
from distsync._client.client import Client
from distsync.testing.faulty_proxy import Proxy

USERS = {"alice": "a-secret", "bob": "b-secret"}

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
def mutual(server_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Every client shows a certificate, and is known by it."""
    made = asking_for_certificates(server_kind, tmp_path_factory.mktemp("mutual"), certificates)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sasl(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = knowing_users(server_kind, tmp_path_factory.mktemp("sasl"), USERS)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def strict(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server on which a client may do nothing before it authenticates by SASL."""
    made = knowing_users(server_kind, tmp_path_factory.mktemp("strict"), USERS, required=True)
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


@pytest.mark.slow_on("zookeeper")
@needs_openssl
def test_tls_is_spoken_by_address_and_by_name(encrypted: tuple[ServerProcess, str], certificates: Certificates) -> None:
    _, hosts = encrypted
    assert uses(Client(hosts, tls_ca=str(certificates.authority)))
    assert uses(Client(hosts.replace("127.0.0.1", "localhost"), tls_ca=str(certificates.authority)))


@pytest.mark.slow
@needs_openssl
def test_unknown_authority_is_refused_and_said(
    encrypted: tuple[ServerProcess, str], certificates: Certificates
) -> None:
    for trusted in ({"tls_ca": str(certificates.stranger)}, {"tls": True}):
        made = partial(Client, encrypted[1], connect_timeout=1.0, **trusted)
        eventually(lambda made=made: "certificate verify failed" in reason(made()))  # type: ignore[misc]


@pytest.mark.slow_on("zookeeper")
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


@pytest.mark.slow_on("zookeeper")
@needs_openssl
def test_server_without_tls_is_not_talked_to_in_the_clear(server: ServerProcess, certificates: Certificates) -> None:
    trusted = str(certificates.authority)
    eventually(lambda: "Last attempt" in reason(Client(server.hosts, tls_ca=trusted, connect_timeout=1.0)))


# ---- x509


@pytest.mark.slow_on("zookeeper")
@needs_openssl
def test_certificate_identifies_the_client(mutual: Any, certificates: Certificates) -> None:
    def client(of: Path) -> Client:
        own = {"tls_cert": str(of), "tls_key": str(certificates.key(of))}
        return Client(mutual.secure, tls_ca=str(certificates.authority), auth="x509", **own)

    with client(certificates.client) as mine, Lock(name="a", client=mine):
        (entry,) = _acl(mine, mine.path("lock", "a"))
        assert (entry.id.scheme, entry.id.id, entry.perms) == ("x509", "CN=client", 31)
        with pytest.raises(AccessDeniedError):
            uses(client(certificates.other_client))


def _acl(client: Client, path: str) -> Any:
    return _kazoo(client).get_acls(path)[0]


def _kazoo(client: Client) -> Any:
    """Its connection, which is who it is."""
    client.sync("/")
    return client._runtime.zk_session._kazoo  # type: ignore[union-attr]


@needs_openssl
def test_x509_without_a_certificate_is_refused_at_once(certificates: Certificates) -> None:
    with pytest.raises(ConfigurationError, match="x509 needs tls_cert"):
        Client("h:1", auth="x509", tls_ca=str(certificates.authority))


@needs_openssl
def test_files_that_are_no_certificate_or_not_its_key_are_refused_at_once(certificates: Certificates) -> None:
    own, other = str(certificates.client), str(certificates.key(certificates.server))
    with pytest.raises(ConfigurationError, match=r"tls_ca='.*test_identity.py' cannot be used: it must be a PEM file"):
        Client("h:1", tls_ca=__file__)
    for key in (None, __file__, other):
        with pytest.raises(ConfigurationError, match=r"tls_cert='.*' cannot be used: .* with its key"):
            Client("h:1", tls_cert=own, tls_key=key)
    assert Client("h:1", tls_cert=own, tls_key=str(certificates.key(certificates.client))).settings.tls


@pytest.mark.slow_on("zookeeper")
@needs_openssl
def test_x509_where_the_server_asks_for_no_certificate_is_refused(
    encrypted: tuple[ServerProcess, str], certificates: Certificates
) -> None:
    """Not silently done without: its znodes could not be its own."""
    own = {"tls_cert": str(certificates.client), "tls_key": str(certificates.key(certificates.client))}
    with pytest.raises(ConfigurationError, match="refused these credentials"):
        uses(Client(encrypted[1], tls_ca=str(certificates.authority), auth="x509", **own))


# ---- SASL


def test_password_by_sasl_says_who_a_client_is(sasl: ServerProcess) -> None:
    with Client(sasl.hosts, auth="sasl:alice:a-secret") as mine, Lock(name="a", client=mine):
        (entry,) = _acl(mine, mine.path("lock", "a"))
        assert (entry.id.scheme, entry.id.id, entry.perms) == ("sasl", "alice", 31)
        with pytest.raises(AccessDeniedError):
            uses(Client(sasl.hosts, auth="sasl:bob:b-secret"))


@pytest.mark.slow_on("zookeeper")
def test_sasl_identity_comes_back_after_a_reconnect(sasl: ServerProcess) -> None:
    with Proxy(sasl.hosts) as proxy, Client(proxy.hosts, auth="sasl:alice:a-secret", session_timeout=10.0) as mine:
        assert Lock(name="again", client=mine).acquire()
        proxy.cut()
        Lock(name="again", client=mine).release()
        assert Lock(name="again", client=mine).acquire(timeout=20)


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("credential", ["alice:wrong", "nobody:of-their-own"])
def test_wrong_password_by_sasl_is_refused_and_said(sasl: ServerProcess, credential: str) -> None:
    with pytest.raises(ConfigurationError, match="refused these credentials") as refusal:
        uses(Client(sasl.hosts, auth=f"sasl:{credential}"))
    assert credential not in str(refusal.value)


def test_sasl_needs_its_package_and_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="has no users"):
        Client(auth="sasl:a:b")
    monkeypatch.setattr("distsync._client.settings.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"distsync\[sasl\]"):
        Client("h:1", auth="sasl:a:b")


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("auth", [None, "digest:alice:a-secret", "sasl:alice:wrong"])
def test_server_that_wants_to_know_who_it_is_says_so_at_once(strict: ServerProcess, auth: str | None) -> None:
    assert uses(Client(strict.hosts, auth="sasl:alice:a-secret"))
    with pytest.raises(ConfigurationError, match="or requires others"):
        uses(Client(strict.hosts, auth=auth))


@pytest.mark.slow_on("zookeeper")
def test_sasl_password_appears_nowhere(sasl: ServerProcess, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1), caplog.at_level(1, "distsync"):
        with Client(sasl.hosts, auth="sasl:alice:a-secret") as mine, Lock(name="told", client=mine):
            told = [repr(mine), repr(mine.settings), repr(mine._runtime), *map(repr, _tree(mine, mine.namespace))]
            told += [repr(_kazoo(mine).get(path)[0]) for path in _tree(mine, mine.namespace)]
        with pytest.raises(ConfigurationError) as refusal:
            uses(Client(sasl.hosts, auth="sasl:alice:b-secret"))
    eventually(lambda: "Received response" in caplog.text)
    told += [str(refusal.value), repr(refusal.value), caplog.text, *(str(record.args) for record in caplog.records)]
    told += [sasl.output(), Path(f"/proc/{sasl.pid}/cmdline").read_text()]
    assert not [text[:300] for text in told if "a-secret" in text or "b-secret" in text]


# ---- two users, by either scheme


@pytest.fixture(params=["x509", "sasl"])
def users(request: pytest.FixtureRequest, mutual: Any, sasl: Any, certificates: Certificates) -> tuple[Any, Any, Any]:
    """How each of two users connects, and the identity of the first one."""
    if request.param == "sasl":
        made = [partial(Client, sasl.hosts, auth=f"sasl:{user}:{password}") for user, password in USERS.items()]
        return *made, Id("sasl", "alice")  # type: ignore[return-value]
    trusted = {"tls_ca": str(certificates.authority), "auth": "x509"}
    made = [
        partial(Client, mutual.secure, tls_cert=str(of), tls_key=str(certificates.key(of)), **trusted)
        for of in (certificates.client, certificates.other_client)
    ]
    return *made, Id("x509", "CN=client")  # type: ignore[return-value]


EVERY_KIND = KINDS | PROCESSES
#: What reports its error elsewhere: a feeder thread's hook.
ELSEWHERE = {"multiprocessing.Queue", "multiprocessing.JoinableQueue"}


@pytest.mark.slow
@needs_openssl
@pytest.mark.usefixtures("nothing_kept")
def test_another_user_neither_reads_takes_breaks_nor_forges_anything_of_any_kind(users: tuple[Any, Any, Any]) -> None:
    alice, bob, who = users
    with alice() as mine, bob() as yours:
        default_client.set_default(mine)
        try:
            with one_of_each(mine, EVERY_KIND):
                paths = list(_tree(mine, mine.namespace))
                assert len(paths) > 150
                assert {path: _acl(mine, path) for path in paths} == {path: [ACL(31, who)] for path in paths}
                assert not [(path, done) for path in paths for done in _done(yours, path)]
                for kind in EVERY_KIND.keys() - ELSEWHERE:
                    with pytest.raises(AccessDeniedError), one_of_each(yours, {kind: EVERY_KIND[kind]}):
                        pytest.fail(f"{kind} is not refused")
        finally:
            default_client.set_default(None)


def _tree(client: Client, path: str) -> Iterator[str]:
    yield path
    for name in _kazoo(client).get_children(path):
        yield from _tree(client, f"{path}/{name}")


def _done(client: Client, path: str) -> Iterator[str]:
    """What this client may do there."""
    kazoo = _kazoo(client)
    for attempt, *arguments in (
        (kazoo.get, path),
        (kazoo.get_children, path),
        (kazoo.set, path, b"forged"),
        (kazoo.delete, path),
        (kazoo.create, f"{path}/forged-0000000000"),
        (kazoo.set_acls, path, OPEN_ACL_UNSAFE),
    ):
        try:
            attempt(*arguments)
        except NoAuthError:
            continue
        except NotEmptyError:  # the namespace's own parent is the root, which is open to all
            if path.count("/") == 1:
                continue
        yield attempt.__name__


# ---- digest


def test_digest_identity_comes_back_after_a_reconnect(proxy: Any, namespace: str, observer: Observer) -> None:
    observer.kazoo.add_auth("digest", "a:b")
    with Client(proxy.hosts, namespace=namespace, auth="digest:a:b") as mine:
        assert Lock(name="a", client=mine).acquire()
        proxy.cut()
        Lock(name="a", client=mine).release()
        assert Lock(name="a", client=mine).acquire(timeout=20)
