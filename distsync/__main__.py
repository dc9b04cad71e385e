"""``python -m distsync``."""

from __future__ import annotations

import sys

from distsync.cli import main

if __name__ == "__main__":
    sys.exit(main())
