"""CPython's tests for processes run with some start methods on some servers, unless all are asked for."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_chosen(item: pytest.Item) -> bool:
    chosen: dict[str, str] = getattr(getattr(item, "callspec", None), "params", {})
    if not {"start_method", "server_kind", "method"} <= chosen.keys():
        return True
    from helpers.cpython_processes import is_chosen

    return is_chosen(chosen["start_method"], chosen["server_kind"], chosen["method"])
