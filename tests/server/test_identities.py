"""Identities by certificate or SASL are the same on the embedded server and on ZooKeeper 3.8."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.certificates import Certificates, asking_for_certificates, is_greeted, knowing_users
from helpers.digest_md5_client import nonce_of, response
from helpers.frame_client import LOOPBACK
from helpers.raw_client import Speaker
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper
from helpers.timing import PATIENCE
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, InvalidACLError, NoAuthError
from kazoo.security import ACL, CREATOR_ALL_ACL, Id

from distsync._server.acl import digest_of
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect, encode_request

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl program makes the certificates")

USERS = {"alice": "a-secret", "bob": "b-secret"}
NO_TOKEN = b"\xff\xff\xff\xff"
CLOSED = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "made")


@contextmanager
def running(server: Any) -> Iterator[Any]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


# ---- certificates


@pytest.fixture(scope="module")
def mutual(server_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running(asking_for_certificates(server_kind, tmp_path_factory.mktemp("need"), certificates)) as server:
        yield server


@pytest.fixture(scope="module")
def optional(server_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running(asking_for_certificates(server_kind, tmp_path_factory.mktemp("want"), certificates, "want")) as server:
        yield server


@contextmanager
def kazoo(server: Any, certificates: Certificates, own: Path | None = None, **more: Any) -> Iterator[KazooClient]:
    shown = {"certfile": str(own), "keyfile": str(certificates.key(own))} if own else {}
    client = KazooClient(server.secure, use_ssl=True, ca=str(certificates.authority), timeout=4.0, **shown, **more)
    try:
        client.start(PATIENCE)
        yield client
    finally:
        client.stop()
        client.close()


def is_served(server: Any, certificates: Certificates, own: Path | None = None) -> bool:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    if own:
        context.load_cert_chain(own, certificates.key(own))
    return is_greeted(server.secure_port, context)


SUBJECTS = {
    "/CN=client": "CN=client",
    "/C=DE/O=Us, Inc./OU=a b/CN=me": r"CN=me,OU=a b,O=Us\, Inc.,C=DE",
    "/O=us/CN=a+OU=b": "CN=a+OU=b,O=us",
    r"/CN= a\+b#<c>\"d\\e;f=g ": r"CN=\ a\+b\#\<c\>\"d\\e\;f\=g\ ",
    "/DC=org/DC=example/UID=zoé": "UID=zoé,DC=example,DC=org",
    "/CN=a/emailAddress=a@b.example/serialNumber=5": (
        "2.5.4.5=#130135,1.2.840.113549.1.9.1=#160b6140622e6578616d706c65,CN=a"
    ),
    "/title=Dr/GN=A/SN=B": "2.5.4.4=#0c0142,2.5.4.42=#0c0141,2.5.4.12=#0c024472",
}


@pytest.mark.slow_on("zookeeper")
@needs_openssl
@pytest.mark.parametrize("subject", SUBJECTS)
def test_certificate_identifies_the_client(mutual: Any, certificates: Certificates, subject: str) -> None:
    own = certificates.named("subject", subject)
    with kazoo(mutual, certificates, own) as client:
        path = client.create("/subject-", b"", acl=CREATOR_ALL_ACL, sequence=True)
        assert client.get_acls(path)[0] == [ACL(31, Id("x509", SUBJECTS[subject]))]
        client.set_acls(path, [ACL(31, Id("x509", SUBJECTS[subject]))])
        client.set(path, b"still mine")
        client.delete(path)


@needs_openssl
def test_client_with_another_certificate_has_no_access(mutual: Any, certificates: Certificates) -> None:
    with kazoo(mutual, certificates, certificates.client) as mine:
        path = mine.create("/mine-", b"", acl=CREATOR_ALL_ACL, sequence=True)
        mine.create(f"{path}/child", acl=CREATOR_ALL_ACL)
        with kazoo(mutual, certificates, certificates.other_client) as other:
            for attempt in (
                lambda: other.get(path),
                lambda: other.set(path, b""),
                lambda: other.get_children(path),
                lambda: other.create(f"{path}/new"),
                lambda: other.delete(f"{path}/child"),
                lambda: other.set_acls(path, CREATOR_ALL_ACL),
            ):
                with pytest.raises(NoAuthError):
                    attempt()
        mine.set_acls(path, [ACL(31, Id("x509", "CN=mallory"))])
        with kazoo(mutual, certificates, certificates.other_client) as other:
            assert other.get(path)[0] == b""
        with pytest.raises(NoAuthError):
            mine.get(path)


@needs_openssl
@pytest.mark.parametrize("name", ["stranger", "none"])
def test_client_without_a_certificate_of_the_authority_is_refused(
    mutual: Any, certificates: Certificates, name: str
) -> None:
    assert is_served(mutual, certificates, certificates.client)
    assert not is_served(mutual, certificates, certificates.stranger if name == "stranger" else None)


@needs_openssl
def test_certificate_is_optional_with_client_auth_want(optional: Any, certificates: Certificates) -> None:
    with kazoo(optional, certificates) as nobody:
        assert nobody.exists("/")
        with pytest.raises(InvalidACLError):
            nobody.create("/a", b"", acl=CREATOR_ALL_ACL)
        with kazoo(optional, certificates, certificates.client) as mine:
            path = mine.create("/mine-", b"", acl=CREATOR_ALL_ACL, sequence=True)
            with pytest.raises(NoAuthError):
                nobody.get(path)
    assert not is_served(optional, certificates, certificates.stranger)


@needs_openssl
def test_auth_by_x509_succeeds_only_with_a_certificate(optional: Any, certificates: Certificates) -> None:
    with kazoo(optional, certificates, certificates.client) as mine:
        assert mine.add_auth("x509", "")
    with kazoo(optional, certificates) as nobody, pytest.raises(AuthFailedError):
        nobody.add_auth("x509", "CN=client")


@needs_openssl
@pytest.mark.parametrize("name", ["alice", "CN=a,", "FOO=x", "CN=<a>", "CN", "CN=a\\"])
def test_acl_entry_without_a_name_is_invalid(mutual: Any, certificates: Certificates, name: str) -> None:
    with kazoo(mutual, certificates, certificates.client) as mine, pytest.raises(InvalidACLError):
        mine.create("/a", b"", acl=[ACL(31, Id("x509", name))])


@needs_openssl
def test_resumed_tls_session_has_the_identity_of_the_certificate(mutual: Any, certificates: Certificates) -> None:
    """Java's client resumes TLS sessions; no certificate is sent then. ZooKeeper 3.8 speaks TLS 1.2;
    3.9 speaks only 1.3, and resumes nothing.
    """
    context = ssl.create_default_context(cafile=str(certificates.authority))
    context.load_cert_chain(certificates.client, certificates.key(certificates.client))
    newer = mutual.name == "zookeeper" and mutual.version >= (3, 9)
    both = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for version in both if mutual.name == "embedded" else both[newer:][:1]:
        context.maximum_version = version
        session = None
        for is_resumed in (False, True):
            with socket.create_connection((LOOPBACK, mutual.secure_port), timeout=PATIENCE) as plain:
                with context.wrap_socket(plain, server_hostname=LOOPBACK, session=session) as link:
                    told = (link.session_reused, link.version())
                    assert told == (is_resumed and not newer, version.name.replace("_", "."))
                    assert "CN=client" in who_am_i(link)
                    session = link.session


def who_am_i(link: ssl.SSLSocket) -> str:
    """Return the server's reply when the session has been set up."""
    requests = (encode_request(1, r.WhoAmIRequest()), encode_request(2, r.CloseSessionRequest()))
    link.sendall(b"".join(map(framed, (encode_connect(r.ConnectRequest()), *requests))))
    told = b""
    with suppress(ssl.SSLError, ConnectionError):
        while piece := link.recv(4096):
            told += piece
    return told.decode(errors="replace")


