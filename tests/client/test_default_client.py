"""The default client is made at the first use, wherever that is: in a signal handler amid another first use too."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers.servers import ServerProcess
from helpers.timing import PATIENCE

FIRST_USES = """
import sys
from distsync.threading import Event

struck = []

def strike(frame, event, argument):
    here = (frame.f_code.co_name, frame.f_globals.get("__name__"))
    if here == ("__init__", "distsync._client.client"):  # as a signal's handler would, at this place
        sys.settrace(None)
        struck.append(here)
        Event(name="other").set()

sys.settrace(strike)
Event(name="mine").set()
assert struck
print(Event(name="mine").is_set(), Event(name="other").is_set())
"""


def test_first_use_in_a_handler_amid_another_first_use(server: ServerProcess, namespace: str) -> None:
    environment = {**os.environ, "DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace}
    command = [sys.executable, "-c", FIRST_USES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=6 * PATIENCE)
    assert (done.stdout, done.stderr) == ("True True\n", "")
