"""Checkpoints are set aside and trackers set with the rights of the job's owner, in that owner's folders, and nowhere else.

Alice is `daemon`, bob is `games`; both are in no group of the other. Needs root, as Nightshift on a shared cluster has it.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest

from assistant.accounts import account_of, as_account
from assistant.errors import NightshiftError, ToolError
from assistant.recover.checkpoints import aside
from assistant.recover.checkpoints.aside import Move, move, moves_aside, moves_back, tracker_text, write_tracker

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act with the rights of another account")

ALICE, BOB = "daemon", "games"
NAME = "iter_0000040"
TRACKER = "latest_checkpointed_iteration.txt"


def own(path: Path, user: str, mode: int | None = None, group: str = "") -> Path:
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, pwd.getpwnam(group).pw_gid if group else entry.pw_gid, follow_symlinks=False)
    if mode is not None:
        path.chmod(mode)
    return path


def checkpoint(folder: Path, user: str) -> Path:
    path = folder / NAME
    path.mkdir()
    (path / "model.pt").write_bytes(bytes(100))
    own(path / "model.pt", user)
    tracker = folder / TRACKER
    tracker.write_text("40")
    own(tracker, user, 0o640)
    return own(path, user)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o011)
    return tmp_path


def folder_of(home: Path, user: str, mode: int = 0o755, group: str = "") -> Path:
    (home / user).mkdir(exist_ok=True)
    return own(home / user, user, mode, group)


def held(home: Path) -> dict[str, tuple[int, str]]:
    """Everything below a folder: owner, and text or target."""
    return {
        str(path.relative_to(home)): (
            path.lstat().st_uid,
            str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "/",
        )
        for path in sorted(home.rglob("*"))
    }


def in_closed_folder(home: Path) -> Path:
    return checkpoint(folder_of(home, ALICE, 0o700), ALICE)


def behind_a_link_of_hers(home: Path) -> Path:
    made = in_closed_folder(home)
    (home / "scratch").symlink_to(made.parent)
    return home / "scratch" / NAME


def in_group_folder(home: Path) -> Path:
    return checkpoint(folder_of(home, BOB, 0o2775, group=ALICE), ALICE)


def in_sticky_folder(home: Path) -> Path:
    return checkpoint(folder_of(home, BOB, 0o1777), ALICE)


@pytest.mark.parametrize("made", [in_closed_folder, behind_a_link_of_hers, in_group_folder, in_sticky_folder])
def test_what_is_alices_is_moved_with_her_rights_and_put_back(home: Path, made: Callable[[Path], Path]) -> None:
    path = made(home)
    real = path.parent.resolve()
    before = held(home)
    (change,) = moves_aside([path], ALICE)
    assert change.target == real / "nightshift-refused" / NAME
    assert move(change, ALICE)
    assert not move(change, ALICE), "once more, as after a crash"
    refused = real / "nightshift-refused"
    assert (change.target / "model.pt").is_file()
    assert refused.stat().st_uid == pwd.getpwnam(ALICE).pw_uid
    assert refused.stat().st_mode & 0o777 == real.stat().st_mode & 0o777
    (back,) = moves_back([change.target], ALICE)
    assert move(back, ALICE)
    refused.rmdir()
    assert held(home) == before
    tracker = real / TRACKER
    write_tracker(tracker, "20", ALICE, before=tracker_text(tracker, ALICE))
    status = tracker.stat()
    assert (tracker.read_text(), status.st_uid, status.st_mode & 0o777) == ("20", pwd.getpwnam(ALICE).pw_uid, 0o640)
    write_tracker(tracker, "40", ALICE, before="20")
    assert held(home) == before


def of_bob(home: Path) -> Path:
    return checkpoint(folder_of(home, BOB), BOB)


def of_bob_for_all(home: Path) -> Path:
    return checkpoint(folder_of(home, BOB, 0o777), BOB)


def of_bob_in_hers(home: Path) -> Path:
    return checkpoint(folder_of(home, ALICE, 0o777), BOB)


def of_bob_in_sticky(home: Path) -> Path:
    return checkpoint(folder_of(home, ALICE, 0o1777), BOB)


def her_link_to_bobs(home: Path) -> Path:
    folder_of(home, ALICE)
    (home / ALICE / "ckpt").symlink_to(of_bob_for_all(home).parent)
    return home / ALICE / "ckpt" / NAME


def may_not_write(home: Path) -> Path:
    path = checkpoint(folder_of(home, ALICE, 0o500), ALICE)
    own(path.parent, BOB, 0o555)
    return path


def closed_by_bob(home: Path) -> Path:
    return checkpoint(folder_of(home, BOB, 0o700), ALICE)


def aside_is_a_link(home: Path) -> Path:
    path = in_closed_folder(home)
    (path.parent / "nightshift-refused").symlink_to(folder_of(home, BOB, 0o777))
    return path


def aside_is_bobs(home: Path) -> Path:
    path = in_sticky_folder(home)
    own(path.parent, ALICE, 0o1777)
    (path.parent / "nightshift-refused").mkdir()
    own(path.parent / "nightshift-refused", BOB, 0o777)
    return path


NOT_HERS = [of_bob, of_bob_for_all, of_bob_in_hers, of_bob_in_sticky, her_link_to_bobs, may_not_write, closed_by_bob]


@pytest.mark.parametrize("made", [*NOT_HERS, aside_is_a_link, aside_is_bobs])
def test_what_is_not_hers_or_leads_elsewhere_stays(home: Path, made: Callable[[Path], Path]) -> None:
    path = made(home)
    before = held(home)
    with pytest.raises(ToolError):
        any(move(change, ALICE) for change in moves_aside([path], ALICE))
    assert held(home) == before


@pytest.mark.parametrize("made", NOT_HERS)
def test_a_tracker_that_is_not_hers_stays(home: Path, made: Callable[[Path], Path]) -> None:
    tracker = made(home).parent / TRACKER
    before = held(home)
    with pytest.raises(ToolError):
        write_tracker(aside.resolved(tracker, ALICE), "20", ALICE, before="40")
    assert held(home) == before


@pytest.mark.parametrize("name", ["nightshift-refused/../../games", "../games/nightshift-refused", "nightshift-refused/x/y"])
def test_nothing_is_put_back_from_elsewhere(home: Path, name: str) -> None:
    checkpoint(folder_of(home, BOB, 0o777), ALICE)
    (folder_of(home, ALICE) / "nightshift-refused").mkdir()
    before = held(home)
    with pytest.raises(ToolError):
        any(move(change, ALICE) for change in moves_back([home / ALICE / name / NAME], ALICE))
    assert held(home) == before


def test_roots_own_checkpoint_is_not_moved_through_a_link_of_another(home: Path) -> None:
    folder = folder_of(home, BOB, 0o777)
    path = checkpoint(folder, "root")
    (home / "etc").mkdir()
    (folder / "nightshift-refused").symlink_to(home / "etc")
    before = held(home)
    with pytest.raises(ToolError):
        move(moves_aside([path], "")[0], "")
    assert held(home) == before


@pytest.mark.parametrize("seconds", [0.6])
def test_links_that_are_exchanged_meanwhile_lead_nowhere_else(home: Path, seconds: float) -> None:
    """Bob's folder is open to all, and a process of alice exchanges her folder for a link to it as fast as it can."""
    hers, bobs = in_closed_folder(home).parent, folder_of(home, BOB, 0o777)
    checkpoint(bobs, BOB)
    link = home / "ckpt"
    link.symlink_to(hers)
    before, over, swaps = held(bobs), threading.Event(), 0

    def exchange() -> None:
        nonlocal swaps
        for target in cycle((bobs, hers)):
            new = home / "new"
            new.symlink_to(target)
            new.rename(link)
            swaps += 1
            if over.is_set():
                return

    thread = threading.Thread(target=exchange)
    thread.start()
    moved, refused = 0, 0
    timer = threading.Timer(seconds, over.set)
    timer.start()
    try:
        while not over.is_set():
            try:
                (change,) = moves_aside([link / NAME], ALICE)
                moved += move(change, ALICE)
                if (hers / "nightshift-refused" / NAME).exists():
                    move(Move(change.target, change.source, change.content), ALICE)
                write_tracker(aside.resolved(link / TRACKER, ALICE), "40", ALICE, before="40")
            except NightshiftError:
                refused += 1
    finally:
        over.set()
        thread.join()
        timer.join()
    assert held(bobs) == before
    assert swaps
    assert moved + refused > 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_tracker_that_cannot_be_written_is_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    tracker = in_closed_folder(home).parent / TRACKER
    before = held(home)

    def full(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NightshiftError) as refused:
        write_tracker(tracker, "20", ALICE, before="40")
    assert isinstance(refused.value, ToolError) is (code != errno.EIO), "behind EIO nobody knows what is on the disk"
    assert held(home) == before


