"""The journal: appended records are read back; lost or altered records are detected."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import distsync._server.journal.journal as journal_module
from distsync._server.journal.entries import GROUP, join, pack_entry
from distsync._server.journal.journal import NAME, Journal, JournalContents
from distsync._server.journal.journal_errors import JournalCorruptError, JournalUnreadableError, JournalWriteError

RECORDS = [(zxid, b"payload %d" % zxid) for zxid in range(10, 40)]
RECORDS_LAST = len(RECORDS)


def read(folder: Path) -> JournalContents:
    with closing(Journal(folder)) as journal:
        return journal.load()


def write(folder: Path, records: list[tuple[int, bytes]] = RECORDS) -> None:
    with closing(Journal(folder)) as journal:
        journal.load()
        for record in records:
            journal.append([record])


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        yield journal


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return a copy of a journal's folder, taken while it was open: the state after SIGKILL."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    copy.mkdir()
    with closing(Journal(source)) as journal:
        journal.load()
        for record in RECORDS:
            journal.append([record])
        for file in source.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_new_journal_is_empty(tmp_path: Path) -> None:
    contents = read(tmp_path)
    assert (contents.snapshot, contents.records) == ([], [])


def test_new_journal_reopened_is_still_empty_with_the_same_secret(tmp_path: Path) -> None:
    first = read(tmp_path)
    assert len(first.secret) == 32
    assert read(tmp_path) == first


def test_two_journals_have_different_secrets(tmp_path: Path) -> None:
    assert read(tmp_path / "a").secret != read(tmp_path / "b").secret


def test_records_are_read_in_order_after_close(tmp_path: Path) -> None:
    write(tmp_path)
    assert read(tmp_path).records == RECORDS


def test_records_are_read_after_a_kill(killed: Path) -> None:
    assert read(killed).records == RECORDS


def test_group_is_one_transaction_and_keeps_its_order(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        journal.append([])
    assert read(tmp_path).records == RECORDS


def test_same_zxid_twice_is_kept_twice(tmp_path: Path) -> None:
    write(tmp_path, [(7, b"a"), (7, b"b")])
    assert read(tmp_path).records == [(7, b"a"), (7, b"b")]


def test_files_are_accessible_to_this_user_only(killed: Path, opened: Journal) -> None:
    opened.append(RECORDS)
    modes = {file.name: file.stat().st_mode & 0o077 for file in opened.path.parent.iterdir() if file.is_file()}
    assert set(modes.values()) == {0}
    assert NAME in modes


def test_compaction_replaces_records_by_the_snapshot(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        journal.compact(iter([b"state ", b"", b"in pieces"]))
        journal.append([(99, b"after")])
    contents = read(tmp_path)
    assert (contents.snapshot, contents.records) == ([b"state ", b"", b"in pieces"], [(99, b"after")])


def test_second_compaction_replaces_the_first(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        for state in (b"old", b"new"):
            journal.append(RECORDS)
            journal.compact([state])
    assert read(tmp_path).snapshot == [b"new"]


def test_compaction_that_fails_midway_changes_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half a state"
        raise RuntimeError("no more")

    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        with pytest.raises(RuntimeError):
            journal.compact(broken())
        journal.append([(99, b"after")])
    contents = read(tmp_path)
    assert (contents.snapshot, contents.records) == ([], [*RECORDS, (99, b"after")])


def test_compaction_is_wanted_only_when_records_outweigh_the_snapshot(opened: Journal) -> None:
    opened.append([(1, bytes(3 << 20))])
    assert not opened.wants_compaction
    opened.append([(2, bytes(3 << 20))])
    assert opened.wants_compaction
    opened.compact([bytes(7 << 20)])
    assert not opened.wants_compaction
    opened.append([(3, bytes(6 << 20))])
    assert not opened.wants_compaction


def test_sizes_are_known_again_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, [(1, bytes(5 << 20))])
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        assert journal.wants_compaction


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Limit the size of this process's files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_refuses_the_whole_group_and_loses_nothing(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        with (
            room_for(journal.path.stat().st_size + 1000),
            pytest.raises(JournalWriteError, match=r"journal\.log.*too large"),
        ):
            journal.append([(90, b"small"), (91, bytes(1 << 20))])
    assert read(tmp_path).records == RECORDS


def test_full_disk_refuses_the_snapshot_and_loses_nothing(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        with room_for(1 << 16), pytest.raises(JournalWriteError, match=r"journal\.log.*too large"):
            journal.compact([bytes(1 << 20)])
        assert not (tmp_path / "journal.new").exists()  # it would fill the disk further
        journal.append([(99, b"after")])
    assert read(tmp_path).records == [*RECORDS, (99, b"after")]


def empty_log(folder: Path) -> None:
    (folder / NAME).write_bytes(b"")


def remove_log(folder: Path) -> None:
    (folder / NAME).unlink()


def overwrite_log(folder: Path) -> None:
    (folder / NAME).write_bytes(b"these are not the bytes of a journal" * 1000)


def overwrite_header(folder: Path) -> None:
    stream = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(bytes(32) + stream[32:])


def cut_log(folder: Path) -> None:
    stream = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(stream[: len(stream) // 2])


def cut_to_the_header(folder: Path) -> None:
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:27])


def flip_in_log(folder: Path) -> None:
    stream = bytearray((folder / NAME).read_bytes())
    stream[len(stream) // 3] ^= 0x20
    (folder / NAME).write_bytes(stream)


def mess_up_mark(folder: Path) -> None:
    (folder / "journal.mark").write_bytes(b"many\n")


def remove_mark(folder: Path) -> None:
    (folder / "journal.mark").unlink()


DAMAGES = [
    empty_log,
    remove_log,
    overwrite_log,
    overwrite_header,
    cut_log,
    cut_to_the_header,
    flip_in_log,
    mess_up_mark,
    remove_mark,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_after_a_kill_is_refused_and_names_the_file(killed: Path, damage: Callable[[Path], None]) -> None:
    damage(killed)
    with pytest.raises(JournalCorruptError, match=str(killed / "journal.")):
        read(killed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_after_a_clean_close_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    write(tmp_path)
    damage(tmp_path)
    with pytest.raises(JournalCorruptError, match=str(tmp_path / "journal.")):
        read(tmp_path)


def replace_in_log(folder: Path, old: bytes, new: bytes) -> None:
    stream = (folder / NAME).read_bytes()
    assert stream.count(old) == 1
    (folder / NAME).write_bytes(stream.replace(old, new))


@pytest.mark.parametrize("wrong", [b"payload 12", b"Payload 13"])
def test_altered_payload_is_refused(tmp_path: Path, wrong: bytes) -> None:
    write(tmp_path)
    replace_in_log(tmp_path, b"payload 13", wrong)
    with pytest.raises(JournalCorruptError, match="ends with append 3, but 30 were acknowledged"):
        read(tmp_path)


def test_missing_record_in_the_middle_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    replace_in_log(tmp_path, pack_entry(GROUP, 4, join([(13, b"payload 13")])), b"")
    with pytest.raises(JournalCorruptError, match="append 4 is missing"):
        read(tmp_path)


def test_altered_snapshot_is_refused(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.load()
        journal.append(RECORDS)
        journal.compact([b"state"])
    replace_in_log(tmp_path, b"state", b"State")
    with pytest.raises(JournalCorruptError, match="incomplete or altered snapshot"):
        read(tmp_path)


def test_file_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"SQLite format 3\0" + bytes(1000))
    with pytest.raises(JournalCorruptError, match="not a journal of format 3"):
        read(tmp_path)


def test_refused_journal_is_refused_again_and_not_replaced(killed: Path) -> None:
    cut_log(killed)
    left = (killed / NAME).read_bytes()
    for _ in range(2):
        with pytest.raises(JournalCorruptError):
            read(killed)
    assert (killed / NAME).read_bytes() == left


@pytest.mark.parametrize("torn", [bytes(100), pack_entry(GROUP, 31, join([(40, b"payload 40")]))[:-1]])
def test_torn_unacknowledged_tail_is_dropped(killed: Path, torn: bytes) -> None:
    with (killed / NAME).open("ab") as log:
        log.write(torn)
    with closing(Journal(killed)) as journal:
        assert journal.load().records == RECORDS
        journal.append([(99, b"after")])
    assert read(killed).records == [*RECORDS, (99, b"after")]


def test_kill_between_record_and_mark_keeps_the_record(killed: Path) -> None:
    (killed / "journal.mark").write_bytes(b"%020d\n" % (len(RECORDS) - 1))
    assert read(killed).records == RECORDS


def of_another_boot(folder: Path, number: int) -> None:
    (folder / "journal.mark").write_bytes(b"%020d %-36s\n" % (number, b"b1ad26ac-8cc8-4b1b-8d5e-3a94fd0f4d3a"))


def test_machine_crash_may_lose_the_last_unsynced_records(killed: Path) -> None:
    of_another_boot(killed, RECORDS_LAST + 5)
    contents = read(killed)
    assert (contents.records, contents.may_have_lost_appends, contents.lost) == (RECORDS, True, 5)


def test_machine_crash_is_noticed_even_if_the_mark_is_as_old_as_the_log(killed: Path) -> None:
    of_another_boot(killed, RECORDS_LAST)
    contents = read(killed)
    assert (contents.records, contents.may_have_lost_appends, contents.lost) == (RECORDS, True, 0)


def test_machine_crash_is_reported_until_something_is_appended(killed: Path) -> None:
    of_another_boot(killed, RECORDS_LAST + 5)
    for _ in range(2):
        journal = Journal(killed)
        assert journal.load().may_have_lost_appends
        os.close(journal._folder_fd)  # killed
        journal._folder_fd = -1
    with closing(Journal(killed)) as journal:
        journal.load()
        journal.append([(99, b"after")])
        assert (killed / "journal.mark").read_bytes().split()[0] == b"%020d" % (RECORDS_LAST + 1)
    contents = read(killed)
    assert (contents.records, contents.may_have_lost_appends, contents.lost) == ([*RECORDS, (99, b"after")], False, 0)


@pytest.mark.parametrize("sync_full", [False, True])
def test_mark_that_names_this_boot_is_on_disk_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_full: bool
) -> None:
    """Otherwise the disk could still have the mark of a clean end when the machine crashes."""
    write(tmp_path)
    sync, synced = os.fsync, list[bytes]()

    def recorded(file: int) -> None:
        place = Path(f"/proc/self/fd/{file}")
        if not place.is_dir():
            synced.append(place.read_bytes().split()[-1])
        sync(file)

    with closing(Journal(tmp_path, sync_full=sync_full)) as journal:
        monkeypatch.setattr(os, "fsync", recorded)
        journal.load()
        assert synced == [(tmp_path / "journal.mark").read_bytes().split()[1]]
        monkeypatch.undo()
    assert (synced == [b"synced"]) == sync_full


def test_loss_without_a_machine_crash_is_refused(killed: Path) -> None:
    boot = (killed / "journal.mark").read_bytes().split()[1]
    (killed / "journal.mark").write_bytes(b"%020d %-36s\n" % (RECORDS_LAST + 5, boot))
    with pytest.raises(JournalCorruptError, match="were acknowledged"):
        read(killed)


@pytest.mark.parametrize("sync_full", [False, True])
def test_loss_of_closed_or_synced_records_is_refused(tmp_path: Path, sync_full: bool) -> None:
    with closing(Journal(tmp_path, sync_full=sync_full)) as journal:
        journal.load()
        journal.append(RECORDS)
        if sync_full:
            assert (tmp_path / "journal.mark").read_bytes().split()[1] == b"synced"
    assert (tmp_path / "journal.mark").read_bytes().split()[1] == b"synced"
    (tmp_path / "journal.mark").write_bytes(b"%020d %-36s\n" % (RECORDS_LAST + 1, b"synced"))
    with pytest.raises(JournalCorruptError, match="were acknowledged"):
        read(tmp_path)


@pytest.mark.parametrize("sync_full", [False, True])
def test_disk_is_synced_only_with_sync_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_full: bool) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with closing(Journal(tmp_path, sync_full=sync_full)) as journal:
        journal.load()
        journal.append(RECORDS)
        assert len(synced) == 2 * sync_full  # including what load has found
        journal.append([(99, b"after")], synced=True)
    assert len(synced) == 2 * sync_full + 1


def test_mark_of_an_older_version_is_readable(killed: Path) -> None:
    (killed / "journal.mark").write_bytes(b"%020d\n" % RECORDS_LAST)
    assert read(killed).records == RECORDS


@pytest.mark.parametrize("mark", [b"", bytes(60), b"%020d\n" % 0])
def test_kill_during_the_first_start_is_recovered(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "journal.mark").write_bytes(mark)
    (tmp_path / "journal.new").write_bytes(b"half a fi")
    assert read(tmp_path).records == []
    assert not (tmp_path / "journal.new").exists()


def test_folder_of_a_version_that_is_too_old_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"SQLite format 3\0")
    with pytest.raises(JournalCorruptError, match=r"the format of journal\.sqlite is too old"):
        read(tmp_path)


def test_second_server_does_not_get_the_folder(opened: Journal) -> None:
    with pytest.raises(JournalUnreadableError, match="in use by another server"):
        Journal(opened.path.parent)
    opened.append(RECORDS)
    opened.close()
    assert read(opened.path.parent).records == RECORDS


def test_folder_is_released_even_if_a_forked_child_runs(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        assert read(tmp_path).records == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("name", ["journal.mark", NAME])
def test_file_that_cannot_be_read_is_not_called_corrupt(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(JournalUnreadableError):
        read(tmp_path)


def test_mark_is_on_disk_before_the_journal_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that crashes now must not leave an empty mark next to a valid journal, which would be
    refused forever.
    """
    sync = os.fsync

    def recorded(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, (tmp_path / NAME).exists()))
        sync(file)

    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(os, "fsync", recorded)
    assert read(tmp_path).records == []
    assert ("journal.mark", False) in synced


