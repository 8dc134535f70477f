"""Where a job saves that only its first lines name, or a file that it held open: before it is said that nothing tells."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobState
from assistant.records.jobs import OpenFile, ProcessReport
from assistant.recover.checkpoints.place import named_folders
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from tests.unit.logged_job import START, job_in, write

ENDED = START + timedelta(minutes=30)


def opaque(folder: Path) -> Job:
    """Return a failed job whose program nobody can read."""
    (folder / "work").mkdir(exist_ok=True)
    return job_in(folder / "work", "/opt/sim/bin/relax input.dat", state=JobState.FAILED, ended=ENDED)


def states(folder: Path, name: Callable[[int], str] = "relax_{:05}.chk".format, begin: timedelta = timedelta(0)) -> None:
    for turn in (250, 500, 750, 1000):
        path = write(folder / name(turn), "x", START + begin + timedelta(minutes=turn / 50))
        path.write_bytes(b"\x93STATE" + os.urandom(3000))
        os.utime(path, ((START + begin + timedelta(minutes=turn / 50)).timestamp(),) * 2)


@pytest.mark.parametrize(
    "line", ["Netz steht. Ausgabe: {0}", "[conf] zielordner={0}/", "output dir '{0}', 4 GPUs", "artefacts -> {0}."]
)
def test_a_folder_that_a_first_line_names_is_where_it_saved(line: str, tmp_path: Path) -> None:
    states(tmp_path / "results/relax/now")
    search = search_checkpoints(opaque(tmp_path), {}, [line.format(f"{tmp_path}/results/relax/now"), "turn 10"], now=ENDED)
    assert search.state is SaveState.FOUND, search.note
    assert search.place is not None
    assert search.place.folder == tmp_path / "results/relax/now"
    assert search.inventory is not None
    assert search.inventory.checkpoints[-1].step == 1000


def test_a_folder_in_which_it_held_a_file_open_is_where_it_saved(tmp_path: Path) -> None:
    states(tmp_path / "results/relax/now")
    table = write(tmp_path / "results/relax/now/table.csv", "1;2\n", ENDED)
    file = OpenFile(table, "gpu001", 7, ENDED, table.stat().st_ino, 4, 4, appends=False, write_only=True)
    job = replace(opaque(tmp_path), processes=ProcessReport(ENDED, files=(file,)))
    search = search_checkpoints(job, {}, ["turn 10"], now=ENDED)
    assert search.state is SaveState.FOUND, search.note
    other = replace(file, inode=file.inode + 1)
    elsewhere = replace(job, processes=ProcessReport(ENDED, files=(other,)))
    assert search_checkpoints(elsewhere, {}, ["turn 10"], now=ENDED).state is SaveState.UNKNOWN, "a disk of the node by that path"


@pytest.mark.parametrize(
    ("line", "begin"),
    [
        ("loading the teacher of {0}", timedelta(0)),
        ("reference run: {0}", timedelta(days=-3)),
        ("could not write to {0}: No space left", timedelta(0)),
    ],
)
def test_what_it_reads_or_what_is_older_is_not_its_own(line: str, begin: timedelta, tmp_path: Path) -> None:
    states(tmp_path / "results/relax/now", begin=begin)
    search = search_checkpoints(opaque(tmp_path), {}, [line.format(f"{tmp_path}/results/relax/now")], now=ENDED)
    assert search.inventory is None


def test_of_two_folders_that_it_names_neither_is_taken(tmp_path: Path) -> None:
    states(tmp_path / "results/a")
    states(tmp_path / "results/b")
    search = search_checkpoints(opaque(tmp_path), {}, [f"out {tmp_path}/results/a and {tmp_path}/results/b"], now=ENDED)
    assert search.inventory is None


def test_links_pipes_and_lines_without_end_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "pipe_1")
    (tmp_path / "all").symlink_to("/")
    texts = ["/a" * 100_000, f"out {tmp_path}/pipe_1", f"out {tmp_path}/work/..", "out /", "x/" * 1900, f"out {tmp_path}/all/etc"]
    assert [str(path) for path in named_folders(opaque(tmp_path), texts)] in ([], [f"{tmp_path}/all/etc"])
