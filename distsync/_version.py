"""The version of this code. It stands here, and not in the installed metadata, so that nothing must be read for it."""

VERSION = "0.1.0"
