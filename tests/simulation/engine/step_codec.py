"""Conversion of steps to records of the wire, and of replies to answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from distsync import errors
from distsync._protocols import steps
from distsync._wire import records
from distsync._wire.codes import ErrorCode, EventType

ERRORS: dict[int, type[errors.ZnodeError]] = {
    ErrorCode.NO_NODE: errors.NoNodeError,
    ErrorCode.NODE_EXISTS: errors.NodeExistsError,
    ErrorCode.BAD_VERSION: errors.BadVersionError,
    ErrorCode.NOT_EMPTY: errors.NotEmptyError,
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: errors.ChildrenOfEphemeralError,
}

#: Steps whose answer may be a proof for the lease clock, and steps that may arm a watch.
PROOFS = frozenset({steps.Create, steps.Delete, steps.SetData, steps.Multi, steps.Sync})
WATCHING = frozenset({steps.GetData, steps.Exists, steps.Children})

DATA, CHILD = "data", "child"
#: The watches of a client that an event fires (kazoo has one table for exists and data).
FIRES: dict[int, tuple[str, ...]] = {
    EventType.NODE_CREATED: (DATA,),
    EventType.NODE_DATA_CHANGED: (DATA,),
    EventType.NODE_DELETED: (DATA, CHILD),
    EventType.NODE_CHILDREN_CHANGED: (CHILD,),
}


def _create(step: steps.Create) -> records.Request:
    if step.container:
        return records.CreateContainerRequest(step.path, step.data)
    return records.Create2Request(step.path, step.data, flags=step.ephemeral | step.sequence << 1)


def _create_in_multi(step: steps.Create) -> records.Operation:
    if step.container:
        return records.CreateContainerRequest(step.path, step.data)
    return records.CreateRequest(step.path, step.data, flags=step.ephemeral | step.sequence << 1)


OPERATIONS: dict[type, Callable[[Any], records.Operation]] = {
    steps.Create: _create_in_multi,
    steps.Delete: lambda step: records.DeleteRequest(step.path, step.version),
    steps.SetData: lambda step: records.SetDataRequest(step.path, step.data, step.version),
    steps.Check: lambda step: records.CheckVersionRequest(step.path, step.version),
}

REQUESTS: dict[type, Callable[[Any], records.Request]] = {
    steps.Create: _create,
    steps.Delete: OPERATIONS[steps.Delete],
    steps.SetData: OPERATIONS[steps.SetData],
    steps.GetData: lambda step: records.GetDataRequest(step.path, step.watch is not None),
    steps.MultiRead: lambda step: records.MultiReadRequest(
        tuple(records.GetDataRequest(path, False) for path in step.paths)
    ),
    steps.Exists: lambda step: records.ExistsRequest(step.path, step.watch is not None),
    steps.Children: lambda step: records.GetChildren2Request(step.path, step.watch is not None),
    steps.Sync: lambda step: records.SyncRequest(step.path),
    steps.Multi: lambda step: records.MultiRequest(tuple(OPERATIONS[type(each)](each) for each in step.operations)),
}


def request_of(step: steps.Request[Any]) -> records.Request:
    """Return the request for this step."""
    return REQUESTS[type(step)](step)


def watch_of(step: steps.Request[Any]) -> tuple[tuple[str, str], steps.Watch] | None:
    """Return the key in the table of watches and the watch that this read arms, if any."""
    if type(step) not in WATCHING:
        return None
    watch: steps.Watch | None = step.watch  # type: ignore[attr-defined]
    if watch is None:
        return None
    return (CHILD if type(step) is steps.Children else DATA, step.path), watch


def arms(step: steps.Request[Any], err: int) -> bool:
    """Return whether the reply left a watch at the server."""
    return err == 0 or (isinstance(step, steps.Exists) and err == ErrorCode.NO_NODE)


def by_the_leader(err: int) -> bool:
    """Return whether the leader took part in this reply, if the request was a write or a sync."""
    return err == 0 or err in ERRORS


def error_of(step: steps.Request[Any], err: int) -> Exception:
    """Return the error that the driver throws for this code."""
    if err == ErrorCode.SESSION_EXPIRED:
        return errors.SessionLostError(type(step).__name__.lower())
    if err == ErrorCode.NO_AUTH:
        return errors.AccessDeniedError(step.path, "the permission for " + type(step).__name__.lower())
    if err in ERRORS:
        return ERRORS[err](step.path)
    return errors.RequestError(step.path, ErrorCode(err).name if err in ErrorCode.__members__.values() else err)


def answer_of(step: steps.Request[Any], err: int, body: Any, rng: random.Random) -> Any:
    """Return the step's answer, or an exception. Names of a listing are in random order."""
    kind = type(step)
    if kind is steps.Multi:
        return _multi(step, err, body)
    if kind is steps.Exists and err == ErrorCode.NO_NODE:
        return None
    if err:
        return error_of(step, err)
    if kind is steps.MultiRead:
        return _each(step, body)
    if kind is steps.Create:
        return steps.Created(body.path, steps.Stat._make(body.stat))
    if kind is steps.Children:
        names = sorted(body.children)
        rng.shuffle(names)
        return steps.Listing(tuple(names), steps.Stat._make(body.stat))
    if kind is steps.GetData:
        return steps.Node(body.data or b"", steps.Stat._make(body.stat))
    return steps.Stat._make(body.stat) if kind in (steps.SetData, steps.Exists) else None


def _multi(step: Any, err: int, body: records.MultiReply | None) -> Any:
    results = body.results if body else ()
    for index, result in enumerate(results):
        if isinstance(result, records.ErrorReply) and result.err not in (0, ErrorCode.RUNTIME_INCONSISTENCY):
            return _refused(step, index, result.err)
    if err:
        return _refused(step, 0, err)
    return tuple(_result(result) for result in results)


def _each(step: Any, body: records.MultiReply) -> Any:
    return tuple(_read(path, result) for path, result in zip(step.paths, body.results, strict=True))


def _read(path: str, result: records.Result) -> Any:
    if isinstance(result, records.ErrorReply):
        return error_of(steps.GetData(path), result.err)
    assert isinstance(result, records.GetDataReply)
    return steps.Node(result.data or b"", steps.Stat(*result.stat))


def _refused(step: Any, index: int, err: int) -> Exception:
    error = error_of(step.operations[index], err)
    error.index = index  # type: ignore[attr-defined]
    return error


def _result(result: records.Result) -> Any:
    if isinstance(result, (records.CreateReply, records.Create2Reply)):
        return steps.Created(result.path, None)
    return steps.Stat(*result.stat) if isinstance(result, records.StatReply) else None
