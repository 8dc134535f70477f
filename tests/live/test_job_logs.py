"""Logs of jobs that know nothing of Nightshift, on a real Slurm: which files are read, whose lines they are, and what follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.logs.attempt import JobLogs, LogFileState
from assistant.policy import load_policy
from assistant.ports import SystemClock
from assistant.records import Diagnosis, IncidentState, Job, JobState
from assistant.recover.joblog import log_lines, log_points, logs_of
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = pytest.mark.live

ECC = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, An uncorrectable double bit error (DBE) has been detected on GPU 3."
TRACEBACK = (
    'Traceback (most recent call last):\\n  File "train.py", line 7, in <module>\\n    main()\\n'
    "ValueError: could not broadcast input array from shape (3,) into shape (4,)"
)
STEPS = 'for s in 1 2 3 4 5; do echo "step $s loss 2.$s"; done'


class Cluster:
    """Submits scripts and diagnoses what became of them."""

    def __init__(self, devcluster: DevCluster, engine: Engine, folder: Path) -> None:
        self.devcluster, self.engine, self.folder = devcluster, engine, folder

    def submit(self, body: str, *options: str, name: str = "job") -> str:
        script = self.folder / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        return self.devcluster.run(
            "sbatch", "--parsable", f"--chdir={self.folder}", f"--job-name={name}", *options, str(script)
        ).strip()

    def job(self, job_id: str) -> Job:
        return self.engine.scheduler.job(job_id)

    def ended(self, job_id: str, seconds: float = 60) -> Job:
        until(lambda: self.job(job_id).state.ended, seconds)
        return self.job(job_id)

    def logs(self, job_id: str) -> JobLogs:
        return logs_of(self.job(job_id))

    def diagnosis(self, job_id: str) -> Diagnosis:
        incident = self.engine.open_for(job_id, by="cli:test")
        return self.engine.diagnose(incident.id)

    def worked(self, job_id: str) -> IncidentState:
        incident = self.engine.open_for(job_id, by="cli:test")
        return self.engine.attend(incident.id, owner="test").state


@pytest.fixture
def cluster(devcluster: DevCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    clock = SystemClock()
    settings = devcluster.settings(tmp_path)
    engine = build(settings, clock=clock, policy=load_policy(), since=clock.now())
    folder = devcluster.shared / request.node.name[:60].replace("[", "_").replace("]", "").replace(" ", "_")
    folder.mkdir(exist_ok=True)
    yield Cluster(devcluster, engine, folder)
    engine.store.close()
    devcluster.settle()


def names(logs: JobLogs) -> set[str]:
    return {file.path.name for file in logs.readable}


def test_an_error_file_of_its_own_is_read_and_its_job_is_never_well(cluster: Cluster) -> None:
    job_id = cluster.submit(f"#SBATCH --error=%x_%j.err\n{STEPS}\necho '{ECC}' >&2\nexit 1", name="ecc")
    assert cluster.ended(job_id).error_log == cluster.folder / f"ecc_{job_id}.err"
    found = cluster.diagnosis(job_id)
    assert found.reason == "ecc_error"
    assert (found.root_cause[0].file, found.root_cause[0].line, found.root_cause[0].text) == (f"ecc_{job_id}.err", 1, ECC)


def test_a_failed_job_that_says_nothing_is_unknown_and_is_not_closed(cluster: Cluster) -> None:
    job_id = cluster.submit(f"{STEPS}\necho training finished\necho 'exited with exit code 0'\nexit 3")
    assert cluster.ended(job_id).state is JobState.FAILED
    assert cluster.diagnosis(job_id).reason not in ("no_failure", "cancelled")
    assert cluster.worked(job_id) is IncidentState.ESCALATED


def test_one_file_a_rank_is_read_and_the_rank_that_failed_is_named_by_its_file(cluster: Cluster) -> None:
    ranks = cluster.folder / "rank.sh"
    ranks.write_text(
        f"#!/bin/bash\n{STEPS}\n[ $SLURM_PROCID = 2 ] && {{ sleep 0.5; printf '{TRACEBACK}\\n'; exit 1; }}\nsleep 30\n",
        encoding="utf-8",
    )
    ranks.chmod(0o755)
    job_id = cluster.submit(f"srun -n 4 -N 2 -K1 --output=%x_%j_%t.log {ranks}", "-N2", name="ranks")
    cluster.ended(job_id)
    assert {f"ranks_{job_id}_{rank}.log" for rank in range(4)} <= names(cluster.logs(job_id))
    found = cluster.diagnosis(job_id)
    assert found.reason == "value_error"
    assert found.root_cause[0].file == f"ranks_{job_id}_2.log"
    assert found.root_cause[0].text == "ValueError: could not broadcast input array from shape (3,) into shape (4,)"
    assert [point.step for point in log_points(cluster.job(job_id))] == [1, 2, 3, 4, 5]


def test_a_fixed_name_gives_a_waiting_job_no_line_of_the_one_before(cluster: Cluster) -> None:
    first = cluster.submit(f"#SBATCH --output=train.log\n{STEPS}\nexit 1")
    cluster.ended(first)
    assert [point.step for point in log_points(cluster.job(first))] == [1, 2, 3, 4, 5]
    second = cluster.submit('#SBATCH --output=train.log\necho "step 1 loss 9.9"\nexit 1', "--hold")
    waiting = cluster.job(second)
    assert (waiting.state, log_points(waiting), list(log_lines(waiting))) == (JobState.PENDING, [], [])
    assert cluster.logs(second).files[0].state is LogFileState.EARLIER
    cluster.devcluster.run("scontrol", "release", second)
    cluster.ended(second)
    assert [(point.step, point.loss) for point in log_points(cluster.job(second), sure=True)] == [(1, 9.9)]


def test_what_stood_in_an_appended_log_is_not_taken_for_the_next_jobs(cluster: Cluster) -> None:
    mode = "#SBATCH --output=train.log --open-mode=append"
    first = cluster.submit(f"{mode}\n{STEPS}\nexit 1")
    cluster.ended(first)
    cluster.diagnosis(first)
    second = cluster.submit(f"{mode}\nsleep 1000")
    until(lambda: cluster.job(second).state is JobState.RUNNING, 30)
    assert cluster.job(second).appends
    assert log_points(cluster.job(second), sure=True) == []


def test_a_job_that_throws_its_output_away_says_so(cluster: Cluster) -> None:
    job_id = cluster.submit("#SBATCH --output=/dev/null\necho lost\nexit 1")
    cluster.ended(job_id)
    logs = cluster.logs(job_id)
    assert (logs.readable, {file.state for file in logs.files}) == ((), {LogFileState.DISCARDED})
    found = cluster.diagnosis(job_id)
    assert found.reason != "no_failure"
    assert "/dev/null" in found.summary
    assert "No log of the job could be read" in found.summary


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("bash train.sh > logs/run_$SLURM_JOB_ID.log 2>&1", "run_{}.log"),
        ("bash train.sh 2>&1 | tee out.txt; exit ${PIPESTATUS[0]}", "out.txt"),
        ("LOG=logs/${RUN:-fixed}.log\nexec &> $LOG\nbash train.sh", "fixed.log"),
        ("srun -n 2 bash -c 'bash train.sh > rank$SLURM_PROCID.out 2>&1'", "rank1.out"),
    ],
    ids=["redirection", "tee", "exec", "in a step"],
)
def test_what_a_script_redirects_is_read(cluster: Cluster, line: str, file: str) -> None:
    (cluster.folder / "logs").mkdir()
    (cluster.folder / "train.sh").write_text(f"{STEPS}\nprintf '{TRACEBACK}\\n' >&2\nexit 1\n", encoding="utf-8")
    job_id = cluster.submit(line)
    assert cluster.ended(job_id).state is JobState.FAILED
    assert file.format(job_id) in names(cluster.logs(job_id))
    assert cluster.diagnosis(job_id).reason == "value_error"


def test_a_log_that_slurm_cannot_open_has_a_diagnosis_of_its_own(cluster: Cluster) -> None:
    job_id = cluster.submit("#SBATCH --output=no/such/folder/%j.out\necho hello")
    assert cluster.ended(job_id).signal == 53
    found = cluster.diagnosis(job_id)
    assert found.reason == "output_file_error"
    assert f"the folder {cluster.folder}/no does not exist" in found.summary
    assert "Make the folder" in found.advice
    assert cluster.worked(job_id) is IncidentState.ESCALATED


def test_an_error_behind_exit_code_0_and_a_failed_step_are_remarked_on_at_once(cluster: Cluster) -> None:
    cluster.engine.tick(owner="test")
    quiet = cluster.submit(f"{STEPS}\necho done", name="quiet")
    job_id = cluster.submit(f"#SBATCH --error=%j.err\n{STEPS}\nprintf '{TRACEBACK}\\n' >&2\nsrun bash -c 'exit 7'\nexit 0")
    assert cluster.ended(job_id).state is JobState.COMPLETED
    cluster.ended(quiet)
    said: list[str] = []

    def told() -> bool:
        cluster.engine.tick(owner="test")
        said.extend(remark.text for remark in (*cluster.engine.watcher.remarks, *cluster.engine.good_runs.taken_remarks()))
        return any("step" in text for text in said) and any("ValueError" in text for text in said)

    until(told, 30)
    assert any(f"job {job_id} completed, but a step of it ended with 7" in text for text in said)
    assert any(f"job {job_id} ended with exit code 0" in text and f"{job_id}.err:" in text for text in said)
    assert not any(f"job {quiet} " in text for text in said)


def test_each_task_of_an_array_has_its_own_lines(cluster: Cluster) -> None:
    whole = cluster.submit(
        f'#SBATCH --array=0-2 --output=%x_%A_%a.out\necho "step $SLURM_ARRAY_TASK_ID loss 1.5"\n'
        "bash -c 'echo more' > extra_${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.log\n"
        f"[ $SLURM_ARRAY_TASK_ID = 1 ] && printf '{TRACEBACK}\\n' && exit 1",
        name="sweep",
    )
    until(lambda: all(job.state.ended for job in cluster.engine.scheduler.jobs() if job.id.startswith(f"{whole}_")), 60)
    for task in range(3):
        logs = cluster.logs(f"{whole}_{task}")
        assert names(logs) == {f"sweep_{whole}_{task}.out", f"extra_{whole}_{task}.log"}
        assert [point.step for point in log_points(cluster.job(f"{whole}_{task}"))] == [task]
    assert cluster.diagnosis(f"{whole}_1").reason == "value_error"


def test_a_requeued_job_has_no_lines_until_it_runs_again(cluster: Cluster) -> None:
    job_id = cluster.submit(f"#SBATCH --output=again.log --requeue\n[ -z $SLURM_RESTART_COUNT ] && {STEPS}\nsleep 1000")
    until(lambda: len(log_points(cluster.job(job_id))) == 5, 30)
    cluster.devcluster.run("scontrol", "requeuehold", job_id)
    until(lambda: cluster.job(job_id).state is JobState.PENDING, 30)
    assert log_points(cluster.job(job_id)) == []
    until(lambda: "COMPLETING" not in cluster.devcluster.run("squeue", "-h", "-j", job_id, "-o", "%T"), 30)
    cluster.devcluster.run("scontrol", "release", job_id)
    until(lambda: cluster.job(job_id).state is JobState.RUNNING, 60)
    assert log_points(cluster.job(job_id), sure=True) == []
