"""Which job goes on with the run of another one: chains, edited scripts, sweeps; and what a batch script in Python starts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import programs_of
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from assistant.recover.runs import (
    SaveFolders,
    is_of_run,
    jobs_beside,
    save_into_one_folder,
    successor_of,
    waits_for_another,
    writer_beside,
)
from assistant.schedulers.slurm_spec import without_lost_nodes

START = datetime(2026, 3, 10, tzinfo=UTC)
TRAINER = """import argparse, glob, json, os
p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
args = p.parse_args()
old = sorted(glob.glob(args.out + "/step_*"))
state = json.load(open(old[-1] + "/state.json")) if old else {"step": 0}
def save(step):
    os.makedirs(f"{args.out}/step_{step}")
    json.dump({"step": step}, open(f"{args.out}/step_{step}/state.json", "w"))
"""


class Queue:
    """A scheduler that knows some jobs."""

    def __init__(self, *jobs: Job) -> None:
        self.listed = list(jobs)

    def user_jobs(self, user: str) -> list[Job]:
        return [job for job in self.listed if job.user == user]

    def jobs(self) -> list[Job]:
        return self.listed

    def job(self, job_id: str) -> Job:
        for job in self.listed:
            if job.id == job_id:
                return job
        raise ToolError(f"job {job_id} is unknown")


def job(folder: Path, number: int, name: str, line: str, *, state: JobState = JobState.FAILED, **more: object) -> Job:
    (folder / "train.py").write_text(TRAINER)
    log = folder / f"slurm-{number}.out"
    spec = JobSpec(name, f"#!/bin/bash\n#SBATCH -J {name}\n{line}\n", user="ada", work_dir=folder)
    begun = START + timedelta(minutes=number)
    made = Job(
        str(number), name, "ada", state, "train", ("n1",), log, folder, begun, begun, None, None, None, spec=spec,
    )  # fmt: skip
    return replace(made, **{"ended": begun + timedelta(minutes=5) if state.ended else None, **more})  # type: ignore[arg-type]


def saved(one: Job, folder: str) -> Job:
    assert one.log is not None
    one.log.write_text(f"step 5 | loss 2.1\nsaved checkpoint to {folder}/step_5\n")
    return one


CHAIN = "srun -u python3 train.py --out $SLURM_SUBMIT_DIR/ckpt"


def test_the_next_link_of_a_chain_is_of_the_run_whatever_its_name(tmp_path: Path) -> None:
    failed = saved(job(tmp_path, 1, "t5:1", CHAIN), f"{tmp_path}/ckpt")
    running = job(tmp_path, 2, "t5:2", CHAIN, state=JobState.RUNNING, submitted=START, started=START + timedelta(minutes=7))
    last = job(
        tmp_path, 3, "t5:3", CHAIN, state=JobState.PENDING, started=None, reason="Dependency", dependency="afterany:2(unfulfilled)"
    )
    assert [one.id for one in successor_of(Queue(failed, running, last), {}, failed)] == ["2"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dependency", "later"),
    [
        ("afternotok:1(unfulfilled)", False),  # its turn has come, and the scheduler has not noticed yet
        ("afterany:1(unfulfilled)", False),
        ("afterburstbuffer:1(unfulfilled)", False),
        ("after:1+60(unfulfilled)", False),  # it begins by the clock, whatever becomes of the other
        ("afternotok:12(unfulfilled)", True),
        ("afterok:1(failed)", True),
        ("afterok:1(unfulfilled),afterany:20(unfulfilled)", True),
        ("afterok:2(unfulfilled)", True),
        ("singleton(unfulfilled)", False),
        ("singleton(unfulfilled),afterok:1(failed)", True),  # it never begins as it is
        ("afterok:1(failed)?afternotok:1(unfulfilled)", False),
        ("afterok:1(failed)?afterok:20(unfulfilled)", False),  # it begins when the data are there
        ("afterany:20(unfulfilled)", False),
        ("afterok:20(unfulfilled),afterany:1(unfulfilled)", False),
        ("afterok:22(unfulfilled),afterany:1(unfulfilled)", True),  # the data could not be prepared: it never begins
        ("afterok:23(unfulfilled)", False),
        ("afterany:21(unfulfilled)", True),  # behind another link of the chain
        ("afterok:21(unfulfilled),singleton(unfulfilled)", True),
        ("afterany:1_*(unfulfilled)", True),
    ],
)
def test_a_link_that_waits_for_another_job_has_no_turn_yet(dependency: str, later: bool, tmp_path: Path) -> None:
    failed = job(tmp_path, 1, "run", CHAIN)
    link = job(tmp_path, 30, "run", CHAIN, dependency=dependency, state=JobState.PENDING, reason="Dependency", started=None)
    data = job(tmp_path, 20, "data", "srun tokenize", state=JobState.RUNNING)
    next_link = job(
        tmp_path, 21, "next", CHAIN, dependency="afterok:1(failed)", state=JobState.PENDING, reason="Dependency", started=None
    )
    lost = job(tmp_path, 22, "lost", "srun tokenize", state=JobState.CANCELLED)
    queued = job(
        tmp_path,
        23,
        "queued",
        "srun tokenize",
        dependency="afterok:20(unfulfilled)",
        state=JobState.PENDING,
        reason="Dependency",
        started=None,
    )
    queue = Queue(failed, data, next_link, lost, queued, link)
    assert waits_for_another(queue, {}, failed, link) is later  # type: ignore[arg-type]
    assert [one.id for one in successor_of(queue, {}, failed)] == ([] if later else ["30"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "state", "later"),
    [("run", JobState.RUNNING, True), ("other", JobState.RUNNING, False), ("run", JobState.FAILED, False)],
)
def test_a_singleton_has_its_turn_when_no_other_of_its_name_is_there(
    name: str, state: JobState, later: bool, tmp_path: Path
) -> None:
    failed = job(tmp_path, 1, "run", CHAIN)
    link = job(
        tmp_path, 30, "run", CHAIN, state=JobState.PENDING, reason="Dependency", dependency="singleton(unfulfilled)", started=None
    )
    between = job(tmp_path, 2, name, CHAIN, state=state, submitted=START, started=START)
    assert waits_for_another(Queue(failed, between, link), {}, failed, link) is later  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "log", "same"),
    [
        ("srun python3 train.py --lr 1e-4 --out {top}/ckpt", "", True),  # the edited script of the owner, before it has saved
        ("srun python3 train.py --lr 1e-4 --out {top}/ckpt", "{top}/ckpt", True),
        ("srun python3 train.py --lr 1e-4 --out {top}/other", "", False),
        ("srun python3 train.py --lr 1e-4 --out {top}/ckpt", "{top}/elsewhere", False),  # its log says better
        ("srun python3 eval.py --out {top}/ckpt", "", False),  # an evaluation that reads there is no second trainer
        ("srun python3 train.py --lr 1e-4 --out {top}", "", False),  # the folder above, as in a sweep
    ],
)
def test_another_script_is_of_the_run_by_the_folder_that_it_saves_into(line: str, log: str, same: bool, tmp_path: Path) -> None:
    failed = saved(job(tmp_path, 1, "exp", f"srun python3 train.py --out {tmp_path}/ckpt"), f"{tmp_path}/ckpt")
    other = job(tmp_path, 2, "exp-lowlr", line.format(top=tmp_path), state=JobState.RUNNING)
    if log:
        saved(other, log.format(top=tmp_path))
    assert save_into_one_folder(SaveFolders(failed, {}), SaveFolders(other, {})) is same
    assert save_into_one_folder(SaveFolders(other, {}), SaveFolders(failed, {})) is same


WORKER = 'srun python3 worker.py --config "$CONFIG" --restore_step "$RESTORE"'


@pytest.mark.parametrize(
    ("line", "loads", "user", "same"),
    [
        (WORKER, "{top}/run/checkpoints/ckpt_00000060.npz", "ada", True),
        (WORKER, "run/checkpoints/ckpt_00000060.npz", "ada", True),
        (WORKER, "{top}/base/checkpoints/ckpt_00000060.npz", "ada", False),  # another run of the same driver
        (WORKER, "", "ada", False),
        (WORKER, "{top}/run/checkpoints/ckpt_00000060.npz", "eve", False),  # a foreign job is never its successor
        (f"{WORKER} --out {{top}}/tuned", "{top}/run/checkpoints/ckpt_00000060.npz", "ada", False),
    ],
)
def test_the_same_script_that_has_loaded_a_checkpoint_of_the_run_goes_on_with_it(
    line: str, loads: str, user: str, same: bool, tmp_path: Path
) -> None:
    first = line.replace("{top}", str(tmp_path)) if "--out" in line else WORKER
    failed = saved(job(tmp_path, 1, "gpt.a1", first), f"{tmp_path}/run/checkpoints")
    other = job(tmp_path, 9, "gpt.a2", line.replace("{top}", str(tmp_path)), state=JobState.RUNNING, user=user)
    other = replace(other, spec=replace(other.spec, script=other.spec.script.replace("gpt.a2", "gpt.a1")))  # type: ignore[type-var,union-attr]
    if loads and other.log is not None:
        path = loads.replace("{top}", str(tmp_path))
        other.log.write_text(f"I1127 12:38:20.4 137 checkpointer.cc:188] Restored {path} at step 60\n")
    assert save_into_one_folder(SaveFolders(failed, {}), SaveFolders(other, {})) is same
    queue = Queue(failed, other)
    assert [one.id for one in successor_of(queue, {}, failed)] == (["9"] if same else [])  # type: ignore[arg-type]


def test_a_later_job_counts_when_it_has_ended_and_not_when_it_never_began(tmp_path: Path) -> None:
    failed = job(tmp_path, 1, "exp", CHAIN)
    done = job(tmp_path, 12, "exp", CHAIN, state=JobState.COMPLETED)
    never = job(tmp_path, 13, "exp", CHAIN, state=JobState.CANCELLED, started=None)
    held = job(tmp_path, 14, "exp", CHAIN, state=JobState.PENDING, started=None, reason="JobHeldUser")
    assert [one.id for one in successor_of(Queue(failed, done, never, held), {}, failed)] == ["12"]  # type: ignore[arg-type]


COLLEAGUE = "srun python3 train.py --lr 1e-4 --out {top}/ckpt"


@pytest.mark.parametrize(
    ("line", "log", "mode", "user", "goes_on", "of_run"),
    [
        (COLLEAGUE, "", 0o2775, "bob", True, True),  # his first save is still to come
        (COLLEAGUE, "{top}/ckpt", 0o2775, "bob", True, True),
        (COLLEAGUE, "{top}/elsewhere", 0o2775, "bob", False, False),
        (COLLEAGUE, "", 0o755, "nobody", False, False),  # he cannot write there
        ("srun python3 train.py --out {top}/other --load {top}/ckpt", "", 0o2775, "bob", False, False),
        ("srun python3 {top}/renamed.py --out {top}/ckpt", "", 0o2775, "bob", False, True),
        ("srun python3 train.py --out {top}/link", "", 0o2775, "bob", True, True),
        ("srun python3 train.py --out {top}/runs/b", "", 0o2775, "bob", False, False),
    ],
)
def test_a_colleague_goes_on_with_a_run_where_he_is_known_to_save_into_its_folder(
    line: str, log: str, mode: int, user: str, goes_on: bool, of_run: bool, tmp_path: Path
) -> None:
    failed = saved(job(tmp_path, 1, "exp", f"srun python3 train.py --out {tmp_path}/ckpt"), f"{tmp_path}/ckpt")
    failed = replace(failed, user="root")
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt").chmod(mode)
    (tmp_path / "link").symlink_to("ckpt")
    (tmp_path / "renamed.py").write_text(TRAINER)
    other = job(tmp_path, 7, "exp-bob", line.format(top=tmp_path), state=JobState.RUNNING, user=user)
    if log:
        saved(other, log.format(top=tmp_path))
    queue = Queue(failed, other)
    assert [one.id for one in successor_of(queue, {}, failed)] == ["7"] * goes_on  # type: ignore[arg-type]
    own = SaveFolders(failed, {})
    alive = [one for one in jobs_beside(queue, own) if one.id != "1" and is_of_run(queue, {}, failed, one)]  # type: ignore[arg-type]
    assert [one.id for one in alive] == ["7"] * of_run


def test_a_colleague_who_waits_or_runs_the_same_by_name_keeps_a_restart_back_and_settles_nothing(tmp_path: Path) -> None:
    failed = job(tmp_path, 1, "exp", CHAIN)  # neither says where it saves
    same = job(tmp_path, 7, "exp", CHAIN, state=JobState.RUNNING, user="bob")
    waits = job(tmp_path, 8, "exp", CHAIN, state=JobState.PENDING, user="bob", started=None)
    queue = Queue(failed, same, waits)
    assert not [*successor_of(queue, {}, failed)]  # type: ignore[arg-type]
    assert [is_of_run(queue, {}, failed, one) for one in (same, waits)] == [True, True]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "ended", "beside"),
    [(7, None, True), (2, 8, True), (2, 5, False), (20, None, False)],
    ids=["beside", "ended_meanwhile", "ended_before", "begun_after"],
)
def test_who_saves_into_the_folder_at_the_same_time_is_a_second_writer(
    begun: int, ended: int | None, beside: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(0o2775)
    restart = saved(job(tmp_path, 6, "exp", CHAIN, state=JobState.COMPLETED), f"{tmp_path}/ckpt")
    over = START + timedelta(minutes=ended) if ended is not None else None
    state = JobState.COMPLETED if ended is not None else JobState.RUNNING
    other = job(tmp_path, 7, "bobs", CHAIN, state=state, user="bob", started=START + timedelta(minutes=begun), ended=over)
    queue = Queue(restart, saved(other, f"{tmp_path}/ckpt"))
    found = writer_beside(queue, {}, restart, now=START + timedelta(hours=1))  # type: ignore[arg-type]
    assert (found is not None) is beside


@pytest.mark.parametrize(
    ("line", "exclude", "kept"),
    [
        ("#SBATCH --nodelist=gpu003 --nice=50\n", ("gpu003",), "#SBATCH --nice=50\n"),
        ("#SBATCH -t 10 -w gpu[001-003]\n", ("gpu002",), "#SBATCH -t 10 \n"),
        ("#SBATCH --nodelist gpu003\n", ("gpu003",), "#SBATCH \n"),
        ("#SBATCH --nodelist=gpu003\n", ("gpu004",), "#SBATCH --nodelist=gpu003\n"),
        ("srun --nodelist=gpu003 x\n", ("gpu003",), "srun --nodelist=gpu003 x\n"),
        ("#SBATCH --nodelist=gpu003\n", (), "#SBATCH --nodelist=gpu003\n"),
    ],
)
def test_a_script_does_not_want_the_node_that_it_is_to_stay_away_from(line: str, exclude: tuple[str, ...], kept: str) -> None:
    assert without_lost_nodes(f"#!/bin/bash\n{line}", exclude) == f"#!/bin/bash\n{kept}"


def test_a_batch_script_in_python_is_the_program_itself(tmp_path: Path) -> None:
    one = job(tmp_path, 1, "py", "")
    assert one.spec is not None
    trains = replace(one, spec=replace(one.spec, script=f"#!/usr/bin/env python3\n#SBATCH -J py\n{TRAINER}"))
    (program,) = programs_of(trains)
    assert program.source is not None
    assert resume_way(trains, [program]).means is ResumeMeans.NEWEST
    assert SaveFolders(trains, {}).named == {tmp_path / "ckpt"}


def test_a_program_that_starts_others_is_no_proof_that_nothing_was_saved(tmp_path: Path) -> None:
    one = job(tmp_path, 1, "py", "")
    assert one.spec is not None
    script = '#!/usr/bin/env python3\nimport subprocess\nsubprocess.call(["srun", "python3", "train.py"])\n'
    starts = replace(one, spec=replace(one.spec, script=script))
    assert search_checkpoints(starts, {}, [], now=START).state is SaveState.UNKNOWN
    assert resume_way(starts, programs_of(starts)).means is ResumeMeans.UNKNOWN


@pytest.mark.parametrize(
    ("line", "submitted", "goes_on"),
    [
        ("python3 som.py --state state/som.mar --recover", "sbatch --parsable --dependency=afternotok:1 rescue.sbatch", True),
        ("python3 som.py --state state/som.mar --recover", "sbatch -d afternotok:7:1 rescue.sbatch", True),
        ("python3 som.py --state state/som.mar --recover", "sbatch --dependency=afternotok:11 rescue.sbatch", False),
        ("python3 som.py --state state/som.mar --recover", "sbatch --dependency=afterok:1 rescue.sbatch", False),
        ("mail -s failed ada", "sbatch --dependency=afternotok:1 tell.sbatch", False),
    ],
    ids=["a rescue", "one of several", "of another job", "after a good end", "it only tells"],
)
def test_a_job_that_begins_because_another_failed_goes_on_with_its_run(
    line: str, submitted: str, goes_on: bool, tmp_path: Path
) -> None:
    (tmp_path / "som.py").write_text("import sys\nopen(sys.argv[2], 'w').write('round 5')\n")
    failed = job(tmp_path, 1, "som", "python3 som.py --state state/som.mar")
    rescue = job(
        tmp_path,
        2,
        "again",
        line,
        state=JobState.RUNNING,
        submitted=START,
        started=START + timedelta(minutes=7),
        submit_line=submitted,
    )
    assert [after.id for after in successor_of(Queue(failed, rescue), {}, failed)] == (["2"] if goes_on else [])  # type: ignore[arg-type]
