"""What only the embedded scheduler promises: state that any process sees, supervisors that survive and are missed when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.errors import ToolError, Unavailable
from assistant.ports import SystemClock
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers import local_jobs
from assistant.schedulers.local import LocalScheduler


def until(cluster: LocalScheduler, job_id: str, wanted: Callable[[Job], bool]) -> Job:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        job = cluster.job(job_id)
        if wanted(job):
            return job
        time.sleep(0.03)
    raise AssertionError(f"job did not get there: {cluster.job(job_id)}")


def ended(cluster: LocalScheduler, job_id: str) -> Job:
    return until(cluster, job_id, lambda job: job.state.ended)


def log_of(cluster: LocalScheduler, job_id: str) -> str:
    log = cluster.job(job_id).log
    assert log is not None
    return log.read_text(encoding="utf-8") if log.exists() else ""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalScheduler]:
    made = LocalScheduler(tmp_path / "cluster", SystemClock())
    yield made
    for job in made.jobs():
        made.cancel(job.id)
    for job in made.jobs():
        ended(made, job.id)


@pytest.fixture
def submit(cluster: LocalScheduler, tmp_path: Path) -> Callable[..., str]:
    def send(script: str, **changes: object) -> str:
        return cluster.submit(JobSpec(name="job", script=script, work_dir=tmp_path, **changes))  # type: ignore[arg-type]

    return send


def test_every_rank_gets_its_place_from_the_environment(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    words = "$RANK/$WORLD_SIZE $LOCAL_RANK $SLURMD_NODENAME $SLURM_JOB_ID $SLURM_JOB_NODELIST $A"
    job_id = submit(f'echo "{words}"', nodes=2, ranks_per_node=2, environment={"A": "b"})
    ended(cluster, job_id)
    assert sorted(log_of(cluster, job_id).splitlines()) == [
        f"0/4 0 node01 {job_id} node[01-02] b",
        f"1/4 1 node01 {job_id} node[01-02] b",
        f"2/4 0 node02 {job_id} node[01-02] b",
        f"3/4 1 node02 {job_id} node[01-02] b",
    ]


def test_lines_of_the_ranks_never_mix(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    job_id = submit('for i in $(seq 300); do printf "%s" "$RANK:aaaaaaaaaa"; echo "bbbbbbbbbb"; done', ranks_per_node=4)
    ended(cluster, job_id)
    lines = log_of(cluster, job_id).splitlines()
    assert len(lines) == 1200
    assert {line[1:] for line in lines} == {":aaaaaaaaaabbbbbbbbbb"}


def test_the_last_words_without_a_newline_are_kept(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    job_id = submit("printf 'no newline'")
    ended(cluster, job_id)
    assert log_of(cluster, job_id) == "no newline\n"


def test_when_one_rank_fails_the_others_are_ended_after_a_grace(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    job_id = submit("[ $RANK = 2 ] && exit 7; sleep 60", nodes=2, ranks_per_node=2)
    job = ended(cluster, job_id)
    assert (job.state, job.exit_code) == (JobState.FAILED, 7)
    text = log_of(cluster, job_id)
    assert f"srun: Terminating StepId={job_id}.0" in text
    assert "srun: error: node02: task 2: Exited with exit code 7" in text
    assert "srun: error: node01: tasks 0-1: Terminated" in text


def test_a_rank_that_ignores_the_request_to_stop_is_killed(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    job_id = submit("trap '' TERM; echo ready; while true; do sleep 0.1; done")
    until(cluster, job_id, lambda _: "ready" in log_of(cluster, job_id))
    cluster.cancel(job_id)
    assert ended(cluster, job_id).state is JobState.CANCELLED
    assert "task 0: Killed" in log_of(cluster, job_id)


def test_children_of_a_rank_do_not_outlive_it(cluster: LocalScheduler, submit: Callable[..., str], tmp_path: Path) -> None:
    job_id = submit("sleep 60 & echo $! > child; exit 0")
    assert ended(cluster, job_id).state is JobState.COMPLETED
    assert local_jobs.started_ticks(int((tmp_path / "child").read_text(encoding="utf-8"))) is None


def test_a_memory_kill_in_the_job_own_group_makes_it_out_of_memory(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    record = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=7"
    job_id = submit(f"echo '{record}' >> $NIGHTSHIFT_NODE_DIR/kernel.log; kill -9 $$")
    assert ended(cluster, job_id).state is JobState.OUT_OF_MEMORY
    assert f"Detected 1 oom_kill event in StepId={job_id}.0. Some of the step tasks have been OOM Killed." in log_of(
        cluster, job_id
    )


def test_another_process_sees_the_same_cluster(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    job_id = submit("sleep 60")
    cluster.cordon("node03", "nightshift: test")
    code = (
        "import sys; from pathlib import Path; from assistant.ports import SystemClock\n"
        "from assistant.schedulers.local import LocalScheduler\n"
        "c = LocalScheduler(Path(sys.argv[1]), SystemClock(), nodes=99)\n"
        "print([(j.id, j.state.value) for j in c.jobs()], [n.state.value for n in c.nodes()])"
    )
    seen = subprocess.run([sys.executable, "-c", code, str(cluster.folder)], capture_output=True, text=True, check=True).stdout
    assert seen.strip() == f"[('{job_id}', 'running')] ['allocated', 'idle', 'drained', 'idle']"


def test_a_job_goes_on_when_the_process_that_submitted_it_ends(cluster: LocalScheduler, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from assistant.ports import SystemClock; from assistant.records import JobSpec\n"
        "from assistant.schedulers.local import LocalScheduler\n"
        "c = LocalScheduler(Path(sys.argv[1]), SystemClock())\n"
        "print(c.submit(JobSpec(name='x', script='sleep 0.5; echo done', work_dir=Path(sys.argv[1]))))"
    )
    sent = subprocess.run([sys.executable, "-c", code, str(cluster.folder)], capture_output=True, text=True, check=True).stdout
    assert ended(cluster, sent.strip()).state is JobState.COMPLETED
    assert log_of(cluster, sent.strip()) == "done\n"


def test_a_supervisor_that_is_killed_is_missed_and_its_ranks_are_ended(
    cluster: LocalScheduler, submit: Callable[..., str], tmp_path: Path
) -> None:
    job_id = submit("echo $$ > pid; exec sleep 60")
    until(cluster, job_id, lambda _: (cluster.job_folder(job_id) / "runner.json").exists() and (tmp_path / "pid").exists())
    claim = json.loads((cluster.job_folder(job_id) / "claim.json").read_bytes())
    os.kill(claim["supervisor"][0], signal.SIGKILL)
    job = ended(cluster, job_id)
    assert job.state is JobState.NODE_FAIL
    assert "vanished" in job.reason
    rank = int((tmp_path / "pid").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 5
    while local_jobs.started_ticks(rank) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert local_jobs.started_ticks(rank) is None
    assert "NODE_FAIL" in cluster.controller_log(job_id)


@pytest.mark.parametrize("claimed", [False, True], ids=["before it was claimed", "after it was claimed"])
def test_a_start_that_a_crash_kept_from_being_noted_is_not_made_twice(
    cluster: LocalScheduler, submit: Callable[..., str], tmp_path: Path, claimed: bool
) -> None:
    job_id = submit("echo once >> runs; sleep 0.5", nodes=2)
    if claimed:
        until(cluster, job_id, lambda _: (cluster.job_folder(job_id) / "claim.json").exists())
    status = cluster.job_folder(job_id) / "status.json"
    local_jobs.write_json(status, {**json.loads(status.read_bytes()), "state": "pending", "nodes": [], "supervisor": None})
    job = ended(cluster, job_id)
    assert (job.state, job.nodes) == (JobState.COMPLETED, ("node01", "node02"))
    assert (tmp_path / "runs").read_text(encoding="utf-8").split() == ["once", "once"]


def test_a_node_that_comes_back_takes_jobs_again(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    cluster.set_down("node01")
    assert ended(cluster, submit("true")).nodes == ("node02",)
    cluster.set_up("node01")
    assert ended(cluster, submit("true")).nodes == ("node01",)


def test_ids_go_on_after_the_cluster_is_opened_again(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    first = submit("true")
    again = LocalScheduler(cluster.folder, SystemClock(), nodes=2)
    assert len(again.nodes()) == 4
    assert int(again.submit(JobSpec(name="job", script="true", work_dir=cluster.folder))) == int(first) + 1


def test_a_missing_working_folder_is_refused_before_anything_is_written(cluster: LocalScheduler, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="does not exist; make it first"):
        cluster.submit(JobSpec(name="job", script="true", work_dir=tmp_path / "nowhere"))
    assert cluster.jobs() == []


def test_a_damaged_state_file_is_an_outage_that_names_the_file(cluster: LocalScheduler) -> None:
    (cluster.folder / "cluster.json").write_text("{half", encoding="utf-8")
    with pytest.raises(Unavailable, match=r"cluster\.json is damaged"):
        cluster.nodes()
    (cluster.folder / "cluster.json").write_text(
        '{"partition": "demo", "nodes": ["node01"], "cordons": {}, "next_id": 1}', encoding="utf-8"
    )


def test_a_lock_that_is_never_given_back_is_an_outage(cluster: LocalScheduler) -> None:
    with local_jobs.locked(cluster.folder), pytest.raises(Unavailable, match="held by another process"):  # noqa: SIM117
        with local_jobs.locked(cluster.folder, wait_s=0.05):
            pass


def test_the_controller_log_of_a_job_leaves_other_jobs_out(cluster: LocalScheduler, submit: Callable[..., str]) -> None:
    first, second = submit("true"), submit("exit 1")
    ended(cluster, first)
    ended(cluster, second)
    own = cluster.controller_log(second)
    assert f"_job_complete: JobId={second} WEXITSTATUS 1" in own
    assert f"JobId={first} " not in own


@pytest.mark.parametrize(
    ("status", "words"), [(1, "Exited with exit code 1"), (-9, "Killed"), (-15, "Terminated"), (-6, "Aborted")]
)
def test_ends_are_worded_as_srun_does(status: int, words: str) -> None:
    from assistant.schedulers.slurm_text import task_lines

    assert task_lines({0: 0, 1: status}, {0: "n1", 1: "n2"}) == [f"srun: error: n2: task 1: {words}"]
