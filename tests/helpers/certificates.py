"""Certificates made by the ``openssl`` program, and servers that use them, or ask who a client is in other ways."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect
from helpers.frame_client import LOOPBACK
from helpers.servers import JARS, EmbeddedProcess, ZooKeeperProcess, keeping, need_zookeeper
from helpers.timing import PATIENCE


class Certificates:
    """An authority, and what it signed: for a server on loopback, and for a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        may = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")  # as Python 3.13 asks
        extensions = [word for one in may for word in ("-addext", one)]
        self.authority = self._make("authority", "-x509", "-subj", "/CN=authority", *extensions)
        self.server = self._signed("server", f"subjectAltName=IP:{LOOPBACK},DNS:localhost")
        self.client = self._signed("client", "extendedKeyUsage=clientAuth")
        self.other_client = self._signed("mallory", "extendedKeyUsage=clientAuth")
        self.elsewhere = self._signed("elsewhere", "subjectAltName=DNS:elsewhere.example")
        self.stranger = self._make("stranger", "-x509", "-subj", "/CN=stranger")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=PATIENCE)

    def _make(self, name: str, *words: str) -> Path:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
        self._openssl("req", *key, "-out", f"{name}.pem", *words)
        return self.folder / f"{name}.pem"

    def named(self, name: str, subject: str) -> Path:
        """A client's, for a subject as ``openssl req -subj`` writes it."""
        return self._signed(name, "extendedKeyUsage=clientAuth", "-utf8", "-subj", subject)

    def _signed(self, name: str, extension: str, *words: str) -> Path:
        request = self._make(name, *(words or ("-subj", f"/CN={name}")))
        identifiers = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid"
        (self.folder / f"{name}.ext").write_text(f"{extension}\n{identifiers}\n")
        by = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial")
        self._openssl("x509", "-req", "-in", f"{name}.pem", *by, "-out", f"{name}.crt", "-extfile", f"{name}.ext")
        (self.folder / f"{name}.crt").replace(request)
        return request

    @staticmethod
    def key(certificate: Path) -> Path:
        return certificate.with_suffix(".key")


def greeting(port: int, context: ssl.SSLContext) -> bytes:
    """What the server answers to a handshake of its own protocol within TLS; empty when it closes the connection."""
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE) as plain:
        with context.wrap_socket(plain, server_hostname=LOOPBACK) as link, suppress(ssl.SSLError, ConnectionError):
            link.sendall(framed(encode_connect(r.ConnectRequest(timeout_ms=1000))))
            return link.recv(1000)
    return b""


def is_greeted(port: int, context: ssl.SSLContext) -> bool:
    with suppress(ssl.SSLError, ConnectionError):
        return bool(greeting(port, context))
    return False


class TlsProcess(EmbeddedProcess):
    def __init__(self, folder: Path, certificates: Certificates, *more: str) -> None:
        super().__init__(folder)
        self.words = [
            "--tls-cert",
            str(certificates.server),
            "--tls-key",
            str(certificates.key(certificates.server)),
            *more,
        ]

    def command(self) -> list[str]:
        return [*super().command(), *self.words]

    @property
    def secure(self) -> str:
        return self.hosts

    @property
    def secure_port(self) -> int:
        return self.port


class SecureZooKeeper(ZooKeeperProcess):
    """ZooKeeper with a TLS port, ``secure``; ``asks`` is whether a client shows a certificate: none, want or need."""

    def __init__(self, folder: Path, certificates: Certificates, asks: str = "none") -> None:
        super().__init__(folder)
        self._certificates, self._asks = certificates, asks
        self.secure_port = 0

    @property
    def secure(self) -> str:
        return f"{LOOPBACK}:{self.secure_port}"

    def start(self) -> None:
        with keeping(self.secure_port) as self.secure_port:
            super().start()

    def ready(self) -> bool:
        if not super().ready():
            return False
        with suppress(OSError), socket.create_connection((LOOPBACK, self.secure_port), timeout=PATIENCE):
            return True
        return False

    @staticmethod
    def classpath() -> str:
        """TLS is Netty's, whose jars Debian's ZooKeeper does not ask for by itself; one of your own has its own."""
        if os.environ.get("ZOOKEEPER_CLASSPATH"):
            return ZooKeeperProcess.classpath()
        return ":".join([ZooKeeperProcess.classpath(), *map(str, JARS.glob("netty-[!t]*.jar"))])

    def _settings(self) -> dict[str, object]:
        store = self.folder / "server-with-key.pem"
        own = self._certificates.server
        store.write_text(own.read_text() + Certificates.key(own).read_text())
        return super()._settings() | {
            "secureClientPort": self.secure_port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": store,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self._certificates.authority,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": self._asks,
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        }


class SaslProcess(EmbeddedProcess):
    """The embedded server with a file of users and passwords."""

    def __init__(self, folder: Path, users: dict[str, str], required: bool = False) -> None:
        super().__init__(folder)
        self._users = folder / "users"
        self._users.touch(mode=0o600)
        self._users.write_text("".join(f"{user}:{password}\n" for user, password in users.items()))
        self._words = ["--require-auth", "sasl"] if required else []

    def command(self) -> list[str]:
        return [*super().command(), "--sasl-users", str(self._users), *self._words]


class SaslZooKeeper(ZooKeeperProcess):
    """ZooKeeper that knows users and passwords from a JAAS file."""

    def __init__(self, folder: Path, users: dict[str, str], required: bool = False) -> None:
        super().__init__(folder)
        self._required = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"} if required else {}
        self._jaas = folder / "jaas.conf"
        known = "\n".join(f'  user_{user}="{password}"' for user, password in users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        self._jaas.write_text(f"Server {{\n  {module} required\n{known};\n}};\n")

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-Djava.security.auth.login.config={self._jaas}", *rest]

    def _settings(self) -> dict[str, object]:
        return (
            super()._settings()
            | {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
            | self._required
        )


def asking_for_certificates(kind: str, folder: Path, certificates: Certificates, asks: str = "need") -> Any:
    """A server of this kind that knows clients by their certificates, where they ``need`` or ``want`` to show one."""
    if kind == "zookeeper":
        need_zookeeper()
        return SecureZooKeeper(folder, certificates, asks)
    return TlsProcess(folder, certificates, "--tls-ca", str(certificates.authority), "--tls-client-auth", asks)


def knowing_users(kind: str, folder: Path, users: dict[str, str], required: bool = False) -> Any:
    """A server of this kind that knows users by SASL; those alone, if ``required``."""
    if kind == "zookeeper":
        need_zookeeper()
        return SaslZooKeeper(folder, users, required)
    return SaslProcess(folder, users, required)
