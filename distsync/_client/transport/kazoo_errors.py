"""Translation of kazoo's exceptions, each of which becomes the cause of the new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo_exceptions

from distsync import errors
from distsync._protocols.steps import Create, Delete, Request, SetData

#: Errors about one znode.
ZNODE_ERRORS: dict[type[BaseException], Callable[[str], errors.DistsyncError]] = {
    kazoo_exceptions.NoNodeError: errors.NoNodeError,
    kazoo_exceptions.NodeExistsError: errors.NodeExistsError,
    kazoo_exceptions.BadVersionError: errors.BadVersionError,
    kazoo_exceptions.NotEmptyError: errors.NotEmptyError,
    kazoo_exceptions.NoChildrenForEphemeralsError: errors.ChildrenOfEphemeralError,
}

#: Errors after which the request may or may not have been executed. SessionMoved comes from a
#: server that the session has left. AuthFailed fails the outstanding requests when the server
#: rejects the credentials; a call that waits for the next connection then gets the reason.
CONNECTION_ERRORS = (
    kazoo_exceptions.ConnectionLoss,
    kazoo_exceptions.ConnectionDropped,
    kazoo_exceptions.OperationTimeoutError,
    kazoo_exceptions.SessionMovedError,
    kazoo_exceptions.AuthFailedError,
)

#: Errors in which a quorum took part, so that they prove that the session is alive.
LEADER_ERRORS = (
    errors.NoNodeError,
    errors.NodeExistsError,
    errors.BadVersionError,
    errors.NotEmptyError,
    errors.ChildrenOfEphemeralError,
)

#: Advice by error code. Older versions of kazoo do not know all of these.
ADVICE = {
    -120: "sessions are local to this server, and cannot have ephemeral znodes: set "
    "localSessionsUpgradingEnabled=true or localSessionsEnabled=false in zoo.cfg of each server, and restart it",
    -125: "a quota is exceeded: delete znodes or data, or raise the quota (setquota in zkCli)",
}

PERMISSIONS: dict[type[Any], str] = {Create: "CREATE", Delete: "DELETE", SetData: "WRITE"}


def translate(error: BaseException, request: Request[Any]) -> BaseException:
    """Return our error for kazoo's ``error`` about ``request``."""
    if isinstance(error, errors.DistsyncError):
        return error
    ours = _ours(error, request)
    ours.__cause__ = error
    return ours


def _ours(error: BaseException, request: Request[Any]) -> errors.DistsyncError:
    path = request.path
    if isinstance(error, CONNECTION_ERRORS):
        return errors.DisconnectedError(path)
    if isinstance(error, kazoo_exceptions.SessionExpiredError):
        return errors.SessionLostError(f"{type(request).__name__} {path}")
    if isinstance(error, kazoo_exceptions.NoAuthError):
        return errors.AccessDeniedError(path, PERMISSIONS.get(type(request), "READ"))
    make_error = ZNODE_ERRORS.get(type(error))
    if make_error:
        return make_error(path)
    advice = ADVICE.get(getattr(error, "code", None) or 0)
    return errors.RequestError(path, name_of(error), *([advice] if advice else ()))


def unknown_error(code: int) -> kazoo_exceptions.ZookeeperError:
    """Return an error with a code that this kazoo does not know."""
    error = kazoo_exceptions.ZookeeperError(f"error {code}")
    error.code = code
    return error


def name_of(error: BaseException) -> str:
    """Return the name of the server's error, with its code."""
    code = getattr(error, "code", None)
    name = type(error).__name__.removesuffix("Error")
    return f"{name} ({code})" if code is not None else f"{name}: {error}"
