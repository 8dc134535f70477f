"""Anchors: where the head of the audit goes, when, and that a store that contradicts one is found."""

from __future__ import annotations

import os
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.cli.main import main
from assistant.config import Settings
from assistant.config.settings import AuditSettings
from assistant.daemon.audit_anchors import AuditAnchors, anchor_line, anchored_heads, write_anchor
from assistant.errors import ConfigError, NightshiftError
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Event, EventKind, Outcome
from assistant.store import Store

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "s.db", JumpingClock(START))
    made.open_incident(Event(EventKind.HANG, "7", None, START))
    return made


def settings(tmp_path: Path, *anchor: str) -> Settings:
    return Settings(state_folder=tmp_path, store=tmp_path / "s.db", audit=AuditSettings(anchor or (f"file:{tmp_path / 'heads'}",)))


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "heads").read_text().splitlines()


def test_the_head_goes_out_at_once_then_after_each_change_and_every_few_minutes(tmp_path: Path, store: Store) -> None:
    anchors = AuditAnchors(settings(tmp_path), store)
    anchors.write()
    anchors.write()
    assert len(lines(tmp_path)) == 1
    store.mark_stage(1, "diagnosed")
    anchors.write()
    assert len(lines(tmp_path)) == 1, "nothing on the cluster was changed"
    call = store.write_call(Call(0, 1, "cordon_node", {}, "w", "cli:a", START, CallStatus.INTENT), kind="cordon")
    store.write_outcome(Outcome(call.id, True, "", "", START))
    anchors.write()
    assert len(lines(tmp_path)) == 2
    store.mark_stage(1, "verified")
    store.clock.sleep(601)  # type: ignore[attr-defined]
    anchors.write()
    assert len(lines(tmp_path)) == 3
    assert lines(tmp_path)[-1].endswith(f"head={store.head()}")
    assert stat.S_IMODE((tmp_path / "heads").stat().st_mode) == 0o600


def test_kept_heads_are_those_of_this_store(tmp_path: Path, store: Store) -> None:
    chosen = settings(tmp_path)
    (tmp_path / "heads").write_text(f"x nightshift-audit store=/other.db head=1:{'0' * 64}\nnot a line\n")
    (tmp_path / "heads").chmod(0o600)
    write_anchor(chosen, chosen.audit.anchor[0], anchor_line(store, store.head()), 1)
    ((_, heads),) = anchored_heads(chosen, store)
    assert heads == [store.head()]


@pytest.mark.parametrize("older", [True, False])
def test_verify_compares_with_the_file(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, older: bool
) -> None:
    for name in [name for name in os.environ if name.startswith("NIGHTSHIFT_")]:
        monkeypatch.delenv(name)
    copy = tmp_path / "older.db"
    store.rows("VACUUM INTO ?", [str(copy)])
    store.set_flag("blind", True, why="w", by="watch")
    config = tmp_path / "config.toml"
    config.write_text(f'state_folder = "{tmp_path}"\nstore = "{store.path}"\n[audit]\nanchor = ["file:{tmp_path / "heads"}"]\n')
    assert main(["--config", str(config), "audit", "anchor"]) == 0
    store.close()
    if older:
        for suffix in ("-wal", "-shm"):
            Path(f"{store.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(copy, store.path)
    code = main(["--config", str(config), "audit", "verify"])
    said = capsys.readouterr().out
    assert (code, "is an older copy" in said, "1 heads that were kept agree" in said) == (int(older), older, not older)


@pytest.mark.parametrize("sort", ["fifo", "link"])
def test_a_place_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, store: Store, sort: str) -> None:
    place = tmp_path / "heads"
    if sort == "fifo":
        os.mkfifo(place, 0o600)
    else:
        place.symlink_to("/dev/full")
    with pytest.raises(NightshiftError, match=r"audit\.anchor"):
        write_anchor(settings(tmp_path), f"file:{place}", "line", 1)


@pytest.mark.parametrize("wrong", ["syslog:x", "file:relative", "ssh:host", "ssh::/path", "mail:x", "sink:", ""])
def test_a_place_that_is_none_is_an_error_of_the_settings(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"audit\.anchor: wanted syslog, file:/PATH"):
        AuditSettings((wrong,))


def test_a_sink_that_is_not_there_is_named(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ConfigError, match="sink:oncall names no sink"):
        AuditAnchors(settings(tmp_path, "sink:oncall"), store)


def test_a_place_that_fails_is_tried_again(tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    anchors = AuditAnchors(settings(tmp_path, f"file:{tmp_path / 'missing' / 'heads'}"), store)
    anchors.write()
    assert "was not anchored" in caplog.text
    (tmp_path / "missing").mkdir()
    anchors.write()
    assert (tmp_path / "missing" / "heads").exists()
