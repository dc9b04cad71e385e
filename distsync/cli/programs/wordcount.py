"""Count the lines, words and names in the Python files of a folder, with several workers.

One worker lists the folder and puts its directories into a queue. Each worker counts what it gets in a counter of its
own, and adds that to the result, a JSON file, once, under a lock. Workers are threads; --parties is their number in
all processes together, so one process alone needs only --threads.

Nothing is counted twice. If a worker is killed, the others wait for it at the barrier, as threads do.
"""

from __future__ import annotations

import argparse
import json
import keyword
import os
import sysconfig
import tokenize
from collections import Counter
from itertools import groupby
from pathlib import Path
from distsync.queue import Queue
from distsync.threading import Barrier, Lock, Thread, get_ident
from typing import Any

parser = argparse.ArgumentParser(description="Count lines, words and names in Python files.")
parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("stdlib")), help="default: Python's own")
parser.add_argument("--files", type=int, help="only this number of files, the first ones by name")
parser.add_argument("--most", type=int, default=40, help="files of a directory that a worker gets at a time")
parser.add_argument("--threads", type=int, default=1, help="workers in this process")
parser.add_argument("--parties", type=int, help="workers in all; default: the number of --threads")
parser.add_argument("--result", type=Path, default=Path("wordcount.json"))
options = parser.parse_args()
parties: int = options.parties or options.threads

all_here = Barrier(parties)
parts: Queue[Any] = Queue()
result_lock = Lock()


def work() -> None:
    """Count parts of the folder until none is left, and add them to the result."""
    if all_here.wait() == 0:
        hand_out()
    found: Counter[str] = Counter()
    names: Counter[str] = Counter()
    while (part := parts.get()) is not None:
        total, files = part
        for file in files:
            count(file, found, names)
        print(f"1 of {total} parts", flush=True)
    for word in keyword.kwlist:
        del names[word]
    while not everybody_added(found, names):
        print("adding again: the lock was lost", flush=True)


def hand_out() -> None:
    """Put all parts into the queue, and after them an end for each worker."""
    found = list_parts()
    with result_lock:
        write({"workers": [], "files": 0, "lines": 0, "words": 0, "names": {}})
    for files in found:
        parts.put((len(found), files))
    for _ in range(parties):
        parts.put(None)


def list_parts() -> list[list[str]]:
    """Return the files, those of a directory together, at most --most at a time."""
    files = []
    for folder, folders, names in os.walk(options.folder):
        folders[:] = [name for name in folders if name != "site-packages"]
        paths = [os.path.join(folder, name) for name in names if name.endswith(".py")]
        files += [path for path in paths if os.path.isfile(path)]
    found = []
    for _, group in groupby(sorted(files)[: options.files], os.path.dirname):
        together = list(group)
        found += [together[start : start + options.most] for start in range(0, len(together), options.most)]
    return found


def count(file: str, found: Counter[str], names: Counter[str]) -> None:
    """Count one file: lines and words of its text, and the names in its code, up to the first error."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"counted as empty: {error}", flush=True)
        text = ""
    found.update(files=1, lines=len(text.splitlines()), words=len(text.split()))
    try:
        tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
        names.update(token.string for token in tokens if token.type == tokenize.NAME)
    except (SyntaxError, tokenize.TokenError):
        pass


def everybody_added(found: Counter[str], names: Counter[str]) -> bool:
    """Add what this worker has counted, unless it is in the result; return whether that of all workers is."""
    try:
        with result_lock:
            add(f"{os.getpid()}-{get_ident()}", found, names)
    except RuntimeError:  # the lock was lost: this or another worker's addition may be missing
        pass
    all_here.wait()
    complete = len(read()["workers"]) == parties
    all_here.wait()
    return complete


def add(worker: str, found: Counter[str], names: Counter[str]) -> None:
    result = read()
    if worker not in result["workers"]:
        result["workers"].append(worker)
        result["names"] = Counter(result["names"]) + names
        for what, number in found.items():
            result[what] += number
        write(result)


def read() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(options.result.read_text())
    return result


def write(result: dict[str, Any]) -> None:
    draft = options.result.with_name(f"{options.result.name}.{os.getpid()}")
    draft.write_text(json.dumps(result))
    os.replace(draft, options.result)


if __name__ == "__main__":
    workers = [Thread(target=work, daemon=True) for _ in range(options.threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    total = read()
    print(f"{total['files']:,} files, {total['lines']:,} lines, {total['words']:,} words")
    for name, times in Counter(total["names"]).most_common(10):
        print(f"{times:9,} {name}")
