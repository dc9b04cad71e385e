"""Services that are found by name.

Start a service in some shells:    python examples/registry.py serve NAME ADDRESS 5     (for five seconds)
and find it in another one:        python examples/registry.py find NAME
List all services:                 python examples/registry.py
"""

import sys
import time

from distsync.recipes import Registry

services = Registry(name="example")

match sys.argv[1:]:
    case ["serve", name, address, seconds]:
        services[name] = address
        print(f"{name} is at {services.resolve(name)}", flush=True)
        time.sleep(float(seconds))
    case ["find", name]:
        entry = services.wait_for(name, timeout=60)
        print("nobody knows" if entry is None else entry.address)
    case _:
        for name, entry in services.items():
            print(f"{name}: {entry.address}, registered by {entry.owner}")
