"""The role of each server, and a read that is at least as new as the last write.

Start it in a shell:   python examples/ensemble.py
"""

from distsync import Value, default_client

client = default_client()
note = Value("", name="note")
note.set("here")
client.sync()  # the connected server now knows everything that was written before
print("read back:", note.read().value)
for server in client.ensemble():
    if server.zxid is None:
        print(f"{server.host}:{server.port} {server.role.value}: {server.problem}")
    else:
        print(f"{server.host}:{server.port} {server.role.value}, epoch {server.epoch}, counter {server.counter}")
