"""Rounds that all processes start together.

Start it as often as the number says, here three times:   python examples/barrier.py 3
"""

import sys

from distsync.threading import Barrier

if len(sys.argv) < 2:
    sys.exit(__doc__)

parties = int(sys.argv[1])
start = Barrier(parties)

for round_number in range(3):
    place = start.wait(timeout=60)  # another number in each process
    print(f"round {round_number}: all {parties} are here, and {place} is this one")
