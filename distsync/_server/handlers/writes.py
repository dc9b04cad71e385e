"""Handlers of writes, which check a request against the tree and return the change to apply.

They do not modify the tree. The order of the checks is ZooKeeper's, because it decides which of
several errors a client gets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from distsync._server.acl import ADMIN, CREATE, DELETE, READ, USUAL_POLICY, WRITE, Policy, normalize, permit
from distsync._server.data_tree import Tree, TreeNode
from distsync._server.handlers import RequestRefused
from distsync._server.journal.change_records import (
    MAX_TTL_MS,
    TTL_OWNER,
    CreateNode,
    DeleteNode,
    NodeChange,
    SetNodeAcl,
    SetNodeData,
)
from distsync._server.path_rules import SPECIAL, check_child, check_path, parent_of_new
from distsync._server.peer import Peer
from distsync._server.quotas import prefix_of, violations
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode
from distsync._wire.records import OPEN_ACL

log = logging.getLogger("distsync.server")

_PERSISTENT, _CONTAINER, _LAST_FLAG = map(int, (CreateFlag.PERSISTENT, CreateFlag.CONTAINER, CreateFlag.SEQUENCE_TTL))
_TTL_FLAGS = frozenset(map(int, (CreateFlag.TTL, CreateFlag.SEQUENCE_TTL)))
_SEQUENCE_FLAGS = frozenset(map(int, (CreateFlag.SEQUENCE, CreateFlag.EPHEMERAL_SEQUENCE, CreateFlag.SEQUENCE_TTL)))
_EPHEMERAL_FLAGS = frozenset(map(int, (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENCE)))

_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__
"""Creates a named tuple from all its fields, faster than its constructor does."""

_CHECKED, _DELETED = r.CheckReply(), r.DeleteReply()

AnyCreate = r.CreateRequest | r.Create2Request | r.CreateContainerRequest | r.CreateTtlRequest
_CREATES = frozenset({r.CreateRequest, r.Create2Request, r.CreateContainerRequest, r.CreateTtlRequest})


class Writes:
    """Write handlers. ``plans`` maps types of requests to ``plan(peer, request)``; a check returns None."""

    def __init__(self, tree: Tree, enforce_quota: bool = False, policy: Policy = USUAL_POLICY) -> None:
        self._tree = tree
        self._policy = policy
        self._enforce_quota = enforce_quota
        self.plans: dict[type, Callable[[Peer, Any], NodeChange | None]] = {
            r.CreateRequest: self._create,
            r.Create2Request: self._create,
            r.CreateContainerRequest: self._create,
            r.CreateTtlRequest: self._create,
            r.DeleteRequest: self._delete,
            r.SetDataRequest: self._set_data,
            r.SetAclRequest: self._set_acl,
            r.CheckVersionRequest: self._check,
        }

    def body(self, request: Any, change: NodeChange | None) -> r.Body | None:
        """Return the body of the reply to a single write, after its change was applied."""
        if change is None:
            return r.StatReply(self._tree.nodes[request.path].stat)
        result = self.result(request, change)
        return None if isinstance(result, (r.DeleteReply, r.CheckReply)) else result

    def result(self, request: Any, change: NodeChange | None) -> r.Result:
        """Return the result of an operation of a multi, after its change was applied."""
        kind = type(request)
        if change is None:
            return _CHECKED
        if kind is r.CreateRequest:
            return created(request, change)
        if kind is r.DeleteRequest:
            return _DELETED
        stat = self._tree.nodes[change[0]].stat
        if type(change) is CreateNode:
            return r.Create2Reply(change[0], stat)
        reply: r.Result = _new(r.StatReply, (stat,))
        return reply

    def _create(self, peer: Peer, request: AnyCreate) -> CreateNode:
        """Plan a create. Its operation alone decides whether it creates a container.

        In a multi, the flags decide; `in_multi` converts the operation.
        """
        path, data, acl, flags = request if len(request) == 4 else request[:4]
        kind = type(request)
        owner = 0 if flags == _PERSISTENT and kind is r.CreateRequest else _owner(peer, request)
        parent_path = parent_of_new(path)
        if acl is not OPEN_ACL:
            acl = normalize(acl, peer.identities, self._policy)
        nodes = self._tree.nodes
        parent = nodes.get(parent_path) or self._require(parent_path)
        if parent.acl is not OPEN_ACL:
            permit(parent.acl, CREATE, peer.identities)
        if flags and flags in _SEQUENCE_FLAGS:
            path = f"{path}{parent.creates:010d}"
        check_child(path)
        if path in nodes:
            raise RequestRefused(ErrorCode.NODE_EXISTS)
        if parent.owner > 0:
            raise RequestRefused(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        if self._enforce_quota:
            self._check_quota(path, 1, len(data or b""))
        change: CreateNode = _new(CreateNode, (path, data, acl, owner, kind is r.CreateContainerRequest))
        return change

    def _delete(self, peer: Peer, request: r.DeleteRequest) -> DeleteNode:
        path, version = request
        parent_path = parent_of_new(path)
        if path in SPECIAL:
            raise RequestRefused(ErrorCode.BAD_ARGUMENTS)
        parent = self._require(parent_path)
        if parent.acl is not OPEN_ACL:
            permit(parent.acl, DELETE, peer.identities)
        node = self._require(path)
        _check_version(version, node.version)
        if node.children:
            raise RequestRefused(ErrorCode.NOT_EMPTY)
        change: DeleteNode = _new(DeleteNode, (path,))
        return change

    def _set_data(self, peer: Peer, request: r.SetDataRequest) -> SetNodeData:
        path, data, version = request
        node = self._tree.nodes.get(path) or self._require_checked(path)
        if node.acl is not OPEN_ACL:
            permit(node.acl, WRITE, peer.identities)
        if self._enforce_quota:
            self._check_quota(path, 0, len(data or b"") - len(node.data or b""))
        _check_version(version, node.version)
        change: SetNodeData = _new(SetNodeData, (path, data))
        return change

    def _set_acl(self, peer: Peer, request: r.SetAclRequest) -> SetNodeAcl:
        path, acl, version = request
        check_path(path)
        acl = normalize(acl, peer.identities, self._policy)
        node = self._require(path)
        permit(node.acl, ADMIN, peer.identities)
        _check_version(version, node.aversion)
        return SetNodeAcl(path, acl)

    def _check(self, peer: Peer, request: r.CheckVersionRequest) -> None:
        path, version = request
        node = self._tree.nodes.get(path) or self._require_checked(path)
        if node.acl is not OPEN_ACL:
            permit(node.acl, READ, peer.identities)
        _check_version(version, node.version)

    def _check_quota(self, path: str, count: int, size: int) -> None:
        limits, stats = self._tree.quota_of(path)
        for excess, hard in violations(limits.data, stats.data, count, size) if limits and stats else ():
            log.warning("Quota exceeded: %s [%s]", prefix_of(path, self._tree.limited), excess)
            if hard:
                raise RequestRefused(ErrorCode.QUOTA_EXCEEDED)

    def _require_checked(self, path: str) -> TreeNode:
        """Raise the error for an invalid path or a missing node. The path of an existing node is valid."""
        check_path(path)
        return self._require(path)

    def _require(self, path: str) -> TreeNode:
        node = self._tree.nodes.get(path)
        if node is None:
            raise RequestRefused(ErrorCode.NO_NODE)
        return node


def created(request: r.CreateRequest, change: NodeChange | None) -> r.CreateReply:
    assert change is not None
    reply: r.CreateReply = _new(r.CreateReply, (change[0],))
    return reply


def in_multi(operation: r.Operation) -> r.Operation:
    """Convert a create in a multi to the operation that its flags ask for.

    As in ZooKeeper, TTL flags in another create than CreateTtlRequest fail the whole multi.
    """
    kind = type(operation)
    if kind not in _CREATES:
        return operation
    flags = operation[3]  # type: ignore[misc]
    if flags in _TTL_FLAGS:
        if kind is r.CreateTtlRequest:
            return operation
        raise RequestRefused(ErrorCode.MARSHALLING_ERROR)
    kind_of_flags = r.CreateContainerRequest if flags == _CONTAINER else r.CreateRequest
    return operation if kind is kind_of_flags else kind_of_flags(*operation[:4])


def _owner(peer: Peer, request: AnyCreate) -> int:
    """Return the owner of a new node: a session id, a TTL, or 0. TTL flags require a CreateTtlRequest."""
    flags = request.flags
    if not _PERSISTENT <= flags <= _LAST_FLAG:
        raise RequestRefused(ErrorCode.BAD_ARGUMENTS)
    if flags in _TTL_FLAGS or type(request) is r.CreateTtlRequest:
        return _ttl_owner(request)
    ephemeral = flags in _EPHEMERAL_FLAGS and type(request) is not r.CreateContainerRequest
    return peer.session.id if ephemeral else 0


def _ttl_owner(request: AnyCreate) -> int:
    if isinstance(request, r.CreateTtlRequest) and request.flags in _TTL_FLAGS and 0 < request.ttl <= MAX_TTL_MS:
        return TTL_OWNER + request.ttl
    raise RequestRefused(ErrorCode.BAD_ARGUMENTS)


def _check_version(expected: int, version: int) -> None:
    if expected != -1 and expected != version:
        raise RequestRefused(ErrorCode.BAD_VERSION)
