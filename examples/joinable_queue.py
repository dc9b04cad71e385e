"""Work that is done though workers die: kill any of them (Ctrl-C, SIGKILL), and another one does its item.

Start some workers, and then give them something to do, an hour's work or a word that nobody can do:
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
            print(f"{name} is to be done already")
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
            delivery.nack(delay=0.1)  # somebody may have more luck, a little later
        else:
            delivery.done()
