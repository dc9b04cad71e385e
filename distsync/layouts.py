"""How an object spells the names of its znodes: as Curator does, or as kazoo's own recipes.

Rules for this file: names only.
"""

from __future__ import annotations

from distsync.errors import ConfigurationError

LAYOUTS = ("curator", "kazoo")


def checked_layout(layout: object) -> str:
    """``layout``, if it is one. Raises ConfigurationError (a ValueError)."""
    if layout not in LAYOUTS:
        raise ConfigurationError("layout", layout, f"it must be one of {', '.join(map(repr, LAYOUTS))}")
    return str(layout)
