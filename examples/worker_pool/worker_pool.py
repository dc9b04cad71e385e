"""Hash and compress the files of a folder with a pool of worker processes.

The result is one JSON file: for each file its SHA-256, its size, and its size when compressed. With --part 2/3, say, it
is about each third file only, beginning with the second one; so several of these programs can each do a part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sysconfig
import zlib
from collections import Counter
from pathlib import Path

from distsync.multiprocessing import Pool

BATCH = 8  # files that a worker does at a time

Found = dict[str, tuple[str, int, int]]


def pack(files: list[str]) -> tuple[int, Found]:
    """Which process did these files, and what it found."""
    found: Found = {}
    for file in files:
        data = Path(file).read_bytes()
        found[file] = hashlib.sha256(data).hexdigest(), len(data), len(zlib.compress(data, 9))
    return os.getpid(), found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hash and compress the Python files of a folder.")
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("stdlib")), help="default: Python's own")
    parser.add_argument("--files", type=int, help="limit the number of files, the first ones by name")
    parser.add_argument("--part", default="1/1", help="1/2: each second file, 2/2: the others; default: all")
    parser.add_argument("--processes", type=int, default=2, help="workers in this shell")
    parser.add_argument("--result", type=Path, default=Path("worker_pool.json"))
    return parser.parse_args()


def batches_of(options: argparse.Namespace) -> list[list[str]]:
    number, parts = map(int, options.part.split("/"))
    found = [path for path in sorted(options.folder.rglob("*.py")) if "site-packages" not in path.parts]
    files = [str(path) for path in found if path.is_file()][: options.files][number - 1 :: parts]
    return [files[start : start + BATCH] for start in range(0, len(files), BATCH)]


if __name__ == "__main__":
    options = read_options()
    batches = batches_of(options)
    done_by: Counter[int] = Counter()
    everything: Found = {}
    pool = Pool(options.processes, name="worker_pool")
    with pool:
        for number, (process, found) in enumerate(pool.imap_unordered(pack, batches), start=1):
            done_by[process] += len(found)
            everything.update(found)
            print(f"{number} of {len(batches)} batches", flush=True)
        pool.close()
        pool.join()
    options.result.write_text(json.dumps(everything))
    for process, files in done_by.most_common():
        print(f"process {process}: {files} files")
