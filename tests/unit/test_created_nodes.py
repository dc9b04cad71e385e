"""The nodes that a call has created and not deleted."""

from __future__ import annotations

from distsync._client.driver.created_nodes import CreatedNodes, LeftoverNode
from distsync._protocols.steps import Create, Created, Delete, Multi
from distsync.errors import DisconnectedError


def leftovers(*requests: Create | Delete | Multi, lost: bool = False) -> list[LeftoverNode]:
    """Return what a call leaves behind after these requests; the reply to the last one may be lost."""
    nodes = CreatedNodes()
    for number, request in enumerate(requests, 1):
        nodes.record_request(request)
        answer = Created("/a", None)
        if lost and number == len(requests):
            nodes.record_reply(request, None, DisconnectedError("/a"))
        elif isinstance(request, Multi):
            results = tuple(answer if isinstance(each, Create) else None for each in request.operations)
            nodes.record_reply(request, results, None)
        else:
            nodes.record_reply(request, answer if isinstance(request, Create) else None, None)
    return nodes.leftovers(lambda path: False)


MAKE, DELETE = Create("/a", ephemeral=True), Delete("/a")


def test_created_node_is_an_orphan_until_it_is_deleted() -> None:
    assert leftovers(MAKE) == [LeftoverNode("/a", True)]
    assert leftovers(MAKE, DELETE) == []


def test_node_deleted_and_recreated_in_one_transaction_is_an_orphan() -> None:
    assert leftovers(Multi((DELETE, MAKE))) == [LeftoverNode("/a", True)]
    assert leftovers(MAKE, Multi((DELETE, MAKE))) == [LeftoverNode("/a", True)]


def test_node_that_may_have_been_created_is_an_orphan() -> None:
    assert leftovers(MAKE, lost=True) == [LeftoverNode("/a", True)]
    assert leftovers(Multi((DELETE, MAKE)), lost=True) == [LeftoverNode("/a", True)]
