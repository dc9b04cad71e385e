"""Who is there.

Start it in several shells:    python examples/group.py NAME 3     (until three are there)
"""

import sys

from distsync.recipes import Group
from distsync.threading import Barrier

name, enough = sys.argv[1], int(sys.argv[2])
group = Group(
    name="example",
    on_join=lambda member: print(f"{member.data} is there", flush=True),
    on_leave=lambda member: print(f"{member.data} has gone", flush=True),
)
group.join(name)
complete = group.wait_for(lambda: len(group) >= enough, timeout=60)
print("all:" if complete else "too few:", *sorted(member.data for member in group), flush=True)
Barrier(enough, name="all have seen all").wait()
group.leave()
