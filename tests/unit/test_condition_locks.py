"""Locks of conditions, in threads of the program: an interrupt leaves none of them locked.

``Condition.__enter__`` and ``__exit__`` are Python code. A signal handler that raises in them leaves the lock locked by
this thread for good. So the lock itself is entered: its methods are C code.
"""

from __future__ import annotations

import ast
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from helpers.timing import PATIENCE

from distsync._import_gate import ImportGate

PACKAGE = Path(__file__).parents[2] / "distsync"


class InterruptError(BaseException):
    """What a signal handler raises."""


def test_no_file_enters_a_condition() -> None:
    trees = [
        ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py") if path.parent.name not in ("testing", "cli")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    conditions = {
        target.attr
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("threading.Condition(")
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    entered = {
        item.context_expr.attr
        for node in nodes
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Attribute)
    }
    assert conditions
    assert not conditions & entered


def test_interrupt_in_a_condition_leaves_the_gate_of_imports_open() -> None:
    """All other threads waited forever for the gate, whatever their timeouts were."""
    gate, before = ImportGate(), sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        return raise_at_return if frame.f_code is threading.Condition.__enter__.__code__ else None

    def raise_at_return(frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            raise InterruptError
        return raise_at_return

    try:
        sys.settrace(trace)
        with suppress(InterruptError), gate:
            pass
    finally:
        sys.settrace(before)
    thread = threading.Thread(target=gate.__enter__, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
