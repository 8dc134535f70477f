"""Action and advice say the same about another start, and nothing is asked for that the log shows as set."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.advice.agreement import RecurrenceForm, form_of, recurrence_forms
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from tests.unit.test_particulars import contradictions

FILES = sorted((Path(__file__).parents[1] / "cases" / "agreement").glob("*.toml"))
CASES = [case for path in FILES for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]
EXAMPLES = [(form, example) for form in recurrence_forms() for example in form.examples]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_action_and_advice_say_the_same(tmp_path: Path, knowledge: Knowledge, case: Any) -> None:
    (tmp_path / "job.log").write_text("\n".join(case["lines"]) + "\n", encoding="utf-8")
    answer = diagnose(Case.from_path(tmp_path), knowledge)
    assert str(answer.action) == case.get("action", str(answer.action)), answer.advice
    assert [words for words in case.get("says", ()) if words not in answer.advice] == [], answer.advice
    assert [words for words in case.get("never", ()) if words in answer.advice] == [], answer.advice
    assert contradictions(str(answer.action), answer.advice) == []


@pytest.mark.parametrize(("form", "example"), EXAMPLES, ids=[f"{form.id}-{example[:30]}" for form, example in EXAMPLES])
def test_each_form_takes_its_own_examples(form: RecurrenceForm, example: str) -> None:
    first = form_of(example)
    assert first is not None
    assert first.id == form.id


def test_no_form_both_stands_and_wants_a_pause() -> None:
    assert len({form.id for form in recurrence_forms()}) == len(recurrence_forms())
    assert [form.id for form in recurrence_forms() if form.pause and not form.passes] == []
    assert all(form.id.startswith("passes." if form.passes else "stands.") for form in recurrence_forms())


@pytest.mark.parametrize("line", ["step 429 loss 2.1", "lr 5.02e-4 tokens 50300", "RuntimeError: the pump is out of phase"])
def test_numbers_and_words_of_other_things_decide_nothing(line: str) -> None:
    form = form_of(line)
    assert form is None, form
