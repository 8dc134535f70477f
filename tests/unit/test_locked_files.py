"""Whose lock a job met: the lines, the program on real locks, and whether the job may start again once the lock is free."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.locked_files import (
    EXISTENCE,
    LOCK_PID,
    FileLock,
    LockState,
    is_lock_failure,
    is_own_contention,
    judged_lock,
    judged_lock_file,
    lock_of,
    locked_files,
)
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobState
from assistant.recover.situation import LOCKED, PASSED
from assistant.tools.locks import _PROGRAM, _TEST, locks_of
from tests.unit.logged_job import START, job_in, write

ENDED = START + timedelta(minutes=10)


@pytest.mark.parametrize(
    ("text", "is_lock"),
    [
        ("sqlite3.OperationalError: database is locked", True),
        ("sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) database table is locked: trial", True),
        ("lmdb.LockError: mdb_env_open: Resource temporarily unavailable", True),
        ("filelock._error.Timeout: The file lock '/data/a.lock' could not be acquired.", True),
        ("BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)", True),
        ('IO Error: Could not set lock on file "/data/x.duckdb": Conflicting lock is held in /usr/bin/python3 (PID 4711)', True),
        ('psycopg2.errors.LockNotAvailable: could not obtain lock on relation "runs"', True),
        ("RuntimeError: the run directory is locked by pid 4411 on login1", True),
        ("portalocker.exceptions.AlreadyLocked: [Errno 11] Resource temporarily unavailable", True),
        ("Failed to acquire lock on /data/index after 30 s", True),
        ("fatal: Unable to create '/data/repo/.git/index.lock': File exists.", True),
        ("BlockingIOError: [Errno 11] write could not complete without blocking", False),
        ("RuntimeError: all ranks are blocked in a barrier", False),
        ("epoch 3: encoder layers are locked, head is trained", False),
        ("OSError: [Errno 28] No space left on device", False),
        ("KeyError: 'lock'", False),
    ],
)
def test_lines_that_tell_of_a_lock(text: str, is_lock: bool) -> None:
    assert is_lock_failure([text]) is is_lock


def looked_at(*paths: Path) -> dict[str, Any]:
    words = [f"{path}{ending}" for path in paths for ending in ("", "-shm", ".lock")]
    done = subprocess.run(["sh", "-c", _PROGRAM, "sh", _TEST, *words], capture_output=True, text=True, timeout=60, check=True)
    return locks_of({"n1": done.stdout}, [str(path) for path in paths])


@pytest.mark.parametrize("kind", ["sqlite", "fcntl", "flock", "lock-file", "nobody", "gone"])
def test_who_holds_a_lock_is_read_from_the_kernel(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"")
    holds = {
        "sqlite": f"import sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None); c.execute('begin exclusive')",
        "fcntl": f"import fcntl; f = open({str(path)!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)",
        "flock": f"import fcntl; f = open({str(path)!r}, 'r+'); fcntl.flock(f, fcntl.LOCK_EX)",
        "lock-file": f"import fcntl; f = open({str(path) + '.lock'!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "nobody": f"f = open({str(path)!r}, 'r+')",
        "gone": f"import os; os.unlink({str(path)!r})",
    }
    program = f"{holds[kind]}\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen(["python3", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        answer = looked_at(path)
        process.communicate("\n")
    expected_holders = [process.pid] if kind not in ("nobody", "gone") else []
    assert [row["pid"] for row in answer["holders"]] == expected_holders
    assert answer["held"] == ([str(path)] if expected_holders else [])
    assert answer["free"] == ([str(path)] if kind == "nobody" else [])
    assert answer["missing"] == ([str(path)] if kind == "gone" else [])


def test_a_process_that_waits_for_a_lock_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("x")
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waits = f"import fcntl; f = open({str(path)!r}, 'r+'); print('ready', flush=True); fcntl.flock(f, fcntl.LOCK_EX)"
        with subprocess.Popen(["python3", "-c", waits], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            answer = looked_at(path)
            process.kill()
    assert [row["pid"] for row in answer["holders"]] == [os.getpid()]


def test_one_node_that_cannot_tell_leaves_a_file_open() -> None:
    free, unknown = "file 1:2 /d/a\nlock 1:2 free\nend\n", "file 1:2 /d/a\nlock 1:2 unknown\nend\n"
    assert locks_of({"n1": free, "n2": unknown}, ["/d/a"])["free"] == []
    assert locks_of({"n1": free, "n2": free}, ["/d/a"])["free"] == ["/d/a"]
    held_elsewhere = locks_of({"n1": "file 1:2 /d/a\nlock 1:2 held\nend\n"}, ["/d/a"])
    assert (held_elsewhere["held"], held_elsewhere["holders"]) == (["/d/a"], [])


def sampler(folder: Path, error: str, **changes: Any) -> Job:
    with sqlite3.connect(folder / "chains.db") as store:
        store.execute("create table state (n integer)")
    write(folder / "other.db", "no such store\n")
    write(folder / "sample.py", "import sqlite3, sys\nstore = sqlite3.connect(sys.argv[2], timeout=3)\nstore.execute('select 1')\n")
    write(folder / "slurm-812.out", f"draw 40 of 90\n{error}\n", ENDED)
    job = job_in(folder, "python3 sample.py --db chains.db other.db", state=JobState.FAILED, ended=ENDED)
    assert job.spec is not None
    return replace(job, nodes=("n1",), spec=replace(job.spec, nodes=1, ranks_per_node=1), **changes)


def test_the_store_is_known_by_the_commands_of_the_job_where_the_error_names_none(tmp_path: Path) -> None:
    error = "sqlite3.OperationalError: database is locked"
    assert locked_files(sampler(tmp_path, error), [error]) == [f"{tmp_path}/chains.db"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ('Could not set lock on file "/data/x.duckdb": Conflicting lock is held', "/data/x.duckdb"),
        ("The file lock '/data/a.lock' could not be acquired.", "/data/a.lock"),
        ("could not lock 'cache/index.h5'", "{here}/cache/index.h5"),
    ],
)
def test_a_line_that_names_the_file_is_believed(error: str, name: str, tmp_path: Path) -> None:
    assert locked_files(sampler(tmp_path, error), [error]) == [name.format(here=tmp_path)]


def diagnosis(step: int | None = 40) -> Diagnosis:
    line = Citation("job.log", 2, "sqlite3.OperationalError: database is locked", "os_error.locks")
    return Diagnosis(
        reason="os_error",
        category=Category.SCRIPT,
        confidence=0.9,
        root_cause=(line,),
        summary="OS error.",
        action=Action.FIX_AND_RESUBMIT,
        advice="Open it with a longer wait. A restart alone does not help.",
        step=step,
        by=DecidedBy.RULE,
        nodes=(),
        rivals=(),
    )


HELD = FileLock(LockState.LOCKED, "/d/chains.db", "process 71 (python3 look.py) of bob on n2")


@pytest.mark.parametrize(
    ("lock", "step", "contended", "action", "says"),
    [
        (HELD, 40, False, Action.WAIT_AND_RETRY, "/d/chains.db is locked now by process 71 (python3 look.py) of bob on n2."),
        (HELD, None, False, Action.WAIT_AND_RETRY, "neither remove nor replace it"),
        (HELD, 40, True, Action.FIX_AND_RESUBMIT, "A restart alone does not help."),
        (HELD._replace(own=True), 40, False, Action.FIX_AND_RESUBMIT, "A restart alone does not help."),
        (FileLock(LockState.LOCKED, "/d/chains.db"), 40, False, Action.WAIT_AND_RETRY, "no node that was asked shows by whom"),
        (FileLock(LockState.FREE, "/d/chains.db"), 40, False, Action.RESTART_SAME_NODES, "had passed there until step 40"),
        (FileLock(LockState.REMOVED, "/d/a.lock"), 40, False, Action.RESTART_SAME_NODES, "/d/a.lock is not there any more"),
        (FileLock(LockState.FREE, "/d/chains.db"), None, False, Action.FIX_AND_RESUBMIT, "A later start may pass"),
        (FileLock(LockState.FREE, "/d/chains.db"), 40, True, Action.FIX_AND_RESUBMIT, "it comes again"),
        (FileLock(LockState.UNKNOWN), 40, False, Action.FIX_AND_RESUBMIT, "A restart alone does not help."),
    ],
)
def test_only_a_lock_of_somebody_else_passes(lock: FileLock, step: int | None, contended: bool, action: Action, says: str) -> None:
    judged = judged_lock(diagnosis(step), lock, contended=contended, nodes=["n1"])
    assert judged.action is action
    assert says in judged.advice
    if action is not Action.FIX_AND_RESUBMIT:
        assert judged.category is Category.INFRASTRUCTURE
        assert "does not help" not in judged.advice
        assert judged.where[-1].why in (f"{LOCKED} {lock.path}", f"{PASSED} a lock on {lock.path}")


def test_of_several_files_only_a_held_one_is_known(tmp_path: Path) -> None:
    job = sampler(tmp_path, "x")
    rows = {"holders": [{"path": "/d/b", "node": "n2", "pid": 7, "user": "bob", "job": "", "program": "vi"}], "free": ["/d/a"]}
    assert lock_of(rows, ["/d/a", "/d/b"], job, []).path == "/d/b"
    assert lock_of({"free": ["/d/a", "/d/b"]}, ["/d/a", "/d/b"], job, []).state is LockState.UNKNOWN
    assert lock_of({"free": ["/d/a"]}, ["/d/a"], job, []).state is LockState.FREE


def test_ranks_and_alike_jobs_meet_at_their_own_lock(tmp_path: Path) -> None:
    job = sampler(tmp_path, "x", user="ada")
    assert job.spec is not None
    assert not is_own_contention(job, [job])
    beside = replace(job, id="813", started=START, ended=None, state=JobState.RUNNING)
    assert is_own_contention(job, [job, beside])
    assert not is_own_contention(job, [job, replace(beside, name="another", id="814")])
    assert is_own_contention(replace(job, spec=replace(job.spec, ranks_per_node=4)), [job])
    many = job.spec.script.replace("\n", "\n#SBATCH --ntasks=4\n", 1)
    assert is_own_contention(replace(job, spec=replace(job.spec, script=many)), [job])
    assert is_own_contention(replace(job, spec=replace(job.spec, options=("-n", "8"))), [job])


@pytest.mark.parametrize(
    ("text", "is_file", "pid"),
    [
        ("fatal: Unable to create '/data/repo/.git/index.lock': File exists.", True, None),
        ("RuntimeError: the run directory is locked by pid 4411 on login1", True, "4411"),
        ("Error: lock file /data/run/.lck already exists", True, None),
        ("IOError: stale lock of process 77 in /data/run", True, "77"),
        ("filelock._error.Timeout: The file lock '/data/a.lock' could not be acquired.", False, None),
        ("sqlite3.OperationalError: database is locked", False, None),
    ],
)
def test_a_lock_that_is_a_file_goes_only_when_it_is_removed(text: str, is_file: bool, pid: str | None) -> None:
    assert (EXISTENCE.search(text) is not None) is is_file
    match = LOCK_PID.search(text)
    assert (match[1] if match else None) == pid


@pytest.mark.parametrize(
    ("pid", "processes", "says"),
    [
        (4411, [{"pid": 4411, "uid": 7, "name": "solve"}], "process 4411 (solve) lives on n1: leave the lock to it"),
        (4411, [], "no process 4411 lives on n1 any more"),
        (None, [], "whose process may have ended long ago"),
    ],
)
def test_a_lock_file_that_was_left_is_its_owners_to_remove(pid: int | None, processes: list[dict[str, Any]], says: str) -> None:
    rows = [{"node": "n1", "processes": processes}] if pid is not None else []
    judged = judged_lock_file(diagnosis(), ["/data/run/.lock"], pid, rows)
    assert judged.action is Action.FIX_AND_RESUBMIT
    assert says in judged.advice
    assert ("rm /data/run/.lock" in judged.advice) is (not processes)
