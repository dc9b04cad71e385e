"""Processes that wait for a signal.

Start in some shells:   python examples/event.py wait
and then in one:        python examples/event.py go      (or: reset)
"""

import sys

from distsync.threading import Event

go = Event(name="example")

match sys.argv[1:]:
    case ["wait"]:
        print("gone" if go.wait(timeout=60) else "nobody said go for a minute")
    case ["go"]:
        go.set()
    case ["reset"]:
        go.clear()
    case _:
        sys.exit(__doc__)
