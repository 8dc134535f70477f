"""Running a playbook step by step, on a gate that answers from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.playbooks import Playbook
from assistant.errors import Denied, Parked, ToolError, Unavailable, UsageError
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Decision,
    IncidentState,
    Outcome,
    Verdict,
)
from assistant.recover.playbook import Ended, run_playbook
from assistant.recover.situation import situation
from tests.unit.test_playbooks import INCIDENT, NOW, book, diagnosis


class ScriptedGate:
    """Answers each step from a table and remembers it, as the real gate does."""

    def __init__(self, clock: JumpingClock, **answers: Any) -> None:
        self.clock = clock
        self.answers = answers
        self.made: list[str] = []
        self.arguments: dict[str, Mapping[str, Any]] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.denied: set[str] = set()

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any],
        *,
        why: str,
        by: str,
        incident: int | None = None,
        step: str | None = None,
    ) -> Outcome:
        assert step is not None
        if step in self.outcomes:
            return self.outcomes[step]
        self.clock.sleep(float(arguments.get("timeout_s", 0)))
        answer = self.answers.get(step.split("#")[0].split("[")[0], {})
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception) and not isinstance(answer, ToolError):
            self.denied |= {step} if isinstance(answer, Denied) else set()
            raise answer
        self.made.append(step)
        self.arguments[step] = arguments
        failed = isinstance(answer, ToolError)
        self.outcomes[step] = Outcome(
            len(self.made), not failed, None if failed else answer, str(answer) * failed, self.clock.now()
        )
        return self.outcomes[step]

    def would_ask(self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, step: str) -> bool:
        return False

    def was_passed(self, incident: int, step: str) -> bool:
        return False

    def forecast(
        self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, after: Sequence[str] = ()
    ) -> Decision:
        return Decision(
            self.verdicts.get(tool_name, Verdict.ALLOW), "kind.resubmit.hard.per_hour", "policy", self.clock.now(), "full"
        )

    def refusal_of(self, incident: int, step: str) -> str | None:
        return str(self.answers[step.split("[", maxsplit=1)[0]]) if step in self.denied else None

    def is_begun(self, incident: int, step: str) -> bool:
        return step in self.outcomes


STEPS = """
[[step]]
name = "check"
use = "check_nodes"
unless = "{diagnosis.faulty_nodes}"
[[step]]
name = "isolate"
use = "cordon_node"
each = "{diagnosis.faulty_nodes}"
with = { node = "{item}", reason = "incident {incident.id}" }
[[step]]
name = "again"
use = "resubmit_job"
with = { job = "{incident.job}", exclude = ["{diagnosis.faulty_nodes}", "{check.faulty}"] }
[[verify]]
name = "progress"
use = "job_progress"
with = { job = "{again.job}" }
expect = "past_restart_step"
within_min = 5
"""
DONE = {"status": "past_restart_step", "note": "step 41"}
WAITS = {"status": "waiting", "note": "step 39"}


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(NOW)


def run(playbook: Playbook, gate: ScriptedGate, *nodes: str, **options: Any) -> Ended:
    values = situation(INCIDENT, diagnosis("ecc_error", Action.CORDON_AND_RESTART, *nodes), None, now=NOW)
    return run_playbook(INCIDENT, playbook, values, gate, gate.clock, **options)


def test_steps_are_taken_in_order_with_what_earlier_ones_found(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, again={"job": "8"}, progress=[WAITS, DONE])
    ended = run(book(tmp_path, STEPS), gate, "node02", "node03")
    assert gate.made == ["isolate[node02]", "isolate[node03]", "again", "progress#1", "progress#2"]
    assert gate.arguments["again"] == {"job": "7", "exclude": ["node02", "node03"]}
    assert gate.arguments["progress#1"] == {"job": "8", "timeout_s": 60.0}
    assert (ended.state, ended.note) == (IncidentState.RECOVERED, "step 41")


def test_a_step_that_is_not_taken_leaves_nothing_behind(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, check={"faulty": ["node04"]}, again={"job": "8"}, progress=DONE)
    run(book(tmp_path, STEPS), gate)
    assert gate.made == ["check", "again", "progress#1"]
    assert gate.arguments["again"]["exclude"] == ["node04"]


def test_a_failed_step_stops_and_says_why(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, again=ToolError("no node is left"))
    ended = run(book(tmp_path, STEPS), gate, "node02")
    assert (ended.state, ended.step) == (IncidentState.ESCALATED, "again")
    assert ended.note == "step again (resubmit_job) failed: no node is left"


def test_an_optional_step_may_fail(tmp_path: Path, clock: JumpingClock) -> None:
    optional = STEPS.replace('use = "check_nodes"', 'use = "check_nodes"\noptional = true')
    gate = ScriptedGate(clock, check=ToolError("no probe"), again={"job": "8"}, progress=DONE)
    assert run(book(tmp_path, optional), gate).state is IncidentState.RECOVERED
    assert gate.arguments["again"]["exclude"] == []


def test_a_value_that_a_step_should_have_brought_is_missed_by_name(tmp_path: Path, clock: JumpingClock) -> None:
    ended = run(book(tmp_path, STEPS), ScriptedGate(clock, check={"nodes": {}}))
    assert ended.state is IncidentState.ESCALATED
    assert "step again cannot be made: {check.faulty} finds nothing: no 'faulty' there; it has nodes" in ended.note


def test_time_that_runs_out_is_no_recovery(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, again={"job": "8"}, progress=WAITS)
    ended = run(book(tmp_path, STEPS), gate, "node02")
    assert ended.state is IncidentState.ESCALATED
    assert ended.note == "verify progress (job_progress): not past_restart_step within 5 min: step 39"
    assert clock.now() - NOW == timedelta(minutes=5)


def test_a_restarted_job_that_fails_is_named(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, again={"job": "8"}, progress={"status": "failed", "job": "8", "note": "job 8 failed"})
    ended = run(book(tmp_path, STEPS), gate, "node02")
    assert (ended.state, ended.failed_job) == (IncidentState.ESCALATED, "8")


def test_a_look_that_fails_is_repeated_until_the_time_is_over(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, again={"job": "8"}, progress=[ToolError("gone"), ToolError("gone"), DONE])
    assert run(book(tmp_path, STEPS), gate, "node02").state is IncidentState.RECOVERED


def test_a_run_goes_on_exactly_where_it_was_parked(tmp_path: Path, clock: JumpingClock) -> None:
    playbook = book(tmp_path, STEPS)
    gate = ScriptedGate(clock, again=[Parked("approval 1", 1), {"job": "8"}], progress=DONE)
    with pytest.raises(Parked):
        run(playbook, gate, "node02")
    assert gate.made == ["isolate[node02]"]
    assert run(playbook, gate, "node02").state is IncidentState.RECOVERED
    assert gate.made == ["isolate[node02]", "again", "progress#1"]


def test_patience_ends_a_look_and_the_next_run_goes_on(tmp_path: Path, clock: JumpingClock) -> None:
    playbook = book(tmp_path, STEPS)
    gate = ScriptedGate(clock, again={"job": "8"}, progress=[WAITS, WAITS, DONE])
    first = run(playbook, gate, "node02", look_s=0, patience_s=0)
    assert (first.state, first.note) == (IncidentState.VERIFYING, "step 39")
    clock.sleep(1)
    assert run(playbook, gate, "node02", look_s=0, patience_s=0).state is IncidentState.VERIFYING
    clock.sleep(1)
    assert run(playbook, gate, "node02", look_s=0, patience_s=0).state is IncidentState.RECOVERED
    assert gate.made == ["isolate[node02]", "again", "progress#1", "progress#2", "progress#3"]


def test_the_time_of_a_verify_counts_from_the_restart_over_all_runs(tmp_path: Path, clock: JumpingClock) -> None:
    playbook = book(tmp_path, STEPS)
    gate = ScriptedGate(clock, again={"job": "8"}, progress=WAITS)
    assert run(playbook, gate, "node02", look_s=0, patience_s=0).state is IncidentState.VERIFYING
    clock.sleep(301)
    assert run(playbook, gate, "node02", look_s=0, patience_s=0).state is IncidentState.ESCALATED


STANDS = """
[[step]]
name = "stop"
use = "cancel_job"
with = { job = "{incident.job}" }
[[step]]
name = "isolate"
use = "cordon_node"
each = "{diagnosis.faulty_nodes}"
with = { node = "{item}", reason = "incident {incident.id}" }
optional = true
await_answer = false
[[step]]
name = "again"
use = "resubmit_job"
with = { job = "{incident.job}", exclude = "{diagnosis.faulty_nodes}" }
"""


@pytest.mark.parametrize(
    ("verdicts", "made", "words"),
    [
        ({}, ["stop", "again"], ""),
        (
            {"resubmit_job": Verdict.DENY},
            [],
            "job 7 was not ended, for its restart would be refused now (kind.resubmit.hard.per_hour",
        ),
        ({"resubmit_job": Verdict.ASK}, [], "job 7 was not ended, for its restart would wait for a person now"),
        ({"resubmit_job": Verdict.DENY, "cancel_job": Verdict.ASK}, ["stop", "again"], ""),  # whoever says yes sees what for
        ({"resubmit_job": Verdict.DENY, "cancel_job": Verdict.DENY}, ["stop", "again"], ""),  # its own refusal says why
    ],
)
def test_a_job_is_not_ended_that_the_policy_would_not_let_start_again(
    verdicts: dict[str, Verdict], made: list[str], words: str, tmp_path: Path, clock: JumpingClock
) -> None:
    gate = ScriptedGate(clock, again={"job": "8"})
    gate.verdicts = verdicts
    ended = run(book(tmp_path, STANDS), gate)
    assert gate.made == made
    assert words in ended.note


def test_a_job_that_was_ended_already_is_started_again_whatever_the_policy_says_of_the_end_by_now(
    tmp_path: Path, clock: JumpingClock
) -> None:
    gate = ScriptedGate(clock, again=Unavailable("no answer"))
    assert run(book(tmp_path, STANDS), gate).state is IncidentState.RECOVERING
    gate.verdicts, gate.answers["again"] = {"resubmit_job": Verdict.ASK}, {"job": "8"}
    assert run(book(tmp_path, STANDS), gate).state is IncidentState.RECOVERED


@pytest.mark.parametrize(("restart", "made"), [(Verdict.ALLOW, True), (Verdict.ASK, True), (Verdict.DENY, False)])
def test_a_drain_that_a_limit_refuses_keeps_no_restart_away_that_may_be_made(
    restart: Verdict, *, made: bool, tmp_path: Path, clock: JumpingClock
) -> None:
    gate = ScriptedGate(clock, isolate=Denied("2 of 4 nodes would stay usable"), again={"job": "8"})
    gate.outcomes["stop"] = Outcome(1, True, {}, "", NOW)
    gate.verdicts = {"resubmit_job": restart}
    for _ in range(2):
        ended = run(book(tmp_path, STANDS), gate, "node02")
    assert ended.state is (IncidentState.RECOVERED if made else IncidentState.ESCALATED), ended.note
    assert gate.made == ["again"] * made
    assert not made or gate.arguments["again"]["exclude"] == ["node02"]
    assert made or "step isolate[node02] was refused: 2 of 4 nodes would stay usable" in ended.note


@pytest.mark.parametrize(
    ("problem", "state", "words"),
    [
        (Denied("mode is observe"), IncidentState.ESCALATED, "step again was refused: mode is observe"),
        (UsageError("no such tool"), IncidentState.ESCALATED, "step again is wrong in"),
        (Unavailable("slurmctld does not answer"), IncidentState.RECOVERING, "step again must wait: slurmctld"),
    ],
)
def test_what_keeps_a_step_from_being_made_is_said(
    problem: Exception, state: IncidentState, words: str, tmp_path: Path, clock: JumpingClock
) -> None:
    ended = run(book(tmp_path, STEPS), ScriptedGate(clock, again=problem), "node02")
    assert ended.state is state
    assert words in ended.note


WAITING = """
[[step]]
name = "back"
use = "wait_storage"
expect = "storage_answers"
within_min = 2
[[step]]
name = "again"
use = "resubmit_job"
with = { job = "{incident.job}" }
"""


def test_a_step_that_waits_holds_the_later_ones_back(tmp_path: Path, clock: JumpingClock) -> None:
    playbook = book(tmp_path, WAITING)
    gate = ScriptedGate(clock, back=[{"status": "waiting", "note": "down"}, {"status": "storage_answers"}], again={"job": "8"})
    first = run(playbook, gate, look_s=0, patience_s=0)
    assert (first.state, gate.made) == (IncidentState.RECOVERING, ["back#1"])
    clock.sleep(1)
    assert run(playbook, gate, look_s=0, patience_s=0).state is IncidentState.RECOVERED
    assert gate.made == ["back#1", "back#2", "again"]


def test_a_wait_that_never_ends_goes_to_a_person(tmp_path: Path, clock: JumpingClock) -> None:
    gate = ScriptedGate(clock, back={"status": "waiting", "note": "down"})
    ended = run(book(tmp_path, WAITING), gate)
    assert (ended.state, "again" in gate.made) == (IncidentState.ESCALATED, False)


def test_looks_become_rarer_so_that_a_day_of_them_stays_cheap(tmp_path: Path, clock: JumpingClock) -> None:
    playbook = book(tmp_path, WAITING.replace("within_min = 2", "within_min = 1440"))
    gate = ScriptedGate(clock, back={"status": "waiting", "note": "down"})
    ticks = 0
    while run(playbook, gate, look_s=0, patience_s=0).state is IncidentState.RECOVERING:
        clock.sleep(90)
        ticks += 1
    assert ticks > 900
    assert len(gate.made) < 400
