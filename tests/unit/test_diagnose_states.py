"""What the scheduler's state alone says: a job without a log that lost a node or went beyond its memory is no riddle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Action, Diagnosis, Job, JobState

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=20)
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def job(state: JobState, reason: str = "") -> Job:
    return Job("7", "llm", "ada", state, "gpu", NODES, None, None, BEGAN, BEGAN, ENDED, 1, None, reason=reason)


def found(knowledge: Knowledge, state: JobState, *, reason: str = "", controller: str = "", log: Path | None = None) -> Diagnosis:
    return diagnose(Case.from_parts(log, "", controller, None, job(state, reason), None), knowledge)


def line(minute: float, text: str) -> str:
    return f"[{BEGAN + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%S}.123] {text}"


def test_a_job_that_lost_a_node_and_left_no_log_failed_of_its_node(knowledge: Knowledge) -> None:
    diagnosis = found(knowledge, JobState.NODE_FAIL)
    assert (diagnosis.reason, diagnosis.action, diagnosis.faulty_nodes) == ("node_failure", Action.CORDON_AND_RESTART, ())


def test_a_job_beyond_its_memory_that_left_no_log_ran_out_of_memory(knowledge: Knowledge) -> None:
    diagnosis = found(knowledge, JobState.OUT_OF_MEMORY)
    assert (diagnosis.reason, diagnosis.faulty_nodes) == ("out_of_memory_error", ())


@pytest.mark.parametrize(
    ("reason", "controller", "named"),
    [
        ("NodeDown: gpu02", "", ("gpu02",)),
        ("NodeDown", "", ()),
        ("NodeDown: login1", "", ()),
        ("", line(19, "error: Nodes gpu03 not responding, setting DOWN"), ("gpu03",)),
        ("", line(21, "error: Nodes gpu03 not responding, setting DOWN"), ("gpu03",)),
        ("", line(19, "error: Nodes gpu17 not responding, setting DOWN"), ()),
        ("", line(-30, "error: Nodes gpu03 not responding, setting DOWN"), ()),
        ("", line(300, "error: Nodes gpu03 not responding, setting DOWN"), ()),
        ("", "\n".join(line(19, f"error: Nodes {node} not responding, setting DOWN") for node in NODES), ()),
    ],
    ids=["by the job", "unnamed", "not of the job", "by the log", "just after", "foreign", "before the job", "long after", "many"],
)
def test_a_node_is_named_only_where_the_records_say_which(
    knowledge: Knowledge, reason: str, controller: str, named: tuple[str, ...]
) -> None:
    assert found(knowledge, JobState.NODE_FAIL, reason=reason, controller=controller).faulty_nodes == named


def test_what_the_log_says_counts_more_than_the_bare_state(knowledge: Knowledge, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("Traceback (most recent call last):\n  File \"train.py\", line 8, in main\nKeyError: 'lr'\n", encoding="utf-8")
    assert found(knowledge, JobState.OUT_OF_MEMORY, log=log).reason == "key_error"


@pytest.mark.parametrize("minutes", [-0.5, -20], ids=["just before", "long before"])
@pytest.mark.parametrize(
    "said",
    ["error: Nodes gpu02 not responding, setting DOWN", "Node gpu02 unexpectedly rebooted boot_time=1773144000 last response=1"],
    ids=["down", "rebooted"],
)
def test_node_trouble_before_a_job_began_is_not_held_against_it(
    knowledge: Knowledge, tmp_path: Path, minutes: float, said: str
) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "training ...\nslurmstepd: error: *** JOB 7 ON gpu01 CANCELLED AT 2026-03-10T12:20:00 DUE TO TIME LIMIT ***\n",
        encoding="utf-8",
    )
    controller = "\n".join([line(minutes, said), line(20, "Time limit exhausted for JobId=7")])
    diagnosis = found(knowledge, JobState.TIMEOUT, reason="TimeLimit", controller=controller, log=log)
    assert (diagnosis.reason, diagnosis.faulty_nodes) == ("time_limit", ())
