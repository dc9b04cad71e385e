"""A table in a file, with many readers or one writer; a writer reads its own row before others can write.

Start it in several shells:   python examples/shared_lock.py /tmp/table 20
and once, for maintenance:    python examples/shared_lock.py /tmp/table maintenance
"""

import argparse
import json
from contextlib import suppress
from pathlib import Path

from distsync.errors import NotHeldError
from distsync.recipes import SharedLock, acquire_all
from distsync.threading import Lock

parser = argparse.ArgumentParser()
parser.add_argument("file", type=Path)
parser.add_argument("what", help="how many rows to add, or: maintenance")
options = parser.parse_args()

table = SharedLock(name="table")
backup = Lock(name="backup")


def rows() -> list[int]:
    return list(json.loads(options.file.read_text())) if options.file.exists() else []


def add_row() -> None:
    """Write in two steps. A reader in between would see a broken file."""
    text = json.dumps([*rows(), len(rows())])
    options.file.write_text(text[:1])
    options.file.write_text(text)


def maintain() -> None:
    """Ask the holders to release the table, take it from them after ten seconds, and lock table and backup."""
    with suppress(NotHeldError):  # nobody holds it
        table.revoke(grace=10)
    with acquire_all(table.writer, backup, timeout=60) as held:
        print("maintenance:", len(rows()), "rows, all held:", held.held)


if options.what == "maintenance":
    maintain()
else:
    table.writer.on_revoke = table.reader.on_revoke = lambda lock: print("asked to release, and will do so soon")
    seen = []
    for _ in range(int(options.what)):
        with table.reader:
            seen.append(len(rows()))
        table.writer.acquire()
        add_row()
        table.reader.acquire()
        table.writer.release()  # others may read now, but not write
        seen.append(len(rows()))
        table.reader.release()
    print("rows seen:", *seen)
