"""The jars of the real Curator, for tests/interop: fetched once, kept in the user's cache folder, never in the project.

``python scripts/curator_jars.py`` prints their folder; with ``--cached`` nothing is fetched, and the exit status says
whether they are there. DISTSYNC_INTEROP_JARS names a folder of one's own, with any version of Curator in it.

Curator 5.9.0 and ZooKeeper's client 3.9.5 are inside pyspark's source package: 450 MB, of which 6 MB are kept.
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
NAMES = (
    "curator-client-5.9.0.jar",
    "curator-framework-5.9.0.jar",
    "curator-recipes-5.9.0.jar",
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "netty-handler-4.2.13.Final.jar",
)


def folder() -> Path:
    """Where the jars are, or will be."""
    own = os.environ.get("DISTSYNC_INTEROP_JARS")
    return Path(own) if own else platformdirs.user_cache_path("distsync") / "curator-5.9.0"


def found() -> list[Path]:
    """The jars that are there; none where Curator's recipes are missing."""
    jars = sorted(folder().glob("*.jar"))
    return jars if any(jar.name.startswith("curator-recipes") for jar in jars) else []


def lacking() -> str:
    """What has to be done before Curator can be tried here; empty if nothing."""
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
        kept.rename(folder())


def unpack(package: Path, target: Path) -> None:
    missing = set(NAMES)
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
    if shutil.which("javac") and not found() and not os.environ.get("DISTSYNC_INTEROP_JARS"):
        print(f"fetching Curator's jars, out of {SOURCE} (450 MB, once)", flush=True)
        fetch()
    if lacking():
        sys.exit(lacking())
    print(folder())


if __name__ == "__main__":
    main()
