"""What each server is, and whether it knows what we have written just now.

Start it in a shell:   python examples/ensemble.py
"""

from distsync import Value, default_client

client = default_client()
note = Value("", name="note")
note.set("here")
client.sync()  # the server that this client talks to knows at least what has been written until now
print("read back:", note.read().value)
for server in client.ensemble():
    if server.zxid is None:
        print(f"{server.host}:{server.port} {server.role.value}: {server.problem}")
    else:
        print(f"{server.host}:{server.port} {server.role.value}, epoch {server.epoch}, counter {server.counter}")
