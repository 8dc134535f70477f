"""The watch's judgements, each by what was read: hangs by phase, heartbeats, nodes, outages, what is known."""

from __future__ import annotations

import json
import threading
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.logs.phases import LogPhase, phase_begun, phase_over
from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobState, Node, NodeState
from assistant.training.heartbeat import Heartbeat
from assistant.watch.attempts import Extent, KnownIncidents, ended_badly, failed_before
from assistant.watch.hang import Cadence, HangLimits, Signs, Still, certain_after_s, rarest, suspect_after_s, suspicion_of
from assistant.watch.outages import JobFailure, outages, service_of
from assistant.watch.progress import SpikeLimits
from assistant.watch.readers import Readers
from assistant.watch.watcher import FOR_SURE, NodeTrack
from assistant.watch.witness import heartbeat_path, last_beat

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
SIBLINGS = tomllib.loads((Path(__file__).parents[1] / "cases" / "failed_siblings.toml").read_text())["case"]
LIMITS = HangLimits(silent_s=1800, factor=5)
SPIKE = SpikeLimits(persist_steps=20)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(number: str = "7", state: JobState = JobState.FAILED, **changes: object) -> Job:
    made = Job(number, "llm", "alice", state, "gpu", ("node01",), None, None, START, START, after(100), 1, None)
    return replace(made, **changes)  # type: ignore[arg-type]


def cadence(**gaps: list[float]) -> Cadence:
    made = Cadence()
    for phase, those in gaps.items():
        for gap in those:
            made.add(LogPhase(phase), gap, 1)
    return made


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("saving checkpoint at iteration     500 to /ckpt in torch_dist format", LogPhase.CHECKPOINT),
        ("2026-01-01 INFO ckpt.py:101 in try_save -- Saving checkpoint to `/ckpt/500` at batch count:500...", LogPhase.CHECKPOINT),
        ("Saving model checkpoint to /data/ckpt/run1/checkpoint-500", LogPhase.CHECKPOINT),
        ("[INFO] [logging.py:96] [Torch] Checkpoint global_step500 is about to be saved!", LogPhase.CHECKPOINT),
        ("***** Running Evaluation *****", LogPhase.EVALUATION),
        ("***** Running generation eval: 60 prompts, max_new_tokens=512 *****", LogPhase.EVALUATION),
        ("INFO running lm-eval-harness benchmark on step 500", LogPhase.EVALUATION),
        ("Generating 64 rollouts", LogPhase.EVALUATION),
        ("running on 8 GPUs, evaluation every 500 steps", None),
        ("Validation DataLoader 0:  10%|#         | 4/40 [00:02<00:20,  1.8it/s]", LogPhase.EVALUATION),
        ("Evaluating:  10%|#         | 4/40 [00:02<00:20,  1.8it/s]", LogPhase.EVALUATION),
        (" loading checkpoint from /ckpt at iteration 500", LogPhase.LOADING),
        ("[after training is done] datetime: 2026-01-05 02:00:00", LogPhase.END),
        ("  successfully saved checkpoint at iteration     500 to /ckpt", None),
        ("[titan] step:   12  loss:  2.5841  grad_norm:  0.3576", None),
        ("distribute_saved_activations .................... False", None),
    ],
)
def test_a_line_tells_which_phase_begins(text: str, phase: LogPhase | None) -> None:
    assert phase_begun(text) is phase


def test_a_line_tells_that_a_phase_is_over() -> None:
    assert phase_over("  successfully saved checkpoint at iteration 500 to /ckpt", LogPhase.CHECKPOINT)
    assert phase_over(" validation loss at iteration 500 | lm loss value: 2.0E+00", LogPhase.EVALUATION)
    assert not phase_over("saving checkpoint at iteration 500", LogPhase.CHECKPOINT)


