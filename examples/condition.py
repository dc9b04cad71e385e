"""An account in a file. A process that takes more than the balance waits until others have paid in.

Start in some shells:   python examples/condition.py /tmp/account take 5
and then in others:     python examples/condition.py /tmp/account pay 10
"""

import argparse
from pathlib import Path

from distsync.threading import Condition

parser = argparse.ArgumentParser()
parser.add_argument("file", type=Path)
parser.add_argument("what", choices=["take", "pay"])
parser.add_argument("amount", type=int)
options = parser.parse_args()

changed = Condition()


def balance() -> int:
    return int(options.file.read_text()) if options.file.exists() else 0


with changed:
    if options.what == "take":
        changed.wait_for(lambda: balance() >= options.amount)
        options.file.write_text(str(balance() - options.amount))
    else:
        options.file.write_text(str(balance() + options.amount))
        changed.notify_all()
    print(f"{options.what} {options.amount}, left {balance()}")
