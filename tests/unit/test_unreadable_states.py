"""Data that cannot be read is told from a saved state that cannot: by what the program said that it was loading."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose

CUT_OFF = """\
Traceback (most recent call last):
  File "/w/bake.py", line 31, in load
    crumbs = json.load(file)
  File "/usr/lib/python3.11/gzip.py", line 518, in read
    raise EOFError("Compressed file ended before the "
EOFError: Compressed file ended before the end-of-stream marker was reached
"""


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("Loading /w/out/step_000060 ...\n", "model_loading_error"),
        ("Resuming from checkpoint_12/state.gz\nsrun: error: oven1: task 0: Exited with exit code 1\n", "model_loading_error"),
        ("restoring epoch=3\n", "model_loading_error"),
        ("Loading /w/out/step_000060 ...\ngoing on behind step 60\nreading /w/data/crumbs_07.json.gz\n", "dataset_loading_error"),
        ("reading /w/data/crumbs_07.json.gz\n", "dataset_loading_error"),
    ],
)
def test_what_the_program_was_loading_decides(words: str, reason: str, tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "job.log").write_text(f"bakery 3\nwarming the ovens\n{words}{CUT_OFF}")
    diagnosis = diagnose(Case.from_path(tmp_path / "job.log"), knowledge)
    assert diagnosis.reason == reason
    assert ("go on from the one before" in diagnosis.advice) is (reason == "model_loading_error")
