"""The data of contenders: description, and parsing of arbitrary data."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsync._client import contender_info
from distsync._client.contender_info import Contender
from distsync._version import VERSION

PATH = "/distsync/lock/x/_c_1-lock-0000000007"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = ("host", "pid", "thread", "since", "place", "version")


def test_described_contender_is_read_back() -> None:
    before = datetime.now(timezone.utc)
    contender = contender_info.read(contender_info.describe(), PATH, 7)
    assert (contender.host, contender.pid, contender.version) == (socket.gethostname(), os.getpid(), VERSION)
    assert (contender.path, contender.token) == (PATH, 7)
    assert contender.thread == threading.current_thread().name
    assert contender.place.startswith("unit/test_contender_info.py:")
    assert contender.place.endswith(" in test_described_contender_is_read_back")
    assert contender.since is not None
    assert contender.since.utcoffset() == timedelta(0)
    assert contender.since >= before.replace(microsecond=before.microsecond // 1000 * 1000)


def test_contender_has_the_name_of_its_thread_or_task() -> None:
    said: list[Contender] = []

    def work() -> None:
        said.append(contender_info.read(contender_info.describe(), PATH, 7))

    async def task() -> None:
        work()

    async def main() -> None:
        await asyncio.create_task(task(), name="buyer")

    thread = threading.Thread(target=work, name="seller")
    thread.start()
    thread.join()
    asyncio.run(main())
    assert [contender.thread for contender in said] == ["seller", "buyer"]


def test_contender_is_shown_in_one_line() -> None:
    contender = Contender("db1", 42, "MainThread", None, "jobs.py:3 in work", VERSION, PATH, 7)
    assert str(contender) == "db1:42 MainThread at jobs.py:3 in work"
    assert str(contender_info.read(b"", PATH, 7)) == "unknown"


def test_contender_cannot_inject_log_lines_or_terminal_codes() -> None:
    forged = {"host": "db1\nWARNING all is well", "pid": 1, "thread": "\x1b[2J\u202e", "place": "a\u2028b\ud800"}
    shown = str(contender_info.read(json.dumps(forged).encode(), PATH, 7))
    assert shown == r"db1\nWARNING all is well:1 \x1b[2J\u202e at a\u2028b\ud800"


@pytest.mark.parametrize("data", [None, b"", b"10.0.0.1", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000, b"{}", b"NaN"])
def test_contender_with_unknown_data_is_unknown(data: bytes | None) -> None:
    assert contender_info.read(data, PATH, 7) == Contender("", None, "", None, "", "", PATH, 7)


@given(
    st.binary() | st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON).map(lambda said: json.dumps(said).encode())
)
def test_arbitrary_data_is_read_as_known_or_unknown(data: bytes) -> None:
    contender = contender_info.read(data, PATH, 7)
    assert all(isinstance(getattr(contender, name), str) for name in ("host", "thread", "place", "version"))
    assert contender.pid is None or type(contender.pid) is int
    assert contender.since is None or contender.since.tzinfo is not None


def test_malformed_field_does_not_affect_the_others() -> None:
    said = {"host": "db1", "pid": True, "thread": 3, "since": "yesterday", "place": "p" * 1000, "more": {}}
    contender = contender_info.read(json.dumps(said).encode(), PATH, 7)
    assert contender == Contender("db1", None, "", None, "p" * 200, "", PATH, 7)
    assert contender_info.read(b'{"since": "2024-05-06T07:08:09"}', PATH, 7).since is None


def test_data_of_a_contender_is_small() -> None:
    name = threading.current_thread().name
    try:
        threading.current_thread().name = "n" * 100_000
        assert len(contender_info.describe()) < 1000
    finally:
        threading.current_thread().name = name
