"""Scripts with several programs: what a shell would run of them, which stage failed, and what a restart would do to the others."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Action, Category, DecidedBy, Diagnosis, Job, JobSpec, JobState, JobStep
from assistant.recover.batch_script import launches_of
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints
from assistant.recover.job_program import programs_now, programs_of
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.script import resume_way
from assistant.recover.start_costs import cost_of_beginning, without_checkpoint

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
START = NOW - timedelta(hours=1)
LISTED = """import argparse, glob, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
args = parser.parse_args()
found = sorted(glob.glob(args.output_dir + "/step_*.pt"))
if found:
    state = torch.load(found[-1])
torch.save({}, args.output_dir + "/step_20.pt")
"""
FRESH = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
args = parser.parse_args()
torch.save({}, args.output_dir + "/step_20.pt")
"""


@pytest.mark.parametrize(
    ("script", "there", "runs"),
    [
        ("[ -f a/done ] || python a.py\npython b.py", {"a/done"}, ["b.py"]),
        ("[ -f a/done ] || python a.py\npython b.py", set(), ["a.py", "b.py"]),
        ("[ -f a/done ] || { python a.py; touch a/done; }\npython b.py", {"a/done"}, ["b.py"]),
        ("[[ -e a/done ]] ||\n  (cd x && python a.py)\npython b.py", {"a/done"}, ["b.py"]),
        ("! [ -f a/done ] && python a.py | tee log\npython b.py", {"a/done"}, ["b.py"]),
        ("test -f a/done && echo over || python a.py\npython b.py", set(), ["a.py", "b.py"]),
        ("run() { python $1.py; }\nif [ ! -f a/done ]; then run a; fi\nrun b", {"a/done"}, ["b.py"]),
        ("for s in a b; do [ -f $s/done ] && continue; python $s.py; done", {"a/done"}, ["b.py"]),
        ("for s in a b; do python $s.py; done", set(), ["a.py", "b.py"]),
        ("for s in $(ls); do python $s.py; done", set(), ["\ufffc.py"]),
        ("declare -a S=(a b)\nfor s in ${S[@]}; do python $s.py; done", set(), ["a.py", "b.py"]),
        ("if [ -f a/done ]; then exit 0; fi\npython a.py", {"a/done"}, []),
        ("python a.py\nexit $?\npython b.py", set(), ["a.py"]),
        ("(exit 1)\npython a.py", set(), ["a.py"]),
        ("clean() { rm -rf a; }\ntrap clean EXIT\nnever() { python never.py; }\npython a.py", set(), ["a.py"]),
        ("f() { f; python a.py; }\nf", set(), ["a.py"] * 16),
        ('work() {\n  # don\'t\n  python a.py --out "${OUT:-x}"\n}\nwork', set(), ["a.py"]),
        ("while true; do python a.py && break; sleep 5; done\npython b.py", set(), ["a.py", "b.py"]),
        ("while true; do [ -f w ] || { touch w; continue; }; python a.py; done", set(), ["a.py"]),
        ('n=0\nwhile :; do [ "$n" = 0 ] && { n=1; continue; }; python a.py; done', set(), ["a.py"]),
        ("grep -q x log || [ -f none ] && python a.py", set(), ["a.py"]),
        ("grep -q x log && [ -f a ] || exit 0\npython a.py", {"a"}, ["a.py"]),
        ("[ -f a ] && [ -f b ] || exit 0\npython a.py", {"a"}, []),
        ("if [ -f a ] ||\n  [ -f b ]; then python a.py; else python b.py; fi", {"b"}, ["a.py"]),
        ("[ -f a ] && { echo over; exit 0; }\npython a.py", {"a"}, []),
        ("{ python a.py; exit 0; } 2>&1 | tee log\npython b.py", set(), ["a.py", "b.py"]),
        ("{ python a.py; exit 0; } &\npython b.py\nwait", set(), ["a.py", "b.py"]),
        ("for s in a b; do python $s.py; exit 1; done | tee log\npython c.py", set(), ["a.py", "b.py", "c.py"]),
        ("run() { python a.py; exit 1; }\nrun | tee log\npython b.py", set(), ["a.py", "b.py"]),
        ("cat list | while read x; do python a.py; exit 1; done\npython b.py", set(), ["a.py", "b.py"]),
        ("for s in a b; do\n[ -f $s ] && continue\n{ python $s.py; touch $s; } | tee log\ndone", {"a"}, ["b.py"]),
    ],
)
def test_a_script_is_read_as_a_shell_would_run_it_now(script: str, there: set[str], runs: list[str]) -> None:
    launches = launches_of(script, environment={}, work_dir="/w", exists=lambda _, path: path.removeprefix("/w/") in there)
    assert [one.program for one in launches if one.program] == runs


