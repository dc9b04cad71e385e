"""The README's picture is the output of its script, for light and dark backgrounds."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import overview_picture


def test_picture_is_up_to_date() -> None:
    assert overview_picture.PICTURE.read_text() == overview_picture.picture()


def test_picture_is_well_formed_and_has_a_title() -> None:
    title = ElementTree.fromstring(overview_picture.picture())[0]
    assert title.tag.endswith("title")
    assert "prefers-color-scheme: dark" in overview_picture.picture()
