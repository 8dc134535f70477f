"""Every answer to every labelled case rests on lines that stand in its files, and names no rival that nothing speaks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.logs.lines import clean
from assistant.records import Action, Citation, Diagnosis
from bench.blind import suites
from bench.diagnosis import OWN_CASES, dev_suites

PLACE = re.compile(r"\b(job\.log|dmesg\.log|slurmctld\.log|metrics\.jsonl):(\d+)")
SUITES = {
    "own": sorted(path.parent for path in OWN_CASES.glob("*/*/case.toml")),
    **{suite.name: sorted(path for path in suite.iterdir() if path.is_dir()) for suite in suites()},
    **{f"dev-{suite.name}": [Path(label["folder"]) for label in suite.labels] for suite in dev_suites()},
}


@cache
def answers(suite: str) -> dict[Path, Diagnosis]:
    knowledge = Knowledge.load()
    return {folder: diagnose(Case.from_path(folder), knowledge) for folder in SUITES[suite]}


def cited(found: Diagnosis) -> Iterator[Citation]:
    yield from found.root_cause
    for node in found.nodes:
        yield from node.citations


@pytest.mark.parametrize("suite", SUITES)
def test_each_citation_is_the_text_of_its_line(suite: str) -> None:
    for folder, found in answers(suite).items():
        for citation in cited(found):
            path = folder / citation.file
            raw = path.read_bytes().split(b"\n")[citation.line - 1] if path.is_file() else b""
            assert citation.text == clean(raw) or citation.text == raw.decode("utf-8", "replace").rstrip("\r"), (folder, citation)


@pytest.mark.parametrize("suite", SUITES)
def test_a_failure_is_never_told_without_a_line(suite: str) -> None:
    bare = [folder for folder, found in answers(suite).items() if found.action is not Action.NONE and not found.root_cause]
    assert bare == []


@pytest.mark.parametrize("suite", SUITES)
def test_each_rival_has_what_speaks_for_it_and_against_it_and_a_test(suite: str) -> None:
    for folder, found in answers(suite).items():
        assert len({found.reason, *(rival.reason for rival in found.rivals)}) == 1 + len(found.rivals) <= 3, folder
        for rival in found.rivals:
            assert rival.speaks_for, folder
            assert "would show in nothing" not in rival.speaks_for, folder
            assert rival.speaks_against, folder
            assert rival.test, folder
            assert rival.confidence <= 1 - found.confidence + 0.1, folder
            assert rival.confidence <= found.confidence or found.reason == "unknown", folder


def _restarts(sentence: str) -> bool:
    return sentence.startswith(("Restart", "Go back", "Wait ")) or (sentence.startswith("Set ") and " aside" in sentence)


@pytest.mark.parametrize("suite", SUITES)
def test_advice_says_nothing_twice_and_never_both_restart_and_not(suite: str) -> None:
    for folder, found in answers(suite).items():
        sentences = [sentence.strip(" .") for sentence in found.advice.split(". ")]
        assert len(sentences) == len(set(sentences)), (folder, found.advice)
        restarts = [sentence for sentence in sentences if _restarts(sentence)]
        refuses = [sentence for sentence in sentences if sentence.startswith(("Do not restart", "A restart alone does not help"))]
        assert not (restarts and refuses), (folder, found.advice)
        assert len(restarts) <= 1, (folder, found.advice)


@pytest.mark.parametrize("suite", SUITES)
def test_a_line_that_speaks_for_a_rival_exists(suite: str) -> None:
    for folder, found in answers(suite).items():
        for rival in found.rivals:
            for file, number in PLACE.findall(rival.speaks_for[:40]):
                path = folder / file
                assert path.is_file(), (folder, rival)
                assert int(number) <= path.read_bytes().count(b"\n") + 1, (folder, rival)
