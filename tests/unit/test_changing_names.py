"""Scripts of which each start names its run anew: by the time, by chance, by the host; and what keeps a restart in the old run."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.inventory import last_healthy
from assistant.recover.checkpoints.search import CheckpointSearch, folder_moves, search_checkpoints
from assistant.recover.job_program import programs_now
from assistant.recover.restart import plan_restart
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.pinned_folder import date_pattern, filled_usage, named_at_start
from assistant.recover.resume.plan import ResumePlan, resume_plan
from assistant.recover.resume.script import program_way, resume_way
from assistant.recover.resume.variable import variable_problem
from assistant.recover.trial.trial import TrialWay, trials_of

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=1)
TRAIN = """import argparse, os
import lightning as L
p = argparse.ArgumentParser()
p.add_argument("--out")
a = p.parse_args()
last = os.path.join(a.out, "last.ckpt")
tr = L.Trainer(max_epochs=10, dirpath=a.out)
tr.fit(ckpt_path=last if os.path.exists(last) else None)
"""
SELF_NAMED = TRAIN.replace('p.add_argument("--out")\n', "").replace(
    "a = p.parse_args()\n", 'a = p.parse_args()\nimport time\na.out = "runs/" + NAME_OF_RUN\n'
)
OLD = "gpt-20260310-120003"


def looked_at(
    folder: Path,
    script: str,
    saved_in: str = f"runs/{OLD}",
    *,
    program: str = TRAIN,
    arguments: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> tuple[Job, CheckpointSearch, ResumeWay]:
    """Return a job that saved into a folder, what was found of it, and how it goes on."""
    (folder / "train.py").write_text(program)
    saved = folder / saved_in / "epoch=0-step=20.ckpt"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(b"\x80" + bytes(9000))
    os.utime(saved, (ENDED.timestamp() - 5,) * 2)
    spec = JobSpec("unet", f"#!/bin/bash\n{script}", work_dir=folder, environment=environment or {}, arguments=arguments)
    job = Job("7", "unet", "", JobState.TIMEOUT, "", ("gpu1",), None, folder, BEGAN, BEGAN, ENDED, 1, None, spec=spec)
    said = f"Epoch 0, global step 20: saving model to '{saved}' as top 1"
    search = search_checkpoints(job, {}, [said], now=ENDED)
    return job, search, resume_way(job, programs_now(job, search.programs), saved=search.inventory)


def planned(job: Job, search: CheckpointSearch, way: ResumeWay) -> tuple[Checkpoint, ResumePlan]:
    """Return the checkpoint that a restart would choose, and what it needs first."""
    assert search.inventory is not None, search.note
    chosen = last_healthy(search.inventory, now=ENDED, live=False).checkpoint
    assert chosen is not None
    return chosen, resume_plan(way, search.inventory, chosen, moves=folder_moves(job, search))


START = 'srun python3 train.py --out "runs/$RUN"'
FORMS = [
    (f"RUN=${{RUN:-gpt-$(date +%Y%m%d-%H%M%S)}}\n{START}", f"runs/{OLD}", f"RUN={OLD}"),
    (f': "${{RUN:=gpt-`date +%Y%m%d-%H%M%S`}}"\n{START}', f"runs/{OLD}", f"RUN={OLD}"),
    (f'if [ -z "$RUN" ]; then\n  RUN=gpt-$(date "+%Y%m%d-%H%M%S")\nfi\n{START}', f"runs/{OLD}", f"RUN={OLD}"),
    (f'[[ -n "${{RUN:-}}" ]] || RUN="gpt-$(date +%s)"\n{START}', "runs/gpt-1773144003", "RUN=gpt-1773144003"),
    (f"STAMP=${{STAMP:-$(date +%F_%H-%M)}}\nRUN=gpt_$STAMP\n{START}", "runs/gpt_2026-03-10_12-00", "STAMP=2026-03-10_12-00"),
    (f"RUN=${{RUN:-exp$RANDOM}}\n{START}", "runs/exp20711", "RUN=exp20711"),
    (f"RUN=${{RUN:-$(uuidgen)}}\n{START}", "runs/0e1f-77aa", "RUN=0e1f-77aa"),
    (f"RUN=${{RUN:-$(hostname -s)-a}}\n{START}", "runs/gpu1-a", "RUN=gpu1-a"),
    (f"RUN=${{RUN-p$$}}\n{START}", "runs/p4711", "RUN=p4711"),
    (f"RUN=${{RUN:-$(date +%Y%m%d)_$SLURM_JOB_ID}}\n{START}", "runs/20260310_7", "RUN=20260310_7"),
    ('OUT=${OUT:-$PWD/runs/$(date | md5sum | cut -c1-6)}\nsrun python3 train.py --out "$OUT"', "runs/a1b2c3",
      "OUT={folder}/runs/a1b2c3"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "saved_in", "variable"), FORMS)
def test_the_variable_with_a_default_is_given_the_name_of_the_old_run(
    script: str, saved_in: str, variable: str, tmp_path: Path
) -> None:
    job, search, way = looked_at(tmp_path, script, saved_in)
    variable = variable.replace("{folder}", str(tmp_path))
    assert folder_moves(job, search)
    assert (way.means, way.variable, way.pins) == (ResumeMeans.NEWEST, variable, True)
    assert trials_of(way) == (TrialWay(variable),), "it is tried in the sandbox before, and so it is submitted"
    chosen, plan = planned(job, search, way)
    assert plan.ready
    assert variable_problem(job, way, chosen, program_way) == ""
    assert job.spec is not None
    restart = plan_restart(job, job.spec, chosen, attempt=1, tag="nightshift:s:1:1", variable=way.variable)
    name, _, value = variable.partition("=")
    assert restart.environment[name] == value


def test_an_argument_with_a_default_is_given_the_name_of_the_old_run(tmp_path: Path) -> None:
    script = 'srun python3 train.py --out "runs/${1:-gpt-$(date +%Y%m%d-%H%M%S)}"'
    job, search, way = looked_at(tmp_path, script)
    assert (way.means, way.arguments, way.pins) == (ResumeMeans.NEWEST, (OLD,), True)
    assert trials_of(way) == (TrialWay(arguments=(OLD,)),)
    assert planned(job, search, way)[1].ready


@pytest.mark.parametrize(
    "script",
    [
        'RUN=gpt-$(date +%Y%m%d-%H%M%S)\nsrun python3 train.py --out "runs/$RUN"',  # nothing gives it
        'RUN=${RUN:-gpt}-$(date +%Y%m%d-%H%M%S)\nsrun python3 train.py --out "runs/$RUN"',  # a part of it only
        'SLURM_RUN=${SLURM_RUN:-gpt-$(date +%Y%m%d-%H%M%S)}\nsrun python3 train.py --out "runs/$SLURM_RUN"',  # not ours to set
    ],
)
def test_where_nothing_gives_the_name_the_documented_line_is_told_with_it(script: str, tmp_path: Path) -> None:
    head = "# go on with an old run:  sbatch --export=ALL,WHICH=<old run> resume.sh\n"
    job, search, way = looked_at(tmp_path, head + script)
    assert (way.variable, way.arguments, way.pins) == ("", None, False)
    _, plan = planned(job, search, way)
    assert f"{OLD} in the path of {tmp_path}/runs/{OLD} is a name that each start makes anew" in plan.refusal
    assert f"sbatch --export=ALL,WHICH={OLD} resume.sh" in plan.refusal
    assert "nothing that can be set for another start gives it the old name" in plan.refusal


def test_a_name_that_a_shell_would_change_is_not_set_and_that_is_told(tmp_path: Path) -> None:
    script = 'RUN=${RUN:-"big run; $(date +%Y%m%d)"}\nsrun python3 train.py --out "runs/$RUN"'
    job, search, way = looked_at(tmp_path, script, "runs/big run; 20260310")
    assert (way.variable, way.pins) == ("", False)
    _, plan = planned(job, search, way)
    assert "holds characters that a shell would change" in plan.refusal


@pytest.mark.parametrize(
    ("script", "saved_in", "environment"),
    [
        (FORMS[0][0], f"runs/{OLD}", {"RUN": OLD}),  # its owner has named the run
        ('srun python3 train.py --out "runs/$SLURM_JOB_NAME"', "runs/unet", {}),
        ('LOG=log-$(date +%s).txt\nsrun --output=$LOG python3 train.py --out "runs/unet"', "runs/unet", {}),
        ("srun torchrun --rdzv_id=$RANDOM --master_addr=$(hostname) train.py --out runs/711", "runs/711", {}),
        ("RUN=$(cat name.txt)\n" + START, f"runs/{OLD}", {}),
    ],
)
def test_a_name_that_is_the_same_at_each_start_is_left_alone(
    script: str, saved_in: str, environment: dict[str, str], tmp_path: Path
) -> None:
    job, search, way = looked_at(tmp_path, script, saved_in, environment=environment)
    assert folder_moves(job, search) == ""
    assert (way.variable, way.pins) == ("", False)


def test_of_two_old_runs_that_of_the_job_is_named(tmp_path: Path) -> None:
    other = tmp_path / "runs/gpt-20260309-090000/epoch=0-step=90.ckpt"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"\x80" + bytes(9000))
    os.utime(other, (BEGAN.timestamp() - 90_000,) * 2)
    _, _, way = looked_at(tmp_path, FORMS[0][0])
    assert way.variable == f"RUN={OLD}"


def test_two_logs_that_are_named_anew_do_not_matter(tmp_path: Path) -> None:
    script = f"RUN=${{RUN:-gpt-$(date +%Y%m%d-%H%M%S)}}\n{START} --log logs/$(date +%s).log"
    assert looked_at(tmp_path, script)[2].variable == f"RUN={OLD}"


def test_a_name_that_a_program_takes_from_its_environment_or_makes_is_for_a_trial_start_to_prove(tmp_path: Path) -> None:
    name = 'os.environ.get("RUN_NAME", time.strftime("gpt-%Y%m%d-%H%M%S"))'
    program = SELF_NAMED.replace("NAME_OF_RUN", name)
    job, search, way = looked_at(tmp_path, "srun python3 train.py", program=program)
    assert way.means is ResumeMeans.UNKNOWN
    assert trials_of(way)[:2] == (TrialWay(), TrialWay(f"RUN_NAME={OLD}"))
    chosen, plan = planned(job, search, way)
    assert f"RUN_NAME={OLD} in the environment of its submission" in plan.refusal
    proven = trials_of(way)[1].way("tried in a sandbox")
    assert resume_plan(proven, search.inventory, chosen, moves=folder_moves(job, search)).ready


def test_a_name_that_a_program_makes_and_nothing_gives_is_no_way_to_go_on(tmp_path: Path) -> None:
    program = SELF_NAMED.replace("NAME_OF_RUN", 'time.strftime("gpt-%Y%m%d-%H%M%S")')
    job, search, way = looked_at(tmp_path, "srun python3 train.py", program=program)
    assert way.means is ResumeMeans.UNKNOWN
    assert f"{OLD} in the path of" in planned(job, search, way)[1].refusal


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/w/runs/gpt-20260310-120003/ckpt", "gpt-20260310-120003"),
        ("/w/outputs/2026-03-10/12-00-03", "2026-03-10/12-00-03"),
        ("/w/runs/1773144003", "1773144003"),
        ("/w/runs/gpt-20260309-120003", ""),  # of the day before: another start made it
        ("/w/runs/gpt-20260310-115003", ""),
        ("/w/data20260310", ""),
        ("/w/runs/99999999999999", ""),
    ],
)
def test_a_time_in_a_path_counts_where_it_is_that_of_the_start(folder: str, expected: str) -> None:
    job = Job("7", "a", "", JobState.FAILED, "", (), None, None, BEGAN, BEGAN, ENDED, 1, None, spec=JobSpec("a", "#!/bin/bash\n"))
    assert named_at_start(job, (), Path(folder)) == expected


def test_formats_of_dates_and_documented_places() -> None:
    assert date_pattern("%Y.%m-%d") == r"\d{4}\.\d\d\-\d\d"
    assert filled_usage("RUN_NAME=<old run> sbatch x.sh", OLD) == f"RUN_NAME={OLD} sbatch x.sh"
    assert filled_usage("RUN=OLD sbatch x.sh", OLD) == f"RUN={OLD} sbatch x.sh"
    assert filled_usage("sbatch x.sh <a> <b>", OLD) == f"sbatch x.sh <a> <b> (the old run is {OLD})"
