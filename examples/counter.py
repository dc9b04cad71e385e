"""Votes that all processes count, and a result that is watched.

Vote in some shells, a hundred times each:   python examples/counter.py vote ann 100
and in another one:                          python examples/counter.py watch 300
"""

import sys

from distsync import Counter, Value

votes = Counter(name="votes")
result = Value({}, name="votes by name")

match sys.argv[1:]:
    case ["vote", name, times]:
        for _ in range(int(times)):
            result.update(lambda old: {**old, name: old.get(name, 0) + 1})
            votes += 1
        print(f"{votes.value} votes so far")
    case ["watch", total]:
        seen = result.read()
        while sum(seen.value.values()) < int(total):
            seen = result.wait_for_change(60, version=seen.version) or sys.exit("nobody votes")
        print(" ".join(f"{name}:{number}" for name, number in sorted(seen.value.items())))
    case _:
        sys.exit(__doc__)
