"""Which file system an error without a path met, as nodes of the job show those that it uses."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.file_systems import DiskFault, holders_in_words, located, paths_used, unnamed_disk
from assistant.engine.evidence.storage import fault_of
from assistant.records import Job, JobSpec, JobState
from assistant.tools.storage import _HOLDERS, _SUMMED, _WRITTEN, _holders, _space

FULL, RO, SILENT = DiskFault.FULL, DiskFault.READ_ONLY, DiskFault.SILENT

Row = dict[str, Any]


def job(script: str = "", **variables: str) -> Job:
    spec = JobSpec("llm", script, work_dir=Path("/home/ada"), environment=variables)
    return Job("7", "llm", "ada", JobState.FAILED, "", ("n1", "n2"), Path("/home/ada/7.out"), Path("/home/ada"), None, None, None,
               1, None, spec=spec)  # fmt: skip


def row(node: str, place: str, kind: str = "xfs", *, used: float = 10.0, options: str = "rw", silent: bool = False) -> Row:
    return {
        "node": node,
        "place": place,
        "kind": kind,
        "used_percent": used,
        "inodes_percent": 1.0,
        "options": options,
        "silent": silent,
    }


def on_both(*rows: Row) -> list[Row]:
    """Return file systems of two nodes: those given, and sound ones for the second node where nothing is given."""
    shown = {(one["node"], one["place"]) for one in rows}
    more = [row("n2", one["place"], one["kind"]) for one in rows if ("n2", one["place"]) not in shown]
    return [*rows, *more, row("n1", "/", "ext4"), row("n2", "/", "ext4"), row("n1", "/home", "nfs4"), row("n2", "/home", "nfs4")]


@pytest.mark.parametrize(
    ("fault", "script", "variables", "rows", "place"),
    [
        (FULL, "", {"TMPDIR": "/local/ada"}, [row("n1", "/local", used=100)], "/local"),
        (FULL, "export TRITON_CACHE_DIR=/nvme/triton", {}, [row("n1", "/nvme", used=100)], "/nvme"),
        (FULL, "export HF_HOME=/raid/$USER/hf", {}, [row("n1", "/raid", used=100)], "/raid"),
        (FULL, "train --spill=/spill/x", {}, [row("n1", "/spill", used=100)], "/spill"),
        (FULL, "", {}, [row("n1", "/tmp", "tmpfs", used=100)], "/tmp"),
        (FULL, "", {}, [row("n1", "/dev/shm", "tmpfs", used=100)], "/dev/shm"),
        (FULL, "", {"PATH": "/nvme/bin", "LD_LIBRARY_PATH": "/nvme/lib"}, [row("n1", "/nvme", used=100)], None),  # only read
        (FULL, "", {}, [row("n1", "/nvme", used=100)], None),  # nothing of the job goes there
        (FULL, "x=/local/a", {}, [row("n1", "/local", used=100), row("n1", "/tmp", "tmpfs", used=100)], None),  # which of two
        (FULL, "x=/local/a", {}, [row("n1", "/local", used=98)], None),
        (FULL, "x=/local/a", {}, [row("n1", "/local", used=100, options="ro")], None),
        (FULL, "curl http://nvme/local/a", {}, [row("n1", "/local", used=100)], None),  # of a URL
        (RO, "x=/local/a", {}, [row("n1", "/local", options="ro,errors=remount-ro")], "/local"),
        (RO, "x=/sw/a", {}, [row("n1", "/sw", "nfs4", options="ro"), row("n2", "/sw", "nfs4", options="ro")], None),  # as meant
        (RO, "x=/data/a", {}, [row("n1", "/data", "nfs4", options="ro")], "/data"),  # and for writing on the other node
        (SILENT, "x=/data/a", {}, [row("n1", "/data", "lustre", silent=True)], "/data"),
        (SILENT, "x=/data/a", {}, [row("n1", "/data", "lustre")], None),
        (SILENT, "x=/data/a", {}, [row("n1", "/other", "lustre", silent=True)], None),
    ],
)  # fmt: skip
def test_of_an_error_without_a_path_the_file_system_is_told_that_the_job_uses(
    fault: DiskFault, script: str, variables: dict[str, str], rows: list[Row], place: str | None
) -> None:
    disk = unnamed_disk(fault, on_both(*rows), paths_used(job(script, **variables), ()))
    assert (disk.place if disk is not None else None) == place
    assert disk is None or (disk.nodes, disk.fine) == (("n1",), ("n2",))


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ("OSError: [Errno 28] No space left on device", FULL),
        ("OSError: [Errno 122] Disk quota exceeded", None),
        ("OSError: [Errno 30] Read-only file system", RO),
        ("OSError: [Errno 5] Input/output error", SILENT),
        ("OSError: [Errno 116] Stale file handle", SILENT),
        ("OSError: [Errno 107] Transport endpoint is not connected", SILENT),
        ("RuntimeError: step 5 of 116", None),
    ],
)
def test_an_error_says_what_is_wrong_with_its_file_system(error: str, fault: DiskFault | None) -> None:
    assert fault_of(error) is fault


def test_what_a_user_wrote_is_summed_without_what_lay_there_before(tmp_path: Path) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    (tmp_path / "before.bin").write_bytes(bytes(1 << 20))
    begin = int(time.time()) + 2
    while time.time() < begin:
        time.sleep(0.05)
    (tmp_path / "sub folder").mkdir()
    (tmp_path / "sub folder" / "cache.bin").write_bytes(os.urandom(3 << 20))
    (tmp_path / "old.bin").write_bytes(os.urandom(1 << 20))
    os.utime(tmp_path / "old.bin", (1, 1))  # staged with the times that it had elsewhere
    texts = [_summed(str(tmp_path), name, str(begin)) for name in (user, "nobody-has-this-name")]
    shown, nobody = (_space(text) for text in texts)
    assert (shown["written_files"], shown["largest"]) == (2, f"{tmp_path}/sub folder/cache.bin"), texts
    assert 4 << 20 <= shown["written_bytes"] < 5 << 20
    assert nobody == {}
    assert _space(_summed(str(tmp_path / "missing"), user, "0")) == {}
    assert _space(texts[0].replace("end", "")) == {}


def _summed(*arguments: str) -> str:
    return subprocess.run(("sh", "-c", _SUMMED, _WRITTEN, *arguments), capture_output=True, text=True, check=False).stdout


def test_a_node_says_whose_files_take_most_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "feat dump" / "deep").mkdir(parents=True)
    (tmp_path / "feat dump" / "deep" / "a.npy").write_bytes(os.urandom(300_000))
    (tmp_path / "small.txt").write_text("x")
    user = pwd.getpwuid(os.getuid()).pw_name
    done = subprocess.run(("sh", "-c", _HOLDERS, "sh", str(tmp_path)), capture_output=True, text=True, check=True)
    rows = _holders(done.stdout, str(tmp_path))
    assert [(row["user"], row["path"]) for row in rows] == [(user, f"{tmp_path}/feat dump"), (user, f"{tmp_path}/small.txt")]
    assert rows[0]["held_bytes"] >= 300_000
    assert _holders(done.stdout.replace("end", ""), str(tmp_path)) == []
    foreign = [{"user": "2044", "path": "/scratch/features", "held_bytes": 64 << 20}, {**rows[1], "held_bytes": 4096}]
    assert holders_in_words(foreign, "/scratch") == "Most of what lies in /scratch is 64.0 MiB of uid 2044 in /scratch/features."
    assert holders_in_words([], "/scratch") == ""


def test_what_the_sources_of_a_program_quote_is_used_and_what_stands_in_their_words_is_not() -> None:
    source = 'CACHE = pathlib.Path("/scratch/ada/tokens")\n# moved away from /old/disk\nmask = 1 / 2 / 3\n'
    used = paths_used(job(), (), [source])
    assert "/scratch/ada/tokens" in used
    assert "/old/disk" not in used


def test_a_disk_that_nodes_have_shown_takes_the_place_of_the_guess() -> None:
    guess = "The file system is full: free space there. The log does not say which: df -h of TMPDIR (/tmp) tells. Do not restart."
    assert located(guess, "/scratch of gpu002 is full.") == (
        "The file system is full: free space there. /scratch of gpu002 is full. Do not restart."
    )
    assert located("Free space.", "/scratch of gpu002 is full.") == "Free space. /scratch of gpu002 is full."
