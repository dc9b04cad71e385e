"""A shared to-do list, the most urgent task first.

In some shells:       python examples/priority.py add 2 "water the plants"
                      python examples/priority.py add 1 "put out the fire"
and in any of them:   python examples/priority.py next
"""

import sys

from distsync.queue import Empty, PriorityQueue

tasks = PriorityQueue(name="example")

match sys.argv[1:]:
    case ["add", urgency, text]:
        tasks.put((int(urgency), text))
    case ["next"]:
        try:
            urgency, text = tasks.get_nowait()
            print(f"{text} ({urgency}); {tasks.qsize()} more")
        except Empty:
            print("nothing to do")
    case _:
        sys.exit(__doc__)
