"""What a model says of the state or the reason of a thing is held against the record of that very thing."""

from __future__ import annotations

import pytest

from assistant.agent.answer import AnswerSource
from assistant.agent.grounding import MARK, AnswerEvidence, check_answer

JOBS = AnswerSource(
    1,
    "list_jobs",
    {},
    [
        {"job": "4821", "name": "llm-7b", "state": "failed", "nodes": ["node05", "node07"]},
        {"job": "4830", "name": "llm-13b", "state": "running", "nodes": ["node01"]},
    ],
)
WHY = AnswerSource(
    2,
    "explain_job",
    {"job": "4821"},
    {
        "reason": "ecc_error",
        "summary": "ECC error on node07",
        "rivals": [{"reason": "cuda_error", "against": "nothing in the case speaks for it"}],
    },
)
NODES = AnswerSource(
    3, "node_states", {"nodes": ["node07"]}, [{"node": "node07", "state": "drained"}, {"node": "node08", "state": "idle"}]
)
FINE = AnswerSource(4, "explain_job", {"job": "4830"}, {"reason": "no_failure", "summary": "No failure: iteration 900"})


@pytest.mark.parametrize(
    ("sentence", "stands"),
    [
        ("Job 4830 is running [1].", True),
        ("Job 4821 is running [1].", False),
        ("Job 4821 is not running [1].", True),
        ("Job 4830 is not running [1].", False),
        ("Job 4821 failed, 4830 is running [1].", True),
        ("Job 4830 failed [1].", False),
        ("Job 4821 failed: ecc_error [2].", True),
        ("Job 4821 failed: cuda_error [2].", False),
        ("Job 4821 failed of ecc_error, not of cuda_error [2].", True),
        ("cuda_error was weighed and not chosen [2].", True),
        ("Job 4830 failed: ecc_error [4].", False),
        ("node07 is drained [3].", True),
        ("node08 is drained [3].", False),
        ("node07 is cordoned [3].", True),
        ("node07 is healthy [3].", False),
        ("The job is completed [2].", False),
        ("Bananas grow elsewhere [3].", False),
        ("The states of the nodes are in [3].", True),
    ],
)
def test_a_state_or_a_reason_stands_on_the_record_of_its_own_subject(sentence: str, stands: bool) -> None:
    found = check_answer(sentence, AnswerEvidence([JOBS, WHY, NODES, FINE]))
    assert (MARK not in found.text) is stands, found.unsupported


def test_without_any_source_no_state_stands() -> None:
    assert MARK in check_answer("Job 4830 is running.", AnswerEvidence([], ["how is job 4830?"])).text
    assert (
        MARK not in check_answer("It is not known whether job 4830 is not running.", AnswerEvidence([], ["how is job 4830?"])).text
    )


@pytest.mark.parametrize(
    ("text", "stands", "cites"),
    [
        ("Job 4821 failed: ecc_error [2].", True, True),
        ("Job 4821 failed: cuda_error [2].", False, False),
        ("Perhaps.", True, False),
        ("Nothing more is known.", True, True),
        ("Which job do you mean?", True, True),
    ],
)
def test_of_an_answer_it_is_known_whether_anything_stands_and_names_its_source(text: str, stands: bool, cites: bool) -> None:
    found = check_answer(text, AnswerEvidence([JOBS, WHY, NODES]))
    assert (not found.nothing_stands, found.cites) == (stands, cites)
