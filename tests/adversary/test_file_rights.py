"""Files that a job's owner may not read: nothing of them is shown, whatever rights Nightshift itself has."""

from __future__ import annotations

import dataclasses
import os
import pwd
from pathlib import Path

import pytest

from assistant.accounts import Account, may_read
from assistant.engine import Engine
from assistant.errors import OwnerDenied
from assistant.untrusted import read_whole, reading_as, walk_files, within
from tests.adversary.shown import Shown, job, made_engine

ROOT = os.geteuid() == 0


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return made_engine(tmp_path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:3]:
        above.chmod(above.stat().st_mode | 0o011)
    path = tmp_path / "secret"
    path.write_text("root:$y$hash\n")
    path.chmod(0o640)
    return path


@pytest.mark.skipif(not ROOT, reason="only root can read with the rights of another account")
@pytest.mark.parametrize("account", ["daemon", "an-account-that-nobody-has", str(pwd.getpwnam("daemon").pw_uid)])
def test_root_reads_with_the_rights_of_the_jobs_owner(secret: Path, account: str) -> None:
    link, shown = secret.with_name("job.log"), secret.with_name("shown")
    link.symlink_to(secret)
    shown.write_text("for all")
    shown.chmod(0o644)
    hidden = secret.with_name("hidden")
    hidden.mkdir(0o700)
    (hidden / "public").write_text("behind a closed door")
    (hidden / "public").chmod(0o644)
    with reading_as(account):
        assert read_whole(shown) == b"for all"
        for path in (link, secret, hidden / "public"):
            with pytest.raises(PermissionError):
                read_whole(path)
        with pytest.raises(PermissionError):
            list(walk_files(hidden))
        assert within(5, lambda: read_whole(shown), "it") == b"for all"
        with pytest.raises(PermissionError):
            within(5, lambda: read_whole(link), "it")
    assert read_whole(secret), "afterwards we are ourselves again"


@pytest.mark.skipif(not ROOT, reason="only root can read with the rights of another account")
def test_a_job_whose_log_is_a_link_to_a_secret_shows_none_of_it(engine: Engine, secret: Path) -> None:
    link = secret.with_name("job.log")
    link.symlink_to(secret)
    cluster = engine.scheduler
    assert isinstance(cluster, Shown)
    cluster.shown = [dataclasses.replace(job(link), account="daemon")]
    engine.clock.sleep(120)
    (incident,) = engine.look()
    engine.resume(owner="test")
    texts = [one.text for one in engine.store.evidence(incident.id)]
    assert not any("$y$hash" in text for text in texts)
    outcome = engine.gate.call("tail_log", {"job": "7"}, why="a test", by="test")
    assert "hash" not in f"{outcome.value}{outcome.error}"


@pytest.mark.skipif(not ROOT, reason="makes links of another account")
def test_another_users_link_is_not_followed_to_what_is_not_theirs(secret: Path) -> None:
    link = secret.with_name("job.log")
    link.symlink_to(secret)
    os.lchown(link, 1, 1)
    with pytest.raises(OwnerDenied, match="name the file itself"):
        read_whole(link)


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "allowed"),
    [
        (7, 1, 0o600, True),
        (0, 1, 0o600, False),
        (0, 70, 0o640, True),
        (0, 71, 0o640, True),
        (0, 1, 0o644, True),
        (0, 1, 0o640, False),
    ],
)
def test_without_root_the_mode_tells_what_the_owner_may_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, gid: int, mode: int, allowed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 99)
    status = os.stat_result((mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))
    assert may_read(Account("ada", 7, 70, (70, 71)), tmp_path, status) is allowed
