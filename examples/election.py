"""One of several processes leads. When it resigns or exits, the next one does.

Start it in several shells:    python examples/election.py NAME 5     (5 terms of a tenth of a second each)
and watch in another one:      python examples/election.py
"""

import sys
import time

from distsync.recipes import Election

if len(sys.argv) == 1:
    election = Election(name="example")
    while leader := election.wait_for_leader(timeout=10):
        print(f"{leader.data} leads, term {leader.fencing_token}")
        while election.leader == leader:
            time.sleep(0.05)
    sys.exit()

if len(sys.argv) < 3:
    sys.exit(__doc__)

name, terms = sys.argv[1], int(sys.argv[2])
election = Election(name, name="example")  # the first argument is what others see of this candidate


def lead() -> None:
    print(f"{election.leader.data} leads, term {election.fencing_token}", flush=True)
    time.sleep(0.1)


for _ in range(terms):
    election.run(lead)
