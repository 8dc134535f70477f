"""What a person does next: advice has the objects of the case and the step that follows, in programs of many kinds.

The cases were written before what they ask for was there: `second.toml` and `third.toml` behind the mends that the others led to.
One with `open` says what it still lacks.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose

FOLDER = Path(__file__).parents[1] / "cases" / "next_steps"
CASES = [case for path in sorted(FOLDER.glob("*.toml")) for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]
PYTHON = re.compile(r"ython|\.py\b")
SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def lacking(case: dict[str, Any], advice: str) -> list[str]:
    """Return what advice has not and should have, and what it has and should not have."""
    sentences = SENTENCES.split(advice)
    return [
        *(f"lacks {words}" for words in case["must"] if not re.search(words, advice)),
        *(f"has {words}" for words in case["never"] if re.search(words, advice)),
        *(["only repeats a line"] if "All that the log says" in advice else []),
        *(["speaks of Python"] if "ython" in advice and not PYTHON.search(case["log"]) else []),
        *(["says a sentence twice"] if len(set(sentences)) < len(sentences) else []),
    ]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_advice_says_the_next_step_with_the_objects_of_the_case(
    tmp_path: Path, knowledge: Knowledge, case: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    (tmp_path / "job.log").write_text(case["log"].lstrip("\n"), encoding="utf-8")
    diagnosis = diagnose(Case.from_path(tmp_path), knowledge, (RankerOpinion(),))
    if case.get("open"):
        request.node.add_marker(pytest.mark.xfail(reason=case["open"], strict=True))
    assert lacking(case, diagnosis.advice) == [], diagnosis.advice
