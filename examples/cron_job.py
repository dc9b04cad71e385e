"""A cron job that starts on several hosts at once, and runs on one. If that one is killed, the next one runs it.

Put it into the crontab of each host:    0 3 * * *  python examples/cron_job.py $(date +\\%F) /shared/report 10
                                         (10 steps of a tenth of a second each)
and look who runs it:                    python examples/cron_job.py look
"""

import sys
import time

from distsync.recipes import Election, Value

election = Election(name="nightly report")
done = Value("", name="nightly report")  # the last day that is done: unlike an announcement, it outlives the leader


def job(day: str, path: str, steps: int) -> None:
    """Work in steps, from the first one: an earlier leader may have been killed after any of them."""
    for step in range(1, steps + 1):
        if not election.is_leader:
            sys.exit(f"{day}: stopped at step {step}, another host may run the job now")
        with open(path, "a") as report:
            report.write(f"{day} step {step} of {steps}, term {election.fencing_token}\n")
        time.sleep(0.1)


def lead(day: str, path: str, steps: int) -> None:
    if day <= done.get():  # dates in this format are in the order of their text
        print(f"{day}: nothing to do")
        return
    election.announce(day)
    job(day, path, steps)
    done.update(lambda last: max(last, day))
    print(f"{day}: done")


match sys.argv[1:]:
    case [day, path, steps]:
        election.run(lead, day, path, int(steps))
    case ["look"]:
        leader = election.leader
        if leader and leader.announcement:
            print(f"{leader.owner.host}, process {leader.owner.pid}: {leader.announcement}")
    case _:
        sys.exit(__doc__)
