"""What processes of a running job write: asked on the node, kept with the job, used for its logs and checkpoints after it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from assistant.errors import ToolError
from assistant.logs.attempt import LogFileState, job_logs
from assistant.logs.declared import LogOrigin
from assistant.records import Job, JobState
from assistant.records.jobs import OpenFile, ProcessFolder, ProcessReport, report_of
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.schedulers.simulated_run import write_checkpoint
from assistant.store import Store
from assistant.store.rows import packed, unpacked
from assistant.tooling import find_tool, to_json
from assistant.tools import _processes
from assistant.tools.processes import stopped_apart, unrun_words
from assistant.transports.local import run_command
from tests.scenarios.scene import Scene
from tests.unit import logged_job
from tests.unit.logged_job import START, write

AT = START + timedelta(minutes=3, seconds=12)
NUMBER = 900_000_000 + os.getpid()
"""Of a job that no other test and no cluster here has."""


def job_in(folder: Path, **changes: object) -> Job:
    """Return the job after it failed, an hour after its start."""
    usual: dict[str, object] = {"state": JobState.FAILED, "ended": START + timedelta(hours=1), "exit_code": 1}
    return logged_job.job_in(folder, "python3 train.py", **usual | {"work_dir": folder / "work"} | changes)


def opened(path: Path, **changes: object) -> OpenFile:
    inode = path.stat().st_ino if path.exists() else 7
    file = OpenFile(path, "node02", 4711, AT, inode, 100, 100, appends=False, write_only=True)
    return replace(file, **changes)  # type: ignore[arg-type]


# On the node

OPENS = """
import ctypes, os, sys, time
os.chdir(sys.argv[1])
files = [open("train.log", "w"), open("append.log", "a")]
files += [open("two\\nlines.log", "w"), open("a\\u202eb.log", "w"), open(b"no-\\xff-utf8", "w")]
gone = open("gone.log", "w"); os.unlink("gone.log")
reads = [open("train.log") for _ in range(1500)]
many = [open(f"shard{number:04}.log", "w") for number in range(300)]
files[0].write("hello\\n"); files[0].flush()
ctypes.CDLL(None).prctl(15, b"sshd\\n(x) 0", 0, 0, 0)
print("ready", flush=True)
time.sleep(60)
"""


def start(folder: Path, environment: dict[str, str], program: str = OPENS) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    child = subprocess.Popen(
        ["bash", "-c", f"ulimit -n 4096; exec {sys.executable} -c \"$1\" {folder}", "bash", program],
        env={"PATH": os.environ["PATH"], **environment}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """Processes of three jobs of one user on a node."""
    mark = {"SLURM_JOB_ID": str(NUMBER), "SLURMD_NODENAME": "node01"}
    secret = {
        "OUTPUT_DIR": "out",
        "CKPT_PATH": "/ckpt/https://key:secret@host",
        "API_KEY": "/k",
        "SAVE_DIR": "/save/a\nb",
        "HYDRA_RUN": "/h",
    }
    plain = (
        "import os, sys; os.chdir(sys.argv[1]); f = open('other.log', 'w'); print('ready', flush=True); import time; time.sleep(60)"
    )
    children = [
        start(tmp_path / "own", {**mark, **secret}),
        start(tmp_path / "job2", {**mark, "SLURM_JOB_ID": str(NUMBER + 1_000_000)}, plain),
        start(tmp_path / "node2", {**mark, "SLURMD_NODENAME": "node02"}, plain),
    ]
    yield tmp_path
    for child in children:
        child.kill()
        child.communicate()


def test_of_a_node_only_the_jobs_own_processes_and_usable_paths_are_told(node: Path) -> None:
    reply = run_command("node01", list(_processes.command([str(NUMBER)], "")), node, 30)
    told = _processes.node_processes("node01", reply.out, AT)
    own = node / "own"
    assert told.why == ""
    assert told.processes == 1
    names = {str(file.path.relative_to(own)) for file in told.files}
    assert {"train.log", "append.log"} <= names
    # 64 files of a process, of which three have no usable name and one has none any more
    assert 50 <= len(told.files) <= _processes.MOST_FILES_EACH
    assert told.left_out >= 4
    assert not any("\n" in name or "\u202e" in name or "gone" in name or "other" in name for name in names)
    by_name = {file.path.name: file for file in told.files}
    assert (by_name["train.log"].size_bytes, by_name["train.log"].offset_bytes, by_name["train.log"].appends) == (6, 6, False)
    assert by_name["append.log"].appends
    assert by_name["train.log"].inode == (own / "train.log").stat().st_ino
    folders = {(folder.variable, str(folder.path)) for folder in told.folders}
    assert folders == {("", str(own)), ("OUTPUT_DIR", str(own / "out")), ("HYDRA_RUN", "/h")}


@pytest.mark.parametrize("user", ["no-such-account-here", "nobody"])
def test_where_no_process_can_be_told_the_node_says_why(user: str, tmp_path: Path) -> None:
    reply = run_command("node01", list(_processes.command([str(NUMBER)], user)), tmp_path, 30)
    assert reply.status == 0
    assert _processes.node_processes("node01", reply.out, AT).why


def test_a_stopped_process_is_told_where_another_of_its_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(NUMBER + 7)}
    ranks = [
        subprocess.Popen([sys.executable, str(tmp_path / "train.py")], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    def look() -> list[tuple[str, _processes.ProcessState]]:
        reply = run_command("node01", list(_processes.command([str(NUMBER + 7)], "")), tmp_path, 30)
        return [("node01", state) for state in _processes.node_processes("node01", reply.out, AT).states]

    try:
        assert all(rank.stdout is not None and rank.stdout.readline() for rank in ranks)
        assert (stopped_apart(look()), unrun_words(look())) == ([], "")
        ranks[1].send_signal(signal.SIGSTOP)
        os.waitpid(ranks[1].pid, os.WUNTRACED)
        (stopped,) = stopped_apart(look())
        assert (stopped["node"], stopped["pid"], stopped["program"].endswith(" train.py")) == ("node01", ranks[1].pid, True)
        assert unrun_words(look()) == f"process {ranks[1].pid} ({stopped['program']}) of node01 is stopped (state T)"
        ranks[0].send_signal(signal.SIGSTOP)
        os.waitpid(ranks[0].pid, os.WUNTRACED)
        assert stopped_apart(look()) == []  # somebody has suspended all of it
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize(
    ("states", "stopped", "words"),
    [
        ([("a", "T", ""), ("a", "S", "")], [1], "process 1 (a) of n is stopped (state T)"),
        ([("a", "T", ""), ("b", "S", "")], [], "process 1 (a) of n is stopped (state T)"),  # of another program: may be meant
        ([("a", "t", ""), ("a", "S", "")], [], "process 1 (a) of n is held by a debugger (state t)"),
        ([("a", "D", "nfs_wait_bit_killable"), ("a", "S", "")], [],
         "process 1 (a) of n waits in the kernel (state D) in nfs_wait_bit_killable"),
        ([("a", "Z", ""), ("a", "S", "")], [], "process 1 (a) of n is dead and not collected (state Z)"),
        ([("a", "T", ""), ("a", "Z", "")], [],
         "process 1 (a) of n is stopped (state T), process 2 (a) of n is dead and not collected (state Z)"),
        ([("a", "S", ""), ("a", "R", "")], [], ""),
    ],
)  # fmt: skip
def test_what_the_kernel_does_not_run_is_named(states: list[tuple[str, str, str]], stopped: list[int], words: str) -> None:
    known = [("n", _processes.ProcessState(pid, *state)) for pid, state in enumerate(states, 1)]
    assert [one["pid"] for one in stopped_apart(known)] == stopped
    assert unrun_words(known) == words


# The answer

INSIDE = """\
500 400 0:50 / / rw - overlay overlay rw
501 500 0:60 /runs/a /workspace rw,relatime - lustre host:/fs rw
502 500 0:99 / /tmp rw - tmpfs tmpfs rw
"""
OUTSIDE = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:60 / /shared rw - lustre host:/fs rw
22 20 0:61 / /shared/covered rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "outside"),
    [
        ("/workspace/out/train.log", "/shared/runs/a/out/train.log"),
        ("/workspace", "/shared/runs/a"),
        ("/workspaces/x.log", ""),
        ("/tmp/x.log", ""),
        ("/opt/x.log", ""),
    ],
)
def test_a_path_in_a_container_is_told_as_the_node_sees_it_or_not_at_all(path: str, outside: str) -> None:
    assert _processes.translated(path, _processes.mounts_of(INSIDE), _processes.mounts_of(OUTSIDE)) == outside
    p = "/proc/7"
    words = ["link", f"{p}/cwd", "/", f"{p}/ns/mnt", "mnt:[2]", f"{p}/fd/3", path, "file", f"{p}/fd/3", "9 5 1 0."]
    words += ["position", f"{p}/fdinfo/3", "pos:\t9\nflags:\t0100001\n"]
    words += ["mounts", f"{p}/mountinfo", INSIDE, "/proc/99/mountinfo", OUTSIDE, "end", ""]
    told = _processes.node_processes("n", "motd\n#nightshift processes\0\0mnt:[1]\0" + "\0".join(words), AT)
    assert [str(file.path) for file in told.files] == ([outside] if outside else [])


def test_a_mount_that_is_covered_outside_gives_no_path() -> None:
    inside = _processes.mounts_of("1 0 0:60 /covered /data rw - lustre x rw")
    assert _processes.translated("/data/x", inside, _processes.mounts_of(OUTSIDE)) == ""


@settings(max_examples=25, deadline=None)
@given(some.lists(some.sampled_from(["link", "file", "position", "variables", "mounts", "end", "", "/proc/7/cwd", "/proc/7/fd/3",
    "/proc/7/fdinfo/3", "/proc/7/environ", "/proc/7/ns/mnt", "/proc/7/mountinfo", "/a/b", "9 5 1 0.", "pos:\t1\nflags:\t02",
    "OUTPUT_DIR=/x", "SLURMD_NODENAME=m", "1 0 0:1 / / rw"]) | some.text(max_size=8)), some.integers(0, 200))  # fmt: skip
def test_an_answer_of_any_form_is_read_to_its_end(words: list[str], cut: int) -> None:
    text = "#nightshift processes\0\0mnt:[1]\0" + "\0".join(words)
    told = _processes.node_processes("n", text[: len(text) - cut], AT)
    assert all(_processes.is_path(str(file.path)) for file in told.files)
    report = ProcessReport(AT, 1, tuple(told.files), tuple(told.folders), {"n": told.why})
    assert report_of(unpacked(packed(report))) == report


# Its logs


def test_a_log_that_only_a_process_names_is_read_and_says_where_it_comes_from(tmp_path: Path) -> None:
    own = write(tmp_path / "exp-9f3a" / "rank0.txt", "iteration 1\n")
    logs = job_logs(job_in(tmp_path, processes=ProcessReport(AT, files=(opened(own),))))
    (file,) = logs.readable
    assert (file.path, file.origin, file.how, file.sure) == (
        own, LogOrigin.OPEN_FILE, "open file of process 4711 on node02 at 12:03", True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sure"),
    [
        ({"appends": True}, False),
        ({"appends": True, "created": START + timedelta(seconds=9)}, True),
        ({"appends": True, "created": START - timedelta(days=1)}, False),
        ({}, True),
    ],
)
def test_lines_of_an_appended_file_count_only_where_it_was_made_in_this_attempt(
    changes: dict[str, object], sure: bool, tmp_path: Path
) -> None:
    own = write(tmp_path / "x" / "train.log", "iteration 1\n")
    (file,) = job_logs(job_in(tmp_path, processes=ProcessReport(AT, files=(opened(own, **changes),)))).readable
    assert file.sure is sure


def test_files_that_are_no_text_of_the_job_any_more_are_not_read(tmp_path: Path) -> None:
    exchanged = write(tmp_path / "x" / "a.log", "somebody else's\n")
    binary = tmp_path / "x" / "b.log"
    binary.write_bytes(b"PK\x00\x00" * 99)
    os.utime(binary, (AT.timestamp(), AT.timestamp()))
    database = write(tmp_path / "x" / "run.db", "x")
    files = (opened(exchanged, inode=1), opened(binary), opened(database), opened(tmp_path / "x" / "gone.log"))
    logs = job_logs(job_in(tmp_path, processes=ProcessReport(AT, files=files)))
    assert not logs.readable
    states = {file.path.name: file.state for file in logs.files}
    assert states["a.log"] is LogFileState.UNREADABLE
    assert states["gone.log"] is LogFileState.MISSING
    assert "run.db" not in states


# Its checkpoints


def checkpoint(root: Path, step: int, at: datetime = START + timedelta(minutes=30)) -> Path:
    folder = write_checkpoint(root, step)
    for path in (*folder.iterdir(), folder):
        os.utime(path, (at.timestamp(), at.timestamp()))
    return folder


def searched(job: Job) -> tuple[SaveState, str, str]:
    found = search_checkpoints(job, {}, [], now=START + timedelta(hours=2))
    return found.state, str(found.place.folder) if found.place is not None else "", found.note


def test_checkpoints_are_found_where_a_process_works_or_writes(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "9f3a"
    checkpoint(run / "ckpt", 20)
    log = write(run / "train.log", "x\n")
    nothing = job_in(tmp_path)
    assert searched(nothing)[0] is SaveState.UNKNOWN
    by_file = replace(nothing, processes=ProcessReport(AT, files=(opened(log),)))
    assert searched(by_file)[:2] == (SaveState.FOUND, str(run / "ckpt"))
    assert "open file of process 4711 on node02 at 12:03" in searched(by_file)[2]
    folder = ProcessFolder(run, "node01", 12, AT, inode=run.stat().st_ino)
    assert "working folder of process 12" in searched(replace(nothing, processes=ProcessReport(AT, folders=(folder,))))[2]
    variable = ProcessFolder(run / "ckpt", "node01", 12, AT, "SAVE_DIR")
    assert "SAVE_DIR in the environment of process 12" in searched(
        replace(nothing, processes=ProcessReport(AT, folders=(folder, variable)))
    )[2]  # fmt: skip


def test_what_lies_elsewhere_is_older_or_may_be_another_runs_is_not_taken(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "9f3a"
    checkpoint(run / "ckpt", 20)
    other_disk = ProcessFolder(run, "node01", 12, AT, inode=1)
    assert searched(job_in(tmp_path, processes=ProcessReport(AT, folders=(other_disk,))))[0] is SaveState.UNKNOWN
    shared = ProcessFolder(tmp_path / "runs", "node01", 12, AT, "OUTPUT_DIR")
    assert searched(job_in(tmp_path, processes=ProcessReport(AT, folders=(shared,))))[1] == str(run / "ckpt")
    checkpoint(tmp_path / "runs" / "another" / "ckpt", 30)
    state, _, note = searched(job_in(tmp_path, processes=ProcessReport(AT, folders=(shared,))))
    assert state is SaveState.SAVED_ELSEWHERE
    assert "which of them are its own is not known" in note
    old = tmp_path / "old" / "run"
    checkpoint(old, 10, START - timedelta(days=2))
    before = ProcessFolder(old, "node01", 12, AT, "SAVE_DIR")
    assert searched(job_in(tmp_path, processes=ProcessReport(AT, folders=(before,))))[0] is SaveState.UNKNOWN


# Kept with the job


def test_a_report_belongs_to_one_attempt_and_outlives_the_watch(tmp_path: Path) -> None:
    with Scene(tmp_path).engine.store as store:
        job = job_in(tmp_path)
        report = ProcessReport(
            AT, 1, (opened(tmp_path / "a.log"),), (ProcessFolder(tmp_path, "node01", 1, AT),), {"node02": "asleep"}
        )
        store.keep_process_report(job, report)
        assert store.process_report(job) == report
        assert store.process_report(replace(job, attempt=1)) is None
        assert store.process_report(replace(job, started=START + timedelta(days=9))) is None
        later = ProcessReport(AT + timedelta(hours=1), 1, (opened(tmp_path / "b.log"),))
        store.keep_process_report(job, report.merged(later))
        kept = store.process_report(job)
        assert kept is not None
        assert [file.path.name for file in kept.files] == ["a.log", "b.log"]
        assert kept.looks == 2
        with store.transaction() as connection:
            connection.execute("UPDATE job_processes SET report = '{\"files\": 3}'")
        assert store.process_report(job) is None


def test_a_store_that_cannot_be_read_leaves_the_job_shown(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db", Scene(tmp_path).clock)
    with store.transaction() as connection:
        connection.execute("DROP TABLE job_processes")
    assert store.process_report(job_in(tmp_path)) is None
    store.close()


def test_a_tool_looks_at_running_jobs_only(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    tool = find_tool("job_processes")
    job = scene.cluster.submit(scene.spec)
    context = scene.engine.gate._context_for(None, "")
    told = to_json(tool(context, job))
    assert report_of(told).folders
    assert set(told["unknown"]) == set()
    scene.cluster.cancel(job)
    with pytest.raises(ToolError, match="no processes to look at"):
        tool(context, job)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python3", "-u", "/w/train.py", "--out", "x"], "python3.11 train.py"),
        (["python3", "-m", "torch.distributed.run", "train.py"], "python3.11 torch.distributed.run"),
        (["python3", "-X", "dev", "-W", "ignore", "train.py"], "python3.11 train.py"),
        (["python3", "-c", "import os"], "python3.11"),
        (["python3", "-"], "python3.11"),
        (["python3"], "python3.11"),
        (["python3", "odd name.py"], "python3.11"),
    ],
)
def test_a_process_of_python_is_named_with_its_program(words: list[str], name: str) -> None:
    parts = [
        "link",
        "/proc/7/cwd",
        "/w",
        "/proc/7/exe",
        "/usr/bin/python3.11",
        "/proc/8/cwd",
        "/w",
        "/proc/8/exe",
        "/usr/bin/sleep",
    ]
    pairs = [part for word in words for part in ("/proc/7/cmdline", word)]
    text = "\0".join([f"\n{_processes.MARK}", "", "", *parts, "command", *pairs, "end", ""])
    assert _processes.node_processes("n1", text, START).programs == (name, "sleep")
