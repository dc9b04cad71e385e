"""Certificates made by the ``openssl`` program, and servers that use them, or ask who a client is in other ways."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from links import LOOPBACK
from servers import JARS, EmbeddedProcess, ZooKeeperProcess, free_port
from timing import PATIENCE


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

    def _signed(self, name: str, extension: str) -> Path:
        request = self._make(name, "-subj", f"/CN={name}")
        identifiers = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid"
        (self.folder / f"{name}.ext").write_text(f"{extension}\n{identifiers}\n")
        by = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial")
        self._openssl("x509", "-req", "-in", f"{name}.pem", *by, "-out", f"{name}.crt", "-extfile", f"{name}.ext")
        (self.folder / f"{name}.crt").replace(request)
        return request

    @staticmethod
    def key(certificate: Path) -> Path:
        return certificate.with_suffix(".key")


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


class SecureZooKeeper(ZooKeeperProcess):
    """ZooKeeper with a TLS port, ``secure``, where a client has to show a certificate if ``mutual``."""

    def __init__(self, folder: Path, certificates: Certificates, mutual: bool = False) -> None:
        super().__init__(folder)
        self._certificates, self._mutual = certificates, mutual
        self.secure_port = free_port()

    @property
    def secure(self) -> str:
        return f"{LOOPBACK}:{self.secure_port}"

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
            "ssl.clientAuth": "need" if self._mutual else "none",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        }


class SaslZooKeeper(ZooKeeperProcess):
    """ZooKeeper that knows users and passwords from a JAAS file."""

    def __init__(self, folder: Path, users: dict[str, str]) -> None:
        super().__init__(folder)
        self._jaas = folder / "jaas.conf"
        known = "\n".join(f'  user_{user}="{password}"' for user, password in users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        self._jaas.write_text(f"Server {{\n  {module} required\n{known};\n}};\n")

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-Djava.security.auth.login.config={self._jaas}", *rest]

    def _settings(self) -> dict[str, object]:
        return super()._settings() | {
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        }
