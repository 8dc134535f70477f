"""Reading playbooks strictly, choosing one, and running it step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.playbooks import Playbook, choose_playbook, playbooks, read_playbook
from assistant.errors import ContentError, Denied, Parked, ToolError, Unavailable, UsageError
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Decision,
    Diagnosis,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobSpec,
    JobState,
    NodeFinding,
    Outcome,
    Verdict,
)
from assistant.recover.playbook import Ended, run_playbook
from assistant.recover.rehearsal import check_playbook
from assistant.recover.situation import situation
from assistant.recover.values import filled, holds, look_up, text
from assistant.tooling import found

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
HEAD = 'title = "t"\nhandles = ["ecc_error"]\n'
INCIDENT = Incident(3, IncidentState.RECOVERING, "7", 0, None, EventKind.JOB_ENDED, NOW, NOW, None, None, None, None, None, "")


def diagnosis(reason: str = "ecc_error", action: Action = Action.CORDON_AND_RESTART, *nodes: str) -> Diagnosis:
    root = (Citation("job.log", 12, "CUDA error: ECC", "ecc_error.cuda"),)
    findings = tuple(NodeFinding(node, "named") for node in nodes)
    return Diagnosis(
        reason, Category.INFRASTRUCTURE, action, 0.9, DecidedBy.RULE, root, findings, (), "ECC on a GPU", "swap it", step=900
    )


def book(tmp_path: Path, body: str, head: str = HEAD) -> Playbook:
    path = tmp_path / "one.toml"
    path.write_text(head + body)
    return read_playbook(path)


# Reading

FIXTURE = '[[fixture]]\nname = "f"\nreason = "hang"\nends = "recovered"\n'
ON_CLUSTER = f"{FIXTURE}[fixture.cluster]\n"
RUNS = "[[fixture.cluster.runs]]\n"
ENDS = '[[step]]\nuse = "cancel_job"\nwith = { job = "7" }\n'
AGAIN = '[[step]]\nuse = "resubmit_job"\nwith = { job = "7" }\n'
ASKS = '[[step]]\nuse = "restart_prospect"\nwith = { job = "7" }\n'
LEAVES = '[[step]]\nuse = "escalate"\nunless = "{restart_prospect.note}"\nwith = { why = "w" }\nthen = "escalated"\n'
HAPPENS = "changes = []\nruns = [{}]\n[[fixture.cluster.happens]]\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('[[step]]\nuse = "a"\nwhenn = "{incident.id}"', "one.toml:5: whenn: unknown key; did you mean 'when'?"),
        ('[[step]]\nname = "a"', "one.toml:3: key 'use' is missing in [step]"),
        ('[[step]]\nuse = "a"\nwith = 3', "one.toml:5: with: must be a table, not 3"),
        ('[[step]]\nuse = "a"\nwith_ = {}', "with_: unknown key; did you mean 'with'?"),
        ('[step]\nuse = "a"', "one.toml:3: step: is a list of tables: write [[step]]"),
        ('[[step]]\nuse = "a"\n[[step]]\nuse = "a"', "one.toml:5: name: 'a' is used twice"),
        ('[[step]]\nuse = "a"\nname = "incident"', "one.toml:3: name: 'incident' must be a small-letter word"),
        ('[[step]]\nuse = "a"\nwith = { n = "{later.x}" }', "one.toml:5: with: 'later.x' finds nothing; known here: diagnosis"),
        ('[[step]]\nuse = "a"\nwith = { n = "{1 + 1}" }', "one.toml:5: with: '1 + 1' is no path"),
        ('[[step]]\nuse = "a"\nwhen = "incident.id"', "one.toml:5: when: 'incident.id' is no condition: exactly one path"),
        ('[[step]]\nuse = "a"\nwith = { n = "{item}" }', "'item' finds nothing"),
        ('[[step]]\nuse = "a"\neach = "{incident.nodes}"\nexpect = "x"', "one.toml:5: each: '{incident.nodes}' repeats the step"),
        ('[[verify]]\nuse = "a"', "one.toml:3: key 'expect' is missing in [verify]"),
        ('[[verify]]\nuse = "a"\nexpect = "x"\nwithin_min = 0', "one.toml:3: within_min must be above 0"),
        ("limits = { attempts = -1 }", "limits must be positive"),
        ('ends = "done"', "one.toml:3: ends: 'done' is none of: recovered, escalated, closed"),
        ('digest = "x"', "one.toml:3: digest: is not written down"),
        (
            f"{FIXTURE}calls = []\n{FIXTURE}",
            "one.toml:8: fixture 'f' needs either calls, to be rehearsed, or cluster, to be played",
        ),
        (f"{ON_CLUSTER}runs = [{{}}]", "one.toml:7: key 'changes' is missing in [cluster]"),
        (f"{ON_CLUSTER}changes = []\nruns = []", "one.toml:7: runs names no run: say what the job does"),
        (f"{ON_CLUSTER}changes = []\nruns = [{{ fail_at = 3 }}]", "one.toml:9: fail_at: unknown key; did you mean 'fails_at'?"),
        (
            f"{ON_CLUSTER}changes = []\nruns = [{{ fails_at = 300 }}]",
            "one.toml:9: fails_at = 300 is no step of a run with steps = 100",
        ),
        (f"{ON_CLUSTER}changes = []\nruns = [{{ state = 'running' }}]", "one.toml:9: state = running is no end of a run"),
        (f"{ON_CLUSTER}changes = []\n{RUNS}lines = 3", "one.toml:10: lines: must be a list, not 3"),
        (f"{ON_CLUSTER}changes = []\n{RUNS}save_every = 0", "one.toml:9: a run makes and saves steps: steps = 100, save_every = 0"),
        (f"{ON_CLUSTER}changes = 'submit 2'\nruns = [{{}}]", "one.toml:8: changes: must be a list, not 'submit 2'"),
        (f"{ON_CLUSTER}{HAPPENS}what = 'explode 1'", "one.toml:10: what = 'explode 1' begins with none of: ask, "),
        (f"{ON_CLUSTER}{HAPPENS}what = 'cordon'", "one.toml:10: what = 'cordon': behind cordon stands a node"),
        (f"{ON_CLUSTER}{HAPPENS}what = 'cordon node09'", "one.toml:7: 'node09' is none of node01 to node08"),
        (f"{ON_CLUSTER}changes = []\nruns = [{{ only_on = 'node9' }}]", "one.toml:7: 'node9' is none of node01 to node08"),
        (f"{ON_CLUSTER}changes = []\nruns = [{{}}]\njob_nodes = 9", "one.toml:7: job_nodes = 9 do not fit on nodes = 8"),
        (
            f"{FIXTURE}answers = {{ a = 1 }}\n[fixture.cluster]\nchanges = []\nruns = [{{}}]",
            "one.toml:3: fixture 'f' is played on the",
        ),
    ],
)
def test_a_mistake_names_file_line_and_key(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ContentError) as caught:
        book(tmp_path, body)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ('title = "t"\nhandles = ["ecc_eror"]\n', "", "one.toml:1: handles: 'ecc_eror' is no reason, action or category"),
        (HEAD, '[[step]]\nuse = "cordon_nod"', "one.toml:3: use: tool 'cordon_nod' is unknown; did you mean 'cordon_node'?"),
        (
            HEAD,
            '[[step]]\nuse = "cancel_job"\nwith = { jb = "7" }',
            "one.toml:3: with: cancel_job has no argument 'jb'; known: job",
        ),
        (HEAD, '[[step]]\nuse = "cancel_job"', "one.toml:3: with: cancel_job needs 'job'"),
        (HEAD, '[[step]]\nuse = "tail_log"\nwith = { job = "7", lines = "many" }', "tail_log: lines must be int, not 'many'"),
        (HEAD, '[[step]]\nuse = "cancel_job"\nwith = { job = "7" }', "verify: step cancel_job changes something and nothing"),
        (HEAD, '[[verify]]\nuse = "cancel_job"\nexpect = "x"\nwith = { job = "7" }', "only a reading tool can be looked at"),
        (HEAD, '[[verify]]\nuse = "tail_log"\nexpect = "x"\nwith = { job = "7" }', "tail_log has no timeout_s"),
        (HEAD, "", "fixture: there is none"),
        (HEAD, f"{ENDS}{AGAIN}", "one.toml:3: use: cancel_job ends a job before it is known that it could be started again"),
        (HEAD, f"{ENDS}{ASKS}{LEAVES}{AGAIN}", "one.toml:3: use: cancel_job ends a job before it is known"),
        (HEAD, f"{ASKS}{ENDS}{AGAIN}", "one.toml:6: use: cancel_job ends a job before it is known"),
        (HEAD, '[[fixture]]\nname = "f"\nreason = "ecc"\ncalls = []\nends = "recovered"', "reason 'ecc' is unknown"),
    ],
)
def test_what_does_not_exist_is_found_by_the_check(head: str, body: str, message: str, tmp_path: Path) -> None:
    problems = check_playbook(book(tmp_path, body, head), found(), ["ecc_error"])
    assert any(message in problem for problem in problems), problems


def test_the_sites_playbook_replaces_a_shipped_one_and_wins_over_others(tmp_path: Path) -> None:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "aaa.toml").write_text('title = "ours"\nhandles = ["hang"]\n')
    (tmp_path / "playbooks" / "unknown.toml").write_text('title = "ours too"\nhandles = ["unknown"]\n')
    known = playbooks(tmp_path)
    assert known["unknown"].title == "ours too"
    chosen = choose_playbook(diagnosis("hang", Action.RESTART_SAME_NODES), known)
    assert chosen is not None
    assert (chosen.name, chosen.shipped) == ("aaa", False)


@pytest.mark.parametrize(
    ("reason", "action", "name"),
    [
        ("ecc_error", Action.CORDON_AND_RESTART, "faulty_node"),
        ("ecc_error", Action.RESTART_SAME_NODES, "restart"),
        ("cuda_error", Action.FIX_AND_RESUBMIT, "owner"),
        ("network_error", Action.CORDON_AND_RESTART, "faulty_node"),
        ("network_error", Action.WAIT_AND_RETRY, "storage"),
        ("s3_storage_error", Action.WAIT_AND_RETRY, "storage"),
        ("s3_storage_error", Action.FIX_AND_RESUBMIT, "owner"),
        ("type_error", Action.FIX_AND_RESUBMIT, "owner"),
        ("out_of_memory_error", Action.FIX_AND_RESUBMIT, "out_of_memory"),
        ("unknown", Action.NONE, "unknown"),
        ("cancelled", Action.NONE, "nothing"),
        ("ecc_error", Action.NONE, "nothing"),
    ],
)
def test_the_reason_counts_first_then_the_action(reason: str, action: Action, name: str) -> None:
    chosen = choose_playbook(diagnosis(reason, action), playbooks())
    assert chosen is not None
    assert chosen.name == name


# Values


VALUES: dict[str, Any] = {
    "incident": INCIDENT,
    "suspects": {"faulty": ["node02", "node03"], "none": []},
    "isolate": [{"node": "node02"}, {"node": "node03"}],
    "skipped": {},
    "step": 0,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("incident.id", 3),
        ("incident.node", None),
        ("suspects.faulty", ["node02", "node03"]),
        ("isolate.node", ["node02", "node03"]),
        ("step", 0),
    ],
)
def test_a_path_finds_its_value_with_its_type(path: str, value: object) -> None:
    assert look_up(path, VALUES) == value


def test_a_path_that_leads_nowhere_says_what_is_there() -> None:
    with pytest.raises(ToolError, match="no 'fault' there; it has faulty, none"):
        look_up("suspects.fault", VALUES)


@pytest.mark.parametrize(
    ("condition", "holding"),
    [
        ("{suspects.faulty}", True),
        ("{suspects.none}", False),
        ("{suspects.typo}", False),
        ("{step}", False),
        ("{incident.job}", True),
    ],
)
def test_a_condition_holds_when_it_finds_something(condition: str, holding: bool) -> None:
    assert holds(condition, VALUES) is holding


def test_arguments_are_filled_once_and_lists_are_joined() -> None:
    wanted = {
        "job": "{incident.job}",
        "exclude": ["{suspects.faulty}", "node02", "{suspects.none}"],
        "node": "{incident.node}",
        "n": 5,
    }
    assert filled(wanted, VALUES) == {"job": "7", "exclude": ["node02", "node03"], "n": 5}
    assert text("{suspects.faulty} of {incident.id}{incident.node}", VALUES) == "node02,node03 of 3"


def test_what_a_path_finds_is_never_read_as_a_path_again() -> None:
    assert text("{evil}", {"evil": "{incident.id}", "incident": INCIDENT}) == "{incident.id}"


def test_the_situation_knows_job_run_and_directives() -> None:
    spec = JobSpec("llm", "#NIGHTSHIFT act=auto owner=#llm\n", environment={"NIGHTSHIFT_ATTEMPT": "2"})
    job = Job("7", "llm", "ada", JobState.RUNNING, "gpu", ("node01",), None, None, None, NOW, None, None, None, spec=spec)
    values = situation(INCIDENT, diagnosis("hang", Action.NONE, "node01"), job, now=NOW + timedelta(minutes=50))
    assert values["incident"]["nodes"] == ["node01"]
    began = "2026-03-01T03:00:00+00:00"
    assert values["run"] == {
        "step": 900,
        "minutes": 50.0,
        "long": "yes",
        "again": "yes",
        "restarts": 2,
        "began": began,
        "refuted_on": [],
    }
    assert (values["directives"]["owner"], values["directives"]["auto"], values["job"]["running"]) == ("#llm", "yes", "yes")
    assert values["diagnosis"]["root_line"] == "job.log:12: CUDA error: ECC"


def test_the_start_of_a_later_attempt_under_the_same_id_is_not_taken_for_that_of_the_run() -> None:
    job = Job("7", "llm", "ada", JobState.RUNNING, "gpu", ("node01",), None, None, None, NOW, None, None, None)
    again = replace(job, started=NOW + timedelta(minutes=2))
    told = [situation(INCIDENT, diagnosis(), one, now=NOW)["run"]["began"] for one in (job, again, None)]
    assert told == ["2026-03-01T03:00:00+00:00", None, None]


# Running


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


def test_a_later_attempt_under_the_same_id_is_not_the_one_that_failed_and_still_runs() -> None:
    job = Job(
        "7", "llm", "ada", JobState.RUNNING, "gpu", ("node01",), None, None, None, NOW, None, None, None, attempt=INCIDENT.attempt
    )
    again = replace(job, attempt=INCIDENT.attempt + 1)
    assert [situation(INCIDENT, diagnosis(), one, now=NOW)["job"]["running"] for one in (job, again)] == ["yes", ""]
