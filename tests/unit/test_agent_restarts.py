"""An order to restart keeps what was asked for besides, or says that it cannot; a change that waits already is joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.conditions import condition_of
from assistant.agent.quantities import clock_range, take_quantities
from assistant.agent.restart_wishes import restart_wish
from assistant.agent.semantic import SemanticAgent
from assistant.agent.words import NameInventory, read_names
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from tests.recorded_states import recorded_state

STATES = Path(__file__).parents[1] / "cases" / "agent" / "states"
KNOWN = NameInventory(jobs={"4821": "llm-7b"}, nodes=("node07", "node09", "node10"), incidents={2: "4821", 4: ""})


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("restart 4821", {}),
        ("restart 4821 from step 300", {"checkpoint": "step", "step": 300}),
        ("roll 4821 back to step 200 and start it", {"checkpoint": "step", "step": 200}),
        ("restart 4821 from /data/ckpt/step_300", {"checkpoint": "/data/ckpt/step_300"}),
        ("restart from the one before that", {"checkpoint": "before"}),
        ("restart 4821 from scratch", {"checkpoint": "none"}),
        ("restart 4821 from its last good checkpoint", {"checkpoint": "newest"}),
        ("restart 4821 without node09", {"exclude": ("node09",)}),
        ("restart 4821 but not on node09 and node10", {"exclude": ("node09", "node10")}),
        ("restart 4821 on other nodes", {"elsewhere": True}),
        ("restart 4821, skip steps 300 to 400", {"skip": (300, 400)}),
        ("restart 4821 with a smaller batch size", {"uncarried": ("with a smaller batch size",)}),
        ("restart 4821 on node09", {"uncarried": ("on node09",)}),
        ("restart 4821 without touching node09", {"uncarried": ("without touching",)}),
        ("please put 4821 back into the queue", {}),
        ("launch 4821 once again please", {}),
    ],
)
def test_what_a_restart_is_to_be_given_is_read(question: str, wanted: dict[str, object]) -> None:
    names = read_names(question, KNOWN)
    wish = restart_wish(names.sketch, names)
    plain = {"checkpoint": "", "step": None, "exclude": (), "elsewhere": False, "skip": None, "uncarried": ()}
    assert {name: getattr(wish, name) for name in plain} == {**plain, **wanted}


@pytest.mark.parametrize(
    ("question", "condition"),
    [
        ("restart 4821", ""),
        ("drain node07 if 4821 fails", "if 4821 fails"),
        ("kill 4821 in 2 hours", "in 2 hours"),
        ("restart 4821 at 18:00", "at 18:00"),
        ("restart 4821 once more", ""),
        ("cordon node07 for 4 hours", ""),
        ("kill 4821 if you can", ""),
    ],
)
def test_an_order_for_later_is_known_as_one(question: str, condition: str) -> None:
    assert condition_of(question, read_names(question, KNOWN)) == condition


def test_numbers_that_are_no_names_are_no_names() -> None:
    names = read_names("what happened between 2 and 4 am on gpu 4", KNOWN)
    assert (names.incidents, names.numbers, names.strangers) == ((), (), ())
    assert names.quantities.clock == ("02:00", "04:00", "between 2 and 4 am")
    assert read_names("which jobs ran longer than 3 hours", KNOWN).hours is None
    bound = take_quantities("which jobs ran longer than 3 hours")[1].bounds[0]
    assert (bound.above, bound.value, bound.unit) == (True, 3.0, "h")


def test_a_range_of_the_clock_is_the_newest_that_began() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 3, 1, 6, 30, tzinfo=UTC)
    assert clock_range(("02:00", "04:00", ""), now) == (now.replace(hour=2, minute=0), now.replace(hour=4, minute=0))
    start, end = clock_range(("22:00", "02:00", ""), now)
    assert (str(start)[:16], str(end)[:16]) == ("2026-02-28 22:00", "2026-03-01 02:00")


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with recorded_state(STATES / "night.toml", tmp_path_factory) as (engine, _):
        yield engine


def last(engine: Engine, *questions: str) -> Answer:
    agent = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine))
    return [agent.ask(question) for question in questions][-1]


def test_a_step_is_the_checkpoint_of_that_step(engine: Engine) -> None:
    answer = last(engine, "restart 4790 from step 100 without node09")
    (proposal,) = answer.proposals
    assert proposal.approval is not None
    assert str(proposal.arguments["checkpoint"]).endswith("100")
    assert proposal.arguments["exclude"] == ["node09", "node07"]


def test_a_restart_that_waits_is_joined_and_never_proposed_twice(engine: Engine) -> None:
    answer = last(engine, "restart 4821 from step 300 without node09")
    (proposal,) = answer.proposals
    assert (proposal.approval, proposal.joined, len(engine.store.approvals())) == (1, True, 1)
    assert answer.text.startswith("Approval 1 waits already for a restart of job 4821")
    assert "from step 300, away from node09" in answer.text


def test_the_checkpoint_before_is_none_of_another_job(engine: Engine) -> None:
    answer = last(engine, "newest healthy checkpoint of 4790", "restart from the one before that")
    assert answer.proposals[0].arguments["job"] == "4790"
    assert "from step 100, the one before step 200" in answer.text


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("restart 4821 from step 20", "has no checkpoint of step 20"),
        ("restart 4821 from step 500", "the nearest healthy one before it is of step 400"),
        ("restart 4821 with a smaller batch size", "cannot be passed on"),
        ("drain node05 if 4830 fails", "keeps no order for later"),
        ("kill 4830 in 2 hours", "keeps no order for later"),
    ],
)
def test_what_cannot_be_passed_on_is_refused_and_said(question: str, says: str, engine: Engine) -> None:
    before = engine.store.approvals()
    answer = last(engine, question)
    assert (answer.kind, answer.proposals, engine.store.approvals()) == (AnswerKind.REFUSED, (), before)
    assert says in answer.text


def test_a_cancelled_job_can_be_had_back(engine: Engine) -> None:
    answer = last(engine, "restart 4815")
    assert (answer.kind, answer.proposals[0].tool) == (AnswerKind.PROPOSAL, "resubmit_job")


def test_a_cordon_takes_its_hours(engine: Engine) -> None:
    assert last(engine, "cordon node05 for 4 hours").proposals[0].arguments["hours"] == 4.0


def test_an_order_joins_the_change_that_waits_for_the_same(engine: Engine) -> None:
    first = last(engine, "kill 4830")
    waiting = len(engine.store.approvals())
    for question in ("stop job 4830", "end 4830 please"):
        answer = last(engine, question)
        assert [proposal.approval for proposal in answer.proposals] == [first.proposals[0].approval]
        assert answer.text.startswith("Approval 2 waits already for this")
    assert len(engine.store.approvals()) == waiting


def test_a_yes_shows_what_the_last_answer_proposed_and_allows_nothing(engine: Engine) -> None:
    answer = last(engine, "kill 4830", "yes, do it")
    assert (answer.kind, len(answer.proposals)) == (AnswerKind.REFUSED, 1)
    assert answer.proposals[0].tool == "cancel_job"
    assert len(engine.store.approvals()) == 2


def test_the_one_sensible_job_is_taken_and_said(engine: Engine) -> None:
    assert "(Taken: job 4822, the newest that failed; before it: 4821, 4790.)" in last(engine, "why did the job fail?").text
    assert "(Taken: job 4830, the only one that runs.)" in last(engine, "tail the log").text
    assert last(engine, "cancel my job please").kind is AnswerKind.ASKS_BACK
