"""SIGKILL at any time loses no acknowledged write and no session, leaves no partial transaction, and
zxids continue.

``DISTSYNC_TEST_KILLS`` is the number of kills.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.frame_client import Link, linked
from helpers.servers import EmbeddedProcess
from helpers.timing import PATIENCE, UNIT, eventually

from distsync._wire import records as r
from distsync._wire.message_codec import encode_request

KILLS = int(os.environ.get("DISTSYNC_TEST_KILLS", "15"))
BATCH = 10


class FullProcess(EmbeddedProcess):
    def command(self) -> list[str]:
        return [*super().command(), "--sync", "full"]


class Writer(threading.Thread):
    """A session that writes continuously, reconnects after each kill, and remembers what was
    acknowledged.
    """

    def __init__(self, server: EmbeddedProcess, name: str) -> None:
        super().__init__(name=name)
        self.server = server
        self.session = r.ConnectResponse(0, 0, 0, bytes(16), None)
        self.session_id = 0
        self.lost_sessions = 0
        self.zxid = 0
        self.number = 0
        self.created: list[str] = []
        self.counter = 0
        self.pairs: list[int] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self._work()
            except (OSError, struct.error):  # it was killed
                time.sleep(UNIT / 5)

    def _work(self) -> None:
        with linked(self.server.port, greeted=False) as link:
            self._greet(link)
            while not self.stopped.is_set():
                self._batch(link)

    def _greet(self, link: Link) -> None:
        given = self.session
        answer = link.greet(r.ConnectRequest(0, self.zxid, 10_000, given.session_id, given.password))
        if answer.session_id == 0:
            self.lost_sessions += 1
            self.stopped.set()
        elif given.session_id == 0:
            self.session = answer
            self.session_id = answer.session_id
            for path, flags in ((f"/ephemeral-{self.name}", 1), (f"/counter-{self.name}", 0)):
                link.ask(1, r.CreateRequest(path, b"0", flags=flags), r.CreateReply)

    def _batch(self, link: Link) -> None:
        numbers = range(self.number, self.number + BATCH)
        self.number += BATCH
        for number in numbers:
            pair = (r.CreateRequest(f"/{side}-{self.name}-{number}", b"") for side in ("left", "right"))
            link.send(
                encode_request(1, r.CreateRequest(f"/item-{self.name}-", b"x", flags=2)),
                encode_request(2, r.SetDataRequest(f"/counter-{self.name}", b"%d" % number, -1)),
                encode_request(3, r.MultiRequest(tuple(pair))),
            )
        for number in numbers:
            self._note(number, *(link.answer(body) for body in (r.CreateReply, r.StatReply, None)))

    def _note(self, number: int, *answers: tuple[int, int, int, object]) -> None:
        item, counted, paired = answers
        assert item[2] == counted[2] == 0
        self.created.append(item[3].path)  # type: ignore[attr-defined]
        self.counter = number
        if paired[2] == 0:
            self.pairs.append(number)
        self.zxid = paired[1]


@contextmanager
def writing(server: EmbeddedProcess) -> Iterator[list[Writer]]:
    writers = [Writer(server, name) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join(PATIENCE)


def check(server: EmbeddedProcess, writers: list[Writer]) -> None:
    with linked(server.port) as link:
        children = {f"/{name}" for name in link.ask(1, r.GetChildrenRequest("/"), r.GetChildrenReply)[3].children}  # type: ignore[attr-defined]
        for writer in writers:
            assert writer.lost_sessions == 0
            assert children.issuperset(writer.created)
            sides = [{int(name.rpartition("-")[2]) for name in children if name.startswith(f"/{side}-{writer.name}-")}
                     for side in ("left", "right")]  # fmt: skip
            assert sides[0] == sides[1]
            assert sides[0].issuperset(writer.pairs)
            counted = link.ask(2, r.GetDataRequest(f"/counter-{writer.name}"), r.GetDataReply)[3]
            assert int(counted.data) >= writer.counter  # type: ignore[attr-defined]
            owner = link.ask(3, r.ExistsRequest(f"/ephemeral-{writer.name}"), r.StatReply)[3]
            assert owner.stat.ephemeral_owner == writer.session_id  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [(EmbeddedProcess, KILLS), (FullProcess, max(3, KILLS // 5))])
def test_kills_under_load_lose_no_acknowledged_write(tmp_path: Path, kind: type[EmbeddedProcess], kills: int) -> None:
    server = kind(tmp_path)
    server.start()
    try:
        with writing(server) as writers:
            for number in range(kills):
                seen = [len(writer.created) for writer in writers]
                eventually(lambda seen=seen: all(len(w.created) > s + 20 for w, s in zip(writers, seen, strict=True)))
                time.sleep(UNIT / 50 * (number % 7))
                server.restart(kill=True)
        check(server, writers)
    finally:
        server.kill()


@pytest.mark.parametrize("behind", [0, 1])
def test_zxids_after_a_machine_crash_exceed_all_that_clients_have_seen(tmp_path: Path, behind: int) -> None:
    """The mark names another boot, and the end of the log is not on disk; with ``behind``, nor is the
    end of the mark.
    """
    server = EmbeddedProcess(tmp_path)
    server.start()
    journal = tmp_path / "data" / "journal.log"
    with linked(server.port, greeted=False) as link:
        mine = link.greet()
        link.ask(1, r.CreateRequest("/early", b""), r.CreateReply)
        length = journal.stat().st_size
        _, seen, _, _ = link.ask(2, r.CreateRequest("/late", b""), r.CreateReply)
        server.kill()
    os.truncate(journal, length)
    mark = tmp_path / "data" / "journal.mark"
    mark.write_bytes(b"%020d %-36s\n" % (int(mark.read_bytes().split()[0]) - behind, b"another-boot"))
    server.start()
    try:
        assert "use --sync full to prevent this" in server.output()
        with linked(server.port, greeted=False) as link:
            link.greet(r.ConnectRequest(0, seen, 10_000, mine.session_id, mine.password))
            assert link.ask(1, r.ExistsRequest("/early"), r.StatReply)[2] == 0
            assert link.ask(2, r.ExistsRequest("/late"), r.StatReply)[2] == -101
            assert link.ask(3, r.CreateRequest("/late", b""), r.CreateReply)[1] > seen
    finally:
        server.kill()
