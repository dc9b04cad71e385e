"""The programs of the documentation's tutorial and guides run, and print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.subprocesses import Home, Shells, printed

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["tutorial.md", "guides/locks.md", "guides/queues.md", "guides/asyncio.md", "pools.md"]
HEAD = re.compile(r"# (\w+\.py)(, in a second shell)?$")


def programs(page: str) -> list[tuple[str, bool, str, str | None]]:
    """Return for each program its file, whether it is started in a second shell, its text and its shown output."""
    found = []
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    for number, (kind, text) in enumerate(blocks):
        if kind == "text":
            continue
        head = HEAD.match(text.splitlines()[0])
        name, beside = (head[1], bool(head[2])) if head else (f"program_{number}.py", False)
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        shown = re.sub(r"\A\$ .*\n", "", following[1]) if following[0] == "text" else None
        found.append((name, beside, text, shown))
    return found


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("page", PAGES)
def test_programs_of_the_page_print_what_it_shows(shells: Shells, tmp_path: Path, page: str) -> None:
    beside = []
    for name, is_beside, text, shown in programs(page):
        (tmp_path / name).write_text(text)
        if is_beside:
            beside.append(shells.start(tmp_path / name))
            continue
        output = shells.run(tmp_path / name)
        if shown is not None:
            assert output == shown, name
    for process in beside:
        printed(process)


def test_each_page_has_programs_and_all_that_print_show_their_output() -> None:
    for page in PAGES:
        found = programs(page)
        assert found
        assert not [
            name for name, is_beside, text, shown in found if "print(" in text and not is_beside and shown is None
        ]


@pytest.mark.slow("starts several programs")
def test_program_that_looks_into_the_embedded_server_lists_what_was_made(home: Home) -> None:
    ((_, _, program, _),) = programs("server.md")
    home.run("-c", "from distsync.threading import Event; Event(name='made').set()")
    assert "'event'" in home.run("-c", program)


@pytest.mark.slow("starts several programs")
def test_queue_of_two_users_is_read_by_the_other_one(own_shells: Shells) -> None:
    ((_, _, program, _),) = programs("security.md")
    own_shells.run("-c", program)
    bob = "import distsync; from distsync.queue import Queue; "
    bob += "client = distsync.connect(auth='digest:bob:builder', namespace='/users/bob'); "
    bob += "print(Queue(path='/users/alice/queue/shared').get())"
    assert own_shells.run("-c", bob) == "hello\n"
