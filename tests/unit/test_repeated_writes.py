"""Which files a rerun from the beginning would append to a second time or empty, read from the programs of a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records.jobs import OpenFile, ProcessReport
from assistant.recover.job_program import programs_of
from assistant.recover.source.reruns import (
    RepeatedWrite,
    WriteDeed,
    lines_reached,
    present_writes,
    repeated_writes,
    rerun_words,
    writes_of_job,
)
from tests.unit.test_strangers_runs import BEGAN, job

APPENDS, EMPTIES = WriteDeed
LEDGER = """import glob, json
for n, name in enumerate(sorted(glob.glob("inbox/*.json"))):
    with open("ledger.jsonl", "a") as out:
        out.write(json.dumps(json.load(open(name))))
"""
TOKENS = """import sys
src, prefix = sys.argv[1:]
out = open(prefix + ".bin", "ab")
out.write(b"x")
"""
SKIPS = """import json, os
done = {json.loads(line)["id"] for line in open("ledger.jsonl")} if os.path.exists("ledger.jsonl") else set()
out = open("ledger.jsonl", "a")
for item in range(100):
    if item in done:
        continue
    out.write(str(item))
"""
FILLS = """import json
done = set()
with open("ledger.jsonl") as old:
    for line in old:
        done.add(json.loads(line)["id"])
with open("ledger.jsonl", "a") as out:
    for item in [item for item in range(100) if item not in done]:
        out.write(str(item))
"""
SLICES = """lines = sum(1 for _ in open("ledger.jsonl"))
with open("ledger.jsonl", "a") as out:
    for item in range(lines, 100):
        out.write(str(item))
"""
COUNTS = """import os
lines = sum(1 for _ in open("ledger.jsonl")) if os.path.exists("ledger.jsonl") else 0
print("lines so far", lines)
with open("ledger.jsonl", "a") as out:
    out.write("x")
"""
OTHER = SKIPS.replace('open("ledger.jsonl")}', 'open("inbox.jsonl")}').replace("for line in open", "for line in open")
TABLE = """import pandas as pd
pd.DataFrame().to_csv("out/scores.csv", mode="a")
"""
EVALUATES = """import json
with open("results/samples.jsonl", "w") as out:
    out.write("x")
"""


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        (LEDGER, [(APPENDS, "ledger.jsonl")]),
        (TOKENS, [(APPENDS, "*.bin")]),
        (COUNTS, [(APPENDS, "ledger.jsonl")]),
        (OTHER, [(APPENDS, "ledger.jsonl")]),
        (TABLE, [(APPENDS, "out/scores.csv")]),
        (EVALUATES, [(EMPTIES, "results/samples.jsonl")]),
        ("import os\nos.open('pay.db', os.O_WRONLY | os.O_APPEND)\n", [(APPENDS, "pay.db")]),
        ("from pathlib import Path\nPath('ledger.jsonl').open('a')\n", [(APPENDS, "ledger.jsonl")]),
        (SKIPS, []),
        (FILLS, []),
        (SLICES, []),
        ("open('metrics.jsonl', 'a')\nopen('train.log', 'a')\nopen('logs/x.txt', 'a')\nopen('/dev/null', 'w')\n", []),
        ("open('ledger.jsonl')\nopen('weights.bin', 'rb')\n", []),
    ],
)
def test_what_a_program_appends_to_or_empties_is_read_from_its_source(
    source: str, writes: list[tuple[WriteDeed, str]], tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(source)
    found = repeated_writes(programs_of(job(tmp_path, "python3 work.py raw corpus\n")))
    assert [(write.deed, str(Path(write.path).relative_to(tmp_path))) for write in found] == writes
    assert all(write.program == "work.py" and "work.py, line" in write.how for write in found)


def test_what_is_there_and_was_written_by_the_attempt_counts() -> None:
    began = datetime(2026, 1, 5, 3, tzinfo=UTC)
    files = {"/w/corpus.bin": (10, began), "/w/old.bin": (10, began - timedelta(hours=1)), "/w/none.bin": (0, began)}
    write = RepeatedWrite(APPENDS, "/w/*.bin", "open() in x.py, line 3", "x.py")
    found = present_writes([write], files.get, lambda _: [Path(path).name for path in files], began=began)
    assert [entry.path for entry in found] == ["/w/corpus.bin"]
    assert present_writes([write._replace(path="/*/y.bin")], files.get, lambda _: [], began=began) == []
    both = [write._replace(path="/w/corpus.bin"), write._replace(path="/w/corpus.bin", deed=EMPTIES)]
    assert [entry.deed for entry in present_writes(both, files.get, lambda _: [], began=began)] == [APPENDS]


def test_a_file_that_a_process_had_open_to_append_counts_whatever_its_source_tells(tmp_path: Path) -> None:
    data = tmp_path / "corpus.bin"
    data.write_bytes(b"x")
    file = OpenFile(data, "node01", 7, BEGAN, 1, 1, 1, appends=True)
    log = replace(file, path=tmp_path / "job.out")
    shown = replace(job(tmp_path, "./tokenize\n"), processes=ProcessReport(BEGAN, files=(file, log)))
    assert [write.path for write in writes_of_job(shown, [])] == [str(data)]
    assert writes_of_job(shown, [], seen_open=False) == []


def test_people_read_which_file_and_where_it_is_opened() -> None:
    write = RepeatedWrite(APPENDS, "/w/corpus.bin", "open() in x.py, line 3", "x.py", 3 << 20)
    said = rerun_words([write, write._replace(path="/elsewhere/s.jsonl", deed=EMPTIES)], Path("/w"))
    assert said.startswith("A rerun from the beginning would append to corpus.bin (3.0 MiB; open() in x.py, line 3) a second time")
    assert "A rerun would empty /elsewhere/s.jsonl" in said
    assert rerun_words([], None) == ""


SWEEP = """import data
print("task")
ds = data.load()
for step in range(150):
    ds.batch(step)
    if step % 50 == 0:
        open("steps.csv", "a").write("x")
with open("results.csv", "a") as out:
    out.write("x")
"""


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (3, []),  # it never came to its loop
        (5, ["steps.csv"]),
        (9, ["results.csv", "steps.csv"]),
        (0, ["results.csv", "steps.csv"]),  # nothing tells where it ended
    ],
)
def test_what_stands_behind_the_line_at_which_a_program_ended_was_not_written_by_it(
    line: int, files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    frames = ["Traceback (most recent call last):", f'  File "{tmp_path}/sweep.py", line {line}, in <module>', "    ds.batch(step)"]
    reached = lines_reached(["task", *(frames if line else []), "FileNotFoundError: /mnt/data/shard_0.bin"])
    writes = repeated_writes(programs_of(job(tmp_path, "python3 sweep.py")), reached)
    assert sorted(Path(write.path).name for write in writes) == files
