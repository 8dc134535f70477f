"""Logs that write an object of JSON a line: a traceback in one line is read as a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.logs.json_records import LONGEST_RECORD, expanded, holds_records

TRACE = (
    'Traceback (most recent call last):\n  File "/home/kim/run/fit.py", line 31, in <module>\n    widths = plan["widths"]\n'
    "             ~~~~^^^^^^^^^^\nKeyError: 'widths'"
)


def record(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_record_with_a_traceback_is_its_lines_at_its_number() -> None:
    lines = [
        record(ts="2026-03-01T10:00:00Z", level="INFO", msg="step 10 loss 2.5"),
        record(ts="2026-03-01T10:00:05Z", level="ERROR", msg="worker failed", exc_info=TRACE),
        b"srun: error: n1: task 0: Exited with exit code 1",
    ]
    texts, positions = expanded(lines)
    assert texts == [lines[0], b"2026-03-01T10:00:05Z ERROR worker failed", *TRACE.encode().split(b"\n"), lines[2]]
    assert positions == [0, *[1] * 6, 2]


def test_lines_of_a_container_runtime_are_what_the_program_wrote() -> None:
    lines = [record(log=f"{text}\n", stream="stderr", time="2026-03-01T10:00:00Z") for text in ("loading", "KeyError: 'widths'")]
    assert expanded(lines)[0] == [b"2026-03-01T10:00:00Z loading", b"2026-03-01T10:00:00Z KeyError: 'widths'"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b'{"step": 10, "loss": 2.5}',
        b'{"path": "a\\nb"}',
        b'{"msg": "C:\\\\new"}',
        b'["msg\\n"]',
        b"plain \\n text",
        b'{"msg": "' + b"[" * 5_000 + b'\\n"',
        record(msg="a\nb", text="x" * LONGEST_RECORD),
        b'{"msg": "a\\nb", "deep": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    ],
)
def test_any_other_line_stays_as_it_is(line: bytes) -> None:
    assert expanded([line]) == ([line], [0])


def test_a_failed_run_is_read_through_its_records(tmp_path: Path) -> None:
    lines = [
        record(ts=f"2026-03-01T10:00:{step:02}Z", level="INFO", msg="step", step=step, loss=3.0 - step / 50) for step in range(40)
    ]
    lines.append(record(ts="2026-03-01T10:00:41Z", level="ERROR", msg="run failed", error={"kind": "KeyError", "stack": TRACE}))
    log = tmp_path / "job.log"
    log.write_bytes(b"\n".join(lines) + b"\n")
    assert holds_records(log)
    diagnosis = diagnose(Case.from_path(tmp_path), Knowledge.load())
    assert str(diagnosis.reason) == "key_error"
    assert {citation.line for citation in diagnosis.root_cause} == {41}
    assert len(diagnosis.root_cause) == len({citation.line for citation in diagnosis.root_cause})
    assert "fit.py:31" in diagnosis.advice


def test_a_traceback_at_the_end_of_a_long_log_counts(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes((b"y" * 99 + b"\n") * 60_000 + record(msg="end", exc_info=TRACE) + b"\n")
    assert holds_records(log)
