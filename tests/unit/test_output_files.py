"""Files that a person asked for: nothing that another account laid there is followed, and a refusal says what to do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from assistant.errors import InputError
from assistant.output_files import output_folder, write_output

AS_ROOT = os.geteuid() == 0
STRANGER = 12_345
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can make files of another account")


def test_a_file_is_written_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_output(path, "first, and longer")
    path.chmod(0o600)
    write_output(path, "Größe".encode())
    assert path.read_text(encoding="utf-8") == "Größe"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "report.html", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o640


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_a_link_is_refused_and_what_it_names_is_left_alone(there: bool, tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "report.html"
    if there:
        victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(InputError, match=r"report\.html: wanted no file there .* found a link .* remove it"):
        write_output(path, "gone")
    assert victim.exists() == there
    assert not there or victim.read_text() == "precious"
    assert path.is_symlink()
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".part")]


def test_a_second_name_of_a_file_keeps_its_content(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "report.html"
    victim.write_text("precious")
    path.hardlink_to(victim)
    write_output(path, "new")
    assert (victim.read_text(), path.read_text()) == ("precious", "new")


def test_pipes_folders_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError, match="a regular one of this account"):
            write_output(tmp_path / name, "x")
    for place in (Path("/dev/null"), Path("/dev/stdout"), tmp_path / "missing" / "file", tmp_path / "..", Path("/")):
        with pytest.raises(InputError):
            write_output(place, "x")
    assert Path("/dev/null").is_char_device()


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InputError, match=r"wanted a place that only this account can change, found a folder, .*open.* mode 0777"):
        write_output(folder / "report.html", "x")
    with pytest.raises(InputError, match="name a folder of your own"):
        output_folder(folder / "figures")
    assert list(folder.iterdir()) == []
    # as /tmp: nobody can replace there what is another's
    folder.chmod(0o1777)
    write_output(folder / "report.html", "x")
    assert (folder / "report.html").read_text() == "x"


def test_a_link_of_ours_to_a_folder_of_ours_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_output(tmp_path / "link" / "report.html", "x")
    assert (tmp_path / "real" / "report.html").read_text() == "x"


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    folder = output_folder(tmp_path / "a" / "b" / "c")
    assert folder.is_dir()
    assert output_folder(folder) == folder
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="wanted a folder at"):
        output_folder(tmp_path / "file")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(InputError):
        output_folder(tmp_path / "dangling")
    assert not (tmp_path / "nowhere").exists()


@needs_root
def test_root_writes_into_no_folder_of_another_account(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    for place in (folder / "report.html", folder / "deep" / "report.html"):
        with pytest.raises(InputError, match=f"of user {STRANGER}"):
            write_output(place, "x")
    with pytest.raises(InputError, match="or run it as that user"):
        output_folder(folder / "figures")
    os.chown(folder, 0, STRANGER)
    folder.chmod(0o775)
    with pytest.raises(InputError, match=f"group {STRANGER}, mode 0775"):
        write_output(folder / "report.html", "x")
    assert list(folder.iterdir()) == []


@needs_root
def test_root_follows_no_link_of_another_account_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "figures").symlink_to(tmp_path / "real")
    os.lchown(shared / "figures", STRANGER, STRANGER)
    with pytest.raises(InputError, match="found a link"):
        write_output(shared / "figures" / "left_out.csv", "x")
    (shared / "report.html").write_text("theirs")
    os.chown(shared / "report.html", STRANGER, STRANGER)
    with pytest.raises(InputError, match=f"of user {STRANGER}, which is not followed"):
        write_output(shared / "report.html", "x")
    assert list((tmp_path / "real").iterdir()) == []


def test_a_disk_that_fails_leaves_the_old_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        write_output(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_text_that_utf_8_does_not_have_is_written_all_the_same(tmp_path: Path) -> None:
    write_output(tmp_path / "report.html", "a\ud800b")
    assert (tmp_path / "report.html").read_bytes() == b"a?b"
