"""Three stages with any number of processes each: file names, their lines, the sum.

Start in some shells, in any order, with the same word for the same run, and another one for the next:
    python examples/queue_pipeline.py monday count
    python examples/queue_pipeline.py monday count
    python examples/queue_pipeline.py monday sum
    python examples/queue_pipeline.py monday feed distsync/*.py
"""

import argparse
from pathlib import Path

from distsync.queue import Queue, ShutDown

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("stage", choices=["feed", "count", "sum"])
parser.add_argument("files", nargs="*")
options = parser.parse_args()

files = Queue(maxsize=100, name=f"{options.run}/files")
counts = Queue(name=f"{options.run}/counts")


def items(queue):
    """Yield items until the queue is shut down and empty."""
    while True:
        try:
            yield queue.get()
        except ShutDown:
            return
        queue.task_done()


match options.stage:
    case "feed":
        for file in options.files:
            files.put(file)
        files.join()  # all are counted
        files.shutdown()
        counts.shutdown()
    case "count":
        for file in items(files):
            counts.put((file, len(Path(file).read_bytes().splitlines())))
    case "sum":
        found = dict(items(counts))
        print(f"{len(found)} files, {sum(found.values())} lines")
