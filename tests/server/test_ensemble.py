"""Roles of the servers, and synced reads, also on an observer."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers.servers import LOOPBACK, TICK_MS, ServerProcess, ZooKeeperProcess, keeping, need_zookeeper
from helpers.timing import eventually

from distsync import Role
from distsync._client.client import Client
from distsync._client.ensemble_status import ask, read
from distsync.recipes import Config, Election


class Member(ZooKeeperProcess):
    """One of several servers; the last one is an observer."""

    def __init__(self, folder: Path, number: int, ports: list[tuple[int, int, int]]) -> None:
        super().__init__(folder)
        self.number, self.ports, self.port = number, ports, ports[number - 1][2]
        (folder / "data").mkdir()
        (folder / "data" / "myid").write_text(str(number))

    def command(self) -> list[str]:
        java = super().command()
        return [*java[:-2], "org.apache.zookeeper.server.quorum.QuorumPeerMain", java[-1]]

    def _settings(self) -> dict[str, object]:
        settings = {**super()._settings(), "tickTime": TICK_MS, "initLimit": 20, "syncLimit": 10}
        for number, (peer, election, _) in enumerate(self.ports, 1):
            observes = ":observer" if number == len(self.ports) else ""
            settings[f"server.{number}"] = f"{LOOPBACK}:{peer}:{election}{observes}"
        if self.number == len(self.ports):
            settings["peerType"] = "observer"
        return settings

    def ready(self) -> bool:
        return True  # a single server never does

    def serves(self) -> bool:
        return "Mode: " in self.ask("srvr")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    need_zookeeper()
    with ExitStack() as stack:
        kept = [stack.enter_context(keeping()) for _ in range(9)]
        ports = [(kept[at], kept[at + 1], kept[at + 2]) for at in (0, 3, 6)]
        members = [Member(tmp_path_factory.mktemp("member") / "zk", number, ports) for number in (1, 2, 3)]
        for one in members:
            one.start()
        eventually(lambda: all(one.serves() for one in members), "no quorum", 60)
    yield members
    for one in members:
        one.kill()


def test_each_server_reports_its_role_epoch_and_counter(ensemble: list[Member]) -> None:
    with keeping() as nobody:
        hosts = ",".join([*(one.hosts for one in ensemble), f"{LOOPBACK}:{nobody}"])
        with Client(hosts) as client, Election(name="e", client=client) as _:
            client.sync()
            servers = client.ensemble()
            token = Election(name="e", client=client).fencing_token
    assert sorted(one.role.value for one in servers) == ["follower", "leader", "observer", "unreachable"]
    assert servers[2].role is Role.OBSERVER
    assert "does not answer" in servers[3].problem
    leader = next(one for one in servers if one.role is Role.LEADER)
    assert (leader.epoch, leader.version[:2]) == (token.epoch, "3.")
    assert leader.counter is not None
    assert 0 < token.counter <= leader.counter


def test_synced_reads_on_an_observer_are_never_stale(ensemble: list[Member]) -> None:
    with Client(ensemble[0].hosts) as writer, Client(ensemble[2].hosts) as reader:
        written, seen = Config(name="c", client=writer), Config(name="c", client=reader)
        for number in range(100):
            written["number"] = number
            assert seen.snapshot(sync=True) == {"number": number}
        written.clear()


def test_single_server_is_standalone(server: ServerProcess, make_client: Callable[..., Client]) -> None:
    client = make_client()
    (only,) = client.ensemble()
    assert only.role.value == {"embedded": "embedded", "zookeeper": "standalone"}[server.name]
    assert (only.host, only.port) == (LOOPBACK, server.port)
    client.sync()
    assert (only.zxid or 0) <= (client.ensemble()[0].zxid or 0)
    with pytest.raises(ValueError, match="above 0"):
        client.ensemble(timeout=0)
    with pytest.raises(ValueError, match='begin with "/"'):
        client.sync("a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("srvr is not executed because it is not in the whitelist.", "4lw.commands.whitelist=srvr"),
        ("This ZooKeeper instance is not currently serving requests\n", "lost its quorum"),
        ("HTTP/1.1 400 Bad Request", "is it a ZooKeeper server"),
        ("", "closed the connection"),
    ],
)
def test_server_that_does_not_answer_is_unknown_with_a_reason(text: str, problem: str) -> None:
    told = read("host", 2181, text)
    assert (told.role, told.zxid, told.epoch, told.counter) == (Role.UNKNOWN, None, None, None)
    assert problem in told.problem


def test_zxid_is_split_into_epoch_and_counter() -> None:
    told = read("host", 2181, "Zookeeper version: 3.8.0-a, built on 1\nZxid: 0x500000007\nMode: follower\n")
    assert (told.role, told.epoch, told.counter, told.version) == (Role.FOLLOWER, 5, 7, "3.8.0-a")


def test_read_only_server_without_a_quorum_is_not_used() -> None:
    told = read("host", 2181, "Zookeeper version: 3.8.0-a, built on 1\nZxid: 0x500000007\nMode: read-only\n")
    assert (told.role, told.epoch) == (Role.UNKNOWN, 5)
    assert "lost its quorum" in told.problem


def test_a_port_that_does_not_speak_tls_is_unreachable(server: ServerProcess) -> None:
    context = ssl.create_default_context()
    assert ask(LOOPBACK, server.port, context, 2.0).role is Role.UNREACHABLE
