"""Java's zkCli works on the embedded server, and prints the same as on ZooKeeper: one JVM types the
same at both.

Unavoidable differences are normalized: a zxid or session id is replaced by the place of its first
occurrence, times are left out, and events, which another thread prints, are compared separately.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper

LAST = "ZooKeeper CLI version"
"""What ``version`` prints; it follows each command."""

MAIN = "org.apache.zookeeper.ZooKeeperMain"
FLAGS = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
TIME = re.compile(r"\w{3} \w{3} \d{2} \d\d:\d\d:\d\d \S+ \d{4}")
HEX = re.compile(r"0x[1-9a-f][0-9a-f]*|(?<=zxid: )[0-9]+")
MASKED = re.compile(r"127\.0\.0\.1:\d+|^\d+ - ")
"""An address, a number of ``history``."""

NODES = """
create /cli one
ls /cli
create -e /cli/ephemeral two
create -s /cli/numbered- three
create -s -e /cli/numbered- four
create -c /cli/container
create /cli/container/child
create -t 86400000 /cli/lasting five
create -t 86400000 -s /cli/lasting- six
create /cli/none/here
create /cli again
create /cli/ephemeral/child no
create -e -c /cli/both
create -t 0 /cli/never
create relative
create /cli/mine x ip:127.0.0.1:a
create /cli/closed x world:nobody:cdrwa
ls -R /cli
ls -s /cli
ls /nowhere
get -s /cli/ephemeral
get /cli/container
get /nowhere
set /cli newer
set -s /cli newest
set -v 7 /cli no
set -s -v 2 /cli yes
stat /cli
stat /nowhere
sync /cli
sync /nowhere
getEphemerals
getEphemerals /cli/e
getAllChildrenNumber /cli
getAllChildrenNumber /nowhere
delete -v 5 /cli/lasting
delete -v 0 /cli/lasting
delete /cli/container
delete /nowhere
deleteall /cli/container
deleteall /cli/container
ls -R /cli
"""

ACLS = """
create /cli/guarded secret
getAcl /cli/guarded
getAcl -s /cli/guarded
setAcl -s /cli/guarded ip:127.0.0.1:cdrwa,world:anyone:r
setAcl -v 9 /cli/guarded world:anyone:r
setAcl /cli/guarded auth::r
setAcl /cli/guarded ip:300.0.0.1:r
setAcl /cli/guarded nothing:of:r
whoami
addauth digest ann:secret
whoami
setAcl /cli/guarded auth::cdrwa
getAcl /cli/guarded
create /cli/guarded/below x auth::cdra
get /cli/guarded/below
set /cli/guarded/below y
setAcl -R /cli/guarded world:anyone:cdrwa
getAcl /cli/guarded/below
getAcl /nowhere
"""

QUOTAS = """
create /cli/house
setquota -n 2 /cli/house
setquota -b 10 /cli/house
listquota /cli/house
setquota -N 3 /cli/house
setquota -B 20 /cli/house
listquota /cli/house
create /cli/house/one 12345
create /cli/house/two 12345678901234567890
create /cli/house/three x
set /cli/house/one 1
listquota /cli/house
get /zookeeper/quota/cli/house/zookeeper_stats
get /zookeeper/quota/cli/house/zookeeper_limits
setquota -n 5 /cli
setquota -n 5 /cli/house/one
setquota -n 5 /nowhere
delquota -n /cli/house
listquota /cli/house
delquota /cli/house
delquota /cli/house
listquota /cli/house
ls -R /zookeeper/quota/cli
setquota -n 1 /
"""

WATCHES = """
get -w /cli
set /cli told
set /cli nobody
ls -w /cli
create /cli/new
stat -w /cli/absent
create /cli/absent
ls -w /nowhere
addWatch -m PERSISTENT /cli
set /cli first
set /cli second
delete /cli/absent
removewatches /cli
removewatches /cli
set /cli third
addWatch /cli
create /cli/deep
create /cli/deep/deeper
set /cli/deep/deeper x
delete /cli/deep/deeper
addWatch -m NO_SUCH /cli
removewatches /cli -d
removewatches /cli -c
removewatches /cli -a
printwatches
printwatches off
printwatches on
"""

OTHERS = """
config
config -s
reconfig -remove 1
addWatch
no-such-command
history
setAcl /cli/mine world:anyone:cdrwa
deleteall -b 2 /cli
stat /cli
deleteall /nowhere
create /cli-end
get -w /cli-end
delete /cli-end
"""

HALF = ("removewatches /cli -d", "removewatches /cli -c")
"""To ZooKeeper 3.9 a lasting watch is one thing; to 3.8, and to the embedded server, it is two."""

END = "type:NodeDeleted path:/cli-end"
CONNECTED = "state:SyncConnected type:None"


class Shell:
    """An interactive zkCli, connected to one server at a time."""

    def __init__(self, server: ServerProcess) -> None:
        command = ["java", *FLAGS, "-cp", ZooKeeperProcess.classpath(), MAIN, "-server", server.hosts]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self.events: list[str] = []
        self.wait_for(CONNECTED)

    def type(self, line: str) -> list[str]:
        """Type a command; return its output."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\nversion\n")
        self._process.stdin.flush()
        return list(self._printed())

    def _printed(self) -> Iterator[str]:
        assert self._process.stdout
        while not (line := self._process.stdout.readline()).startswith(LAST):
            assert line, "zkCli has ended"
            if line.startswith("WatchedEvent"):
                self.events.append(line.strip())
            elif line.strip() and line.strip() != "WATCHER::":
                yield line.rstrip()

    def connect(self, server: ServerProcess) -> None:
        """Connect to another server, and forget earlier events and output."""
        self.events.clear()
        self.type(f"connect {server.hosts}")
        self.wait_for(CONNECTED)
        self.events.clear()

    def wait_for(self, event: str) -> None:
        while not any(event in each for each in self.events):
            self.type("")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, started: Callable[[str], ServerProcess]) -> tuple[ServerProcess, ...]:
    if request.config.getoption("--server") != "both":
        pytest.skip("it needs both servers")
    need_zookeeper()
    return started("embedded"), started("zookeeper")


@pytest.fixture
def shell(both: tuple[ServerProcess, ...]) -> Iterator[Shell]:
    made = Shell(both[0])
    yield made
    made.close()


def session(shell: Shell, server: ServerProcess, left_out: tuple[str, ...]) -> Iterator[str]:
    """Type the commands; return each with its output, then the events of each connection."""
    shell.connect(server)
    lines = (NODES + ACLS + QUOTAS + WATCHES + OTHERS).split("\n")
    for line in (each for each in lines if each and each not in left_out):
        yield f"> {line}"
        printed = shell.type(line)
        yield from sorted(printed) if line == "whoami" else printed
    shell.wait_for(END)
    yield from shell.events


def alike(printed: Iterator[str]) -> list[str]:
    """Replace each hexadecimal number by the place of its first occurrence; sort children and
    identities.
    """
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"number {len(names) + 1}")

    def one(line: str) -> str:
        line = HEX.sub(name, MASKED.sub("", TIME.sub("TIME", line)))
        return f"[{', '.join(sorted(line[1:-1].split(', ')))}]" if line.startswith("[") else line

    return [one(line) for line in printed]


def test_zkcli_prints_the_same_on_both_servers(shell: Shell, both: tuple[ServerProcess, ...]) -> None:
    left_out = HALF if both[1].version >= (3, 9) else ()
    embedded, zookeeper = (alike(session(shell, server, left_out)) for server in both)
    assert embedded == zookeeper
    assert "Created /cli/numbered-0000000001" in embedded
