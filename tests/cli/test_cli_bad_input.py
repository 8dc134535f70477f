"""Bad input: one line that says what is wrong, the right exit code, and nothing is lost or half done."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit, Nagios
from assistant.ports import SystemClock
from assistant.records import Event, EventKind
from assistant.store import Store

Run = Callable[..., Any]
AS_ROOT = os.geteuid() == 0


def broken(folder: Path) -> dict[str, Path]:
    """Write one file of every kind that is no log."""
    paths = {name: folder / name for name in ("missing.log", "empty.log", "binary.log", "cut.log.gz", "no.log.gz", "folder")}
    paths["empty.log"].touch()
    paths["binary.log"].write_bytes(bytes(range(256)) * 40)
    paths["cut.log.gz"].write_bytes(gzip.compress(b"text\n" * 1000)[:12])
    paths["no.log.gz"].write_bytes(b"\x1f\x8bgarbage")
    paths["folder"].mkdir()
    return paths


@pytest.mark.parametrize("command", [("diagnose",), ("logs", "tail"), ("logs", "compress")], ids=" ".join)
@pytest.mark.parametrize("name", ["missing.log", "empty.log", "binary.log", "cut.log.gz", "no.log.gz", "folder"])
def test_what_is_no_log_is_refused_by_name(cli: Run, home: Path, command: tuple[str, ...], name: str) -> None:
    path = broken(home)[name]
    said = cli(*command, path)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert said.err.startswith(f"nightshift: error: {path}")
    assert said.err.count("\n") == 1


@pytest.mark.skipif(AS_ROOT, reason="root may read everything")
def test_an_unreadable_log_is_refused_by_name(cli: Run, home: Path) -> None:
    path = home / "job.log"
    path.write_text("text\n")
    path.chmod(0)
    said = cli("diagnose", path)
    assert said.code == Exit.USAGE
    assert "cannot be read: Permission denied" in said.err


def test_one_bad_path_does_not_keep_the_others_from_being_diagnosed(cli: Run, home: Path) -> None:
    good = home / "good.log"
    good.write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    said = cli("diagnose", "--json", home / "missing.log", good)
    assert said.code == Exit.USAGE
    assert [found["path"] for found in said.objects] == [str(good)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["incidnts"], "there is no command 'incidnts'; did you mean incidents"),
        (["incident", "shw", "1"], "Did you mean 'show'"),
        (["xyzzy"], "see nightshift --help"),
        (["incidents", "--opne"], "--open"),
        (["incidents", "--store", "x"], "--store stands before the command"),
        (["incidents", "--limit", "many"], "--limit"),
        (["incidents", "--since", "yesterday"], "neither a span"),
        (["incident", "show", "one"], "ID"),
        (["diagnose"], "PATH"),
        (["rules", "show", "ecc_error.nix"], "there is no rule"),
        (["playbooks", "show", "hnag"], "did you mean hang"),
        (["checkpoints", "list", "/nowhere/at/all"], "there is no such folder"),
        (["logs", "search", "job.log", "("], "run by RE2"),
        (["recover"], "name one job"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(cli: Run, words: list[str], says: str) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert says in said.err
    assert said.err.startswith("nightshift: error: ")


@pytest.mark.parametrize("words", [["nodes", "check", "--nix"], ["nodes", "check", "node[1-"]])
def test_a_nagios_check_that_cannot_run_is_unknown(cli: Run, words: list[str]) -> None:
    said = cli(*words)
    assert said.code == Nagios.UNKNOWN
    assert said.out.startswith("NIGHTSHIFT NODES UNKNOWN - ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('scheduler = "slrum"', "'slrum' is unknown"),
        ("poll = 3", "poll: unknown key"),
        ("[watch]\npoll_s = 'often'", "poll_s: must be float"),
        ("scheduler =", "is not valid TOML"),
    ],
)
def test_a_wrong_settings_file_is_named_with_its_line(cli: Run, home: Path, text: str, says: str) -> None:
    path = home / "config.toml"
    path.write_text(text)
    for words in (["config", "check"], ["incidents"]):
        said = cli("--config", path, *words)
        assert said.code == Exit.USAGE
        assert str(path) in said.err
        assert says in said.err


def test_a_settings_file_that_is_not_there_is_an_error(cli: Run, home: Path) -> None:
    assert "there is no such file" in cli("--config", home / "nix.toml", "config", "show").err


def test_a_malformed_playbook_is_named_with_line_and_key(cli: Run, home: Path) -> None:
    site = home / "site" / "playbooks"
    site.mkdir(parents=True)
    (site / "mine.toml").write_text('title = "x"\nhandles = ["hang"]\nstep = 3\n')
    config = home / "config.toml"
    config.write_text(f'content = "{home / "site"}"\n')
    said = cli("--config", config, "playbooks", "list")
    assert said.code == Exit.USAGE
    assert f"{site / 'mine.toml'}" in said.err
    assert "step" in said.err


@pytest.mark.parametrize(
    ("area", "text", "says"),
    [
        ("reasons", 'name = "other"\n', "key 'title' is missing"),
        ("reasons", 'name = "mine"\ntitel = "x"\n', "unknown key; did you mean 'title'?"),
        ("filters", 'program = "x"\nsource = "y"\nfilter = 3\n', "must be a list"),
    ],
)
def test_a_malformed_reason_or_filter_is_named_with_its_key(cli: Run, home: Path, area: str, text: str, says: str) -> None:
    path = home / "site" / "knowledge" / area / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    config = home / "config.toml"
    config.write_text(f'content = "{home / "site"}"\n')
    for words in (["rules", "list"], ["config", "check"]):
        said = cli("--config", config, *words)
        assert said.code == Exit.USAGE
        assert str(path) in said.err
        assert says in said.err


def test_a_corrupt_store_is_left_as_it_is(cli: Run, store_path: Path) -> None:
    store_path.parent.mkdir(parents=True)
    store_path.write_bytes(b"this is no database" * 1000)
    before = store_path.read_bytes()
    said = cli("incidents")
    assert said.code == Exit.ERROR
    assert str(store_path) in said.err
    assert store_path.read_bytes() == before


def test_a_store_of_a_newer_version_is_left_as_it_is(cli: Run, store: Store, store_path: Path) -> None:
    with store.transaction() as connection:
        connection.execute("INSERT INTO _sqlite_migrations SELECT * FROM _sqlite_migrations LIMIT 0")
        columns = [row["name"] for row in connection.execute("PRAGMA table_info(_sqlite_migrations)")]
        values = {"migration_set": "nightshift", "name": "m9999_from_the_future", "applied_at": "2099-01-01"}
        given = [name for name in columns if name in values]
        marks = ", ".join("?" * len(given))
        connection.execute(
            f"INSERT INTO _sqlite_migrations ({', '.join(given)}) VALUES ({marks})", [values[name] for name in given]
        )
    store.close()
    said = cli("incidents")
    assert said.code == Exit.ERROR
    assert "newer Nightshift" in said.err


def test_a_locked_store_means_try_again_later(cli: Run, store: Store, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_BUSY_TIMEOUT_S", "0.1")
    other = sqlite3.connect(store_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        said = cli("deny", 1)
    finally:
        other.close()
    assert said.code == Exit.TRY_AGAIN
    assert "try again later" in said.err
    assert store.approvals()[0].pending(store.clock.now())


@pytest.fixture
def full_disk(home: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB: room for a store and not much more."""
    folder = home / "full"
    folder.mkdir()
    mount = shutil.which("mount")
    if not AS_ROOT or mount is None:
        pytest.skip("mounting a small disk needs root")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """Write a file until nothing more fits."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"0" * 4096):
            pass
    return ballast


def test_a_full_disk_is_said_and_what_was_there_stays(cli: Run, full_disk: Path) -> None:
    path = full_disk / "store.db"
    with Store(path, SystemClock()) as kept:
        kept.open_incident(Event(EventKind.HANG, "1", None, kept.clock.now()))
    ballast = fill(full_disk)
    said = cli("--store", path, "incident", "close", 1, "--why", "x" * 100_000)
    assert said.code == Exit.ERROR
    assert "disk" in said.err
    ballast.unlink()
    assert [found["state"] for found in cli("--store", path, "incidents", "--json").objects] == ["open"]


def test_a_bug_leaves_its_traceback_in_a_file_and_says_where(store_path: Path) -> None:
    program = (
        "import sys\n"
        "from assistant.cli import main, incidents\n"
        "def boom(*_): raise KeyError('bug')\n"
        "incidents.about = incidents.local = boom\n"
        "sys.argv = ['nightshift', 'incidents']\n"
        "main.run()\n"
    )
    with Store(store_path, SystemClock()) as store:
        store.open_incident(Event(EventKind.HANG, "1", None, store.clock.now()))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    log = store_path.parent / "crashes.log"
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(log) in done.stderr
    assert "KeyError: 'bug'" in log.read_text()


def test_a_closed_pipe_is_quiet(home: Path) -> None:
    log = home / "job.log"
    log.write_text("a line of a log\n" * 50_000)
    pipeline = f"set -o pipefail; {sys.executable} -m assistant logs tail {log} -n 50000 | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.PIPE_CLOSED, "a line of a log\n", "")


def test_a_log_of_any_language_is_printed_in_any_locale(home: Path) -> None:
    log = home / "job.log"
    log.write_text("损失 größer\n")
    words = [sys.executable, "-X", "utf8=0", "-m", "assistant", "logs", "tail", str(log)]
    latin = {**os.environ, "LC_ALL": "en_US.ISO-8859-1", "PYTHONIOENCODING": "latin-1:strict"}
    done = subprocess.run(words, capture_output=True, env=latin, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"\\u635f\\u5931 gr\xf6\xdfer\n", b"")
