"""Who is there.

Start it in several shells:    python examples/group.py NAME 3     (until three are there)
"""

import sys

from distsync.recipes import Group

name, enough = sys.argv[1], int(sys.argv[2])
group = Group(
    name="example",
    on_join=lambda member: print(f"{member.data} is there", flush=True),
    on_leave=lambda member: print(f"{member.data} has gone", flush=True),
)
group.join(name)
complete = group.wait_for(lambda: len(group) >= enough, timeout=60)
print("all:" if complete else "too few:", *sorted(member.data for member in group), flush=True)
group.wait(timeout=1)  # the others see us a little longer
group.leave()
