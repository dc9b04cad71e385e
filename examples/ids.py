"""Order numbers that are unique among all processes.

Start it in some shells, here for 1500 numbers each:   python examples/ids.py 1500
"""

import sys
from itertools import islice

from distsync import IdGenerator

if len(sys.argv) < 2:
    sys.exit(__doc__)

orders = IdGenerator(block=1000, name="orders")  # one request for a thousand

for number in islice(orders, int(sys.argv[1])):
    print(number)
