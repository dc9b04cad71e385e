"""Four-letter words: the same lines as ZooKeeper 3.8's, and only if allowed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers.frame_client import Link, linked, says
from helpers.servers import EmbeddedProcess, ServerProcess, ZooKeeperProcess, need_zookeeper

from distsync._server.admin.four_letter_words import ALL
from distsync._server.options import WORDS
from distsync._wire import records as r


class TalkativeProcess(EmbeddedProcess):
    def command(self) -> list[str]:
        return [*super().command(), "--words", "*"]


@pytest.fixture(scope="module")
def talkative(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Return a server that answers all words, without other connections."""
    if server_kind == "zookeeper":
        need_zookeeper()
    kind = TalkativeProcess if server_kind == "embedded" else ZooKeeperProcess
    server = kind(tmp_path_factory.mktemp("words"))
    server.start()
    yield server
    server.kill()


@contextmanager
def populated(port: int) -> Iterator[tuple[Link, str, Link, str]]:
    """Return two sessions; the first owns /one, both watch it, the second watches the children of the
    root.
    """
    with linked(port, greeted=False) as first, linked(port, greeted=False) as second:
        ids = [f"0x{link.greet().session_id:x}" for link in (first, second)]
        first.ask(1, r.CreateRequest("/one", b"", flags=1), r.CreateReply)
        first.ask(2, r.GetDataRequest("/one", True), r.GetDataReply)
        second.ask(1, r.GetDataRequest("/one", True), r.GetDataReply)
        second.ask(2, r.GetChildrenRequest("/", True), r.GetChildrenReply)
        yield first, ids[0], second, ids[1]
        for link in (first, second):
            link.ask(3, r.CloseSessionRequest())


def lines(port: int, word: str) -> list[str]:
    return says(port, word.encode()).decode().split("\n")


def test_ruok_and_isro(talkative: ServerProcess) -> None:
    assert says(talkative.port, b"ruok") == b"imok"
    assert says(talkative.port, b"isro") == b"rw"


def test_srvr_prints_its_lines_in_order(talkative: ServerProcess) -> None:
    names = [line.partition(":")[0] for line in lines(talkative.port, "srvr")]
    assert names == [
        "Zookeeper version", "Latency min/avg/max", "Received", "Sent", "Connections", "Outstanding", "Zxid", "Mode",
        "Node count", "",
    ]  # fmt: skip


def test_stat_names_the_clients(talkative: ServerProcess) -> None:
    with populated(talkative.port) as (first, *_):
        told = lines(talkative.port, "stat")
        port = first.socket.getsockname()[1]
        assert told[1] == "Clients:"
        assert f" /127.0.0.1:{port}[1](queued=0,recved=3,sent=3)" in told
        assert re.fullmatch(r"Latency min/avg/max: \d+/\d+\.\d+/\d+", told[told.index("") + 1])


def test_mntr_counts(talkative: ServerProcess) -> None:
    with populated(talkative.port):
        told = dict(line.split("\t") for line in lines(talkative.port, "mntr") if line)
        assert told["zk_server_state"] == "standalone"
        counted = ("watch_count", "ephemerals_count", "global_sessions", "num_alive_connections")
        assert [told[f"zk_{name}"] for name in counted] == ["3", "1", "2", "3"]
        assert int(told["zk_max_file_descriptor_count"]) > int(told["zk_open_file_descriptor_count"]) > 0


def test_conf_names_port_and_limits(talkative: ServerProcess) -> None:
    told = dict(line.split("=") for line in lines(talkative.port, "conf") if line)
    assert told["clientPort"] == str(talkative.port)
    assert {"dataDir", "dataLogDir", "tickTime", "maxClientCnxns", "serverId"} <= set(told)
    assert int(told["minSessionTimeout"]) <= int(told["maxSessionTimeout"])


def test_cons_lists_each_connection(talkative: ServerProcess) -> None:
    with populated(talkative.port) as (first, id, *_):
        port = first.socket.getsockname()[1]
        (line,) = (line for line in lines(talkative.port, "cons") if f":{port}[" in line)
        head = rf" /127\.0\.0\.1:{port}\[1\]\(queued=0,recved=3,sent=3,sid={id},lop=GETD,est=\d+,to=10000,lcxid=0x2,"
        assert re.match(head + r"lzxid=0x[0-9a-f]+", line), line


