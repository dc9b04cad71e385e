"""What a client is told, as bytes.

Rules for this file: pure; it decides nothing.
"""

from __future__ import annotations

from distsync.server.effects import Accepted, Notify, Reply
from distsync.wire.codec import encode_connect_response, encode_event, framed_reply
from distsync.wire.frames import framed


def frame_of(effect: Accepted | Reply | Notify) -> bytes:
    """The whole frame, with its length in front."""
    if isinstance(effect, Reply):
        return framed_reply(*effect[1:])
    if isinstance(effect, Accepted):
        return framed(encode_connect_response(effect.response))
    return framed(encode_event(effect.zxid, effect.event))