@pytest.mark.parametrize(
    ("gaps", "phase", "suspect_s", "certain_s"),
    [
        ({}, LogPhase.START, 1800, 1800),
        ({"training": [2.0] * 4}, LogPhase.TRAINING, 1800, 1800),
        ({"training": [2.0] * 50}, LogPhase.TRAINING, 300, 1800),
        ({"training": [80.0] * 50}, LogPhase.TRAINING, 400, 1800),
        ({"training": [2.0] * 50, "checkpoint": [200.0]}, LogPhase.TRAINING, 300, 1800),
        ({"training": [2.0] * 50, "checkpoint": [200.0]}, LogPhase.CHECKPOINT, 1000, 1800),
        ({"training": [2.0] * 50, "checkpoint": [200.0]}, LogPhase.EVALUATION, 1800, 1800),
        ({"training": [2.0] * 50, "evaluation": [3000.0]}, LogPhase.EVALUATION, 4500, 4500),
        ({"training": [2400.0] * 50}, LogPhase.TRAINING, 3600, 3600),
    ],
)
def test_a_limit_belongs_to_a_phase(gaps: dict[str, list[float]], phase: LogPhase, suspect_s: float, certain_s: float) -> None:
    known = cadence(**gaps)
    assert (suspect_after_s(known, phase, LIMITS), certain_after_s(known, phase, LIMITS)) == (suspect_s, certain_s)


@given(st.lists(st.floats(0, 5000), max_size=80), st.sampled_from([LogPhase.TRAINING, LogPhase.CHECKPOINT, LogPhase.EVALUATION]))
def test_what_a_job_came_back_from_is_never_a_hang(gaps: list[float], phase: LogPhase) -> None:
    known = cadence(**{str(phase): gaps})
    longest = max(gaps, default=0.0)
    assert longest < suspect_after_s(known, phase, LIMITS) <= certain_after_s(known, phase, LIMITS)


def test_a_gap_belongs_to_the_rarest_thing_in_it() -> None:
    assert rarest({LogPhase.TRAINING, LogPhase.EVALUATION, LogPhase.CHECKPOINT}) is LogPhase.CHECKPOINT
    assert rarest({LogPhase.TRAINING}) is LogPhase.TRAINING


STEADY = cadence(training=[2.0] * 100)
MINUTE = 60.0


@pytest.mark.parametrize(
    ("output_s", "life_s", "beat_s", "now_s", "how", "certain"),
    [
        # output, life, heartbeat and now in seconds; None without a heartbeat
        (0, 0, None, 290, None, False),
        (0, 0, None, 310, Still.SILENT, False),
        (0, 0, None, 1801, Still.SILENT, True),
        (400, 0, None, 410, Still.NO_STEPS, False),
        (1900, 0, None, 1910, Still.NO_STEPS, True),
        (0, 0, 1900, 1910, None, False),
        (0, 0, 0, 310, Still.SILENT, False),
        (0, 0, 0, 610, Still.SILENT, True),
        (900, 900, 0, 910, Still.NO_BEAT, True),
        (100, 100, 0, 290, None, False),
    ],
)
def test_silence_chatter_and_heartbeats_are_told_apart(
    output_s: float, life_s: float, beat_s: float | None, now_s: float, how: Still | None, certain: bool
) -> None:
    beat = after(beat_s) if beat_s is not None else None
    found = suspicion_of(Signs(LogPhase.TRAINING, after(output_s), after(life_s), beat, steps=True), STEADY, LIMITS, after(now_s))
    assert (found.how if found else None, bool(found and found.certain)) == (how, certain)


def test_a_job_that_never_said_anything_is_no_hang_by_itself() -> None:
    mute = Signs(LogPhase.START, START, START, says_nothing=True)
    found = suspicion_of(mute, Cadence(), LIMITS, after(86_400))
    assert found is not None
    assert not found.certain
    spoke = suspicion_of(replace(mute, says_nothing=False), Cadence(), LIMITS, after(3601))
    assert spoke is not None
    assert spoke.certain


def test_a_heartbeat_that_says_it_saves_has_the_time_of_saves() -> None:
    saving = Signs(LogPhase.CHECKPOINT, START, START, START, steps=True)
    assert suspicion_of(saving, STEADY, LIMITS, after(1700)) is None


def test_the_trainer_beats_where_the_watch_looks(tmp_path: Path) -> None:
    heart = Heartbeat.of_environment(
        {"SLURM_JOB_ID": "7", "RANK": "0", "NIGHTSHIFT_HEARTBEAT": str(tmp_path / "beat-%j.json"), "SLURM_RESTART_COUNT": "2"}
    )
    heart.beat(12, "training")
    heart.beat(12, "checkpoint")
    mine = job(attempt=2)
    beat = last_beat(tmp_path / "beat-7.json", mine)
    assert beat is not None
    assert (beat.step, beat.phase) == (12, LogPhase.CHECKPOINT)
    assert last_beat(tmp_path / "beat-7.json", job(attempt=1)) is None
    assert last_beat(tmp_path / "beat-7.json", job("8", attempt=2)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["beat-7.json"]


def test_other_ranks_do_not_beat() -> None:
    assert Heartbeat.of_environment({"SLURM_JOB_ID": "7", "RANK": "3"}).path is None
    assert Heartbeat.of_environment({}).path is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": "x", "at": 1}', '{"step": 3}', "null"])
def test_what_is_no_heartbeat_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "beat.json").write_text(text)
    assert last_beat(tmp_path / "beat.json", job()) is None