@pytest.mark.parametrize(
    ("script", "there", "arguments"),
    [
        ("mkdir -p x && cd x\nOUT=ck\npython a.py $OUT", set(), ["ck"]),
        ("CK=0\n[ -f a ] && CK=a || CK=b\npython a.py $CK", {"a"}, ["a"]),
        ("CK=0\n[ -f a ] && CK=a || CK=b\npython a.py $CK", set(), ["b"]),
        ("CK=0\n[ -n $UNSET ] && CK=a || CK=b\npython a.py $CK", set(), ["\ufffc"]),
        ("CK=0\n[ -f a ] && { CK=a; K=1; }\npython a.py $CK $K", {"a"}, ["a", "1"]),
        ("for x in a b; do [ -f $x ] && continue; OUT=$x; done\npython a.py $OUT", {"b"}, ["a"]),
        ('A=(--x 1)\n[ -f r ] && A+=(--resume r)\npython a.py "${A[@]}"', {"r"}, ["--x", "1", "--resume", "r"]),
        ('export V="a b"\nexport W=$V\npython a.py "$W"', set(), ["a b"]),
        ('run() { python a.py "$@"; }\nCK=\nrun --resume $CK', set(), ["--resume"]),
    ],
)
def test_what_lists_and_groups_assign_is_known_where_a_run_surely_comes_to_it(
    script: str, there: set[str], arguments: list[str]
) -> None:
    launches = launches_of(script, environment={}, work_dir="/w", exists=lambda _, path: path.removeprefix("/w/") in there)
    assert [list(one.arguments) for one in launches if one.program] == [arguments]


def test_an_option_that_a_function_hands_on_without_its_value_is_noted() -> None:
    [launch] = launches_of('run() { python a.py "$@"; }\nCK=\nrun --resume $CK', environment={}, work_dir="/w")
    assert launch.emptied == {"--resume"}


@pytest.mark.parametrize("endless", ["f() { f; f; f; }\nf", "for i in 1 2 3 4 5 6 7 8 9; do " * 9 + "X=1; " + "done; " * 9])
def test_calls_and_loops_that_multiply_are_not_read_to_their_end(endless: str) -> None:
    launches = launches_of(f"python a.py\n{endless}\npython b.py", environment={}, work_dir="/w")
    assert [one.program for one in launches if one.program][:1] == ["a.py"]


def test_a_subshell_leaves_the_folder_as_it_was() -> None:
    launches = launches_of("(cd sub && python a.py)\npython b.py\n", environment={}, work_dir="/w")
    assert [(one.program, one.folder) for one in launches if one.program] == [("a.py", "/w/sub"), ("b.py", "/w")]


@pytest.mark.parametrize(
    ("script", "guarded"),
    [
        ("[ -f a/done ] || python a.py", True),
        ("if [ ! -d a ]; then python a.py; fi", True),
        ("for s in a b; do [ -f $s/done ] && continue; python $s.py; done", True),
        ("mkdir -p out && python a.py", False),
        ("if nvidia-smi; then python a.py; fi", False),
    ],
)
def test_what_a_test_of_files_decides_is_known_without_its_answer(script: str, guarded: bool) -> None:
    launches = launches_of(script, environment={}, work_dir="/w")
    assert {one.guarded for one in launches if one.program} == {guarded}


def checkpoint(folder: Path, step: int, at: datetime) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step}.pt"
    path.write_bytes(b"\x80" + bytes(9000))
    os.utime(path, (at.timestamp(),) * 2)


def pipeline(folder: Path, script: str, *, sft: str = FRESH, dpo: str = LISTED) -> Job:
    for name, text in (("sft", sft), ("dpo", dpo), ("eval", "import json\nprint(json.load(open('dpo.json')))\n")):
        (folder / f"{name}.py").write_text(text)
    spec = JobSpec("run", f"#!/bin/bash\n{script}\n", work_dir=folder)
    return Job(
        "7", "run", "", JobState.FAILED, "", (), None, folder,
        submitted=START, started=START, ended=NOW, exit_code=1, signal=None, spec=spec,
    )  # fmt: skip


