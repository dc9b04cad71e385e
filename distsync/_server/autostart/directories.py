"""Where this user's embedded server keeps what: its address in the runtime folder, its data in the state folder.

Rules for this file: the one file that knows platformdirs. ``DISTSYNC_RUNTIME_DIR`` and ``DISTSYNC_STATE_DIR`` override
both. A folder that another user owns or may write to is refused: who controls it could hand us his own server.
"""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import platformdirs

from distsync.errors import ConfigurationError

RUNTIME = "DISTSYNC_RUNTIME_DIR"
STATE = "DISTSYNC_STATE_DIR"


def runtime_folder(create: bool = True) -> Path:
    """Return the folder for files of this login or boot: it may be empty again tomorrow.

    Args:
        create: Whether to create it if it does not exist. If it exists, it is private.

    Returns:
        The path of the folder.
    """
    return _private(RUNTIME, os.environ.get(RUNTIME) or _usual_runtime_folder(), create)


def state_folder(create: bool = True) -> Path:
    """Return the folder for files that are kept; ``create`` as for `runtime_folder`."""
    return _private(STATE, os.environ.get(STATE) or platformdirs.user_state_dir("distsync", appauthor=False), create)


def make_folder(folder: Path) -> None:
    """The folder exists; it and those above it that were missing are private, whatever the umask.

    Raises OSError."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _usual_runtime_folder() -> str:
    with warnings.catch_warnings():  # platformdirs warns where there is no runtime folder and it takes another one
        warnings.simplefilter("ignore")
        try:
            return platformdirs.user_runtime_dir("distsync", appauthor=False)
        except PermissionError as error:  # the usual one is another user's: he made it before us, as all may in /tmp
            raise ConfigurationError(RUNTIME, None, f"it has to be said: {error}") from error


def _private(setting: str, name: str, create: bool) -> Path:
    folder = Path(name).absolute()
    if not create and not folder.exists():
        return folder
    try:
        make_folder(folder)
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(setting, str(folder), f"it cannot be made a folder of this user ({error})") from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(setting, str(folder), "it must belong to this user, and nobody else may write to it")
    return folder
