"""The file of a store: opened again, damaged, locked, newer, of another program, on a full disk, on a network."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import StoreBusy, StoreError, StoreTooNew
from assistant.ports import JumpingClock
from assistant.records import (
    Event,
    EventKind,
)
from assistant.store import Store
from assistant.store.connection import network_filesystem

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(START)


@pytest.fixture
def store(tmp_path: Path, clock: JumpingClock) -> Iterator[Store]:
    with Store(tmp_path / "state" / "nightshift.db", clock) as opened:
        yield opened


def event(kind: EventKind = EventKind.JOB_ENDED, job: str | None = "4821", node: str | None = None, **more: Any) -> Event:
    return Event(kind, job, node, START, **more)


def test_a_store_knows_when_it_was_made(tmp_path: Path, clock: JumpingClock) -> None:
    Store(tmp_path / "s.db", clock).close()
    clock.sleep(60)
    with Store(tmp_path / "s.db", clock) as store:
        assert store.made_at == START


def test_a_store_opens_again_with_everything_in_it(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    with Store(path, clock) as first:
        first.open_incident(event())
    with Store(path, clock) as second:
        assert [one.job for one in second.incidents()] == ["4821"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is a text file, not a store\n" * 100, "is no SQLite database; nothing was touched"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "s.db: "),
    ],
)
def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path, clock: JumpingClock, content: bytes, message: str) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        Store(path, clock)
    assert path.read_bytes() == content


def test_a_damaged_store_says_so(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    with Store(path, clock) as store:
        for job in range(200):
            store.open_incident(event(job=str(job)))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"), Store(path, clock) as store:
        store.incidents()


def test_the_database_of_another_program_is_left_alone(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a database of another program"):
        Store(path, clock)
    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    Store(path, clock).close()
    newer = sqlite3.connect(path)
    newer.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('nightshift', 'm9999_later', '')")
    newer.commit()
    newer.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="m9999_later"):
        Store(path, clock)
    assert path.read_bytes() == before


def test_a_locked_store_is_busy_after_the_timeout(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    with Store(path, clock, busy_timeout_s=0.05) as store, Store(path, clock) as other, other.transaction():
        with pytest.raises(StoreBusy, match=r"held the store for more than 0\.05 s"):
            store.open_incident(event())
        assert store.incidents() == []


def test_a_full_disk_loses_nothing_that_was_written(store: Store) -> None:
    store.open_incident(event())
    pages = store.rows("PRAGMA page_count")[0][0]
    store.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.add_evidence(1, "tail", "x" * 100_000)
    store.rows("PRAGMA max_page_count = 100000")
    assert store.evidence(1) == []
    assert store.verify() is None
    assert store.add_evidence(1, "tail", "x").id == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, clock: JumpingClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"wanted to open or create the store, found: .*file: File exists"):
        Store(tmp_path / "file" / "s.db", clock)


MOUNTS = "/dev/sda / ext4 rw 0 0\nsrv:/home /home nfs4 rw 0 0\ntmpfs /home/alice/fast tmpfs rw 0 0\nbroken\n"


@pytest.mark.parametrize(
    ("folder", "found"), [("/home/alice", "nfs4"), ("/home/alice/fast", None), ("/var", None), ("/homes", None)]
)
def test_a_network_file_system_is_recognised(folder: str, found: str | None) -> None:
    assert network_filesystem(Path(folder), MOUNTS) == found


def test_a_store_on_a_network_file_system_is_warned_about(
    tmp_path: Path, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("assistant.store.connection._mounts", lambda: f"srv:/x {tmp_path} nfs4 rw 0 0\n")
    with caplog.at_level(logging.WARNING), Store(tmp_path / "s.db", clock) as store:
        assert store.rows("PRAGMA journal_mode")[0][0] == "delete"
    assert "lies on nfs4" in caplog.text


WRITER = """
import sys
from pathlib import Path
from assistant.ports import SystemClock
from assistant.records import Event, EventKind
from assistant.store import Store
clock = SystemClock()
with Store(Path(sys.argv[1]), clock, busy_timeout_s=30) as store:
    for number in range(10):
        store.open_incident(Event(EventKind.JOB_ENDED, f"{sys.argv[2]}-{number}", None, clock.now()))
"""


def test_two_processes_create_and_write_one_store(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(2)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    with Store(path, clock) as store:
        assert len(store.incidents(limit=100)) == 20
        assert store.verify() is None


def test_opening_a_store_imports_no_sqlite_utils(tmp_path: Path, clock: JumpingClock) -> None:
    path = tmp_path / "s.db"
    Store(path, clock).close()
    program = (
        "import sys; from pathlib import Path; from assistant.store import Store; from assistant.ports import SystemClock; "
        f"Store(Path({str(path)!r}), SystemClock()).incidents(); sys.exit('sqlite_utils' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
