"""The agent without a language model on recorded clusters: the figures of docs/accuracy.md may not get worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.agent.chooser import ToolChooser, WordChooser
from assistant.agent.semantic import SemanticAgent
from assistant.cli.measure.agent_bench import CaseScore, load_cases, run_cases, shares
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from assistant.llm.embedded import encoder
from assistant.wiring import chooser_for

CASES = Path(__file__).parents[1] / "cases" / "agent"


def scored(chooser: ToolChooser) -> list[CaseScore]:
    def agent_of(engine: Engine) -> SemanticAgent:
        return SemanticAgent(engine.gate, engine.clock, chooser, recovery=AgentRecovery(engine))

    return run_cases(load_cases(CASES), CASES, agent_of)


def test_there_are_enough_cases_of_every_kind() -> None:
    cases = load_cases(CASES)
    tags = {tag for case in cases for tag in case.tags}
    assert len(cases) >= 120
    assert sum(case.heldout for case in cases) >= 100
    assert tags >= {"easy", "medium", "hard", "chain", "long", "injection", "no answer", "ask back", "count", "compare", "refuse"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_words_alone_most_tasks_are_done() -> None:
    found = {share.name: share for share in shares(scored(WordChooser.load()))}
    assert found["all"].success >= 0.89
    assert found["held-out wordings"].tool >= 0.82
    assert found["third"].success >= 0.84
    assert found["fourth"].success >= 0.72


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.skipif(encoder() is None, reason="the embedded encoder does not run here")
def test_with_the_encoder_nearly_all_tasks_are_done() -> None:
    done = scored(chooser_for())
    found = {share.name: share for share in shares(done)}
    assert found["all"].success >= 0.95
    assert found["held-out wordings"].tool >= 0.96
    assert found["held-out wordings"].success >= 0.97
    assert found["third"].tool >= 0.98
    assert found["third"].success >= 0.98
    assert found["fourth"].tool >= 0.93
    assert found["fourth"].success >= 0.94
    assert found["fifth"].tool >= 0.96
    assert found["fifth"].success >= 0.95
    assert [one.faults for one in done if any("changed the cluster" in fault for fault in one.faults)] == []