def judged(job: Job, *log: str) -> tuple[CheckpointSearch, ResumeWay]:
    search = search_checkpoints(job, {}, log, now=NOW)
    return search, resume_way(job, programs_now(job, search.programs), None, search.stages)


TWO = "set -e\npython sft.py --output_dir sft\npython dpo.py --output_dir dpo"
GUARDED = "set -e\n[ -f sft/done ] || python sft.py --output_dir sft\npython dpo.py --output_dir dpo"
AFTER = START + timedelta(minutes=30)


def test_the_stage_of_the_last_traceback_is_the_one_that_failed(tmp_path: Path) -> None:
    job = pipeline(tmp_path, TWO)
    checkpoint(tmp_path / "sft", 80, AFTER)
    checkpoint(tmp_path / "dpo", 40, AFTER)
    search, way = judged(job, "Traceback (most recent call last):", f'  File "{tmp_path}/dpo.py", line 9, in <module>')
    assert search.place is not None
    assert search.place.folder == tmp_path / "dpo"
    assert way.means is ResumeMeans.NEWEST
    assert "runs sft.py (sft) again over the 1 checkpoints" in way.repeats


@pytest.mark.parametrize(("script", "sft"), [(GUARDED, FRESH), (TWO, LISTED)])
def test_a_finished_stage_that_is_passed_over_or_resumes_stands_in_no_restarts_way(tmp_path: Path, script: str, sft: str) -> None:
    job = pipeline(tmp_path, script, sft=sft)
    checkpoint(tmp_path / "sft", 80, AFTER)
    (tmp_path / "sft/done").touch()
    checkpoint(tmp_path / "dpo", 40, AFTER)
    search, way = judged(job)
    assert search.place is not None
    assert (search.place.folder, way.means, way.repeats) == (tmp_path / "dpo", ResumeMeans.NEWEST, "")


def test_a_stage_that_died_before_its_first_save_begins_at_its_start(tmp_path: Path) -> None:
    job = pipeline(tmp_path, GUARDED)
    checkpoint(tmp_path / "sft", 80, AFTER)
    (tmp_path / "sft/done").touch()
    search, way = judged(job, "saved sft/step_80.pt")
    assert (search.state, way.repeats) == (SaveState.NEVER_SAVED, "")


def test_saves_that_the_log_does_not_tell_apart_are_nobodys(tmp_path: Path) -> None:
    job = pipeline(tmp_path, GUARDED)
    checkpoint(tmp_path / "sft", 80, AFTER)
    (tmp_path / "sft/done").touch()
    search, _ = judged(job, "saved checkpoint at step 80")
    assert search.state is SaveState.SAVED_ELSEWHERE


def test_a_failed_evaluation_goes_on_from_the_training_before_it(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "python dpo.py --output_dir dpo && python eval.py --output_dir results")
    checkpoint(tmp_path / "dpo", 80, AFTER)
    search, way = judged(job, "Traceback (most recent call last):", f'  File "{tmp_path}/eval.py", line 2, in <module>')
    assert search.place is not None
    assert (search.place.folder, way.means) == (tmp_path / "dpo", ResumeMeans.NEWEST)


def a_step(number: int, command: str, state: JobState = JobState.COMPLETED, code: int | None = 0) -> JobStep:
    return JobStep(f"7.{number}", state, code, None, command)


SFT_STEP, DPO_STEP = "srun python3 -u sft.py --output_dir sft", "srun python3 -u dpo.py --output_dir dpo"


def failed_step(number: int, command: str) -> JobStep:
    return a_step(number, command, JobState.FAILED, 1)


@pytest.mark.parametrize(
    ("steps", "stage"),
    [
        ([a_step(0, SFT_STEP), failed_step(1, DPO_STEP)], "dpo"),
        ([a_step(0, SFT_STEP, JobState.CANCELLED, None)], "sft"),
        ([a_step(0, "srun -n8 train.sh"), failed_step(1, DPO_STEP)], "dpo"),
        ([failed_step(0, SFT_STEP), failed_step(1, DPO_STEP)], None),
        ([a_step(0, SFT_STEP), a_step(1, DPO_STEP)], None),
        ([failed_step(0, "srun hostname")], None),
        ([failed_step(0, "")], None),
    ],
    ids=["the second", "cancelled", "behind another program", "both", "none", "another program", "no command kept"],
)
def test_the_step_that_did_not_end_well_tells_the_stage_where_log_and_saves_do_not(
    tmp_path: Path, steps: list[JobStep], stage: str | None
) -> None:
    job = replace(pipeline(tmp_path, TWO, sft=LISTED), steps=tuple(steps))
    checkpoint(tmp_path / "sft", 80, START - timedelta(days=1))
    checkpoint(tmp_path / "dpo", 40, START - timedelta(days=1))
    search, _ = judged(job)
    assert search.stages is not None
    assert (search.stages.failed is None) is (stage is None), search.stages.sentence
    assert stage is None or f"{stage}.py ({stage})" in search.stages.sentence