def test_dump_lists_sessions_ephemerals_and_connections(talkative: ServerProcess) -> None:
    with populated(talkative.port) as (_, id, _, other):
        told = lines(talkative.port, "dump")
        assert told[0] == "SessionTracker dump:"
        assert re.fullmatch(r"Session Sets \(\d\)/\(\d\):", told[1])
        assert {f"\t{id}", f"\t{other}", "ephemeral nodes dump:", "Connections dump:"} <= set(told)
        at = told.index("Sessions with Ephemerals (1):")
        assert told[at + 1 : at + 3] == [f"{id}:", "\t/one"]
        assert re.fullmatch(r"\tip: /127\.0\.0\.1:\d+ sessionId: 0x[0-9a-f]+", told[-2])


def test_dump_lists_sessions_that_expire_in_the_same_second(talkative: ServerProcess) -> None:
    with ExitStack() as stack:
        links, ids = [], set()
        for _ in range(4):  # at least two of them expire in one second, and at different times
            time.sleep(0.15)
            links.append(stack.enter_context(linked(talkative.port, greeted=False)))
            ids.add(f"\t0x{links[-1].greet().session_id:x}")
        assert ids <= set(lines(talkative.port, "dump"))
        for link in links:
            link.ask(1, r.CloseSessionRequest())


def test_wchs_wchc_and_wchp_list_the_data_watches(talkative: ServerProcess) -> None:
    with populated(talkative.port) as (_, id, _, other):
        assert lines(talkative.port, "wchs") == ["2 connections watching 1 paths", "Total watches:2", ""]
        by_session, by_path = lines(talkative.port, "wchc"), lines(talkative.port, "wchp")
        assert sorted(by_session) == sorted([id, "\t/one", other, "\t/one", "", ""])
        assert by_path[0] == "/one"
        assert sorted(by_path[1:]) == sorted([f"\t{id}", f"\t{other}", "", ""])


def test_envi_names_the_version(talkative: ServerProcess) -> None:
    told = lines(talkative.port, "envi")
    assert told[0] == "Environment:"
    version = ".".join(map(str, talkative.version))
    assert told[1].startswith(f"zookeeper.version={version}-")
    assert talkative.name == "zookeeper" or version == "3.8.0"
    assert {"host.name", "os.name", "user.name"} <= {line.partition("=")[0] for line in told}


def test_crst_and_srst_reset_the_counters(talkative: ServerProcess) -> None:
    with populated(talkative.port) as (first, *_):
        port = first.socket.getsockname()[1]
        assert lines(talkative.port, "crst") == ["Connection stats reset.", ""]
        assert any(f":{port}[1](queued=0,recved=0,sent=0" in line for line in lines(talkative.port, "cons"))
        assert lines(talkative.port, "srst") == ["Server stats reset.", ""]
        told = dict(line.split(": ") for line in lines(talkative.port, "srvr") if line)
        assert int(told["Received"]) < 5


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    server = EmbeddedProcess(tmp_path_factory.mktemp("usual"))
    server.start()
    yield server
    server.stop()


def test_word_that_is_not_allowed_is_refused_as_zookeeper_does(usual: EmbeddedProcess) -> None:
    for word in ALL - WORDS:
        assert (
            says(usual.port, word.encode()) == f"{word} is not executed because it is not in the whitelist.\n".encode()
        )


def test_words_allowed_by_default_change_nothing_and_show_no_session(usual: EmbeddedProcess) -> None:
    with populated(usual.port) as (_, id, _, _):
        told = "".join("\n".join(lines(usual.port, word)) for word in WORDS)
        assert id not in told
        assert "/one" not in told


def test_unknown_word_in_the_option_is_refused(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from distsync.cli.serve import serve_command

    done = CliRunner().invoke(serve_command, ["--words", "ruok,shut", "--data-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is no shut" in done.output
