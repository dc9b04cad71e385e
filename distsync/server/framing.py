"""What a client is told unasked or at the beginning, as bytes; replies, which are many, go their own way.

Rules for this file: pure; it decides nothing.
"""

from __future__ import annotations

from distsync.server.effects import Accepted, Notify
from distsync.wire.codec import encode_connect_response, encode_event
from distsync.wire.frames import framed


def frame_of(effect: Accepted | Notify) -> bytes:
    """The whole frame, with its length in front."""
    if isinstance(effect, Accepted):
        return framed(encode_connect_response(effect.response))
    return framed(encode_event(effect.zxid, effect.event))
