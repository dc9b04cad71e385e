"""Work that is done although workers are killed: another worker gets the item of a killed one.

Start some workers, and then add jobs. The job "fail" cannot be done by any of them:
    python examples/joinable_queue.py work
    python examples/joinable_queue.py work
    python examples/joinable_queue.py add mow bake fail sweep
"""

import sys
import time

from distsync import JoinableQueue, ShutDown

if len(sys.argv) < 2:
    sys.exit(__doc__)

jobs = JoinableQueue(0, 3, name="jobs")  # no bound; after 3 deliveries a job is a dead letter


def work(job):
    if job == "fail":
        raise RuntimeError(job)
    time.sleep(0.2)
    return f"{job} is done"


what, *names = sys.argv[1:]
if what == "add":
    for name in names:
        if not jobs.put(name, key=name):
            print(f"{name} is queued already")
    jobs.join()
    print(f"{jobs.dead_letters.qsize()} dead letters", flush=True)
    jobs.shutdown()
else:
    while True:
        try:
            delivery = jobs.claim()
        except ShutDown:
            break
        try:
            print(work(delivery.item), flush=True)
        except RuntimeError:
            delivery.nack(delay=0.1)  # another worker may succeed, a little later
        else:
            delivery.done()
