"""By which arguments of its own a script goes on: what its owner documents, then overrides of its configuration."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.ports import Reply
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.job_program import FileReader, programs_of
from assistant.recover.restart import plan_restart, same_run
from assistant.recover.resume.means import ResumeMeans, ResumeWay, ScriptArguments
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.resume.script_arguments import documented_arguments, submission_arguments, template_text
from assistant.recover.start_costs import plain_start_words
from assistant.recover.trial.judgement import judge_trial, trial_answer
from assistant.recover.trial.trial import TrialWay, proven_trial, trial_for, trials_of
from assistant.schedulers.slurm_specs import record_differences
from assistant.schedulers.slurm_typed import arguments_digest, exact_arguments

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/documented_arguments.toml").read_text("utf-8"))["case"]
LAUNCH = 'srun ./trainer train cfg.yaml "$@"'
YAML = "output_dir: saves/q\nsave_total_limit: 3\nresume_from_checkpoint: null\n"
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
LOOP = """import json, sys, yaml
cfg = yaml.safe_load(open(sys.argv[2]))
for a in sys.argv[3:]:
    k, v = a.split("=", 1)
    cfg[k] = v
ck = cfg.get("resume_from_checkpoint")
n = json.load(open(ck + "/trainer_state.json"))["global_step"] if ck else 0
open(f"{cfg['output_dir']}/checkpoint-{n}/model.bin", "wb").write(b"x")
"""
RUNNER = """import argparse
from mmengine.config import Config, DictAction
from mmengine.runner import Runner
p = argparse.ArgumentParser()
p.add_argument("config")
p.add_argument("--cfg-options", nargs="+", action=DictAction)
a = p.parse_args()
cfg = Config.fromfile(a.config)
cfg.merge_from_dict(a.cfg_options)
Runner.from_cfg(cfg).train()
"""


def job_in(folder: Path, launch: str = LAUNCH, comment: str = "", arguments: tuple[str, ...] = (), **files: str) -> Job:
    """Lay a job out; names of files are given with `_` for their dot."""
    for name, text in {"cfg_yaml": YAML, **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    script = f"#!/bin/bash\n{comment}\n{launch}\n"
    (folder / "run.sh").write_text(script)
    spec = JobSpec("x", script, work_dir=folder, arguments=arguments)
    return Job("7", "x", "", JobState.FAILED, "", (), None, folder, None, None, None, 1, None, spec=spec)


def checkpoint(folder: Path, name: str = "saves/q/checkpoint-40", step: int = 40) -> Checkpoint:
    return Checkpoint(folder / name, step, "huggingface", 1, NOW, True, ())


def spec_of(job: Job) -> JobSpec:
    assert job.spec is not None
    return job.spec


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_documented_becomes_arguments_with_the_checkpoint_in_its_place(case: dict[str, Any], tmp_path: Path) -> None:
    job = job_in(tmp_path, comment=case.get("comment", ""), arguments=tuple(case.get("arguments", ())))
    for name, text in case.get("files", {}).items():
        (tmp_path / name).write_text(text)
    documented = documented_arguments(job, FileReader(""))
    assert [list(template.words) for template in documented] == case["tried"]
    assert all(template.command == "sbatch run.sh" for template in documented)


@pytest.mark.parametrize("danger", ["owner", "writable", "folder"])
def test_what_another_user_may_have_written_is_quoted_and_not_tried(danger: str, tmp_path: Path) -> None:
    job = job_in(tmp_path, NOTES_txt="restart: sbatch run.sh resume_from_checkpoint=a/checkpoint-XX\n", cfg_yaml="output_dir: a\n")
    notes = tmp_path / "NOTES.txt"
    if danger == "owner":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        os.chown(notes, 65534, 65534)
    elif danger == "writable":
        notes.chmod(0o666)
    else:
        tmp_path.chmod(0o777)
    way = resume_way(job, programs_of(job))
    assert "NOTES.txt:1 says: restart" in way.usage
    assert way.script_arguments == ()


@pytest.mark.parametrize(
    ("launch", "arguments", "first"),
    [
        (LAUNCH, (), "resume_from_checkpoint={checkpoint}"),
        ("srun ./trainer train cfg.yaml $*", (), "resume_from_checkpoint={checkpoint}"),
        ('srun ./trainer train "$1" "${@:2}"', ("cfg.yaml",), "resume_from_checkpoint={checkpoint}"),
        ('srun ./trainer train cfg.yaml --rate=3 "$@"', (), "--resume_from_checkpoint={checkpoint}"),
        ('srun ./trainer train cfg.yaml "$1"', (), "resume_from_checkpoint={checkpoint}"),
        ('srun axolotl train cfg.yaml "$@"', (), "--resume-from-checkpoint={checkpoint}"),
        ('srun ./prepare cfg.yaml "$@"; srun ./trainer train cfg.yaml "$@"', (), ""),
        ('echo "$@" > args; srun ./trainer train cfg.yaml "$@"', (), "resume_from_checkpoint={checkpoint}"),
        ("srun ./trainer train cfg.yaml", (), ""),
        ('echo "$@"; srun ./trainer train cfg.yaml', (), ""),
        ('rm -rf "$@"; srun ./trainer train cfg.yaml "$@"', (), ""),
    ],
)
def test_an_override_is_tried_where_the_script_hands_it_to_its_program(
    launch: str, arguments: tuple[str, ...], first: str, tmp_path: Path
) -> None:
    job = job_in(tmp_path, launch, arguments=arguments)
    way = resume_way(job, programs_of(job))
    assert [" ".join(template.words) for template in way.script_arguments][:1] == ([first] if first else [])
    assert way.means is not ResumeMeans.ARGUMENT, "reading proves nothing"


@pytest.mark.parametrize("value", ["null", "''", "false"])
def test_a_program_that_is_read_and_takes_settings_apart_is_given_its_key(value: str, tmp_path: Path) -> None:
    yaml = YAML.replace("null", value)
    job = job_in(tmp_path, 'srun python3 t.py train cfg.yaml "$@"', t_py=LOOP, cfg_yaml=yaml)
    way = resume_way(job, programs_of(job))
    assert trials_of(way)[0].label.startswith("arguments resume_from_checkpoint={checkpoint} (")


def test_settings_of_mmengine_are_given_behind_their_option(tmp_path: Path) -> None:
    settings = "load_from = None\nresume = False\nwork_dir = 'out'\n"
    job = job_in(tmp_path, 'srun python3 t.py cfg.py "$@"', cfg_py=settings, t_py=RUNNER)
    way = resume_way(job, programs_of(job))
    assert way.script_arguments[0].words == ("--cfg-options", "resume=True", "load_from={checkpoint}")


def test_what_is_documented_is_tried_before_guesses_and_the_plain_start_last(tmp_path: Path) -> None:
    notes = "restart: sbatch run.sh resume_from_checkpoint=saves/q/checkpoint-XX\n"
    job = job_in(tmp_path, 'srun python3 t.py train cfg.yaml "$@"', t_py=LOOP, NOTES_txt=notes)
    labels = [trial.label for trial in trials_of(resume_way(job, programs_of(job)))]
    assert labels[0] == "arguments resume_from_checkpoint={checkpoint} (NOTES.txt:1)"
    assert labels[-1] == "as it is"
    assert len(labels) <= 3


def test_the_arguments_of_the_submission_stay_in_front_and_an_earlier_checkpoint_goes(tmp_path: Path) -> None:
    chosen = checkpoint(tmp_path)
    template = ScriptArguments(("resume={checkpoint}",), "NOTES:1", "sbatch run.sh")

    def arguments(*own: str, words: tuple[str, ...] = template.words) -> tuple[str, ...] | str:
        return submission_arguments(template._replace(words=words), JobSpec("x", "", arguments=own), tmp_path, chosen)

    assert arguments() == (f"resume={chosen.path}",)
    assert arguments("a=1", "big") == ("a=1", "big", f"resume={chosen.path}")
    assert arguments("resume=saves/q/checkpoint-20", "a=1") == ("a=1", f"resume={chosen.path}")
    pair = ("--resume", "{checkpoint}")
    assert arguments("--resume", "saves/q/checkpoint-20", "a=1", words=pair) == ("a=1", "--resume", str(chosen.path))
    assert arguments("saves/q/checkpoint-20", "b", words=("{checkpoint}",)) == ("b", str(chosen.path))
    assert arguments("--fast", "--resume", "x/y", words=("--resume={step}",)) == ("--fast", "--resume=40")


@pytest.mark.parametrize("name", ["a b", "$(id)", "a;id", "a'b", "a|b", "`id`", 'a"b', "a&b", "a*b", "{step}", "a\nb"])
def test_a_checkpoint_whose_name_a_shell_may_change_is_told_and_not_tried(name: str, tmp_path: Path) -> None:
    job = job_in(tmp_path)
    chosen = checkpoint(tmp_path, f"saves/{name}/checkpoint-40")
    template = ScriptArguments(("resume={checkpoint}",), "NOTES:1", "sbatch run.sh")
    problem = trial_for(TrialWay(template=template), job, spec_of(job), chosen)
    assert isinstance(problem, str)
    assert "characters that a shell may change" in problem


def test_of_two_checkpoints_that_a_placeholder_matches_the_chosen_one_is_given(tmp_path: Path) -> None:
    job = job_in(tmp_path, NOTES_txt="restart: sbatch run.sh resume_from_checkpoint=*/checkpoint-40\n")
    for run in ("a", "b"):
        (tmp_path / run / "checkpoint-40").mkdir(parents=True)
    [template] = documented_arguments(job, FileReader(""))
    chosen = checkpoint(tmp_path, "b/checkpoint-40")
    trial = trial_for(TrialWay(template=template), job, spec_of(job), chosen)
    assert isinstance(trial, TrialWay)
    assert trial.arguments == (f"resume_from_checkpoint={tmp_path}/b/checkpoint-40",)
    assert trial.bound == str(chosen.path)
    other = checkpoint(tmp_path, "a/checkpoint-40")
    assert "was tried for" in resume_plan(trial.way("a trial"), None, other).refusal, "and for no other one"


def test_a_proven_way_is_submitted_with_exactly_what_was_tried(tmp_path: Path) -> None:
    job = job_in(tmp_path, arguments=("rate=1",))
    chosen = checkpoint(tmp_path)
    template = ScriptArguments(("resume={checkpoint}",), "NOTES:1", "sbatch run.sh")
    trial = trial_for(TrialWay(template=template), job, spec_of(job), chosen)
    assert isinstance(trial, TrialWay)
    assert trial.arguments is not None
    answer = {"proven": "yes", "arguments": list(trial.arguments), "bound": trial.bound, "variable": "", "argument": ""}
    way = proven_trial(answer).way("a trial")
    assert resume_plan(way, None, chosen).ready
    spec = plan_restart(job, spec_of(job), chosen, attempt=1, tag="t", arguments=way.arguments)
    assert spec.arguments == ("rate=1", f"resume={chosen.path}")
    assert spec.script == spec_of(job).script, "its script stays as it is"
    shown = {"Command": f"{tmp_path}/run.sh rate=1 resume={chosen.path}"}
    before = {"Command": f"{tmp_path}/run.sh rate=1"}
    assert record_differences(before, shown, spec, ids=((), ())) == [], "the scheduler shows what was approved"
    other = {"Command": f"{tmp_path}/run.sh rate=1 resume=/elsewhere"}
    assert record_differences(before, other, spec, ids=((), ()))
    assert record_differences(before, shown, replace(spec, arguments=("rate=1",)), ids=((), ()))


def test_the_arguments_of_a_restart_are_known_when_it_fails_itself() -> None:
    own = ("cfg.yaml", "rate=1", "resume=/w/checkpoint-40")
    script, text = 'srun ./trainer "$1" "${@:2}"', " " + " ".join(own)
    assert exact_arguments(text, script)[1], "a blank may have stood inside one"
    assert exact_arguments(text, script, arguments_digest(own)) == (own, "")
    assert exact_arguments(f"{text} more", script, arguments_digest(own))[1], "of other arguments it says nothing"


@pytest.mark.parametrize(("text", "count"), [("a=1 b.c=2", 2), ("++a=1 --b=2 c=3", 3), ("note=two words", 0), ("a= b=1", 0)])
def test_settings_behind_one_another_are_separate_arguments(text: str, count: int) -> None:
    arguments, doubt = exact_arguments(f" {text}", 'srun ./trainer "$@"')
    assert (len(arguments), not doubt) == (count, count > 0)


def test_a_trial_that_did_not_read_the_chosen_one_proves_nothing(tmp_path: Path) -> None:
    line = (
        'NIGHTSHIFT-TRIAL {"status": "ran", "exit": null, "seconds": 9, "opened": [], "changed": [], "output": "step 5 loss 1.0"}'
    )
    verdict = judge_trial(trial_answer(Reply("n", True, 0, line, "")), checkpoint(tmp_path), None)
    assert not verdict.proven


def test_a_restart_by_hand_with_another_checkpoint_is_the_same_run(tmp_path: Path) -> None:
    job = job_in(tmp_path, arguments=("rate=1",))
    by_hand = replace(job, id="8", spec=replace(spec_of(job), arguments=("rate=1", "resume_from_checkpoint=saves/q/checkpoint-20")))
    assert same_run(job, by_hand)
    other = replace(job, id="9", spec=replace(spec_of(job), arguments=("rate=2", "resume_from_checkpoint=saves/q/checkpoint-20")))
    assert not same_run(job, other)


def test_a_person_is_told_the_documented_line_with_the_checkpoint_in_it(tmp_path: Path) -> None:
    job = job_in(tmp_path, NOTES_txt="restart: sbatch run.sh resume_from_checkpoint=saves/q/checkpoint-XX\n")
    way = resume_way(job, programs_of(job))
    chosen = checkpoint(tmp_path)
    command = f"sbatch run.sh resume_from_checkpoint={chosen.path}"
    assert template_text(way.script_arguments[0], chosen) == command
    assert f"NOTES.txt:1 with the chosen checkpoint is `{command}`, which is not proven" in resume_plan(way, None, chosen).refusal
    spaced = checkpoint(tmp_path, "saves/q r/checkpoint-40")
    assert f"'resume_from_checkpoint={spaced.path}'" in resume_plan(way, None, spaced).refusal


def test_neither_a_log_nor_a_checkpoint_suggests_an_argument(tmp_path: Path) -> None:
    line = "to resume: sbatch run.sh resume_from_checkpoint=saves/q/checkpoint-XX\n"
    (tmp_path / "saves/q/checkpoint-40").mkdir(parents=True)
    (tmp_path / "saves/q/checkpoint-40/README.md").write_text(line)
    (tmp_path / "slurm-7.out").write_text(line)
    job = replace(job_in(tmp_path, cfg_yaml="output_dir: saves/q\n"), log=tmp_path / "slurm-7.out")
    way = resume_way(job, programs_of(job))
    assert way.script_arguments == ()


def test_a_start_that_destroys_is_tried_with_arguments_alone() -> None:
    template = ScriptArguments(("resume={checkpoint}",), "NOTES:1", "sbatch run.sh")
    way = ResumeWay(ResumeMeans.NONE, "x", destroys="its old checkpoints are written over", script_arguments=(template,))
    assert [trial.template for trial in trials_of(way)] == [template]
    assert trials_of(replace(way, script_arguments=())) == ()


def test_what_a_plain_start_costs_is_told_in_numbers(tmp_path: Path) -> None:
    yaml = YAML + "overwrite_output_dir: true\n"
    job = job_in(tmp_path, cfg_yaml=yaml)
    saves = tuple(checkpoint(tmp_path, f"saves/q/checkpoint-{step}", step) for step in (20, 30, 40))
    folder = Inventory(tmp_path / "saves/q", saves, ())
    programs = programs_of(job)
    words = plain_start_words(resume_way(job, programs), programs, folder, saves[-1], 47)
    for part in (
        "it came to step 47: from checkpoint-40 7 steps are lost, without it all 47",
        "write over checkpoint-20, checkpoint-30, checkpoint-40 when it comes to their steps",
        "overwrite_output_dir in cfg.yaml (true) lets it",
        "with save_total_limit in cfg.yaml (3) its own saves rotate them away",
    ):
        assert part in words
    assert plain_start_words(ResumeWay(ResumeMeans.NEWEST, "x"), programs, folder, saves[-1], 47) == ""
