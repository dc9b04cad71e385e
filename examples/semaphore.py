"""At most two of the processes that run this program, on any host, are inside. A killed process frees its place.

Start it in several shells:   python examples/semaphore.py 0.5
"""

import sys
import time

from distsync.threading import Semaphore

if len(sys.argv) < 2:
    sys.exit(__doc__)

seconds = float(sys.argv[1])
places = Semaphore(2)

with places:
    holders = places.holders()
    print(f"{len(holders)} of 2 places are taken, by the processes {sorted(holder.pid for holder in holders)}")
    time.sleep(seconds)