@needs_openssl
def test_identity_of_a_certificate_survives_a_restart(certificates: Certificates, tmp_path: Path) -> None:
    server = asking_for_certificates("embedded", tmp_path, certificates)
    with running(server):
        with kazoo(server, certificates, certificates.client) as mine:
            mine.create("/mine", b"", acl=CREATOR_ALL_ACL)
        server.restart(kill=True)
        with kazoo(server, certificates, certificates.client) as mine:
            assert mine.get("/mine")
        with kazoo(server, certificates, certificates.other_client) as other, pytest.raises(NoAuthError):
            other.get("/mine")


# ---- SASL


@pytest.fixture(scope="module")
def sasl(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(knowing_users(server_kind, tmp_path_factory.mktemp("sasl"), USERS)) as server:
        yield server


@pytest.fixture(scope="module")
def strict(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(knowing_users(server_kind, tmp_path_factory.mktemp("strict"), USERS, required=True)) as server:
        yield server


@contextmanager
def speaking(server: ServerProcess, user: str = "") -> Iterator[Speaker]:
    """Return a session that authenticates as ``user``."""
    speaker = Speaker(server.port)
    try:
        if user:
            proof = speaker.body(r.SaslRequest(response(user, USERS[user], challenged(speaker))))
            assert proof.token.startswith(b"rspauth=")
        yield speaker
    finally:
        speaker.link.close()


def challenged(speaker: Speaker) -> str:
    """Return the nonce."""
    challenge = speaker.body(r.SaslRequest(b"")).token
    nonce = nonce_of(challenge)
    assert challenge == f'realm="zk-sasl-md5",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'.encode()
    assert len(nonce) == 40
    return nonce


def refusal(speaker: Speaker, request: r.Request) -> tuple[int, bytes]:
    """Return the error of the last reply, and what follows it."""
    speaker.link.send(encode_request(7, request))
    frame = speaker.link.frame()
    assert frame[:12] == b"\0\0\0\7" + bytes(8)
    assert speaker.link.at_end()
    return int.from_bytes(frame[12:16], "big", signed=True), frame[16:]


def test_kazoo_authenticates_and_owns_its_znodes(sasl: ServerProcess) -> None:
    def client(user: str) -> KazooClient:
        options = {"mechanism": "DIGEST-MD5", "username": user, "password": USERS[user]}
        made = KazooClient(sasl.hosts, timeout=4.0, sasl_options=options)
        made.start(PATIENCE)
        return made

    alice, bob = client("alice"), client("bob")
    try:
        path = alice.create("/mine-", b"", acl=CREATOR_ALL_ACL, sequence=True)
        assert alice.get_acls(path)[0] == [ACL(31, Id("sasl", "alice"))]
        with pytest.raises(NoAuthError):
            bob.get(path)
        alice.set_acls(path, [ACL(31, Id("sasl", "bob"))])
        assert bob.get(path)[0] == b""
    finally:
        for made in (alice, bob):
            made.stop()
            made.close()


OTHERS = {"no one's": "wrong", "another's": USERS["bob"], "none": ""}


# the name of a test is in the environment of the server that it starts
@pytest.mark.parametrize(("user", "password"), [("alice", each) for each in OTHERS.values()], ids=OTHERS)
def test_wrong_password_closes_the_connection_and_not_the_session(
    sasl: ServerProcess, user: str, password: str
) -> None:
    with speaking(sasl) as speaker:
        nonce = challenged(speaker)
        refused = refusal(speaker, r.SaslRequest(response(user, password, nonce)))
        assert refused == (ErrorCode.AUTH_FAILED, NO_TOKEN)
        again = Speaker(sasl.port, hello=r.ConnectRequest(**speaker.hello_again()))
        assert again.err(r.CreateRequest("/a", acl=(r.Acl(31, "auth", ""),))) == ErrorCode.INVALID_ACL
        again.close()


def test_unknown_user_is_refused(sasl: ServerProcess) -> None:
    """ZooKeeper 3.8.0 looks up the password under the name of the previous client, so the test uses no
    password of another user.
    """
    with speaking(sasl) as speaker:
        nonce = challenged(speaker)
        assert refusal(speaker, r.SaslRequest(response("nobody", "x", nonce)))[0] == ErrorCode.AUTH_FAILED


TAKEN: list[tuple[bytes, bytes]] = [
    (b",", b" ,\t"),
    (b'username="alice"', b"USERNAME=alice"),
    (b'username="alice"', b'username="al\\ice"'),
    (b"qop=auth,", b""),
    (b"qop=auth", b'qop="auth",other=what,maxbuf=65536'),
    (b"qop=auth", b"qop=auth,charset=utf-8"),
    (b"response=", b',algorithm="md5-sess",response='),
]
NOT_TAKEN: list[tuple[bytes, bytes]] = [
    (b"qop=auth", b"qop=auth-int"),
    (b'realm="zk-sasl-md5"', b'realm="elsewhere"'),
    (b"zookeeper/", b"imap/"),
    (b"qop=auth", b'username="bob"'),
    (b'username="alice",', b""),
    (b"cnonce=", b"c-nonce="),
    (b'username="alice"', b'username="alice'),
    (b'username="alice"', b'username="alice" more'),
    (b"qop=auth", b"qop"),
    (b"response=", b"response=0"),
    (b"qop=auth", b"pad=" + b"x" * 4096),
]
TAKEN_BY_JAVA = [(b"nc=00000001", b"nc=00000002"), (b"qop=auth", b"nc=00000001"), (b"nc=00000001,", b"")]
"""It does not look at the count."""


@pytest.mark.parametrize(("old", "new"), TAKEN)
def test_response_in_another_spelling_is_accepted(sasl: ServerProcess, old: bytes, new: bytes) -> None:
    with speaking(sasl) as speaker:
        token = response("alice", "a-secret", challenged(speaker)).replace(old, new)
        assert speaker.body(r.SaslRequest(token)).token.startswith(b"rspauth=")
        assert ("sasl", "alice") in speaker.body(r.WhoAmIRequest()).client_info


@pytest.mark.parametrize(("old", "new"), NOT_TAKEN)
def test_malformed_response_is_refused(sasl: ServerProcess, old: bytes, new: bytes) -> None:
    with speaking(sasl) as speaker:
        token = response("alice", "a-secret", challenged(speaker))
        assert old in token
        assert refusal(speaker, r.SaslRequest(token.replace(old, new))) == (ErrorCode.AUTH_FAILED, NO_TOKEN)


@pytest.mark.parametrize(("old", "new"), TAKEN_BY_JAVA)
def test_response_that_only_java_accepts(sasl: ServerProcess, old: bytes, new: bytes) -> None:
    with speaking(sasl) as speaker:
        token = response("alice", "a-secret", challenged(speaker))
        assert old in token
        code = speaker.err(r.SaslRequest(token.replace(old, new)))
        assert code == (0 if sasl.name == "zookeeper" else ErrorCode.AUTH_FAILED)


def test_authorization_id_is_ignored(sasl: ServerProcess) -> None:
    with speaking(sasl) as speaker:
        speaker.body(r.SaslRequest(response("alice", "a-secret", challenged(speaker), authzid="bob")))
        told = speaker.body(r.WhoAmIRequest()).client_info
        assert [info for info in told if info.scheme == "sasl"] == [("sasl", "alice")]


def test_response_is_accepted_once_and_for_its_own_challenge(sasl: ServerProcess) -> None:
    with speaking(sasl) as speaker, speaking(sasl) as other:
        token = response("alice", "a-secret", challenged(speaker))
        assert nonce_of(token) != challenged(other)
        assert refusal(other, r.SaslRequest(token))[0] == ErrorCode.AUTH_FAILED
        assert speaker.err(r.SaslRequest(token)) == 0
        assert refusal(speaker, r.SaslRequest(token)) == (ErrorCode.AUTH_FAILED, NO_TOKEN)


def test_identity_does_not_survive_its_connection(sasl: ServerProcess) -> None:
    with speaking(sasl, "alice") as speaker:
        path = speaker.body(r.CreateRequest("/mine-", acl=(r.Acl(31, "auth", ""),), flags=2)).path
        again = Speaker(sasl.port, hello=r.ConnectRequest(**speaker.hello_again()))
        assert again.err(r.GetDataRequest(path)) == ErrorCode.NO_AUTH
        again.link.close()


def test_identities_of_several_schemes_add_up(sasl: ServerProcess) -> None:
    with speaking(sasl, "alice") as speaker:
        speaker.auth(b"me:mine")
        path = speaker.body(r.CreateRequest("/mine-", acl=(r.Acl(31, "auth", ""),), flags=2)).path
        found = {(acl.scheme, acl.id) for acl in speaker.body(r.GetAclRequest(path)).acl}
        assert found == {("sasl", "alice"), ("digest", digest_of(b"me:mine"))}


def test_auth_request_gives_no_sasl_identity(sasl: ServerProcess) -> None:
    with speaking(sasl) as speaker:
        assert refusal(speaker, r.AuthRequest(0, "sasl", b"alice")) == (ErrorCode.AUTH_FAILED, b"")


@pytest.mark.parametrize(("name", "code"), [("alice", 0), ("a@b", 0), ("a/b@c", 0), ("é", 0), ("a@b@c", -114)])
def test_sasl_entry_may_name_a_kerberos_principal(sasl: ServerProcess, name: str, code: int) -> None:
    with speaking(sasl) as speaker:
        assert speaker.err(r.CreateRequest("/entry-", acl=(r.Acl(31, "sasl", name),), flags=2)) == code


@pytest.mark.parametrize(
    "request_",
    [
        r.GetDataRequest("/"),
        r.CreateRequest("/taken"),
        r.MultiRequest(()),
        r.WhoAmIRequest(),
        r.CloseSessionRequest(),
        r.PingRequest(),
        r.UnknownRequest(777),
    ],
)
def test_client_may_do_nothing_before_the_required_authentication(strict: ServerProcess, request_: r.Request) -> None:
    with speaking(strict) as speaker:
        speaker.auth(b"alice:a-secret")
        assert refusal(speaker, request_) == (CLOSED, b"")


def test_wrong_password_ends_a_session_that_requires_authentication(strict: ServerProcess) -> None:
    with speaking(strict) as speaker:
        nonce = challenged(speaker)
        assert refusal(speaker, r.SaslRequest(response("alice", "wrong", nonce))) == (CLOSED, NO_TOKEN)


def test_client_may_do_everything_after_the_required_authentication(strict: ServerProcess) -> None:
    with speaking(strict, "alice") as speaker:
        path = speaker.body(r.CreateRequest("/mine-", acl=(r.Acl(31, "auth", ""),), flags=2)).path
        assert speaker.body(r.GetAclRequest(path)).acl == (r.Acl(31, "sasl", "alice"),)
        with speaking(strict, "bob") as other:
            assert other.err(r.GetDataRequest(path)) == ErrorCode.NO_AUTH


def test_passwords_are_in_no_log_and_no_command_line(sasl: ServerProcess) -> None:
    """Even if one was typed instead of a name, which ZooKeeper does log."""
    name = "a-secret" if sasl.name == "embedded" else "nobody"
    with speaking(sasl, "alice"), speaking(sasl) as speaker:
        refusal(speaker, r.SaslRequest(response(name, "b-secret", challenged(speaker))))
    told = [sasl.output(), *(Path(f"/proc/{sasl.pid}/{file}").read_text() for file in ("cmdline", "environ"))]
    assert "SASL authentication failed: unknown user" in told[0] or sasl.name == "zookeeper"
    assert not [secret for secret in USERS.values() for text in told if secret in text]


JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dzookeeper.fips-mode=false"]
"""The last, since a client of ZooKeeper 3.9 knows no DIGEST-MD5 else."""

CLIENT = 'Client {{ org.apache.zookeeper.server.auth.DigestLoginModule required username="{}" password="{}"; }};'


def typed_into_zkcli(server: ServerProcess, folder: Path, password: str, *lines: str) -> str:
    """Return the output of Java's client as alice."""
    need_zookeeper()
    jaas = folder / "client.jaas"
    jaas.write_text(CLIENT.format("alice", password))
    flags = [f"-Djava.security.auth.login.config={jaas}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    main = ["-cp", ZooKeeperProcess.classpath(), "org.apache.zookeeper.ZooKeeperMain", "-server", server.hosts]
    text = "\n".join((*lines, "quit", ""))
    done = subprocess.run([*JAVA, *flags, *main], input=text, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout + done.stderr


def test_javas_client_authenticates(sasl: ServerProcess, tmp_path: Path) -> None:
    told = typed_into_zkcli(sasl, tmp_path, "a-secret", "create /java x auth:x:cdrwa", "getAcl /java", "delete /java")
    assert "Created /java" in told
    assert "'sasl,'alice\n: cdrwa" in told


def test_javas_client_is_notified_of_a_wrong_password(sasl: ServerProcess, tmp_path: Path) -> None:
    assert "AuthFailed" in typed_into_zkcli(sasl, tmp_path, "wrong", "ls /")
