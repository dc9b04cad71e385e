"""Any str is a valid name; ZooKeeper and kazoo accept its path."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.protocol.paths import normpath

from distsync._client.naming.paths import (
    MAX_NAME_BYTES,
    check_namespace,
    check_path,
    decode_name,
    encode_name,
    object_path,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
SPECIAL = [
    ".",
    "..",
    "...",
    "zookeeper",
    "",
    "%",
    "%2E",
    "%25",
    "/",
    "a/b",
    "\0",
    "\ud83d\ude00",
    "\U0001f600",
    "\ufff0",
]


def java_takes(path: str) -> bool:
    """ZooKeeper's PathUtils.validatePath, on UTF-16 units as in Java."""
    units = memoryview(path.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
    bad = any(
        unit <= 0x1F or 0x7F <= unit <= 0x9F or 0xD800 <= unit <= 0xF8FF or 0xFFF0 <= unit <= 0xFFFF for unit in units
    )
    parts = path.split("/")
    return path.startswith("/") and not bad and not {"", ".", ".."} & set(parts[1:])


@given(ANY_TEXT)
@example(".")
@example("..")
@example("zookeeper")
@example("")
@example("%")
@example("\ud83d\ude00")
@example("\U0001f600")
def test_any_name_makes_a_path_that_is_taken_and_decodes_to_the_name(name: str) -> None:
    path = object_path("/distsync", "lock", name)
    assert path.startswith("/distsync/lock/")
    assert java_takes(path)
    assert normpath(path) == path
    assert check_path(path) == path
    assert decode_name(path.removeprefix("/distsync/lock/")) == name


@given(ANY_TEXT, ANY_TEXT)
def test_two_names_have_two_paths(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) == (one == other)


def test_special_names_have_paths_of_their_own() -> None:
    assert len({encode_name(name) for name in SPECIAL}) == len(SPECIAL)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("jobs.Worker.lock", "jobs.Worker.lock"),
        ("Größe 3", "Größe 3"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        (".", "%2E"),
        ("..", "%2E."),
        ("zookeeper", "%7Aookeeper"),
        ("", "%"),
        ("\n", "%0A"),
        ("\U0001f600", "%F0%9F%98%80"),
        ("\ud83d", "%ED%A0%BD"),
    ],
)
def test_a_name_is_encoded_as_little_as_it_can_be(name: str, part: str) -> None:
    assert encode_name(name) == part
    assert decode_name(part) == name


def test_a_name_up_to_the_limit_is_taken_and_a_longer_one_refused_with_both_sizes() -> None:
    assert encode_name("n" * MAX_NAME_BYTES)
    with pytest.raises(ValueError, match=rf"takes {MAX_NAME_BYTES + 2} bytes .* limit is {MAX_NAME_BYTES} bytes"):
        encode_name("n" * (MAX_NAME_BYTES - 1) + "/")


@pytest.mark.parametrize("part", ["%zz", "a%", "%41", "%2e", "%FF", "%C0%AF", ".", "a/b", ""])
def test_a_part_that_no_name_encodes_to_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_name(part)


@pytest.mark.parametrize("namespace", ["/distsync", "/a/b c/ü", "/a.b"])
def test_a_namespace_is_any_path(namespace: str) -> None:
    assert check_namespace(namespace) == namespace


def test_the_root_as_namespace_is_no_prefix() -> None:
    assert object_path(check_namespace("/"), "lock", "x") == "/lock/x"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "begin with"),
        ("a", "begin with"),
        ("a/b", "begin with"),
        ("/", "empty part"),
        ("//", "empty part"),
        ("/a/", "empty part"),
        ("/a//b", "empty part"),
        ("/a/./b", "absolute"),
        ("/..", "absolute"),
        ("/zookeeper", "belongs to ZooKeeper"),
        ("/zookeeper/quota", "belongs to ZooKeeper"),
        ("/a\0", "U+0000"),
        ("/a\x85", "U+0085"),
        ("/\ud800", "U+D800"),
        ("/\ue000", "U+E000"),
        ("/\uffff", "U+FFFF"),
        ("/\U0001f600", "U+1F600"),
        ("/" + "a" * 5000, "longer than"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused_with_the_reason(path: str, reason: str) -> None:
    for check in (check_path, check_namespace):
        if path != "/" or check is check_path:
            with pytest.raises(ValueError, match=reason.replace("+", r"\+")):
                check(path)


def test_a_path_that_is_no_str_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes"):
        check_path(b"/a")  # type: ignore[arg-type]


@given(ANY_TEXT)
def test_checked_paths_are_those_that_java_and_kazoo_accept(text: str) -> None:
    path = "/" + text
    try:
        check_path(path)
    except ValueError:
        assert not java_takes(path) or path.startswith("/zookeeper")
    else:
        assert java_takes(path)
        assert normpath(path) == path
