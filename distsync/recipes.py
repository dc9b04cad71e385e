"""What the standard library has no shape for: the other recipes of ZooKeeper, and what workers ask for besides.

Rules for this file: names only; each is at home in a file of its own.
"""

from __future__ import annotations

__all__: list[str] = []
