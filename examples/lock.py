"""A number in a file that any number of processes increment without losing a step.

Start it in several shells:   python examples/lock.py /tmp/number 1000
"""

import argparse
from pathlib import Path

from distsync.threading import Lock

parser = argparse.ArgumentParser()
parser.add_argument("file", type=Path)
parser.add_argument("times", type=int)
options = parser.parse_args()

lock = Lock()  # bound here, so it is called "lock.lock" in every process that runs this file


def count_up() -> int:
    number = int(options.file.read_text()) if options.file.exists() else 0
    options.file.write_text(str(number + 1))
    return number + 1


for _ in range(options.times):
    with lock:
        number = count_up()
        token = lock.fencing_token
print(f"the last number from here is {number}, written with the token {token}")
