"""A computation in steps that all processes start together and end together.

Each process adds up its share of the numbers of a step, and writes the sum into a file. No process leaves before all
have written, so each can read the sums of all afterwards.

Start it as often as the number says, here three times:

    python examples/double_barrier.py /tmp/sums 3 0
    python examples/double_barrier.py /tmp/sums 3 1
    python examples/double_barrier.py /tmp/sums 3 2
"""

import sys
from pathlib import Path

from distsync import DoubleBarrier

if len(sys.argv) < 4:
    sys.exit(__doc__)

folder, parties, mine = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
together = DoubleBarrier(parties, name="sums")
folder.mkdir(exist_ok=True)

for step in range(3):
    if not together.enter(timeout=60):
        sys.exit("the others have not arrived")
    numbers = range(100 * step, 100 * (step + 1))[mine::parties]
    (folder / f"{step}-{mine}").write_text(str(sum(numbers)))
    if not together.leave(timeout=60):
        sys.exit("the others have not finished")
    total = sum(int((folder / f"{step}-{each}").read_text()) for each in range(parties))
    print(f"step {step}: {total} in all")
