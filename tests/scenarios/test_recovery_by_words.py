"""`restart 5001` in words: the playbook is worked up to its next change, which waits for a person; nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.agent.answer import AnswerKind
from assistant.agent.semantic import SemanticAgent
from assistant.cli.measure.agent_bench import open_state
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from assistant.policy import Mode
from assistant.records import IncidentState, Verdict
from assistant.schedulers.simulated import RecordedCluster

STATES = Path(__file__).parents[1] / "cases" / "agent" / "states"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[list[tuple[Engine, RecordedCluster]]]:
    opened: list[tuple[Engine, RecordedCluster]] = []
    yield opened
    for engine, _ in opened:
        engine.store.close()


def scene(
    place: list[tuple[Engine, RecordedCluster]], folder: Path, mode: Mode = Mode.PROPOSE
) -> tuple[Engine, RecordedCluster, SemanticAgent]:
    place.append(open_state(STATES / "fresh.toml", folder, mode=mode))
    engine, cluster = place[-1]
    return engine, cluster, SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine))


Place = list[tuple[Engine, RecordedCluster]]


def test_the_next_change_of_the_playbook_waits_with_command_reason_and_undo(place: Place, tmp_path: Path) -> None:
    engine, cluster, agent = scene(place, tmp_path)
    answer = agent.ask("restart 5001")
    assert answer.kind is AnswerKind.PROPOSAL
    assert [one.tool for one in answer.proposals] == ["cordon_node"]
    assert "scontrol update NodeName=gpu03 State=DRAIN" in answer.text
    assert "why: gpu03 is named by" in answer.text
    assert "can be taken back" in answer.text
    assert f"nightshift approve {answer.proposals[0].approval}" in answer.text
    assert "What may follow is asked about as well: " in answer.text
    assert (cluster.changes, engine.store.incidents()[0].state) == ([], IncidentState.WAITING)


def test_the_same_order_twice_asks_once(place: Place, tmp_path: Path) -> None:
    engine, _, agent = scene(place, tmp_path)
    first, second = agent.ask("restart 5001"), agent.ask("please restart 5001")
    assert first.proposals[0].approval == second.proposals[0].approval
    assert len(engine.store.approvals()) == 1
    assert len(engine.store.incidents()) == 1


def test_a_yes_makes_that_change_and_asks_about_the_next(place: Place, tmp_path: Path) -> None:
    engine, cluster, agent = scene(place, tmp_path)
    answer = agent.ask("restart 5001")
    engine.store.answer(answer.proposals[0].approval or 0, Verdict.ALLOW, "cli:ann")
    incident = engine.work(answer.incidents[0], owner="cli:ann@here:1.1", by="cli:ann")
    assert cluster.changes == ["cordon gpu03"]
    assert incident.state is IncidentState.WAITING
    assert [engine.store.call(one.call).tool for one in engine.store.approvals()] == ["resubmit_job"]


@pytest.mark.parametrize(("mode", "trusted"), [(Mode.OBSERVE, True), (Mode.PROPOSE, False)])
def test_in_observe_mode_and_of_piped_text_nothing_is_begun(mode: Mode, trusted: bool, place: Place, tmp_path: Path) -> None:
    engine, cluster, agent = scene(place, tmp_path, mode)
    answer = agent.ask("restart 5001", trusted=trusted)
    assert answer.kind is AnswerKind.REFUSED
    assert "nightshift recover 5001" in answer.text
    assert (cluster.changes, engine.store.incidents(), engine.store.approvals()) == ([], [], [])


def test_in_act_mode_words_open_no_incident_for_the_watch_to_take_up(place: Place, tmp_path: Path) -> None:
    engine, cluster, agent = scene(place, tmp_path, Mode.ACT)
    answer = agent.ask("restart 5001")
    assert [one.tool for one in answer.proposals] == ["resubmit_job"]
    assert (cluster.changes, engine.store.incidents()) == ([], [])
    assert engine.store.call(engine.store.approvals()[0].call).incident is None


def test_what_a_person_must_mend_first_is_not_restarted(place: Place, tmp_path: Path) -> None:
    engine, _, agent = scene(place, tmp_path)
    answer = agent.ask("restart 5002")
    assert answer.kind is AnswerKind.REFUSED
    assert "type_error" in answer.text
    assert engine.store.incidents() == []
