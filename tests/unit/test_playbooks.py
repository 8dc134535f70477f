"""Reading playbooks strictly, choosing one, and the values that its steps are filled with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.playbooks import Playbook, choose_playbook, playbooks, read_playbook
from assistant.errors import ContentError, ToolError
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Diagnosis,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobSpec,
    JobState,
    NodeFinding,
    Whereabouts,
)
from assistant.recover.playbook import filled, holds, look_up, text
from assistant.recover.rehearsal import check_playbook
from assistant.recover.situation import AVOIDED, situation
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
        (
            HEAD,
            f'{ASKS}{ENDS}when = "{{restart_prospect.path}}"\n{AGAIN}',
            "one.toml:6: use: cancel_job ends a job before it is known",
        ),
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


def test_a_later_attempt_under_the_same_id_is_not_the_one_that_failed_and_still_runs() -> None:
    job = Job(
        "7", "llm", "ada", JobState.RUNNING, "gpu", ("node01",), None, None, None, NOW, None, None, None, attempt=INCIDENT.attempt
    )
    again = replace(job, attempt=INCIDENT.attempt + 1)
    assert [situation(INCIDENT, diagnosis(), one, now=NOW)["job"]["running"] for one in (job, again)] == ["yes", ""]


@pytest.mark.parametrize(
    ("avoided", "awaited"),
    [
        ("/scratch is full there", ""),
        ("/scratchpad is full there", "/scratch/trainer.1"),
        ("store.local cannot be reached there", "/scratch/trainer.1"),
    ],
)
def test_a_folder_on_a_disk_that_a_restart_stays_away_from_is_not_waited_for(avoided: str, awaited: str) -> None:
    line = "cp: error writing '/scratch/trainer.1/tiles.bin': No space left on device"
    found = diagnosis("os_error", Action.RESTART_SAME_NODES)
    where = (Whereabouts(f"{AVOIDED} {avoided}", "node01"),)
    found = replace(found, root_cause=(Citation("job.log", 3, line, "os_error.no_space"),), where=where)
    assert situation(INCIDENT, found, None, now=NOW)["diagnosis"]["awaited"] == awaited