CHILD = """
import sys
from pathlib import Path
from assistant.errors import NightshiftError
from assistant.recover.checkpoints.aside import move, moves_aside
try:
    changes = moves_aside([Path(sys.argv[1])], sys.argv[2])
    print([move(change, sys.argv[2]) for change in changes])
except NightshiftError as error:
    print(type(error).__name__, error)
"""
NO_OVERRIDE = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
"""Root that a file server takes for nobody: it passes no mode, and may still become another account."""


def as_process(words: list[str], path: Path, account: str) -> str:
    done = subprocess.run(
        ["/usr/bin/setpriv", *words, sys.executable, "-c", CHILD, str(path), account],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr


def test_a_folder_that_root_itself_may_not_read_is_worked_on_with_her_rights(home: Path) -> None:
    path = in_closed_folder(home)
    blind = as_process(NO_OVERRIDE, path, "")
    assert blind.startswith("ToolError"), blind
    assert as_process(NO_OVERRIDE, path, ALICE) == "[True]"
    assert (path.parent / "nightshift-refused" / NAME / "model.pt").is_file()


def test_without_root_the_files_of_another_are_not_touched(home: Path) -> None:
    path = checkpoint(folder_of(home, BOB, 0o777), ALICE)
    bob = pwd.getpwnam(BOB)
    told = as_process([f"--reuid={bob.pw_uid}", f"--regid={bob.pw_gid}", "--clear-groups"], path, ALICE)
    assert "are changed with the rights of daemon only" in told or "Permission denied" in told, told
    assert path.is_dir()


def test_rights_that_are_taken_inside_of_others_end_with_those() -> None:
    def file_uid() -> int:
        return int(Path("/proc/thread-self/status").read_text().split("Uid:")[1].split()[3])

    with as_account(account_of(ALICE)):
        hers = file_uid()
        with as_account(account_of(BOB)):
            assert file_uid() == pwd.getpwnam(BOB).pw_uid
        assert file_uid() == hers == pwd.getpwnam(ALICE).pw_uid
        with suppress(PermissionError):
            Path("/etc/shadow").read_bytes()
            raise AssertionError("read with root's rights")
    assert file_uid() == 0
