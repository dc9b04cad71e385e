"""Eight partitions of the work, each owned by one process at a time.

Start it in several shells:    python examples/partitioner.py 10     (for ten seconds)
"""

import sys
import time

from distsync.recipes import Partitioner

if len(sys.argv) < 2:
    sys.exit(__doc__)

parts = Partitioner([f"part {number}" for number in range(8)], name="example")
parts.on_acquire = lambda share: print(f"+ {share}, token {parts.fencing_token(share)}", flush=True)
parts.on_release = lambda share: print(f"- {share}", flush=True)
end = time.monotonic() + float(sys.argv[1])

with parts:
    while time.monotonic() < end:
        for share in parts:
            if share in parts:  # still, at this moment
                time.sleep(0.01)  # work on it
        parts.wait(timeout=0.1)