@pytest.mark.parametrize("folder", ["sft", "dpo"])
def test_one_program_that_trains_all_stages_is_told_by_the_folder_of_its_step(tmp_path: Path, folder: str) -> None:
    job = pipeline(tmp_path, "set -e\nsrun python dpo.py --output_dir sft\nsrun python dpo.py --output_dir=dpo")
    job = replace(job, steps=(failed_step(0, f"srun python dpo.py --output_dir={folder}"),))
    checkpoint(tmp_path / "sft", 80, START - timedelta(days=1))
    checkpoint(tmp_path / "dpo", 40, START - timedelta(days=1))
    search, _ = judged(job)
    assert search.place is not None
    assert search.place.folder == tmp_path / folder


def test_which_stage_failed_is_not_guessed(tmp_path: Path) -> None:
    job = pipeline(tmp_path, TWO, sft=LISTED)
    checkpoint(tmp_path / "sft", 80, START - timedelta(days=1))
    checkpoint(tmp_path / "dpo", 40, START - timedelta(days=1))
    search, _ = judged(job)
    assert search.state is SaveState.UNKNOWN
    assert "which of them failed is not known" in search.note


def test_the_newest_of_a_finished_stage_must_be_whole_where_it_is_loaded_again(tmp_path: Path) -> None:
    job = pipeline(tmp_path, TWO, sft=LISTED)
    checkpoint(tmp_path / "sft", 60, AFTER)
    (tmp_path / "sft/step_80.pt").touch()
    os.utime(tmp_path / "sft/step_80.pt", (AFTER.timestamp(),) * 2)
    checkpoint(tmp_path / "dpo", 40, AFTER + timedelta(minutes=1))
    _, way = judged(job, f'  File "{tmp_path}/dpo.py", line 9, in <module>')
    assert "must not be loaded: step_80.pt" in way.repeats


@pytest.mark.parametrize(
    ("command", "action", "says"),
    [
        ("torchrun pretrain_gpt.py --num-layers 4", None, "It saves with: --save FOLDER --save-interval STEPS."),
        (
            "python train.py --save /ckpt --save-interval 1000",
            None,
            "It was to save first at step 1000 (--save-interval on the command",
        ),
        ("python train.py", Action.FIX_AND_RESUBMIT, "fails the same way again"),
        ("python train.py", Action.RESTART_SAME_NODES, "It saves with: a call such as torch.save"),
    ],
)
def test_what_beginning_again_costs_is_told(tmp_path: Path, command: str, action: Action | None, says: str) -> None:
    job = pipeline(tmp_path, command)
    cost = cost_of_beginning(job, 310, 12.5, programs_of(job), action)
    assert "begins at step 0 and makes the 310 steps again that it had made, 12.5 GPU hours" in cost
    assert says in cost


@pytest.mark.parametrize(
    ("advice", "kept"),
    [
        ("Restart from the last healthy checkpoint on the same nodes. Test it.", "Restart from the start on the same nodes. Test"),
        ("If a file is damaged, load the previous complete checkpoint; if shapes differ, fix them.", "If shapes differ, fix them."),
        ("Set node07 aside and restart from the last healthy checkpoint.", "Set node07 aside and restart from the start."),
        ("Go back to a healthy checkpoint before the spike.", "It never saved a checkpoint. COST"),
    ],
)  # fmt: skip
def test_advice_rests_on_no_checkpoint_where_there_is_none(advice: str, kept: str) -> None:
    found = Diagnosis("hang", Category.NONE, Action.NONE, 0.9, DecidedBy.RULE, (), (), (), "x", advice)
    said = without_checkpoint(found, "It never saved a checkpoint. COST").advice
    assert said.startswith(kept)
    assert said.endswith("It never saved a checkpoint. COST")
    assert said.lower().count("checkpoint") == 1
