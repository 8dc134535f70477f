"""A bus error and what it is not; data files that others write while a job reads them; what a task of an array met in a race."""

from __future__ import annotations

import getpass
import os
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.engine.evidence.changed_files import changed_files, data_places, writer_of
from assistant.records import Job, JobSpec, JobState
from assistant.tools.holders import _CHANGED, _WRITERS, writers_of

FOLDER = Path(__file__).parents[1] / "cases" / "changed_files"
BUS_ERRORS = tomllib.loads((FOLDER / "bus_errors.toml").read_text(encoding="utf-8"))["case"]
STEPS = "".join(f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |\n" for n in range(1, 44))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", BUS_ERRORS, ids=lambda case: case["name"])
def test_a_bus_error_is_the_loaders_only_where_the_loader_says_so(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    (tmp_path / "job.log").write_text(STEPS + case["log"].strip() + "\n")
    found = diagnose(Case.from_path(tmp_path), knowledge)
    words = f"{found.summary} {found.advice}"
    assert found.reason == case.get("reason", found.reason), words
    assert str(found.action) == case.get("action", str(found.action))
    assert [text for text in case.get("says", ()) if text not in words] == [], words
    assert [text for text in case.get("never", ()) if text in words] == [], words
    if case["log"].startswith("srun") and "reason" in case:
        assert not found.faulty_nodes


CHANGES = tomllib.loads((FOLDER / "changes.toml").read_text(encoding="utf-8"))["case"]
BEGAN = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case["name"])
def test_a_file_counts_that_was_written_while_the_job_read_it(case: dict[str, Any]) -> None:
    rows = [
        {"path": path, "user": user, "modified_s": int(at(seconds).timestamp()), "size_bytes": 7}
        for path, user, seconds in case["files"]
    ]
    for order in (rows, rows[::-1]):
        files = changed_files(
            order,
            began=BEGAN,
            ended=at(600),
            now=at(case.get("now", 610)),
            texts=case["texts"],
            in_error=case.get("named", False),
        )
        assert [file.path for file in files] == case["counts"]


@pytest.mark.parametrize(
    ("texts", "places"),
    [
        (["dir = '/shared/data/owt'"], ("/shared/data/owt",)),
        (["source /opt/sw/etc/profile.sh\nsrun python t.py --data /lustre/pile/tokens.bin,"], ("/lustre/pile/tokens.bin",)),
        (["#!/bin/bash\n#SBATCH -o /dev/null", "/usr/bin/env python", "/data"], ()),
        (["http://host.example/data/x.bin"], ()),
    ],
)
def test_data_lies_where_script_and_configuration_say(texts: list[str], places: tuple[str, ...]) -> None:
    named = data_places(texts, PurePosixPath("/home/ada/run"))
    assert set(places) <= set(named)
    assert {"/home/ada/run", "/home/ada/run/data"} <= set(named)
    assert not [place for place in named if place.startswith(("/dev", "/usr")) or "host.example" in place]
    assert len(data_places([f"/data/{number}/x" for number in range(99)], PurePosixPath("/w/r"))) <= 12


def shown(number: str, user: str, *, node: str = "n2", raw: str = "") -> Job:
    return Job(number, f"job{number}", user, JobState.RUNNING, "gpu", (node,), None, Path("/w"), None, None, None, None, None,
               spec=JobSpec("llm", ""), raw_id=raw)  # fmt: skip


def written_by(user: str = "bob", number: str = "5", node: str = "n2") -> dict[str, Any]:
    return {"path": "/data/t.bin", "node": node, "pid": 7, "user": user, "job": number, "program": "python3 prep.py"}


@pytest.mark.parametrize(
    ("rows", "jobs", "job"),
    [
        ([written_by()], [shown("5", "bob")], "5"),
        ([written_by(number="51")], [shown("5_1", "bob", raw="51")], "5_1"),
        ([written_by(user="eve")], [shown("5", "bob")], ""),  # it only says that it is of bob's job
        ([written_by(node="n3")], [shown("5", "bob")], ""),  # the job does not run there
        ([written_by(number="")], [], ""),
        ([written_by(user="ada", number="1")], [shown("1", "ada")], None),  # the job itself
        ([{**written_by(), "path": "/data/other.bin"}], [shown("5", "bob")], None),
        ([], [], None),
    ],
)
def test_who_writes_is_named_only_where_the_scheduler_shows_that_job_there(
    rows: list[dict[str, Any]], jobs: list[Job], job: str | None
) -> None:
    writer = writer_of(rows, "/data/t.bin", shown("1", "ada", node="n1"), jobs)
    assert (writer.job if writer is not None else None) == job
    assert writer is None or "process 7" in writer.text


def ran(program: str, *words: str) -> str:
    return subprocess.run(["sh", "-c", program, "sh", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_programs_see_what_changed_and_who_writes_it(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "old.bin", tmp_path / "new of bob.bin", tmp_path / "deeper"
    folder.mkdir()
    for path in (old, new, folder / "x.bin"):
        path.write_bytes(b"12")
    os.utime(old, (1_000_000, 1_000_000))
    os.utime(new, (2_000_000, 2_000_000))
    records = ran(_CHANGED, "1500000", str(tmp_path), f"{tmp_path}/none").split("\0")
    assert [record for record in records if record.startswith("file ")] == [f"file 2 2000000.0000000000 {getpass.getuser()} {new}"]
    assert records[-2] == "end"
    with new.open("ab"), old.open("rb"):
        states, writers = writers_of(ran(_WRITERS, str(old), str(new), f"{tmp_path}/none"))
    assert [(state["path"], state["modified_s"]) for state in states] == [(str(old), 1_000_000), (str(new), 2_000_000)]
    assert {(row["path"], row["pid"]) for row in writers} == {(str(new), os.getpid())}
