"""What people are told of work that is kept: that a start goes on behind it, makes its full number again beside it, or nothing."""

from __future__ import annotations

import os
import sqlite3
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import programs_of
from assistant.recover.kept_work import kept_words
from assistant.recover.source.continued_lines import passing_lines
from assistant.recover.source.continued_work import continued_work
from tests.unit.logged_job import write
from tests.unit.test_strangers_runs import BEGAN, ENDED, job

CASES = Path(__file__).parents[1] / "cases" / "kept_work"
STORES: list[dict[str, Any]] = tomllib.loads((CASES / "stores.toml").read_text("utf-8"))["case"]
LINES: list[dict[str, Any]] = tomllib.loads((CASES / "lines.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", STORES, ids=lambda case: case["name"])
def test_of_a_store_only_what_the_code_proves_is_told(case: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "work.py", case["program"].lstrip("\n"), BEGAN - timedelta(hours=1))
    with sqlite3.connect(tmp_path / "book.db") as store:
        store.execute("create table trials(number integer primary key, state text)")
    at = (BEGAN + timedelta(minutes=50)).timestamp()
    os.utime(tmp_path / "book.db", (at, at))
    shown = replace(job(tmp_path, "python3 work.py --n 50 --again"), dated_logs=True)
    work = continued_work(programs_of(shown))
    assert [bool(entry.adds) for entry in work] == ([case["tells"] == "adds"] if case["tells"] else [])
    words = kept_words(shown, programs_of(shown), ENDED)
    assert ("goes on behind what it holds" in words) is (case["tells"] == "goes_on")
    assert ("makes its full number again" in words) is (case["tells"] == "adds")
    proven = search_checkpoints(shown, {}, ["trial 19 of 50"], now=ENDED)
    assert (proven.state is SaveState.NEVER_SAVED and bool(proven.pieces)) is (case["tells"] == "goes_on")


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["name"])
def test_lines_tell_of_work_that_no_start_takes_away(case: dict[str, Any]) -> None:
    entries = [entry.path or "*" for entry in passing_lines(case["source"])]
    assert entries == ([case["path"]] if case["path"] else [])
