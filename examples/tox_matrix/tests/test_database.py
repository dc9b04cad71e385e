"""Tests that need a database for themselves, though others run beside them."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from distsync import Counter, Lock

ENVIRONMENT = os.environ.get("TOX_ENV_NAME", "none")
FOLDER = Path(os.environ.get("TOX_WORK_DIR", ".tox"))


@pytest.fixture
def database(distsync_shared):
    """A database that is ours until the test is over: a second user would find its tables in the way."""
    lock = Lock(name="database", client=distsync_shared)
    with lock, closing(sqlite3.connect(FOLDER / "shared.db", isolation_level=None)) as opened:
        opened.execute("PRAGMA synchronous = OFF")
        opened.execute("CREATE TABLE in_use (by TEXT)")
        yield opened
        opened.execute("DROP TABLE in_use")
        opened.execute("CREATE TABLE IF NOT EXISTS log (token INTEGER, who TEXT)")
        opened.execute("INSERT INTO log VALUES (?, ?)", (lock.fencing_token, ENVIRONMENT))


@pytest.mark.parametrize("number", range(3))
def test_nobody_else_is_in_the_database(database, number):
    for name in (ENVIRONMENT, f"{ENVIRONMENT} {number}"):
        database.execute("INSERT INTO in_use VALUES (?)", (name,))
    assert database.execute("SELECT count(*) FROM in_use").fetchone() == (2,)


def test_all_environments_count_together(distsync_shared):
    number = Counter(name="runs", client=distsync_shared).add(1)
    print(f"{ENVIRONMENT}: run {number}")
