"""The agent with a language model: its limits, its memory of a conversation, and what stands in when it fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from assistant.agent.answer import AnswerKind
from assistant.agent.conversation import KEPT_TALKS, MODEL_CALLS, ModelAgent, names_of, open_talks
from assistant.agent.grounding import MARK
from assistant.agent.semantic import SemanticAgent
from assistant.agent.words import read_inventory
from assistant.llm.chat import Tool
from assistant.policy import Mode
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene
from tests.scripted_models import ScriptedChat, calls


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A job that met a broken GPU and was brought back."""
    run = SimulatedRun(steps=10_000, fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02", cut=(40,))
    made = Scene(tmp_path, mode=Mode.ACT, run=run)
    made.cluster.submit(made.spec)
    made.watch(600)
    return made


def agent(scene: Scene, *script: AIMessage | str | Exception, talks: Path | None = None) -> tuple[ModelAgent, ScriptedChat]:
    model = ScriptedChat(script=script)
    return ModelAgent(scene.engine.gate, scene.clock, model, name="scripted", talks=talks), model


def test_an_answer_cites_what_tools_returned_and_the_rest_is_marked(scene: Scene) -> None:
    told = "Job 1 failed of ecc_error on node02 [1]. It had used 31337 GPU hours."
    answer = agent(scene, calls("explain_job", job="1"), told)[0].ask("why did job 1 fail?")
    assert answer.text == f"{told} {MARK}"
    assert [source.tool for source in answer.sources] == ["explain_job"]
    assert answer.mode == "model:scripted"


def test_the_same_call_returns_the_first_result_and_the_third_ends_it(scene: Scene) -> None:
    chat, model = agent(scene, *[calls("tail_log", job="1")] * 3, "The log of job 1 is long [1].", *["more"] * 9)
    answer = chat.ask("show the log of job 1")
    assert len(answer.sources) == 1
    assert len(model.requests) == 4
    assert "stopped: the same call a third time" in answer.notes
    assert "You made this call already" in str(model.requests[2][0][-1].text)


def test_a_model_that_only_repeats_a_call_gets_one_last_word_and_then_the_answer_without_it_stands(scene: Scene) -> None:
    chat, model = agent(scene, *[calls("tail_log", job="1")] * 20)
    answer = chat.ask("show the log of job 1")
    assert len(model.requests) == 4
    assert answer.mode == "semantic"
    assert "it said nothing, the same call a third time" in answer.notes[-1]
    assert "The last 30 lines of the log of job 1" in answer.text


def test_a_model_that_never_ends_is_ended(scene: Scene) -> None:
    script = [calls("tail_log", job="1", lines=number) for number in range(1, 60)]
    chat, model = agent(scene, *script)
    answer = chat.ask("show the log of job 1")
    assert len(model.requests) == MODEL_CALLS
    assert answer.mode == "semantic"
    assert f"{MODEL_CALLS} turns were taken" in answer.notes[-1]


@pytest.mark.parametrize(
    "trouble", [RuntimeError("crashed"), TimeoutError("too slow"), ValueError("garbage"), ConnectionError("down")]
)
def test_when_the_model_fails_the_answer_without_one_stands(trouble: Exception, scene: Scene, tmp_path: Path) -> None:
    answer = agent(scene, calls("explain_job", job="1"), trouble, talks=tmp_path / "talks.db")[0].ask("why did job 1 fail?")
    assert answer.mode == "semantic"
    assert "ecc_error" in answer.text
    assert "did not answer" in answer.notes[-1]


def test_a_tool_that_does_not_exist_or_fails_ends_nothing(scene: Scene) -> None:
    script = (calls("rm_rf", path="/"), calls("show_job", job="999"), calls("show_job", wrong=1), "Job 999 is not known [1].")
    answer = agent(scene, *script)[0].ask("how is job 999?")
    assert answer.mode == "model:scripted"
    assert MARK not in answer.text


def test_a_conversation_goes_on_in_another_process(scene: Scene, tmp_path: Path) -> None:
    talks = tmp_path / "talks.db"
    agent(scene, calls("explain_job", job="1"), "It failed of ecc_error [1].", talks=talks)[0].ask("why did job 1 fail?")
    chat, model = agent(scene, "As I said, of ecc_error [1].", talks=talks)
    chat.ask("say it again")
    assert any("why did job 1 fail?" in str(message.text) for message in model.requests[0][0])
    assert talks.stat().st_mode & 0o077 == 0


def test_what_was_found_before_may_be_said_again_and_shown_in_another_process(scene: Scene, tmp_path: Path) -> None:
    talks = tmp_path / "talks.db"
    agent(scene, calls("explain_job", job="1"), "It failed of ecc_error [1].", talks=talks)[0].ask("why did job 1 fail?")
    chat, _ = agent(scene, "It was ecc_error [1].", calls("show_job", job="2"), "Job 2 is running [2].", talks=talks)
    again = chat.ask("what was it?")
    assert MARK not in again.text
    assert [(source.number, source.tool) for source in again.sources] == [(1, "explain_job")]
    assert [source.number for source in chat.ask("and job 2?").sources] == [2], "a number stands for one result of a conversation"
    assert "ecc_error" in chat.ask("show 1").text


def test_a_conversation_that_broke_off_in_a_call_goes_on(scene: Scene, tmp_path: Path) -> None:
    talks = tmp_path / "talks.db"
    first = agent(scene, calls("explain_job", job="1"), "It failed of ecc_error [1].", talks=talks)[0]
    first.ask("why did job 1 fail?")
    agent(scene, calls("tail_log", job="1"), RuntimeError("crashed"), talks=talks)[0].ask("show its log")
    chat, model = agent(scene, "It failed of ecc_error [1].", talks=talks)
    assert chat.ask("once more?").mode == "model:scripted"
    given = model.requests[0][0]
    assert any("why did job 1 fail?" in str(message.text) for message in given)
    called = [call["id"] for message in given if isinstance(message, AIMessage) for call in message.tool_calls]
    assert called == [message.tool_call_id for message in given if isinstance(message, ToolMessage)]


def test_an_answer_names_the_evidence_and_the_incident_behind_its_sources(scene: Scene) -> None:
    answer = agent(scene, calls("show_incident", incident=1), "Incident 1 is recovered [1].")[0].ask("explain incident 1")
    assert answer.incidents == (1,)
    assert answer.evidence
    assert set(answer.evidence) <= {one.id for one in scene.engine.store.evidence(1)}


def test_a_long_conversation_is_given_shortened_and_a_model_with_little_room_gets_less_of_a_result(scene: Scene) -> None:
    log = scene.cluster.job("1").log
    assert log is not None
    log.write_text("a line of a log that is long\n" * 5_000, encoding="utf-8")
    turns = [
        turn
        for number in range(12)
        for turn in (calls("tail_log", job="1", lines=200 + number), f"The log is long [{number + 1}].")
    ]
    model = ScriptedChat(script=turns)
    chat = ModelAgent(scene.engine.gate, scene.clock, model, name="small", room=6_000)
    for number in range(12):
        assert chat.ask(f"show the log of job 1, time {number}").mode == "model:small"
    sizes = [sum(len(str(message.text)) for message in messages) for messages, _ in model.requests]
    assert max(sizes) < 6_000 * 3
    assert "Earlier in this conversation" in str(model.requests[-1][0][1].text)


def test_tools_to_propose_with_come_last_so_that_what_a_model_has_read_stays_of_use(scene: Scene) -> None:
    chat, model = agent(scene, "Nothing is known.", "Nothing is known.")
    chat.ask("why did job 1 fail?")
    chat.ask("cancel job 2")
    reading, all_of_them = model.requests[0][1], model.requests[1][1]
    assert all_of_them[: len(reading)] == reading
    assert all(name.startswith("propose_") for name in all_of_them[len(reading) :])
    assert len(all_of_them) > len(reading) > 15


def test_arguments_of_tools_stay_in_their_ranges(scene: Scene) -> None:
    seen: list[Tool] = []

    def says(messages: Sequence[BaseMessage], tools: Sequence[Tool]) -> AIMessage:
        seen.extend(tools)
        return AIMessage("Nothing is known.")

    model = ScriptedChat(says=says)
    ModelAgent(scene.engine.gate, scene.clock, model, name="seen").ask("why did job 1 fail?")
    (tail,) = [one["function"]["parameters"]["properties"] for one in seen if one["function"]["name"] == "tail_log"]
    assert (tail["lines"]["minimum"], tail["lines"]["maximum"]) == (1, 5_000)
    for one in seen:
        for argument in one["function"]["parameters"]["properties"].values():
            assert argument["type"] not in ("integer", "number") or argument["minimum"] >= 0


def test_old_conversations_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    saver = open_talks(path)
    for number in range(KEPT_TALKS + 5):
        saver.conn.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id) VALUES (?, '', ?)",
            [f"talk-{number}", f"{number:06}"],
        )
    saver.conn.commit()
    saver.conn.close()
    open_talks(path).conn.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(DISTINCT thread_id) FROM checkpoints").fetchone() == (KEPT_TALKS,)
    connection.close()


