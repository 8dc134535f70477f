"""A log that was rotated is read as one, and each line is cited in its own file."""

from __future__ import annotations

import gzip
from pathlib import Path

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose

STEPS = [f" iteration {step:8d}/ 1000 | lm loss: {3 - step / 1000:.6E} | grad norm: 0.3 |" for step in range(1, 41)]
ERROR = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 has a total capacity of 79.10 GiB"
AFTER = ["srun: error: node01: task 1: Exited with exit code 1"]


def test_the_cause_is_found_in_the_part_before(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "job.log.2.gz", "wt") as file:
        file.write("\n".join(STEPS[:20]) + "\n")
    (tmp_path / "job.log.1").write_text("\n".join([*STEPS[20:], ERROR]) + "\n")
    (tmp_path / "job.log").write_text("\n".join(AFTER) + "\n")
    found = diagnose(Case.from_path(tmp_path), Knowledge.load())
    assert found.reason == "out_of_memory_error"
    assert (found.root_cause[0].file, found.root_cause[0].line, found.root_cause[0].text) == ("job.log.1", 21, ERROR)
    assert "job.log.1:21" in found.summary
    assert found.step == 40


def test_a_line_of_the_log_itself_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "job.log.1").write_text("\n".join(STEPS) + "\nno newline at the end")
    (tmp_path / "job.log").write_text("\n".join([ERROR, *AFTER]) + "\n")
    found = diagnose(Case.from_path(tmp_path / "job.log"), Knowledge.load())
    assert (found.root_cause[0].file, found.root_cause[0].line) == ("job.log", 1)


def test_an_unreadable_older_part_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "job.log.1").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "job.log").write_text("\n".join([*STEPS, ERROR]) + "\n")
    found = diagnose(Case.from_path(tmp_path), Knowledge.load())
    assert (found.reason, found.root_cause[0].file, found.root_cause[0].line) == ("out_of_memory_error", "job.log", 41)
