"""Orders that are doubted, put off, or about what is not there propose nothing; a number is asked about, never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.agent.semantic import SemanticAgent
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from tests.recorded_states import recorded_state
from tests.sources import ROOT


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with recorded_state(Path(ROOT) / "tests/cases/agent/states/night.toml", tmp_path_factory) as (night, _):
        yield night


NOTHING = (
    "drain node13? not really sure about that",
    "cancel 4831, or maybe not",
    "restart 4822 at 7",
    "drain node14 at 22 tonight",
    "recover 47",
    "cancel 12345",
    "don't allow 1 yet",
    "wait with approval 1 please",
    "not yet for approval 1",
    "approve 9",
)


@pytest.mark.parametrize("sentence", NOTHING)
def test_nothing_new_is_proposed(sentence: str, engine: Engine) -> None:
    answer = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine)).ask(sentence)
    assert [proposal.tool for proposal in answer.proposals if proposal.approval is not None] == []
    assert len(engine.store.approvals()) == 1
    assert "nightshift approve" not in answer.text


@pytest.mark.parametrize("sentence", ["withdraw approval 1", "cancel approval 1", "throw out approval 1"])
def test_who_drops_an_approval_is_shown_how_to_refuse_it(sentence: str, engine: Engine) -> None:
    text = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine)).ask(sentence).text
    assert "nightshift deny 1" in text
    assert "nightshift approve" not in text


@pytest.mark.parametrize(
    ("sentence", "job"), [("do not cancel 4815, restart it", "4815"), ("don't kill ablation-3 but rerun it", "4815")]
)
def test_a_pronoun_is_what_another_verb_leaves_alone(sentence: str, job: str, engine: Engine) -> None:
    answer = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine)).ask(sentence)
    assert {str(proposal.arguments.get("job")) for proposal in answer.proposals} <= {job}
