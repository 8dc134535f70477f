"""The file and the line of a record that a program could not parse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.engine.evidence.broken_record import broken_json, broken_row, data_files, with_broken_record
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState

AT = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)
WORDS = "Invalid control character at: line 1 column 8 (char 7)"
GOOD = b'{"a": 1}\n'
BAD = b'{"a": "\x01"}\n'
ADVICE = (
    "What is read at /w/fit.py:9 in rows() is no JSON at line 1, column 8 (Invalid control character at): look at the file there; "
    "it is empty, cut off, of another format, or an error page that was downloaded in its place. Write or load it anew. "
    "The line is `json.loads(row)`."
)


def failed(
    folder: Path, log: str, *, script: str = "#!/bin/bash\npython fit.py\n", error: str = f"json.decoder.JSONDecodeError: {WORDS}"
) -> tuple[Diagnosis, Job]:
    (folder / "job.log").write_text(f"{log}{error}\n")
    spec = JobSpec("fit", script, work_dir=folder)
    job = Job("7", "fit", "ada", JobState.FAILED, "gpu", ("n1",), folder / "job.log", folder, AT, AT, AT, 1, None, spec=spec)
    cited = Citation("job.log", 9, error, "log", "root")
    diagnosis = Diagnosis(
        reason="value_error", category=Category.FRAMEWORK, action=Action.FIX_AND_RESUBMIT, confidence=0.9, by=DecidedBy.RULE,
        root_cause=(cited,), nodes=(), rivals=(), summary="Value error.", advice=ADVICE, step=130, spike_step=None,
    )  # fmt: skip
    return diagnosis, job


def test_the_file_that_the_log_named_last_and_its_line_are_told(tmp_path: Path) -> None:
    data = tmp_path / "rows"
    data.mkdir()
    (data / "p0.jsonl").write_bytes(GOOD * 5)
    (data / "p1.jsonl").write_bytes(GOOD * 34 + BAD + GOOD * 3)
    diagnosis, job = failed(tmp_path, "reading rows/p0.jsonl\nstep 5 loss 2.0\nreading rows/p1.jsonl\nstep 9 loss 1.9\n")
    advice = with_broken_record(diagnosis, job).advice
    assert f"Line 35 of {data / 'p1.jsonl'} cannot be parsed (Invalid control character at, column 8)" in advice
    assert "It is read at /w/fit.py:9 in rows(). The line is `json.loads(row)`." in advice
    assert "line 1," not in advice


def test_files_that_the_configuration_names_are_looked_at_where_the_log_names_none(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "p1.jsonl").write_bytes(GOOD + BAD)
    diagnosis, job = failed(tmp_path, "step 9 loss 1.9\n", script="#!/bin/bash\npython fit.py --data rows\n")
    assert f"Line 2 of {tmp_path / 'rows' / 'p1.jsonl'}" in with_broken_record(diagnosis, job).advice


@pytest.mark.parametrize(
    ("content", "log"),
    [
        (GOOD * 9, "reading p1.jsonl\n"),  # every line is whole: it was another file, or it is mended
        (b'{"a": \n' + GOOD, "reading p1.jsonl\n"),  # another error than the one that is told
        (GOOD + BAD, "reading other.jsonl\n"),  # a file that is not there
    ],
)
def test_no_line_is_blamed_that_the_parser_does_not_refuse_with_the_same_words(content: bytes, log: str, tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_bytes(content)
    diagnosis, job = failed(tmp_path, log)
    assert with_broken_record(diagnosis, job) == diagnosis


@pytest.mark.parametrize(("end", "cut_short"), [(b'{"a": "b', True), (b'{"a": "b\n', False), (b'{"a": "b\n' + GOOD, False)])
def test_a_file_whose_last_line_has_no_end_is_cut_short_and_has_to_be_copied_again(
    end: bytes, cut_short: bool, tmp_path: Path
) -> None:
    (tmp_path / "p1.jsonl").write_bytes(GOOD * 3 + end)
    error = "json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 7 (char 6)"
    if not cut_short:
        error = error.replace("Unterminated string starting at", "Invalid control character at").replace("7 (char 6)", "9 (char 8)")
    diagnosis, job = failed(tmp_path, "reading p1.jsonl\n", error=error)
    advice = with_broken_record(diagnosis, job).advice
    assert f"Line 4 of {tmp_path / 'p1.jsonl'}" in advice
    assert ("the file is cut short. Copy it from where it came from" in advice) is cut_short
    assert ("leave it out" in advice) is not cut_short


def test_what_a_list_beside_a_file_that_is_cut_short_says_of_it_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_bytes(GOOD * 3 + b'{"a": "b')
    (tmp_path / "MANIFEST.tsv").write_text("p0.jsonl\t90\t10\np11.jsonl\t1\t1\np1.jsonl\t90\t10\n")
    error = "json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 7 (char 6)"
    diagnosis, job = failed(tmp_path, "reading p1.jsonl\n", error=error)
    assert "MANIFEST.tsv there says of it: `p1.jsonl\t90\t10`." in with_broken_record(diagnosis, job).advice


def test_what_may_be_mended_by_a_restart_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_bytes(BAD)
    diagnosis, job = failed(tmp_path, "reading p1.jsonl\n")
    waiting = replace(diagnosis, action=Action.WAIT_AND_RETRY)
    assert with_broken_record(waiting, job) == waiting


def test_a_json_file_over_many_lines_is_not_taken_for_records(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b'{\n"a": 1\n}\n')
    assert broken_json(tmp_path / "p.json", "Expecting value", "it") is None


@pytest.mark.parametrize(("line", "found"), [(3, True), (2, False), (40, False)])
def test_a_row_with_too_many_fields_is_the_one_that_the_error_numbers(line: int, found: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1,2,3\n")
    record = broken_row(tmp_path / "t.csv", line, 2, 3)
    assert (record is not None) is found


def test_only_data_files_that_are_there_count_the_last_one_of_a_line_first(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.txt"):
        (tmp_path / name).write_bytes(GOOD)
    texts = ["read a.jsonl, then b.jsonl and c.txt", "a.jsonl again, and gone.jsonl"]
    assert [path.name for path in data_files(texts, tmp_path, (".jsonl",))] == ["b.jsonl", "a.jsonl"]
