"""Which failures are a node's, which are their owners', and which jobs are left to the program that submitted them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.engine.evidence.node_faults import starts_elsewhere
from assistant.engine.faulty_nodes import swallows
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Diagnosis,
    Job,
    JobSpec,
    JobState,
    NodeFinding,
)
from assistant.records.jobs import LAUNCH_FAILURE, OUTPUT_FAILED
from assistant.recover.directives import launch_paths, never_began, task_line
from assistant.recover.drivers import makes_only_missing, named_jobs, submitted_by, watches_over_jobs, workflow_of
from assistant.recover.situation import cause_words
from assistant.recover.source.settings import OF_SUBMITIT, repeat_problem

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(
    number: str, node: str = "n1", *, user: str = "ada", at_s: float = 0.0, failed: bool = True, folder: Path = Path("/w")
) -> Job:
    """Return a job that ran for two seconds on one node; one that failed never began."""
    return Job(
        id=number,
        name="eval",
        user=user,
        state=JobState.FAILED if failed else JobState.COMPLETED,
        partition="",
        nodes=(node,),
        log=folder / "out" / f"{number}.txt",
        work_dir=folder,
        submitted=NOON,
        started=NOON + timedelta(seconds=at_s),
        ended=NOON + timedelta(seconds=at_s + 2),
        exit_code=0,
        signal=OUTPUT_FAILED if failed else None,
        reason=LAUNCH_FAILURE if failed else "",
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"reason": ""}, True),
        ({"reason": "NonZeroExitCode"}, False),  # a script may end itself by that signal
        ({"signal": 9}, False),
        ({"attempt": 1}, False),  # the attempt before may have run
        ({"state": JobState.CANCELLED}, False),
    ],
)
def test_a_job_never_began_only_where_the_scheduler_says_so(changes: dict[str, object], expected: bool) -> None:
    assert never_began(replace(job("1"), **changes)) is expected  # type: ignore[arg-type]


def test_a_launch_needs_the_folders_of_its_output_and_of_its_work() -> None:
    assert launch_paths(job("1")) == (Path("/w/out"), Path("/w"))


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([job("1"), job("2", at_s=5)], True),
        ([job("1"), job("2", at_s=5, user="bob")], True),
        ([job("1")], False),
        ([job("1"), job("2", "n2")], False),
        ([job("1"), job("2", failed=False)], False),
        ([job("1"), job("2", at_s=300)], False),
    ],
)
def test_a_node_swallows_jobs_that_fail_there_one_behind_the_other(jobs: list[Job], expected: bool) -> None:
    assert swallows(jobs, "n1", NOON) is expected


def with_log(folder: Path, number: str, node: str, at_s: float = 0.0) -> Job:
    """Return a job that began, with its log."""
    began = job(number, node, at_s=at_s, failed=False, folder=folder)
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / f"{number}.txt").write_text("x")
    return began


def test_launches_that_fail_on_one_node_while_others_begin_elsewhere_are_no_mistake_of_the_owner(tmp_path: Path) -> None:
    fails = [job("1", folder=tmp_path), job("2", folder=tmp_path, at_s=5)]
    begins = with_log(tmp_path, "3", "n2")
    assert starts_elsewhere(fails[0], [*fails, begins]) == (begins,)
    assert not starts_elsewhere(fails[0], [fails[0], begins])  # one alone
    assert not starts_elsewhere(fails[0], fails)  # none began
    assert not starts_elsewhere(fails[0], [*fails, begins, job("4", "n3", folder=tmp_path)])  # one fails elsewhere as well
    assert not starts_elsewhere(fails[0], [*fails, replace(begins, work_dir=tmp_path / "other")])
    assert not starts_elsewhere(fails[0], [*fails, replace(begins, log=tmp_path / "out" / "9.txt")])  # its output is nowhere


def diagnosis(*lines: tuple[str, str], why: str = "") -> Diagnosis:
    """Return a diagnosis of a CUDA error whose root cause are these lines."""
    cited = tuple(Citation(file, 1, text, "rule") for file, text in lines)
    nodes = (NodeFinding("n1", why, cited),)
    return Diagnosis(
        "cuda_error", Category.INFRASTRUCTURE, Action.CORDON_AND_RESTART, 0.9, DecidedBy.RULE, cited, nodes, (), "", ""
    )


LOST = "/data is not mounted on n1, and nothing is wrong with it on n2."
XID = "NVRM: Xid (PCI:0000:8b:00): 79, pid='<unknown>', GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (diagnosis(("dmesg.log", XID)), "XID 79 GPU at 0000:8b:00 (cuda_error)"),
        (diagnosis(("job.log", XID)), "cuda_error"),  # a job may print what it likes
        (diagnosis(("dmesg.log", "NVRM: other")), "cuda_error"),
        (diagnosis(("scheduler", "x"), why=LOST), "/data is not mounted (cuda_error)"),
    ],
)
def test_a_drain_names_what_is_wrong_with_the_node(found: Diagnosis, words: str) -> None:
    assert cause_words(found) == words


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("Submitted job 2 with external jobid '3'.", "3"),
        ("Submitted job 12 with external jobid 'Submitted batch job 345'.", "345"),
        ("Submitted batch job 77", "77"),
        ("    cluster_jobid: 3", "3"),
        ("Job 4 has been submitted with SLURM jobid 991 (log: /x/y.log).", "991"),
        ("[SLURM] submitted process train (1) > jobId: 5120; workDir: /work/ab/cd", "5120"),
        ("    jobid: 2", ""),
        ("step 3 loss 2.1", ""),
    ],
)
def test_a_driver_is_known_by_the_jobs_that_its_log_names(line: str, number: str) -> None:
    assert named_jobs([line]) == (frozenset({number}) if number else frozenset())


def test_a_job_was_submitted_by_another_of_its_owner_that_was_at_work_then() -> None:
    parent = replace(job("1", at_s=-100, failed=False), ended=NOON + timedelta(hours=1))
    child = replace(job("3"), submitted=NOON)
    assert submitted_by(child, parent, frozenset({"3"}))
    assert not submitted_by(child, parent, frozenset())
    assert not submitted_by(replace(child, user="bob"), parent, frozenset({"3"}))
    assert not submitted_by(replace(child, submitted=NOON - timedelta(hours=1)), parent, frozenset({"3"}))
    assert not submitted_by(child, replace(parent, interactive=True), frozenset({"3"}))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python3 -m snakemake --jobs 4 --cluster 'sbatch'", True),
        ("id=$(sbatch --parsable a.sh)\nwhile squeue -j $id; do sleep 60; done", True),
        ("sbatch --wait train.sh || sbatch --wait train.sh", True),
        ("sbatch --dependency=afterany:$SLURM_JOB_ID next.sh\nsrun python train.py", False),
        ("# squeue shows it\nsrun python train.py", False),
    ],
)
def test_only_who_asks_what_becomes_of_jobs_can_start_them_again(script: str, expected: bool) -> None:
    assert watches_over_jobs([script]) is expected


def scripted(script: str) -> Job:
    """Return a job with a script."""
    return replace(job("5", failed=False), state=JobState.FAILED, spec=JobSpec("x", script))


def test_tasks_of_programs_outside_of_slurm_are_known_by_their_script() -> None:
    nextflow = workflow_of(scripted("#!/bin/bash\nnxf_main() {\n  nxf_launch\n}\nnxf_main\n"))
    assert nextflow is not None
    assert nextflow.name == "Nextflow"
    dask = workflow_of(scripted("/env/bin/python -m distributed.cli.dask_worker tcp://10.0.0.1:41 --nthreads 4\n"))
    assert dask is not None
    assert workflow_of(scripted("srun python train.py")) is None


def test_a_job_of_submitit_can_only_come_back_under_its_own_id() -> None:
    assert repeat_problem(scripted("srun --unbuffered /usr/bin/python3 -u -m submitit.core._submit /x/exp\n")) == OF_SUBMITIT
    assert not repeat_problem(scripted("srun python train.py\n"))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("for f in *.x; do\n  [ -e $f.done ] && continue\n  sbatch --wait a.sh $f\ndone", True),
        ("for n in 1 2; do\n  if [ -e $s.done ]; then\n    echo skip\n    continue\n  fi\n  sbatch x\ndone", True),
        ("[ -f out/$n.ok ] || sbatch --wait j.sh", True),
        ("snakemake --jobs 4 --cluster sbatch", True),
        ("snakemake --jobs 4 --forceall", False),
        ("# snakemake\nfor i in 1 2; do sbatch --wait $i; done", False),
        ("for f in $ALL; do\n  [ ! -e $f ] && continue\n  sbatch $f\ndone", False),
        ("if [ -e $f ]; then\n  rm $f\nfi\nfor g in 1; do continue; done", False),
    ],
)
def test_a_driver_goes_on_with_what_is_left_where_its_script_passes_over_the_rest(script: str, expected: bool) -> None:
    assert bool(makes_only_missing(script)) is expected


def test_tasks_of_an_array_are_started_again_by_one_line_that_a_shell_takes_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "folds.slurm").write_text("srun x\n")
    spec = JobSpec("x", "srun x\n", arguments=("a b; rm -rf ~",))
    tasks = [replace(job(f"7_{number}", folder=tmp_path), spec=spec) for number in (5, 2)]
    line = task_line(tasks, ["n3"])
    assert line == f"cd {tmp_path} && sbatch --array=2,5 --exclude=n3 folds.slurm 'a b; rm -rf ~'"
    assert not task_line([*tasks, job("8_1", folder=tmp_path)])