def test_a_heartbeat_lies_where_the_script_says_or_in_the_work_folder(tmp_path: Path) -> None:
    from assistant.records import JobSpec

    assert heartbeat_path(job()) is None
    assert heartbeat_path(job(work_dir=tmp_path)) == tmp_path / "heartbeat-7.json"
    spec = JobSpec("llm", "#!/bin/sh\n#NIGHTSHIFT act=auto heartbeat=beats/%j.json\nsrun train\n")
    assert heartbeat_path(job(work_dir=tmp_path, spec=spec)) == tmp_path / "beats" / "7.json"
    named = replace(spec, environment={"NIGHTSHIFT_HEARTBEAT": "/run/beat"})
    assert heartbeat_path(job(work_dir=tmp_path, spec=named)) == Path("/run/beat")


def incident(kind: EventKind, state: IncidentState, *, opened: float = 50, closed: float | None = 60, attempt: int = 0) -> Incident:
    ended = after(closed) if closed is not None else None
    return Incident(1, state, "7", attempt, None, kind, after(opened), None, ended, None, None, None, None, "")


@pytest.mark.parametrize(
    ("known", "news"),
    [
        (incident(EventKind.JOB_ENDED, IncidentState.ESCALATED), False),
        (incident(EventKind.HANG, IncidentState.RECOVERED), False),
        (incident(EventKind.HANG, IncidentState.ESCALATED), False),
        (incident(EventKind.SLOW_JOB, IncidentState.ESCALATED), True),
        (incident(EventKind.SLOW_JOB, IncidentState.WAITING, closed=None), False),
        (incident(EventKind.CHECKPOINTS_LATE, IncidentState.ESCALATED), True),
        (incident(EventKind.REQUESTED, IncidentState.CLOSED), True),
        (incident(EventKind.REQUESTED, IncidentState.CLOSED, closed=150), False),
        (incident(EventKind.JOB_ENDED, IncidentState.RECOVERED, attempt=1), True),
        (incident(EventKind.JOB_ENDED, IncidentState.RECOVERED, opened=-500, closed=-400), True),
    ],
    ids=[
        *("ended", "hang_recovered", "hang_with_a_person", "slow", "slow_in_work", "late_saves"),
        *("looked_at_before", "looked_at_after", "another_attempt", "an_id_used_again"),
    ],
)
def test_an_end_is_news_unless_somebody_saw_to_it(known: Incident, news: bool) -> None:
    events = ended_badly([job()], known=KnownIncidents.of([known]), since=START, now=after(200))
    assert bool(events) is news


@pytest.mark.parametrize(
    ("state", "noticed"),
    [
        *(
            (state, True)
            for state in (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT, JobState.PREEMPTED)
        ),
        *(
            (state, False)
            for state in (JobState.CANCELLED, JobState.COMPLETED, JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)
        ),
    ],
)
def test_only_failures_are_noticed(state: JobState, noticed: bool) -> None:
    assert bool(ended_badly([job(state=state)], known=KnownIncidents({}), since=START, now=after(200))) is noticed


@pytest.mark.parametrize(
    ("began_s", "noticed", "remarked"),
    [
        (100.0, True, False),
        (100.9, True, False),  # Slurm's second has begun before the watch, and may have ended behind it
        (101.0, False, True),
        (100 + 599.0, False, True),
        (100 + 601.0, False, False),  # history
        (99.0, True, False),
    ],
)
def test_what_failed_right_before_the_watch_began_is_told_and_left_alone(began_s: float, noticed: bool, remarked: bool) -> None:
    failed, began = job(ended=after(100)), after(began_s)
    events = ended_badly([failed], known=KnownIncidents({}), since=began, now=after(2000))
    remarks = failed_before([failed], incidents=KnownIncidents({}), since=began)
    assert (bool(events), bool(remarks)) == (noticed, remarked)
    if remarked:
        assert "7 (llm of alice, failed)" in remarks[0].text
        assert "nothing is done about that" in remarks[0].text
        known = KnownIncidents.of([replace(incident(EventKind.JOB_ENDED, IncidentState.OPEN, closed=None), job="7")])
        assert failed_before([failed], incidents=known, since=began) == []


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.COMPLETED, JobState.RUNNING, JobState.UNKNOWN])
def test_what_did_not_fail_before_the_watch_began_is_no_remark(state: JobState) -> None:
    assert failed_before([job(state=state, ended=after(100))], incidents=KnownIncidents({}), since=after(200)) == []