def test_what_a_model_proposed_before_it_failed_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # words that the model takes for a wish, and what stands in for it takes for a question
    monkeypatch.setattr(SemanticAgent, "orders", lambda *_: True)
    script = (calls("propose_cancel_job", job="2"), RuntimeError("crashed"))
    answer = agent(scene, *script)[0].ask("status of job 2")
    assert answer.mode == "semantic"
    assert answer.kind is AnswerKind.PROPOSAL
    assert [one.id for one in scene.engine.store.approvals()] == [one.approval for one in answer.proposals] == [1]
    assert "Waiting for a yes or no as approval 1" in answer.text


def test_the_same_wish_twice_is_one_proposal(scene: Scene) -> None:
    chat, _ = agent(
        scene, calls("propose_cancel_job", job="2"), "Proposed [1].", calls("propose_cancel_job", job="2"), "Proposed [1]."
    )
    first, second = chat.ask("cancel job 2"), chat.ask("please cancel job 2")
    assert [one.approval for one in (*first.proposals, *second.proposals)] == [1, 1]
    assert len(scene.engine.store.approvals()) == 1


def test_a_grammar_is_given_only_what_exists(scene: Scene) -> None:
    names = names_of(read_inventory(scene.engine.gate))
    assert names["job"] == ["2", "1"]
    assert names["node"][0] == "node01"
    assert names["incident"] == ["1"]


def test_no_result_is_longer_for_a_model_than_its_cap(scene: Scene) -> None:
    log = scene.cluster.job("1").log
    assert log is not None
    log.write_text("a line of a log that is long\n" * 50_000, encoding="utf-8")
    chat, model = agent(scene, calls("tail_log", job="1", lines=5000), "That is the log [1].")
    answer = chat.ask("show the log of job 1")
    assert len(str(model.requests[1][0][-1].text)) < 8_000
    assert len(str(answer.sources[0].value)) > 100_000
