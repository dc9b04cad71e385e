"""Fuzz the engine with mutated frames, guided by coverage: python tests/server/fuzz_frames.py
[-max_total_time=300]

Needs atheris (the extra ``fuzz``). An input is what a client sends, from its handshake on. Frames
are mutated as wholes as well as byte by byte, so that most have a valid length. Another client
watches all, and must be able to continue.

Invariants: only WireError is raised, before anything has changed; every reply can be encoded; the
commits rebuild the same state, and so does a snapshot; the tree is consistent; and no session, node
or watch of the client remains when it has ended. An input that violates one is written to a file
``crash-...``.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["distsync._server", "distsync._wire"]):
    from distsync._server.acl import digest_of
    from distsync._server.effects import Accepted, Commit, Notify, Reply
    from distsync._server.engine import Engine
    from distsync._server.engine_config import EngineConfig
    from distsync._wire import records as r
    from distsync._wire.frames import FrameSplitter, WireError, framed
    from distsync._wire.message_codec import (
        decode_connect,
        decode_request,
        encode_connect_response,
        encode_event,
        encode_reply,
    )
from helpers.sample_frames import FRAMES, HELLO

NOW_MS = 1_700_000_000_000
CLIENT, WITNESS = 1, 2
CONFIG = EngineConfig(
    enforce_quota=True,
    super_digest=digest_of(b"a:b"),
    forgive_pauses=False,
    max_session_timeout_ms=10_000,
    container_interval_ms=1000,
)


class Victim:
    """An engine, the fuzzed client, and the other one."""

    def __init__(self) -> None:
        self.engine = Engine(CONFIG)
        self.now_ms = NOW_MS
        self.payloads: list[bytes] = []
        self.greeted = False
        self.note(self.engine.connect(WITNESS, r.ConnectRequest(timeout_ms=10_000), self.now_ms))
        self.note(self.engine.step(WITNESS, 1, r.AddWatchRequest("/", 1), self.now_ms))

    def note(self, effects: list[Any]) -> None:
        """Record a commit, as the network server does."""
        for effect in effects:
            if isinstance(effect, Commit):
                self.payloads.append(effect.payload)
            elif isinstance(effect, Reply):
                encode_reply(effect.xid, effect.zxid, effect.err, effect.body)
            elif isinstance(effect, Accepted):
                encode_connect_response(effect.response)
            elif isinstance(effect, Notify):
                encode_event(effect.zxid, effect.event)

    def hear(self, stream: bytes) -> None:
        for frame in FrameSplitter(CONFIG.jute_maxbuffer).feed(stream):
            self.now_ms += 10
            if self.greeted:
                self.note(self.engine.step(CLIENT, *decode_request(frame), self.now_ms))
            else:
                self.greeted = True
                self.note(self.engine.connect(CLIENT, decode_connect(frame), self.now_ms))

    def end(self) -> None:
        self.engine.on_disconnect(CLIENT, self.now_ms)
        for _ in range(4):  # longer than any timeout
            self.now_ms += 4000
            self.note(self.engine.advance(self.now_ms))
            self.note(self.engine.step(WITNESS, 2, r.PingRequest(), self.now_ms))

    def check(self) -> None:
        engine = self.engine
        assert list(engine.sessions) == [min(engine.sessions)], "a session remains"
        assert engine.watches.data.count() + engine.watches.children.count() <= 2, "watches remain"
        nodes = engine.tree.nodes
        assert sum(len(node.children) for node in nodes.values()) == len(nodes) - 1
        assert all(node.owner <= 0 for node in nodes.values()), "an ephemeral node remains"
        assert engine.tree.data_bytes == sum(len(path) + len(node.data or b"") for path, node in nodes.items())
        whole = b"".join(engine.snapshot())
        replayed, restored = Engine(CONFIG), Engine(CONFIG)
        for payload in self.payloads:
            replayed.replay(payload)
        restored.restore([whole])
        assert b"".join(restored.snapshot()) == whole
        assert b"".join(replayed.snapshot()) == whole, "the commits tell something else"


def attack(stream: bytes) -> None:
    victim = Victim()
    try:
        victim.hear(stream)
    except WireError:
        pass
    victim.end()
    victim.check()


def mutate(stream: bytes, most: int, seed: int) -> bytes:
    """Change, duplicate, drop or move a frame, or add a valid one; or change any byte."""
    dice = random.Random(seed)
    if dice.random() < 0.1:
        return bytes(atheris.Mutate(stream, most))
    frames = list(cut(stream)) or [HELLO]
    at = dice.randrange(len(frames))
    change = dice.random()
    if change < 0.5:
        frames[at] = framed(atheris.Mutate(frames[at][4:] or b"\0", 1000))
    elif change < 0.8:
        frames.insert(at + 1, dice.choice(FRAMES))
    elif change < 0.9:
        frames.insert(at, frames.pop(dice.randrange(len(frames))))
    elif len(frames) > 1:
        del frames[at]
    return b"".join(frames)[:most]


def cut(stream: bytes) -> Any:
    while len(stream) >= 4:
        (length,) = struct.unpack_from(">i", stream)
        length = length if 0 < length <= len(stream) - 4 else len(stream) - 4
        yield stream[: 4 + length]
        stream = stream[4 + length :]


def seeds(folder: Path) -> None:
    """Return the initial inputs: each request alone, and all of them."""
    for number, frame in enumerate(FRAMES):
        (folder / str(number)).write_bytes(HELLO + FRAMES[1] + frame)
    (folder / "all").write_bytes(HELLO + b"".join(FRAMES))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="distsync-fuzz-") as folder:
        seeds(Path(folder))
        words = sys.argv if any(not word.startswith("-") for word in sys.argv[1:]) else [*sys.argv, folder]
        atheris.Setup([words[0], "-max_len=8192", *words[1:]], attack, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
