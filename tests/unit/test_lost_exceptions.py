"""An end whose exception the launcher lost: who exited first and where its traceback breaks off; never that it was cancelled."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.lost_exceptions import LastFrame, frame_of
from assistant.diagnose.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose

FOLDER = Path(__file__).parents[1] / "cases" / "lost_exceptions"
LOGS = tomllib.loads((FOLDER / "logs.toml").read_text(encoding="utf-8"))["case"]
STEPS = [f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |\n" for n in range(1, 44)]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["name"])
def test_what_is_left_of_a_lost_exception_is_said_and_nothing_else(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    log = "".join(STEPS[:20]) + case.get("before", "").lstrip() + "".join(STEPS[20:]) + case["log"].lstrip()
    (tmp_path / "job.log").write_text(log)
    found = diagnose(Case.from_path(tmp_path), knowledge, [RankerOpinion()])
    words = " ".join([found.summary, found.advice, *(rival.reason for rival in found.rivals)])
    assert found.reason == case.get("reason", found.reason), words
    assert [text for text in case.get("says", ()) if text not in words] == [], words
    assert [text for text in case["never"] if text in words] == [], words
    if "place" in case:
        assert found.where[0].sentence.startswith(case["place"]), found.where[0].sentence
    if found.reason == "unknown":
        assert not found.faulty_nodes


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('  File "/shared/job/x.py", line 5, in <module>', LastFrame("/shared/job/x.py", 5, "<module>")),
        ('[rank3]:   File "/w/a b.py", line 812, in Reader.__next__', LastFrame("/w/a b.py", 812, "Reader.__next__")),
        ('  File "/shared/job/x.py", line 5', None),
        ('  File "/shared/job/x.py", line 5, in', None),
        ('  File "/home/eve/main.py", line 12srun: error: n8: task 7: Exited with exit code 1', None),
        ('  File "/w/t.py", line 5, in losrun: error: n8: task 7: Exited with exit code 1', None),
        ('  File "' + "a" * 5000, None),
    ],
)
def test_a_frame_counts_only_where_its_line_is_whole(text: str, frame: LastFrame | None) -> None:
    assert frame_of(text) == frame
