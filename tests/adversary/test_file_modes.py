"""Threat: another user of the machine reads what Nightshift keeps. Nothing it makes is open to others, not for a moment."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.agent.conversation import open_talks
from assistant.agent.dialogue import Dialogue, keep
from assistant.cli.main import _keep, main
from assistant.errors import ConfigError, StoreError
from assistant.evaluation.files import RunFolder, append, claim, locked, write_json
from assistant.evaluation.metric import scored
from assistant.evaluation.model_cache import Shelf
from assistant.evaluation.work import Piece
from assistant.ports import JumpingClock, SystemClock
from assistant.private_files import append_private, close_state_folder, create_private, private_folder
from assistant.records import JobSpec
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.tui.sessions import _append
from assistant.tui.talk import write_new_file

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home under a umask that takes nothing away, where no mode may be mended after a file was made."""
    for name in [name for name in os.environ if name.startswith("NIGHTSHIFT_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)

    def refuse(*arguments: object, **_: object) -> None:
        raise AssertionError(f"a mode was changed after the file was there: {arguments}")

    for name in ("chmod", "fchmod", "lchmod"):
        monkeypatch.setattr(os, name, refuse, raising=False)
    before = os.umask(0)
    yield tmp_path / "xdg_state_home"
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return what anybody but the owner may read, write or enter, with its mode."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in paths if not path.is_symlink()}
    return [f"{path.relative_to(folder)} {mode:04o}" for path, mode in sorted(modes.items()) if mode & 0o077]


COMMANDS = (
    ["status"],
    ["jobs"],
    ["incidents"],
    ["audit", "verify"],
    ["audit", "head"],
    ["ask", "what is wrong right now?"],
    ["watch", "--once"],
    ["breaker", "open", "--why", "a drill"],
    ["evaluate", "--help"],
)


def test_the_doors_leave_nothing_open(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in COMMANDS:
        with suppress(SystemExit):
            main(list(words))
    capsys.readouterr()
    made = [path.name for path in state.rglob("*")]
    assert {"nightshift.db", "nightshift.db.key", "cluster.json"} <= set(made), made
    assert open_to_others(state) == []


def test_the_files_of_sqlite_beside_the_store_are_private_while_it_is_open(state: Path) -> None:
    with Store(state / "s.db", JumpingClock(NOON)) as store:
        store.set_flag("blind", True, why="w", by="watch")
        assert {path.name for path in state.iterdir()} >= {"s.db", "s.db-wal", "s.db-shm", "s.db.key"}
        assert open_to_others(state) == []


def test_conversations_crashes_and_exports_are_private(state: Path) -> None:
    assert _keep("Traceback") is not None
    keep(state / "nightshift" / "spoken.db", "t", Dialogue())
    open_talks(state / "nightshift" / "conversations.db").conn.close()
    _append(state / "nightshift" / "conversations" / "today.jsonl", b"{}")
    export = write_new_file(None, "today", "text")
    assert open_to_others(state) == []
    assert stat.S_IMODE(export.stat().st_mode) == 0o600


def test_a_job_of_the_local_scheduler_is_private_with_its_script_and_environment(state: Path, tmp_path: Path) -> None:
    scheduler = LocalScheduler(state / "local", SystemClock())
    job = scheduler.submit(JobSpec("secret", "#!/bin/sh\ntrue\n", work_dir=tmp_path, environment={"WANDB_API_KEY": "x"}))
    assert (state / "local" / "jobs" / job / "script.sh").exists()
    assert open_to_others(state) == []
    scheduler.cancel(job)


def test_files_of_an_evaluation_are_private(state: Path) -> None:
    run = state / "nightshift" / "evaluations" / "nightly-1"
    write_json(run / "scores" / "gsm8k.json", {"score": 0.5})
    assert claim(run / "jobs" / "1" / "owner", "me") == "me"
    append(run / "journal.jsonl", {"did": "begin"})
    with locked(run / "coordinator.lock"), Shelf(state / "memory").lock_folder("model"):
        assert open_to_others(state) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's closed programs run as somebody else")
def test_what_a_closed_metric_reads_is_open_to_it_and_to_nobody_else(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # modes may be changed here
    run = RunFolder(state / "run")
    piece = Piece("gsm8k", 0, 1)
    private_folder(run.out(piece).parent)
    run.out(piece).write_text('{"answer": 42}\n')
    text = (
        "import json,os,sys; p=sys.argv[1]; o=os.path.dirname(p); m=[oct(os.stat(x).st_mode)+str(os.stat(x).st_uid) for x in (o,)]"
    )
    text += "; json.dump({'score': float('42' in open(p).read()), 'modes': m, 'uid': os.getuid()}, open(sys.argv[2], 'w'))"
    asked = {"name": "gsm8k", "items": 1, "metric": f"{{python}} -c {shlex.quote(text)} {{out}} {{score}}"}
    found = scored(run, asked | {"data": "", "sandbox": True, "timeout_s": 60.0})
    assert found["score"] == 1.0
    assert open_to_others(state) == ["run/out/gsm8k/0-1 0666"], (
        "the user's own program made it as its umask says, in closed folders"
    )


def test_a_laxer_file_and_state_folder_of_ours_are_closed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "crashes.log").write_text("")
    (folder / "crashes.log").chmod(0o644)
    close_state_folder(folder)
    append_private(folder / "crashes.log").close()
    assert open_to_others(folder) == []


def test_a_folder_that_others_share_is_no_state_folder(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigError, match="which others share; name a folder inside it"):
        close_state_folder(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_what_belongs_to_somebody_else_and_is_open_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "store.db"
    theirs.write_text("")
    theirs.chmod(0o666)
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ConfigError, match="found one of user 12345 in a folder of user 0"):
        Store(theirs, JumpingClock(NOON))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        create_private(tmp_path / "link")
    assert (tmp_path / "target").read_text() == "theirs"


def test_missing_parents_are_private_too(state: Path) -> None:
    private_folder(state / "a" / "b" / "c")
    assert open_to_others(state) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal", ".key"])
@pytest.mark.parametrize("sort", ["file", "private file", "link", "pipe"])
def test_what_somebody_put_where_the_store_goes_is_not_used(ending: str, sort: str, tmp_path: Path) -> None:
    folder, target = tmp_path / "shared", tmp_path / "target"
    folder.mkdir()
    folder.chmod(0o1777)
    target.write_text("ours")
    planted = folder / f"store.db{ending}"
    if sort == "link":
        planted.symlink_to(target)
    elif sort == "pipe":
        os.mkfifo(planted)
    else:
        planted.write_text("")
        planted.chmod(0o666 if sort == "file" else 0o600)
    os.lchown(planted, 12345, 12345)
    with pytest.raises((ConfigError, StoreError)):
        Store(folder / "store.db", JumpingClock(NOON))
    assert target.read_text() == "ours"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_no_store_is_made_below_a_folder_of_somebody_else_but_theirs_is_opened(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "state").mkdir(parents=True)
    os.chown(home, 12345, 12345)
    with pytest.raises(ConfigError, match="of user 12345"):
        Store(home / "state" / "store.db", JumpingClock(NOON))
    # the account that runs the watch has a store of its own, which root may look at
    Store(tmp_path / "store.db", JumpingClock(NOON)).close()
    for path in (home / "state", *tmp_path.glob("store.db*")):
        os.chown(path, 12345, 12345)
        if path.is_file():
            path.rename(home / "state" / path.name)
    Store(home / "state" / "store.db", JumpingClock(NOON)).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_private_file_of_somebody_else_is_not_written(tmp_path: Path) -> None:
    theirs = tmp_path / "planted"
    theirs.write_text("")
    theirs.chmod(0o600)
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ConfigError, match="of user 12345"):
        create_private(theirs)
