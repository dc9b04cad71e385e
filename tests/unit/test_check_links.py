"""The check of the documentation's internal links finds the dead ones, and only those."""

from __future__ import annotations

from pathlib import Path

from check_links import dead_links


def test_links_to_missing_files_and_places_are_found(tmp_path: Path) -> None:
    (tmp_path / "guides").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="guides/locks.html#top">a</a><a href="guides/locks.html#none">b</a><a href="missing.html">c</a>'
        '<a href="https://example.org/missing">d</a><a href="#here">e</a><p id="here"></p><img src="picture.svg">'
    )
    (tmp_path / "guides" / "locks.html").write_text('<h1 id="top"></h1><a href="../index.html#here">f</a>')
    assert dead_links(tmp_path) == [
        "index.html: guides/locks.html#none",
        "index.html: missing.html",
        "index.html: picture.svg",
    ]
