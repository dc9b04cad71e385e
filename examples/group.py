"""The members of a group.

Start it in several shells:    python examples/group.py NAME 3     (until there are three)
"""

import logging
import sys

from distsync.recipes import Group
from distsync.threading import Barrier

if len(sys.argv) < 3:
    sys.exit(__doc__)

logging.basicConfig(stream=sys.stdout, format="%(message)s")
log = logging.getLogger("group")  # whole lines, from whichever thread
log.setLevel(logging.INFO)

name, enough = sys.argv[1], int(sys.argv[2])
group = Group(
    name="example",
    on_join=lambda member: log.info("%s is there", member.data),
    on_leave=lambda member: log.info("%s has gone", member.data),
)
group.join(name)
complete = group.wait_for(lambda: len(group) >= enough, timeout=60)
log.info("%s %s", "all:" if complete else "too few:", " ".join(sorted(member.data for member in group)))
Barrier(enough, name="all have seen all").wait()
group.leave()