def test_many_that_failed_before_the_watch_began_are_one_remark() -> None:
    (remark,) = failed_before([job(f"9_{n}") for n in range(40)], incidents=KnownIncidents({}), since=after(150))
    assert "these 40 jobs failed" in remark.text
    assert "and 32 more" in remark.text


@pytest.mark.parametrize("case", SIBLINGS, ids=[case["name"] for case in SIBLINGS])
def test_tasks_that_failed_with_their_siblings_are_no_history(case: dict[str, Any]) -> None:
    jobs = [job(name, JobState(state), ended=after(second) if second else None) for name, state, second in case["tasks"]]
    opened = [event.job for event in ended_badly(jobs, known=KnownIncidents({}), since=after(200.9), now=after(240))]
    assert opened == case["opened"]
    told = [remark.text for remark in failed_before(jobs, incidents=KnownIncidents({}), since=after(200.9))]
    assert len(told) == bool(case["told"])
    assert [name for name, _, _ in case["tasks"] if any(f" {name} (" in text for text in told)] == case["told"]


def test_a_task_of_another_user_is_no_sibling() -> None:
    jobs = [job("1_1", ended=after(199), user="bob"), job("1_2", ended=after(201))]
    assert [event.job for event in ended_badly(jobs, known=KnownIncidents({}), since=after(200), now=after(240))] == ["1_2"]


def test_tasks_of_an_array_are_jobs_and_parts_of_a_heterogeneous_job_are_one() -> None:
    jobs = [job("18_1"), job("18_2"), job("20+0"), job("20+1"), job("20+2")]
    found = [event.job for event in ended_badly(jobs, known=KnownIncidents({}), since=START, now=after(200))]
    assert found == ["18_1", "18_2", "20+0"]
    there = KnownIncidents.of([replace(incident(EventKind.JOB_ENDED, IncidentState.OPEN, closed=None), job="20+0")])
    assert [event.job for event in ended_badly(jobs, known=there, since=START, now=after(200))] == ["18_1", "18_2"]


def nodes(**states: NodeState) -> list[Node]:
    return [Node(name, state) for name, state in states.items()]


def test_nodes_that_go_down_together_under_jobs_are_one_event_and_come_back() -> None:
    track, running = NodeTrack(), [job(state=JobState.RUNNING, nodes=("a", "b", "c"))]
    up, down = NodeState.ALLOCATED, NodeState.DOWN
    assert track.look(nodes(a=up, b=up, c=up, d=down), running, START) == ([], [])
    events, remarks = track.look(nodes(a=up, b=down, c=down, d=down), running, after(10))
    assert (events, len(remarks)) == ([], 2)  # a controller that restarts shows that, too
    events, _ = track.look(nodes(a=up, b=down, c=down, d=down), running, after(10) + FOR_SURE)
    assert [(event.kind, event.node, event.detail["nodes"], event.detail["jobs"]) for event in events] == [
        (EventKind.NODE_DOWN, "b", ["b", "c"], ["7"])
    ]
    track.reported.update(events[0].detail["nodes"])
    assert track.look(nodes(a=up, b=down, c=down, d=down), running, after(400))[0] == []
    _, remarks = track.look(nodes(a=up, b=up, c=NodeState.UNKNOWN, d=down), running, after(500))
    assert [one.text for one in remarks] == ["node b: down -> allocated, job 7 runs there"]
    assert track.look(nodes(a=up, b=up, c=down, d=down), running, after(600))[0] == []  # unknown was no recovery


def test_a_node_drained_by_others_is_a_remark() -> None:
    track, running = NodeTrack(), [job(state=JobState.RUNNING, nodes=("a",))]
    track.look(nodes(a=NodeState.ALLOCATED), running, START)
    events, remarks = track.look([Node("a", NodeState.DRAINING, reason="firmware")], running, after(10))
    assert (events, [one.text for one in remarks]) == ([], ["node a: allocated -> draining (firmware), job 7 runs there"])


