"""Which file a program takes now as the newest of a listing, and what a restart needs where that is not the chosen one."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.entry import Entry, FileStat, Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.listed_saves import with_size_doubts
from assistant.recover.job_program import programs_of
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.source.listing_order import listed_files

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/listings.toml").read_text("utf-8"))["case"]
FILES = ("s_0010.bin", "s_0030.bin", "s_0020.bin", "last-words.bin", "notes.txt")
AT = datetime(2026, 11, 27, 3, 0, tzinfo=UTC)


def job_in(folder: Path) -> Job:
    spec = JobSpec("x", "#!/bin/bash\npython3 x.py\n", work_dir=folder)
    return Job("7", "x", "", JobState.FAILED, "", ("n1",), None, folder, None, AT, AT, 1, None, spec=spec)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_file_that_a_listing_takes_now_is_worked_out(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "x.py").write_text(case["source"])
    for number, name in enumerate(FILES):
        (tmp_path / "out" / name).write_text("x")
        os.utime(tmp_path / "out" / name, (1000 + number, 1000 + number))
    listed = listed_files(programs_of(job_in(tmp_path)), "")
    assert (listed.paths[0].name if listed is not None else "") == case["first"]


def save(name: str, step: int, size: int, second: int, **changes: Any) -> Checkpoint:
    at = AT.replace(second=second)
    return replace(Checkpoint(Path("/w/out") / name, step, Format.PLAIN, size, at, healthy=True, problems=()), **changes)


def held(*saves: Checkpoint) -> Inventory:
    entries = tuple(Entry(one.path, one.step, Format.PLAIN, {one.path.name: FileStat(one.size_bytes, 1.0)}) for one in saves)
    return Inventory(Path("/w/out"), saves, (), entries=entries)


TEN, TWENTY = save("s_0010.bin", 10, 4000, 10), save("s_0020.bin", 20, 4000, 20)
LATE = save(
    "late.bin", 20, 900, 30, healthy=False, undecided=True, problems=("late.bin tells its step neither by its name nor inside",)
)


def test_a_file_of_another_name_that_is_shorter_than_the_series_and_was_written_last_is_in_doubt() -> None:
    judged = with_size_doubts(held(TEN, TWENTY, LATE), job_in(Path("/w")), frozenset(("late.bin",)))
    assert [one.healthy for one in judged.checkpoints] == [True, True, False]
    assert judged.checkpoints[-1].undecided, "its size alone refuses nothing"
    assert (
        judged.checkpoints[-1].problems[0].startswith("may be torn, or another state: 900 bytes, each of the others at least 4,000")
    )
    assert "whether late.bin is whole is not known" in resume_plan(newest("late.bin", "s_0020.bin"), judged, TWENTY).refusal
    for kept in (replace(LATE, size_bytes=4000), replace(LATE, saved_at=AT)):
        judged = with_size_doubts(held(TEN, TWENTY, kept), job_in(Path("/w")), frozenset(("late.bin",)))
        assert judged.checkpoints[-1].problems == LATE.problems, "as long as the others, or written before them"


def newest(*names: str) -> ResumeWay:
    return ResumeWay(ResumeMeans.NEWEST, "glob() in x.py", listed=tuple(f"/w/out/{name}" for name in names), home_made=True)


def test_what_the_listing_takes_before_the_chosen_one_is_moved_away_or_asked_about() -> None:
    torn = replace(LATE, undecided=False, problems=("torn: 900 bytes",))
    order = ("late.bin", "s_0020.bin", "s_0010.bin")
    assert resume_plan(newest(*order), held(TEN, TWENTY, torn), TWENTY).set_aside == (torn.path,)
    assert "whether late.bin is whole is not known" in resume_plan(newest(*order), held(TEN, TWENTY, LATE), TWENTY).refusal
    assert "no checkpoint that is known" in resume_plan(newest(*order), held(TEN, TWENTY), TWENTY).refusal
    assert "older step" in resume_plan(newest("s_0010.bin", "s_0020.bin"), held(TEN, TWENTY), TWENTY).refusal
    assert resume_plan(newest("s_0020.bin", "s_0010.bin"), held(TEN, TWENTY), TWENTY).ready


def test_what_a_start_died_of_is_out_of_the_way_also_where_no_listing_is_known() -> None:
    torn = replace(LATE, step=0, undecided=False, problems=("torn: 900 bytes",))
    inventory = replace(held(torn, TEN, TWENTY), torn={torn.path: "torn: 900 bytes"})
    assert resume_plan(newest(), inventory, TWENTY).set_aside == (torn.path,)
    assert resume_plan(ResumeWay(ResumeMeans.ARGUMENT, "FROM", variable="FROM={checkpoint}"), inventory, TWENTY).ready
