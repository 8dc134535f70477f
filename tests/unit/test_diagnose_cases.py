"""Every folder of tests/cases/diagnose is diagnosed as its case.toml says, and never blames a node that it should not."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.answer import answer
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from bench.diagnosis import OWN_CASES, misses, own_cases

CASES = list(own_cases())


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize(("folder", "expected"), CASES, ids=[str(folder.relative_to(OWN_CASES)) for folder, _ in CASES])
def test_a_case_is_diagnosed_as_its_file_says(folder: Path, expected: dict[str, object], knowledge: Knowledge) -> None:
    case = Case.from_path(folder)
    found = answer(str(folder), case, diagnose(case, knowledge))
    assert misses(expected, found) == [], found["summary"]


def test_every_reason_has_a_case(knowledge: Knowledge) -> None:
    covered = {expected["reason"] for _, expected in CASES}
    assert set(knowledge.reasons) - covered <= {"slow_job"}


@pytest.mark.parametrize(("folder", "expected"), CASES[::7], ids=[str(folder.relative_to(OWN_CASES)) for folder, _ in CASES[::7]])
def test_the_same_case_gets_the_same_diagnosis_twice(folder: Path, expected: dict[str, object], knowledge: Knowledge) -> None:
    del expected
    assert diagnose(Case.from_path(folder), knowledge) == diagnose(Case.from_path(folder), knowledge)


@pytest.mark.parametrize(("folder", "expected"), CASES[::5], ids=[str(folder.relative_to(OWN_CASES)) for folder, _ in CASES[::5]])
def test_cited_lines_stand_in_the_files(folder: Path, expected: dict[str, object], knowledge: Knowledge) -> None:
    del expected
    for citation in diagnose(Case.from_path(folder), knowledge).root_cause:
        lines = (folder / citation.file).read_text(encoding="utf-8").split("\n")
        # colours are left out of what is cited
        assert citation.text.split("\x1b")[0][:20] in lines[citation.line - 1].replace("\x1b[31m", "").replace("\x1b[32m", "")
