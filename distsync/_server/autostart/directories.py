"""Folders of the user's embedded server: the runtime folder for its address, the state folder for its data.

``DISTSYNC_RUNTIME_DIR`` and ``DISTSYNC_STATE_DIR`` override them. A folder that another user owns or
may write to is refused, because that user could put the address of another server there.
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
    """Return the folder for temporary files, which may be emptied at logout or reboot.

    Args:
        create: Whether to create it if it does not exist. If it exists, it is private.

    Returns:
        The path of the folder.
    """
    return _private(RUNTIME, os.environ.get(RUNTIME) or _usual_runtime_folder(), create)


def state_folder(create: bool = True) -> Path:
    """Return the folder for permanent files; ``create`` as for `runtime_folder`."""
    return _private(STATE, os.environ.get(STATE) or platformdirs.user_state_dir("distsync", appauthor=False), create)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, with mode 0700. Raises OSError."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _usual_runtime_folder() -> str:
    with warnings.catch_warnings():  # platformdirs warns if there is no runtime folder and it uses another one
        warnings.simplefilter("ignore")
        try:
            return platformdirs.user_runtime_dir("distsync", appauthor=False)
        except PermissionError as error:  # another user has created it in /tmp before
            raise ConfigurationError(RUNTIME, None, f"it must be set, because of: {error}") from error


def _private(setting: str, name: str, create: bool) -> Path:
    folder = Path(name).absolute()
    if not create and not folder.exists():
        return folder
    try:
        make_folder(folder)
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(setting, str(folder), f"cannot create the folder: {error}") from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            setting, str(folder), "it must belong to this user, and no other may write to it (mode 700)"
        )
    return folder
