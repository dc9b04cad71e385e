"""The README and the docs mention only commands, settings, errors and files that exist."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import pytest

import distsync.errors
from distsync._client import settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_make_command_has_a_target(page: Path) -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=[ `'\n])", "\n".join(commands(page))))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def commands(page: Path) -> list[str]:
    """Yield the code of a page, by line or span."""
    text = page.read_text()
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    return [*blocks, *re.findall(r"`[^`\n]+`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_points_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_each_error_mentioned_exists(page: Path) -> None:
    known = {*vars(distsync.errors), *vars(builtins), "BrokenBarrierError", "MaybeEncodingError"}
    assert set(re.findall(r"`(\w+Error)`", page.read_text())) <= known


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_example_of_the_readme_compiles(block: str) -> None:
    compile(block, "README.md", "exec")


def test_every_setting_is_documented_with_its_variable() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(DISTSYNC_\w+)`)? ?\|", CONFIGURATION, re.MULTILINE)
    assert [name for name, _ in rows] == list(settings.NAMES)
    assert {variable for _, variable in rows if variable} == {
        settings.PREFIX + name.upper() for name in settings.NAMES if name != "acl"
    }


def test_message_of_each_error_is_explained() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    kinds = [kind for kind in vars(distsync.errors).values() if isinstance(kind, type)]
    public = [kind for kind in kinds if issubclass(kind, distsync.errors.DistsyncError)]
    templates = {kind.__name__: kind.template for kind in public if not issubclass(kind, distsync.errors.ZnodeError)}
    missing = {
        name: template
        for name, template in templates.items()
        if template != "{0}" and f"| `{name}` | {re.sub(r'{[^}]*}', '...', template)} |" not in page
    }
    assert not missing


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_each_test_named_for_a_promise_exists() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.stem.startswith("test_")]
    known = {path.stem for path in files}
    known.update(*(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE) for path in files))
    pages = [(ROOT / "docs" / name).read_text() for name in ("reliability.md", "security.md")]
    named = set(re.findall(r"\btest_[a-z0-9_]+", "".join(pages)))
    assert named - known == set()
