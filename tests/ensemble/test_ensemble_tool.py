"""``distsync.testing.Ensemble``: its servers start, lead, die, pause and come back; wires and connections break."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.servers import need_zookeeper
from helpers.timing import PATIENCE, UNIT, eventually

from distsync import Config, Role
from distsync._client.client import Client
from distsync.errors import UsageError
from distsync.testing import Ensemble, EnsembleServer, OpCode
from distsync.testing.java_process import EnsembleError, guard
from distsync.threading import Event, Lock

MakeClient = Callable[..., Client]

MINUTE = 60.0
LONG_SESSION_S = 120.0
"""The longest that there is: on a machine that has no time a server takes long to come back."""


def roles(ensemble: Ensemble) -> list[str]:
    return sorted(status.role.value for status in ensemble.status())


def lock_works(client: Client) -> None:
    with Lock(name="probe", client=client) as _:
        pass


@pytest.mark.slow("an ensemble")
def test_each_server_has_its_role(big: Ensemble, connected: MakeClient) -> None:
    assert roles(big) == ["follower", "follower", "leader", "observer", "observer"]
    assert [server.observes for server in big.servers] == [False, False, False, True, True]
    assert big.leader() in big.participants
    assert all(server.status().role is Role.OBSERVER for server in big.observers)
    client = connected(big.hosts)
    lock_works(client)
    assert sorted(each.port for each in client.ensemble()) == sorted(
        int(server.hosts.rpartition(":")[2]) for server in big.servers
    )


@pytest.mark.slow("an ensemble")
def test_killed_leader_follows_its_successor_after_a_restart(big: Ensemble, connected: MakeClient) -> None:
    client = connected(big.hosts)
    lock_works(client)
    first = big.leader()
    assert first is not None
    epoch = first.status().epoch
    first.kill()
    assert (first.running, first.status().role) == (False, Role.UNREACHABLE)
    second = big.wait_for_leader()
    assert second is not first
    lock_works(client)
    assert (second.status().epoch or 0) > (epoch or 0)
    big.heal()
    assert first.status().role is Role.FOLLOWER


@pytest.mark.slow("an ensemble")
def test_leader_cut_off_from_the_others_is_replaced(big: Ensemble, connected: MakeClient) -> None:
    first = big.leader()
    assert first is not None
    big.isolate(first)
    eventually(lambda: big.leader() not in (None, first), "nobody else leads", MINUTE)
    lock_works(connected(",".join(server.hosts for server in big.servers if server is not first)))
    eventually(lambda: first.status().role is Role.UNKNOWN, "it serves without a quorum", MINUTE)
    big.heal()
    assert first.status().role is Role.FOLLOWER


@pytest.mark.slow("an ensemble")
def test_minority_serves_no_client_until_it_is_healed(big: Ensemble, connected: MakeClient) -> None:
    few, many = big.participants[:1], [*big.participants[1:], *big.observers]
    big.partition(few, many, silent=False)
    big.wait_until_serving(*many)
    eventually(lambda: not few[0].serving(), "a minority serves", MINUTE)
    lock_works(connected(many[0].hosts))
    big.heal()
    assert few[0].serving()


@pytest.mark.slow("an ensemble")
def test_paused_server_does_not_answer_until_resumed(small: Ensemble, connected: MakeClient) -> None:
    server = small.observers[0]
    with server.paused():
        assert (server.running, server.status().role) == (False, Role.UNREACHABLE)
        lock_works(connected(small.participants[0].hosts))
    eventually(server.serving, limit=MINUTE)


@pytest.mark.slow("an ensemble")
def test_restarts_one_after_the_other_keep_session_and_lock(small: Ensemble, connected: MakeClient) -> None:
    client = connected(small.hosts, session_timeout=LONG_SESSION_S)
    lock = Lock(name="kept", client=client)
    with lock:
        session, token = client.session_id, lock.fencing_token
        small.rolling_restart(kill=True)
        client.sync(timeout=PATIENCE)
        assert (client.session_id, lock.held, lock.fencing_token) == (session, True, token)


@pytest.mark.slow("an ensemble")
def test_all_servers_are_killed_and_restart_with_their_data(small: Ensemble, connected: MakeClient) -> None:
    client = connected(small.hosts, session_timeout=30.0)
    Event(name="set", client=client).set()
    small.kill()
    assert small.leader() is None
    small.start()
    assert Event(name="set", client=connected(small.hosts)).is_set()
    client.sync(timeout=MINUTE)  # one that is not connected when it closes leaves its session


@pytest.mark.slow("an ensemble")
def test_full_disk_of_one_server_loses_nothing(big: Ensemble, connected: MakeClient) -> None:
    follower = big.followers()[0]
    writer = Config(name="c", client=connected(",".join(each.hosts for each in big.servers if each is not follower)))
    follower.fill_disk()
    size = log_bytes(follower)
    for number in range(50):
        writer["number"] = number
    assert log_bytes(follower) == size
    big.heal()
    assert Config(name="c", client=connected(follower.hosts)).snapshot(sync=True) == {"number": 49}
    writer.clear()


def log_bytes(server: EnsembleServer) -> int:
    return sum(path.stat().st_size for path in server.folder.rglob("log.*"))


# ---- connections of clients


@pytest.mark.slow("an ensemble")
def test_session_is_expired(small: Ensemble, connected: MakeClient) -> None:
    client = connected(small.hosts)
    lock = Lock(name="lost", client=client)
    lock.acquire()
    small.expire(client)
    eventually(lambda: not lock.held)
    with pytest.raises(UsageError, match="not made over"):
        small.expire(12345)


@pytest.mark.slow("an ensemble")
def test_call_continues_after_a_dropped_reply(small: Ensemble, connected: MakeClient) -> None:
    client = connected(small.servers[0].hosts)
    client.sync()
    dropped = small.servers[0].drop_next_reply(OpCode.CREATE2, client)
    lock_works(client)
    assert dropped.is_set()


@pytest.mark.slow("an ensemble")
def test_silent_server_is_left_for_another_one(small: Ensemble, connected: MakeClient) -> None:
    client = connected(small.hosts, session_timeout=4.0)
    client.sync()
    for server in small.servers[:2]:
        server.silence()
    client.sync(timeout=MINUTE)
    assert small.servers[2].ask("cons").count("sid=") >= 1


@pytest.mark.slow("an ensemble")
def test_delay_makes_answers_late_in_their_order(small: Ensemble, connected: MakeClient) -> None:
    server = small.servers[0]
    client = connected(server.hosts)
    client.sync()

    def seconds() -> float:
        begun = time.monotonic()
        client.sync()
        return time.monotonic() - begun

    quick = min(seconds() for _ in range(5))
    server.delay(4 * UNIT)
    assert seconds() >= 8 * UNIT > quick
    server.delay(0)
    lock_works(client)


# ---- its end


PROGRAM = """
import sys
from distsync.testing import Ensemble
with Ensemble(1, 0) as ensemble:
    print(ensemble.servers[0].pid, ensemble.servers[0].folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.slow("an ensemble")
def test_servers_end_with_their_parent_also_when_it_is_killed_and_they_are_paused() -> None:
    need_zookeeper()
    with program(sys.executable, "-c", PROGRAM) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        os.kill(int(pid), signal.SIGSTOP)
        parent.kill()
        eventually(lambda: not Path("/proc", pid).exists(), "it outlives its parent")
        eventually(lambda: not Path(folder).exists(), "its folder stays")


@pytest.mark.slow("an ensemble")
def test_command_prints_address_and_roles_and_ends_on_ctrl_c() -> None:
    need_zookeeper()
    words = ["ensemble", "--participants", "1", "--observers", "1"]
    with program(sys.executable, "-m", "distsync", *words) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(3)]
        running.send_signal(signal.SIGINT)
        running.wait(MINUTE)
    assert re.fullmatch(r"DISTSYNC_HOSTS=127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n", lines[0])
    assert re.match(r"server 1  127\.0\.0\.1:\d+ +leader +pid \d+ +epoch \d+  counter \d+", lines[1])
    assert re.match(r"server 2  127\.0\.0\.1:\d+ +observer +pid \d+ +epoch \d+  counter \d+", lines[2])
    assert running.returncode == 0


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnsembleError, match="no java executable in PATH"), Ensemble(1, 0):
        pass


@pytest.mark.slow("an ensemble")
def test_server_that_ends_at_once_names_its_log() -> None:
    need_zookeeper()
    with (
        pytest.raises(EnsembleError, match=r"ended at once.*server\.log"),
        Ensemble(1, 0, settings={"tickTime": "x"}),
    ):
        pass


def test_nothing_works_before_the_start() -> None:
    with pytest.raises(UsageError, match="not started"):
        _ = Ensemble().hosts
    with pytest.raises(UsageError, match="one participant"):
        Ensemble(0)


def test_guard_knows_the_remaining_processes() -> None:
    assert list(guard(["+1", "+2\n", "-1\n", "+3", "-9"])) == [2, 3]
