"""The file system of a path as a node shows it, and how a report names it."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.file_systems import full_words
from assistant.engine.evidence.missing_data import missing_folder
from assistant.engine.evidence.storage import still_read_only, storage_words
from assistant.ports import Reply
from assistant.recover.checkpoints.place import saved_into
from assistant.tools.storage import _PROGRAM, _all_rows, _rows

MOUNTS = """\
mounts
/dev/sda1 / ext4 rw,relatime 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw,flock 0 0
nas:/home /home nfs4 ro,vers=4.2 0 0
tmpfs /scratch/local\\040disk tmpfs rw 0 0
"""


def rows(*lines: str) -> list[dict[str, Any]]:
    return _rows(Reply("gpu1", True, 0, MOUNTS + "\n".join(lines) + "\n", ""))


def state(path: str, *, real: str = "", answer: str = "answer 4096 1000 1000 100 100") -> Mapping[str, Any]:
    (row,) = rows(f"path {path}", f"real {real or path}", f"stands {path}", answer)
    return {"node": "gpu1", **row}


@pytest.mark.parametrize(
    ("path", "real", "place", "kind"),
    [
        ("/scratch/ada/x.pt", "", "/scratch", "lustre"),
        ("/scratchpad/x", "", "/", "ext4"),
        ("/scratch/local disk/x", "", "/scratch/local disk", "tmpfs"),
        ("/data/x", "/home/data/x", "/home", "nfs4"),  # a link
    ],
)
def test_a_path_lies_on_the_longest_mount_above_it(path: str, real: str, place: str, kind: str) -> None:
    shown = state(path, real=real)
    assert (shown["place"], shown["kind"]) == (place, kind)


ENOSPC, EDQUOT, EROFS, EIO = (
    "OSError: [Errno 28] No space left on device",
    "OSError: [Errno 122] Disk quota exceeded",
    "OSError: [Errno 30] Read-only file system",
    "OSError: [Errno 5] Input/output error",
)


@pytest.mark.parametrize(
    ("path", "answer", "error", "words"),
    [
        (
            "/scratch/a",
            "answer 4096 1000 0 100 50",
            ENOSPC,
            ["/scratch (lustre, 10.0.0.1@o2ib:/scratch) of gpu1", "100 % is in use"],
        ),
        ("/scratch/a", "answer 4096 1000 500 100 0", ENOSPC, ["of whose inodes 100 % are in use: files have to go"]),
        ("/scratch/a", "answer 4096 1000 500 100 50", ENOSPC, ["50 % is in use", "space was freed since, or a quota"]),
        ("/scratch/a", "answer 4096 1000 500 100 50", EDQUOT, ["the quota is less than that"]),
        ("/home/a", "answer 4096 1000 500 100 50", EROFS, ["mounted read-only now"]),
        ("/scratch/a", "answer 4096 1000 500 100 50", EROFS, ["mounted for writing now"]),
        ("/scratch/a", "status 124", EIO, ["does not answer there now"]),
        ("/nfs/pile/a", "answer 4096 1000 500 100 50", EIO, ["lies on / of gpu1: no file system is mounted there now"]),
        ("/opt/x", "answer 4096 1000 500 100 50", EIO, ["/opt/x lies on / (ext4, /dev/sda1) of gpu1."]),
    ],
)
def test_the_sentence_says_what_the_error_asks_about(path: str, answer: str, error: str, words: list[str]) -> None:
    said = storage_words(state(path, answer=answer), error)
    assert all(word in said for word in words), said


def test_a_file_system_that_is_still_read_only_is_no_reason_to_wait() -> None:
    assert still_read_only(state("/home/a"), EROFS)
    assert not still_read_only(state("/scratch/a"), EROFS)
    assert not still_read_only(state("/home/a"), EIO)


def test_a_missing_file_says_nothing_of_the_nodes_own_disk() -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    assert storage_words(state("/opt/vocab.json"), missing) == ""
    assert "nas:/home" in storage_words(state("/home/a/vocab.json"), missing)
    assert "no file system is mounted there" in storage_words(state("/nfs/pile/a.bin"), missing)


def test_of_an_error_without_a_path_only_full_file_systems_are_named() -> None:
    out = "mount xfs /local rw\nmount squashfs /sw ro\nmount nfs4 /home rw\nmount tmpfs /tmp rw\n"
    out += "answer /local 0 4096 1000 1 100 50\nanswer /sw 0 4096 1000 0 100 0\nanswer /home 0 4096 1000 500 100 50\n"
    shown = [
        {"node": "gpu1", **row} for row in _all_rows(Reply("gpu1", True, 0, f"{out}answer /tmp 0 4096 1000 900 100 0\nend\n", ""))
    ]
    said = "The error names no path; full is /local (xfs) of gpu1, 100 % in use; /tmp (tmpfs) of gpu1, 100 % of its inodes in use."
    assert full_words(shown) == said
    assert full_words(shown[2:3]) == ""


def test_what_cannot_be_read_is_unknown() -> None:
    assert _rows(Reply("gpu1", False, None, "", "no route")) == []
    assert _rows(Reply("gpu1", True, 127, "", "sh: not found")) == []
    assert storage_words({"node": "gpu1", "path": "/x", "place": ""}, ENOSPC) == ""


def test_the_program_shows_a_folder_that_stands_and_a_file_that_does_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("a b")
    asked = [str(folder), str(folder / "none" / "$(id)")]
    done = subprocess.run(["sh", "-c", _PROGRAM, "sh", *asked], capture_output=True, text=True, check=False, timeout=30)
    shown = _rows(Reply("here", True, done.returncode, done.stdout, done.stderr))
    assert [row["path"] for row in shown] == asked
    assert all(row["place"] and row["used_percent"] is not None and not row["silent"] for row in shown)
    assert [(row["real"], row["stands"]) for row in shown] == [(str(folder), str(folder)), (asked[1], str(folder))]
    own = f"{pwd.getpwuid(folder.stat().st_uid).pw_name}:{folder.stat().st_gid}:{folder.stat().st_mode & 0o7777:o}"
    assert shown[0]["owners"][0] == own
    assert len(shown[0]["owners"]) == len(folder.parts)  # up to `/`
    assert shown[1]["owners"] == shown[0]["owners"]


@pytest.mark.parametrize(
    ("words", "silent"), [("Stale file handle", True), ("Input/output error", True), ("Permission denied", False)]
)
def test_a_path_whose_file_system_is_gone_does_not_answer(words: str, silent: bool, tmp_path: Path) -> None:
    seen = tmp_path / "stat"
    seen.write_text(
        f'#!/bin/sh\ncase "$1:$2" in --:/lus/*) echo "stat: cannot statx: {words}" >&2; exit 1 ;; esac\nexec /usr/bin/stat "$@"\n'
    )
    seen.chmod(0o755)
    search = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", _PROGRAM, "sh", "/lus/run/ckpt"], capture_output=True, text=True, check=False, timeout=30, env=search
    )
    (row,) = _rows(Reply("here", True, done.returncode, done.stdout, done.stderr))
    assert (row["silent"], row["stands"]) == (silent, "")


def test_what_stands_below_a_folder_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    seen = tmp_path / "stat"
    seen.write_text('#!/bin/sh\n[ "$1" = -f ] || { echo "stat: cannot statx: Permission denied" >&2; exit 1; }\n')
    seen.chmod(0o755)
    search = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", _PROGRAM, "sh", "/squashed/run/ckpt"], capture_output=True, text=True, check=False, timeout=30, env=search
    )
    (row,) = _rows(Reply("here", True, done.returncode, done.stdout, done.stderr))
    assert (row["stands"], missing_folder(row)) == ("", "")


@pytest.mark.parametrize(
    ("path", "real", "stands", "missing"),
    [
        ("/lus/ada/run/ckpt/60/x", "", "/lus", "/lus/ada"),  # an empty mount point
        ("/lus/ada/run/ckpt/60", "", "/lus/ada/run", "/lus/ada/run/ckpt"),
        ("/lus/ada/run/ckpt/60", "", "/lus/ada/run/ckpt", ""),  # the folder stands, what it was to hold is not there
        ("/lus/ada/run/ckpt/60", "", "/lus/ada/run/ckpt/60", ""),
        ("/work/run/60", "/vol/a/b/run/60", "/vol/a/b", "/work/run"),  # a link
        ("/work/run/60", "/vol/a/b/c/d/60", "/vol", "/work"),
        ("/lus/ada/run/ckpt/60", "", "", ""),
    ],
)
def test_the_highest_folder_that_is_missing_is_named(path: str, real: str, stands: str, missing: str) -> None:
    assert missing_folder({"path": path, "real": real or path, "stands": stands}) == missing


@pytest.mark.parametrize(
    ("lines", "folder", "missing", "proof"),
    [
        (["Started async saving checkpoint to /l/c/20.", "saving checkpoint to /l/c/60."], "/l/c", "/l/c/60.tmp-17952460", 0),
        (["Saved checkpoint to /l/ada/c/20.pt"], "/l/ada", "/l/ada/c/60.pt", 0),
        (["successfully saved checkpoint from iteration      40 to /l/c", "saving checkpoint at iteration 60 to /l/c"],
         "/l/c", "/l/c/iter_0000060", 0),
        (["Saving checkpoint to /l/c/epoch_1.pt", "Saving checkpoint to /l/c/epoch_2.pt"], "/l/c", "/l/c/best.pt", 0),
        (["Saving checkpoint to /l/c/epoch_1.pt"], "/l/c", "/l/c/best.pt", None),
        (["Started async saving checkpoint to /l/c/20.", "step 25 loss 2.1"], "/l/c", "/l/c/20.tmp-17952460", None),
        (["Saving checkpoint to /l/c/ep0-ba60-rank1.pt"], "/l/c", "/l/c/ep0-ba60-rank0.pt", None),
        (["Saved checkpoint to /l/c2/20.pt"], "/l/c", "/l/c/40.pt", None),
        (["Saving model checkpoint to out/checkpoint-20", "Saving model checkpoint to out/checkpoint-40"],
         "out/checkpoint-40", "out/checkpoint-40/model.safetensors", None),
        (["ERROR failed saving checkpoint to /l/c/20"], "/l/c", "/l/c/40", None),
        (["Loading checkpoint from /l/c/20"], "/l/c", "/l/c/40", None),
    ],
)  # fmt: skip
def test_only_a_save_of_another_step_proves_that_a_folder_stood(
    lines: list[str], folder: str, missing: str, proof: int | None
) -> None:
    assert saved_into(lines, folder, missing) == (lines[proof] if proof is not None else "")
