"""kazoo's exceptions, translated into ours; nowhere else.

Rules for this file: a translation keeps the original as its cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo

from distsync import errors
from distsync._protocols.steps import Create, Delete, Request, SetData

#: About one znode: the server answered, and the class says it all.
ABOUT_A_ZNODE: dict[type[BaseException], Callable[[str], errors.DistsyncError]] = {
    kazoo.NoNodeError: errors.NoNodeError,
    kazoo.NodeExistsError: errors.NodeExistsError,
    kazoo.BadVersionError: errors.BadVersionError,
    kazoo.NotEmptyError: errors.NotEmptyError,
    kazoo.NoChildrenForEphemeralsError: errors.ChildrenOfEphemeralError,
}

#: The connection went: the request may or may not have been executed. SessionMoved: the server that we left
#: answers; the next one knows us. AuthFailed: of what was under way when the server would not have us any more; whoever
#: waits for the next connection learns why there will be none.
CONNECTION_GONE = (
    kazoo.ConnectionLoss,
    kazoo.ConnectionDropped,
    kazoo.OperationTimeoutError,
    kazoo.SessionMovedError,
    kazoo.AuthFailedError,
)

#: Errors in which a quorum had a hand, so that they prove that the session lives.
LEADER_ERRORS = (
    errors.NoNodeError,
    errors.NodeExistsError,
    errors.BadVersionError,
    errors.NotEmptyError,
    errors.ChildrenOfEphemeralError,
)

#: What to do about a refusal, by the server's number of it. Older kazoos do not know all of these.
ADVICE = {
    -120: "this server keeps its sessions to itself, and so has no ephemeral znodes for them: set "
    "localSessionsUpgradingEnabled=true, or localSessionsEnabled=false, in zoo.cfg of each server, and restart it",
    -125: "a quota is used up: remove something, or raise it (setquota of zkCli)",
}

PERMISSIONS: dict[type[Any], str] = {Create: "CREATE", Delete: "DELETE", SetData: "WRITE"}


def translate(error: BaseException, request: Request[Any]) -> BaseException:
    """Our error for what kazoo said about ``request``."""
    if isinstance(error, errors.DistsyncError):
        return error
    ours = _ours(error, request)
    ours.__cause__ = error
    return ours


def _ours(error: BaseException, request: Request[Any]) -> errors.DistsyncError:
    path = request.path
    if isinstance(error, CONNECTION_GONE):
        return errors.DisconnectedError(path)
    if isinstance(error, kazoo.SessionExpiredError):
        return errors.SessionLostError(f"{type(request).__name__} {path}")
    if isinstance(error, kazoo.NoAuthError):
        return errors.AccessDeniedError(path, PERMISSIONS.get(type(request), "READ"))
    about = ABOUT_A_ZNODE.get(type(error))
    if about:
        return about(path)
    advice = ADVICE.get(getattr(error, "code", None) or 0)
    return errors.RequestError(path, name_of(error), *([advice] if advice else ()))


def unknown_error(code: int) -> kazoo.ZookeeperError:
    """The server's error of a number that this kazoo does not know."""
    error = kazoo.ZookeeperError(f"error {code}")
    error.code = code
    return error


def name_of(error: BaseException) -> str:
    """The server's name of its error, with its number."""
    code = getattr(error, "code", None)
    name = type(error).__name__.removesuffix("Error")
    return f"{name} ({code})" if code is not None else f"{name}: {error}"
