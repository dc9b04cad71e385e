"""Count the lines, words and names in a folder of Python files, with several workers.

The result is one JSON file, which every worker updates under a lock. Each worker is a thread, and --parties says how
many there are in all: one process alone needs only --threads.

Nothing is counted twice: the result says which batches are in it. A worker that is killed takes the batch along that
it had got from the queue, and join() waits for that one for ever, as it does for a thread without task_done().
"""

from __future__ import annotations

import argparse
import json
import keyword
import os
import re
import sysconfig
from collections import Counter
from pathlib import Path
from queue import Empty, Queue
from threading import Barrier, Event, Lock, Thread
from typing import Any

parser = argparse.ArgumentParser(description="Count lines, words and names in Python files.")
parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("stdlib")), help="default: Python's own")
parser.add_argument("--files", type=int, help="only so many files, the first ones by name")
parser.add_argument("--batches", type=int, default=32, help="parts that the files are handed out in")
parser.add_argument("--threads", type=int, default=1, help="workers in this process")
parser.add_argument("--parties", type=int, help="workers in all; default: as many as --threads")
parser.add_argument("--result", type=Path, default=Path("wordcount.json"))
options = parser.parse_args()

all_here = Barrier(options.parties or options.threads)
batches: Queue[Any] = Queue()
result_lock = Lock()
finished = Event()

NAME = re.compile(r"\b[^\W\d]\w*")


def work() -> None:
    """What each worker does. The barrier picks one of all, who gets somebody to hand out the batches too."""
    if all_here.wait() == 0:
        Thread(target=hand_out, daemon=True).start()
    while not finished.is_set():
        try:
            number, files = batches.get(timeout=0.5)
        except Empty:
            continue
        try:
            add(number, count(files))
        except RuntimeError as error:  # the lock was not ours any more: hand_out() will see what is missing
            print(f"batch {number} again: {error}", flush=True)
        finally:
            batches.task_done()
    if all_here.wait() == 0:
        finished.clear()  # for the next run


def hand_out() -> None:
    """Every batch is in the result."""
    found = [path for path in sorted(options.folder.rglob("*.py")) if "site-packages" not in path.parts]
    files = [str(path) for path in found if path.is_file()][: options.files]
    parts = [files[start :: options.batches] for start in range(min(options.batches, len(files)))]
    with result_lock:
        write({"batches": len(parts), "counted": [], "files": 0, "lines": 0, "words": 0, "names": {}})
    while missing := sorted(set(range(len(parts))) - set(read()["counted"])):
        for number in missing:
            batches.put((number, parts[number]))
        batches.join()
    finished.set()


def count(files: list[str]) -> dict[str, Any]:
    lines = words = 0
    names: Counter[str] = Counter()
    for file in files:
        text = text_of(file)
        lines += len(text.splitlines())
        words += len(text.split())
        names.update(NAME.findall(text))
    for word in keyword.kwlist:
        del names[word]
    return {"files": len(files), "lines": lines, "words": words, "names": names}


def text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"counted as empty: {error}", flush=True)
        return ""


def add(number: int, found: dict[str, Any]) -> None:
    """The batch is in the result, once."""
    with result_lock:
        result = read()
        if number in result["counted"]:
            return
        result["counted"].append(number)
        result["names"] = Counter(result["names"]) + found.pop("names")
        for what, more in found.items():
            result[what] += more
        write(result)
    print(f"{len(result['counted'])} of {result['batches']} batches", flush=True)


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