def failure(number: int, text: str, *, task: str = "", at: float = 0, reason: str = "s3_storage_error") -> JobFailure:
    return JobFailure(number, str(number), task or f"user{number % 2}/llm", after(at), reason, (text,))


URL = 'Could not connect to the endpoint URL: "https://minio-a.local:9000/ckpt/x"'
OTHER = URL.replace("minio-a", "minio-b")


def test_jobs_of_several_tasks_that_die_of_one_service_are_one_outage() -> None:
    (found,) = outages([failure(3, URL, at=60), failure(1, URL), failure(2, URL, at=30), failure(4, OTHER)])
    assert (found.service, [one.incident for one in found.members]) == ("minio-a.local:9000", [1, 2, 3])


@pytest.mark.parametrize(
    "failures",
    [
        [failure(1, URL), failure(2, URL)],
        [failure(1, URL, task="a"), failure(2, URL, task="a", at=90), failure(3, URL, task="a", at=180)],
        [failure(1, URL), failure(2, URL, at=2000), failure(3, URL, at=4000)],
        [failure(1, URL), failure(2, URL), failure(3, OTHER), failure(4, OTHER)],
        [failure(1, "ran out of memory", reason="out_of_memory_error") for _ in range(5)],
        [failure(n, "For more information see https://pytorch.org/docs/stable/notes/cuda.html") for n in range(5)],
        [failure(n, "connection refused", reason="connection_error") for n in range(5)],
    ],
    ids=["two", "one_task", "far_apart", "two_services", "out_of_memory", "a_page_of_a_manual", "no_service_named"],
)
def test_independent_failures_are_not_lumped(failures: list[JobFailure]) -> None:
    assert outages(failures) == []


@pytest.mark.parametrize(
    ("reason", "text", "service"),
    [
        ("s3_storage_error", "An error occurred (SlowDown) when calling the PutObject operation: Please reduce", "object storage"),
        ("connection_error", "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded", "huggingface.co:443"),
        ("connection_error", "ConnectionRefusedError: connect to 10.0.0.7:6379", "10.0.0.7:6379"),
        ("value_error", URL, "minio-a.local:9000"),
        ("cancelled", URL, ""),
    ],
)
def test_the_service_is_read_off_the_line(reason: str, text: str, service: str) -> None:
    assert service_of(reason, [text]) == service


class _View:
    def __init__(self, name: str, gate: threading.Event | None = None, error: Exception | None = None) -> None:
        self.job = job(name, log=Path("/mnt" if gate else "/home") / name / "job.log")
        self.gate, self.error = gate, error

    def read(self, now: datetime) -> None:
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error


def test_a_mount_that_hangs_blinds_only_for_its_own_jobs() -> None:
    gate, readers = threading.Event(), Readers(deadline_s=0.05)
    well, stuck = _View("1"), _View("2", gate)
    read, trouble = readers.read([well, stuck], START)
    assert (read, len(trouble)) == ([well], 1)
    read, trouble = readers.read([well, stuck], START)
    assert (read, [one.text for one in trouble]) == ([well], ["/mnt/2 does not answer: 1 logs were not read"])
    gate.set()
    for _ in range(100):
        read, trouble = readers.read([well, stuck], START)
        if not trouble:
            break
    assert read == [well, stuck]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("odd")])
def test_one_odd_log_does_not_blind_the_watch(error: Exception) -> None:
    well, odd = _View("1"), _View("2", error=error)
    read, trouble = Readers().read([odd, well], START)
    assert (read, len(trouble)) == ([well], 1)


def test_logs_that_are_shown_to_nobody_are_set_aside() -> None:
    shut = [_View(str(number), error=PermissionError(13, "Permission denied")) for number in range(2, 9)]
    well = _View("1")
    read, (trouble,) = Readers().read([*shut, well], START)
    assert (read, trouble.extent) == ([well], Extent.SET_ASIDE)
    assert trouble.text == "7 logs may not be read, so no hangs and losses are noticed of jobs 2, 3, 4, 5, 6 and 2 more"


def test_events_hold_json_only() -> None:
    (event,) = ended_badly([job()], known=KnownIncidents({}), since=START, now=after(200))
    assert isinstance(event, Event)
    assert json.loads(json.dumps(dict(event.detail)))["submitted"] == START.isoformat()
