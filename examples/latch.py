"""A report that waits for all its parts.

Start one that waits:   python examples/latch.py monday 3 report
and three parts:        python examples/latch.py monday 3 part
"""

import sys

from distsync import CountDownLatch

if len(sys.argv) < 4:
    sys.exit(__doc__)

_, day, parts, what = sys.argv
done = CountDownLatch(int(parts), name=f"parts of {day}")

if what == "part":
    print(f"{done.count_down()} parts are missing")
else:
    print("all parts are here" if done.wait(timeout=60) else f"{done.count} parts are missing after a minute")
