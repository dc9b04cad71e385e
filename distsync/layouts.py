"""How an object spells the names of its znodes: as Curator does, as kazoo's own recipes, or as nobody else.

Rules for this file: names only.
"""

from __future__ import annotations

from distsync.errors import ConfigurationError

LAYOUTS = ("curator", "kazoo")


def checked_layout(layout: object, known: tuple[str, ...] = LAYOUTS) -> str:
    """``layout``, if it is one. Raises ConfigurationError (a ValueError)."""
    if layout not in known:
        raise ConfigurationError("layout", layout, f"it must be one of {', '.join(map(repr, known))}")
    return str(layout)
