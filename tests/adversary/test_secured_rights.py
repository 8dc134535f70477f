"""A checkpoint is given a second name with its owner's rights, of that owner's plain files alone, and nothing is followed.

Alice is `daemon`, bob is `games`; both are in no group of the other. Needs root, as Nightshift on a shared cluster has it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from assistant.errors import NightshiftError, ToolError
from assistant.recover.checkpoints.second_names import Links, link_all, linked_content, planned_links, unlink_all, withdraw_links
from tests.adversary.test_aside_rights import ALICE, BOB, NAME, checkpoint, folder_of, held, home, own

__all__ = ["home"]  # a fixture

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act with the rights of another account")


def run_of(home: Path, user: str = ALICE, mode: int = 0o755) -> Path:
    """Return a checkpoint in the folder `ckpt` of a run of a user."""
    run = folder_of(home, user, mode)
    (run / "ckpt").mkdir()
    return checkpoint(own(run / "ckpt", user), user)


def planned(path: Path, account: str = ALICE) -> Links:
    return planned_links(path, [path.name], account)


def secured(path: Path, account: str = ALICE) -> Path:
    links = planned(path, account)
    assert link_all(links, account, "t")
    return links.folder / path.name


def test_what_is_alices_is_linked_and_unlinked_with_her_rights(home: Path) -> None:
    path = run_of(home, mode=0o700)
    before = held(home)
    links = planned(path)
    assert link_all(links, ALICE, "t")
    assert not link_all(links, ALICE, "t"), "once more, as after a crash"
    uid = pwd.getpwnam(ALICE).pw_uid
    assert {entry.lstat().st_uid for entry in (path.parents[1] / "nightshift-secured").rglob("*")} == {uid}
    assert linked_content(links.folder, ALICE) == links.content
    assert unlink_all(links.folder, links.content, ALICE, "u")
    assert held(home) == before


def a_link_in_it(path: Path) -> None:
    (path / "extra.pt").symlink_to("/etc/shadow")


def a_link_to_a_folder_in_it(path: Path) -> None:
    (path / "extra").symlink_to("/etc")


def a_pipe_in_it(path: Path) -> None:
    os.mkfifo(path / "pipe")


def a_file_of_bob_in_it(path: Path) -> None:
    (path / "extra.pt").write_bytes(b"x")
    own(path / "extra.pt", BOB)


def a_folder_of_bob_in_it(path: Path) -> None:
    (path / "extra").mkdir()
    own(path / "extra", BOB, 0o777)


def a_link_in_its_place(path: Path) -> None:
    other = path.parent.parent / "other"
    path.rename(other)
    path.symlink_to(other)


def a_pipe_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


def very_many_files(path: Path) -> None:
    for number in range(60):
        (path / f"rank_{number}.pt").write_bytes(b"x")
        own(path / f"rank_{number}.pt", ALICE)


CHANGES = (
    a_link_in_it, a_link_to_a_folder_in_it, a_pipe_in_it, a_file_of_bob_in_it, a_folder_of_bob_in_it, a_link_in_its_place,
    a_pipe_in_its_place, very_many_files,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_plain_file_of_hers_is_refused_before_anything_is_made(
    home: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assistant.recover.checkpoints.second_names.MOST_FILES", 50)
    path = run_of(home)
    change(path)
    before = held_names(home)
    with pytest.raises(ToolError):
        planned(path)
    assert held_names(home) == before


@pytest.mark.parametrize("change", [change for change in CHANGES if change is not very_many_files])
def test_what_becomes_so_behind_the_decision_is_taken_back(home: Path, change: Callable[[Path], None]) -> None:
    path = run_of(home)
    links = planned(path)
    change(path)
    before = held_names(home)
    with pytest.raises(ToolError):
        link_all(links, ALICE, "t")
    assert not links.folder.exists()
    assert {name for name in held_names(home) if "nightshift-secured" in name} == set()
    assert held_names(home) == before


def held_names(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*")}


def test_a_job_of_bob_makes_no_name_of_what_is_alices(home: Path) -> None:
    path = run_of(home, mode=0o777)
    before = held(home)
    with pytest.raises(ToolError, match=r"belongs to uid|may not be"):
        secured(path, BOB)
    assert held(home) == before


def test_where_she_may_not_write_beside_her_folder_it_is_refused(home: Path) -> None:
    (home / BOB).mkdir()
    own(home / BOB, BOB, 0o755)
    (home / BOB / "ckpt").mkdir()
    path = checkpoint(own(home / BOB / "ckpt", ALICE), ALICE)
    before = held(home)
    with pytest.raises(ToolError, match=r"may not be changed|may not make one"):
        secured(path)
    assert held(home) == before


@pytest.mark.parametrize("place", ["nightshift-secured", "nightshift-secured/ckpt"])
def test_a_link_where_our_folder_would_be_leads_nowhere(home: Path, place: str) -> None:
    path = run_of(home)
    bobs = folder_of(home, BOB, 0o777)
    if "/" in place:
        (path.parents[1] / "nightshift-secured").mkdir()
        own(path.parents[1] / "nightshift-secured", ALICE)
    (path.parents[1] / place).symlink_to(bobs)
    with pytest.raises(ToolError):
        secured(path)
    assert list(bobs.iterdir()) == []


def test_a_folder_of_bob_in_that_place_is_not_used(home: Path) -> None:
    path = run_of(home, mode=0o777)
    (path.parents[1] / "nightshift-secured").mkdir()
    own(path.parents[1] / "nightshift-secured", BOB, 0o777)
    with pytest.raises(ToolError, match="belongs to uid"):
        secured(path)
    assert list((path.parents[1] / "nightshift-secured").iterdir()) == []


def test_the_undo_removes_nothing_that_somebody_put_there_meanwhile(home: Path) -> None:
    path = run_of(home)
    second = secured(path)
    content = linked_content(second.parent, ALICE) or ""
    (second / "model.pt").unlink()
    (second / "model.pt").write_bytes(bytes(100))
    own(second / "model.pt", ALICE)
    with pytest.raises(ToolError, match="does not hold what was linked"):
        unlink_all(second.parent, content, ALICE, "u")
    assert (second / "model.pt").is_file()
    (second / "model.pt").unlink()
    (second / "model.pt").symlink_to("/etc/shadow")
    with pytest.raises(ToolError):
        unlink_all(second.parent, content, ALICE, "u")
    assert (second / "model.pt").is_symlink()


def test_a_program_that_removes_it_meanwhile_leaves_a_whole_one_or_none(home: Path) -> None:
    for turn in range(12):
        own_home = home / str(turn)
        own_home.mkdir()
        path = run_of(own_home)
        for rank in range(30):
            (path / f"rank_{rank}.pt").write_bytes(b"x" * rank)
            own(path / f"rank_{rank}.pt", ALICE)
        links = planned(path)
        names = {entry.name for entry in path.iterdir()}
        start = threading.Event()

        def remove(path: Path = path, start: threading.Event = start) -> None:
            start.wait()
            shutil.rmtree(path)

        thread = threading.Thread(target=remove)
        thread.start()
        start.set()
        with suppress(NightshiftError):
            link_all(links, ALICE, "t")
        thread.join()
        with suppress(NightshiftError):
            withdraw_links(links.folder, ALICE, "t")
        second = links.folder / NAME
        assert not second.exists() or {entry.name for entry in second.iterdir()} == names
