"""Workers that pause while something is repaired.

Start in some shells:   python examples/gate.py work 20
and then in another:    python examples/gate.py close        (later: open)
"""

import sys
import time

from distsync import Gate

road = Gate(name="road")

match sys.argv[1:]:
    case ["work", steps]:
        for step in range(int(steps)):
            if not road.wait(timeout=60):
                sys.exit("closed for a minute")
            print(f"step {step}", flush=True)
            time.sleep(0.05)
    case ["close"]:
        print("closed" if road.close() else "was closed before")
    case ["open"]:
        print("open" if road.open() else "was open before")
    case _:
        sys.exit(__doc__)
