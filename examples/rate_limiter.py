"""Calls to a service that accepts a limited number per second, from all processes together.

Start it in some shells, here for ten calls each:   python examples/rate_limiter.py 10
"""

import sys
import time

from distsync import RateLimiter

if len(sys.argv) < 2:
    sys.exit(__doc__)

calls = RateLimiter(20, per=1.0, burst=5, name="service")

for number in range(int(sys.argv[1])):
    if not calls.acquire(timeout=60):
        sys.exit("too many wait before us")
    print(f"{time.time():.3f} call {number}", flush=True)