def test_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises((JournalWriteError, JournalUnreadableError), match=r"data/journal\.log"):
        read(tmp_path / "data")


def test_compaction_uses_the_renamed_file_after_an_error(opened: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails after the renaming."""

    def fails(path: Path) -> None:
        raise OSError("no")

    opened.append(RECORDS)
    with monkeypatch.context() as patched:
        patched.setattr("distsync._server.journal.journal._sync_folder", fails)
        with pytest.raises(JournalWriteError):
            opened.compact([b"state"])
    opened.append([(99, b"after")])
    opened.close()
    contents = read(opened.path.parent)
    assert (contents.snapshot, contents.records) == ([b"state"], [(99, b"after")])


CALLS = ("open", "pwrite", "fsync", "fdatasync", "replace", "ftruncate", "unlink", "close")
DYING = 137


class Deadly:
    """The module ``os``, whose ``which``-th modifying call ends the process."""

    def __init__(self, which: int) -> None:
        self.left = which

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return partial(self._call, real) if name in CALLS else real

    def _call(self, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if not self.left:
            os._exit(DYING)
        return real(*arguments, **named)


def live(folder: Path, which: int, sync_full: bool, acknowledged: int) -> None:
    """Use a journal in a child that exits at this call, and record what was acknowledged."""
    journal_module.os = Deadly(which)  # type: ignore[attr-defined]
    journal = Journal(folder, sync_full=sync_full)
    state = numbers(journal.load())
    for turn in range(3):
        state.append(len(state) + 1)
        journal.append([(state[-1], b"x")])
        os.pwrite(acknowledged, b"%08d" % state[-1], 0)
        if turn == 1:
            journal.compact([bytes(state)])
    journal.close()


def numbers(contents: JournalContents) -> list[int]:
    return [*b"".join(contents.snapshot), *(zxid for zxid, _ in contents.records)]


@pytest.mark.parametrize("sync_full", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_crash_at_any_call_loses_no_acknowledged_record(tmp_path: Path, sync_full: bool, used: bool) -> None:
    which, status = 0, DYING
    while status == DYING:
        which += 1
        folder = tmp_path / str(which)
        if used:
            write(folder, [(1, b"x"), (2, b"x")])
        with open(tmp_path / f"{which}.told", "w+b", buffering=0) as told:
            child = os.fork()
            if not child:
                live(folder, which, sync_full, told.fileno())
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            known = int(told.read() or 0)
        with closing(Journal(folder, sync_full=sync_full)) as journal:
            found = numbers(journal.load())
            assert found == [*range(1, len(found) + 1)], which
            assert known <= len(found), which
            journal.append([(len(found) + 1, b"x")])
        assert numbers(read(folder)) == [*found, len(found) + 1], which
    assert which > 15


def test_mark_that_cannot_be_written_keeps_its_content(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_another_boot(killed, RECORDS_LAST)

    def fails(mark: object) -> None:
        raise OSError("no")

    with closing(Journal(killed)) as journal:
        journal.load()
        with monkeypatch.context() as patched:
            patched.setattr("distsync._server.journal.watermark.Watermark.sync", fails)
            with pytest.raises(JournalWriteError):
                journal.append([(99, b"after")])
    contents = read(killed)
    assert (contents.records, contents.may_have_lost_appends, contents.lost) == (RECORDS, True, 0)


def test_folder_above_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        if path == tmp_path:
            raise PermissionError("no")

    monkeypatch.setattr("distsync._server.journal.journal._sync_folder", fails)
    write(tmp_path / "data")
    assert read(tmp_path / "data").records == RECORDS


def test_unknown_boot_id_matches_any(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distsync._server.journal.watermark.BOOT", killed / "none")
    for _ in range(2):
        with closing(Journal(killed)) as journal:
            assert journal.load().may_have_lost_appends
            journal.append([(99, b"after")])
            for file in killed.iterdir():
                (killed.parent / f"copy-{file.name}").write_bytes(file.read_bytes())
        for file in killed.iterdir():
            file.write_bytes((killed.parent / f"copy-{file.name}").read_bytes())
