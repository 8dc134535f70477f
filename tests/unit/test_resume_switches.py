"""Programs that would resume if they were asked to, and are not: what a run does not come to counts for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.recover.job_program import programs_of
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from assistant.schedulers.slurm_spec import environment_doubt
from tests.unit.test_strangers_runs import job

NEWEST, NONE, UNKNOWN = ResumeMeans.NEWEST, ResumeMeans.NONE, ResumeMeans.UNKNOWN
HEAD = """\
import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="runs/one")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
step = 0
"""
LOADS = """\
    saved = sorted(name for name in os.listdir(args.out) if name.startswith("step_"))
    if saved:
        step = torch.load(os.path.join(args.out, saved[-1]))["step"]
"""
TAIL = """\
while step < 100:
    step += 1
    torch.save({"step": step}, os.path.join(args.out, f"step_{step}.pt"))
"""
UNDER_THE_SWITCH = f"{HEAD}if args.resume:\n{LOADS}{TAIL}"
ALWAYS = f"{HEAD}if os.path.isdir(args.out):\n{LOADS}{TAIL}"
IN_A_FUNCTION = (
    f"{HEAD}def newest():\n    return sorted(os.listdir(args.out))[-1]\n"
    f"if getattr(args, 'resume', False):\n    step = torch.load(newest())['step']\n{TAIL}"
)
UNLESS_FRESH = UNDER_THE_SWITCH.replace("if args.resume:", "if not args.fresh:").replace("--resume", "--fresh")
LEAVES_EARLY = f"{HEAD}def go_on():\n    if not args.resume:\n        return 0\n" + "".join(
    f"    {line}\n" for line in LOADS.replace("    saved", "saved").replace("    if saved", "if saved").splitlines()
)
BY_CONFIGURATION = f"{HEAD}cfg = load_settings('train.yaml')\nif cfg.resume_training:\n{LOADS}{TAIL}"


def declared(*arguments: str) -> str:
    """Return the program that resumes from what `--resume` names, with that option declared so."""
    looks = "if args.resume == 'auto':\n    args.resume = open('runs/one/last_checkpoint').read()\n"
    loads = "if args.resume:\n    step = torch.load(args.resume)['step']\n"
    declaration = HEAD.replace('"--resume", action="store_true"', ", ".join(arguments))
    return f"{declaration}{looks}{loads}{TAIL}"


OPTIONAL = declared('"--resume"', 'nargs="?"', 'const="auto"')
ANYTHING = declared('"--resume"', 'nargs="*"')
SWITCHED_OFF = UNDER_THE_SWITCH.replace('"--resume", action="store_true"', '"--scratch", dest="resume", action="store_false"')
BOTH_WAYS = UNDER_THE_SWITCH.replace('action="store_true"', "action=argparse.BooleanOptionalAction, default=True")
PROGRAMS = {
    "a value that may be left out is": (OPTIONAL, "python train.py --out runs/one --resume", ResumeMeans.TRACKER),
    "a value that may be left out, before another option": (
        OPTIONAL,
        "python train.py --resume --out runs/one",
        ResumeMeans.TRACKER,
    ),
    "a value that may be left out, and the option too": (OPTIONAL, "python train.py", NONE),
    "by the beginning of its name": (UNDER_THE_SWITCH, "python train.py --res", NEWEST),
    "several values": (ANYTHING, "python train.py --resume a.pt b.pt", UNKNOWN),
    "a switch that turns it off is not given": (SWITCHED_OFF, "python train.py", NEWEST),
    "a switch that turns it off is given": (SWITCHED_OFF, "python train.py --scratch", NONE),
    "on unless it is turned off": (BOTH_WAYS, "python train.py", NEWEST),
    "turned off": (BOTH_WAYS, "python train.py --no-resume", NONE),
    "not given": (UNDER_THE_SWITCH, "python train.py", NONE),
    "given": (UNDER_THE_SWITCH, "python train.py --resume", NEWEST),
    "always": (ALWAYS, "python train.py", NEWEST),
    "in a function, not given": (IN_A_FUNCTION, "python train.py", NONE),
    "in a function, given": (IN_A_FUNCTION, "python train.py --resume", NEWEST),
    "unless told otherwise": (UNLESS_FRESH, "python train.py", NEWEST),
    "told otherwise": (UNLESS_FRESH, "python train.py --fresh", NONE),
    "returns before": (f"{LEAVES_EARLY}go_on()\n{TAIL}", "python train.py", NONE),
    "by a configuration that is not known": (BY_CONFIGURATION, "python train.py", UNKNOWN),
    "given at a second start only": (
        UNDER_THE_SWITCH,
        'more=""\nif [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then more="--resume"; fi\npython train.py $more',
        NONE,
    ),
    "given behind a test": (UNDER_THE_SWITCH, '[ -n "$AGAIN" ] && more=--resume\npython train.py $more', UNKNOWN),
    "given in a case": (UNDER_THE_SWITCH, "case $1 in again) more=--resume;; esac\npython train.py $more", UNKNOWN),
    "two starts of one program": (
        UNDER_THE_SWITCH,
        'if [ "$AGAIN" = 1 ]; then\n  python train.py --resume\nelse\n  python train.py\nfi',
        UNKNOWN,
    ),
}

OWN_TRAINER = """\
import os, sys, torch

def get_last_checkpoint(folder):
    saved = sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))
    return os.path.join(folder, saved[-1]) if saved else None

class Trainer:
    def train(self, resume_from_checkpoint=None):
        if resume_from_checkpoint:
            self.state = torch.load(os.path.join(resume_from_checkpoint, "state.pt"))
        torch.save(self.state, "out/checkpoint-20/state.pt")

"""
LAST = 'last = get_last_checkpoint("out")\n'
PROGRAMS |= {
    "a trainer of the own file is given the last": (
        f"{OWN_TRAINER}{LAST}Trainer().train(resume_from_checkpoint=last)\n",
        "python train.py",
        NEWEST,
    ),
    "a trainer of the own file with a name": (
        f"{OWN_TRAINER}{LAST}trainer = Trainer()\ntrainer.train(resume_from_checkpoint=last)\n",
        "python train.py",
        NEWEST,
    ),
    "a trainer of the own file is given nothing": (
        f"{OWN_TRAINER}Trainer().train(resume_from_checkpoint=None)\n",
        "python train.py",
        NONE,
    ),
    "a trainer of the own file is given what is not known": (
        f"{OWN_TRAINER}Trainer().train(resume_from_checkpoint=settings())\n",
        "python train.py",
        UNKNOWN,
    ),
    "a trainer of the own file, twice": (
        f"{OWN_TRAINER}{LAST}Trainer().train()\nTrainer().train(resume_from_checkpoint=last)\n",
        "python train.py",
        UNKNOWN,
    ),
    "a trainer of the own file, only with an option": (
        f"{OWN_TRAINER}{HEAD}{LAST}if args.resume:\n    Trainer().train(resume_from_checkpoint=last)\n",
        "python train.py",
        UNKNOWN,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_what_a_run_comes_to_resumes(name: str, tmp_path: Path) -> None:
    source, script, means = PROGRAMS[name]
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    shown = job(tmp_path, script)
    way = resume_way(shown, programs_of(shown))
    assert way.means is means, way.sentence


def test_a_program_before_it_that_saves_and_begins_anew_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(UNDER_THE_SWITCH, encoding="utf-8")
    (tmp_path / "second.py").write_text(ALWAYS, encoding="utf-8")
    (tmp_path / "prepare.py").write_text("print('nothing is left behind')\n", encoding="utf-8")
    shown = job(tmp_path, "python first.py --out runs/sft && python second.py --out runs/dpo")
    assert resume_way(shown, programs_of(shown)).means is UNKNOWN
    prepared = job(tmp_path, "python prepare.py && python second.py --out runs/dpo")
    assert resume_way(prepared, programs_of(prepared)).means is NEWEST


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (": ${RATE:=1e-3}\npython train.py --lr $RATE", "RATE"),
        ("RATE=${RATE:-1e-3}\npython train.py --lr $RATE", "RATE"),
        ('srun bash -c "python train.py --data $CORPUS"', "CORPUS"),
        ("OUT=/data/run\npython train.py --out $OUT/$SLURM_JOB_ID --cache $HOME", ""),
        ("for seed in 1 2; do python train.py --seed $seed; done", ""),
        ("HEAD_NODE=$(hostname)\nexport HEAD_NODE\ntorchrun --rdzv $HEAD_NODE", ""),
        ("awk '{print $NF}' log", ""),
        ("#SBATCH --export=NONE\npython train.py $RATE", ""),
    ],
)
def test_variables_of_the_submission_that_slurm_did_not_keep_are_named(script: str, named: str) -> None:
    doubt = environment_doubt(f"#!/bin/bash\n{script}\n")
    assert (f"takes {named} " in doubt) if named else doubt == ""


BY_PATH = """\
import argparse, sys, torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume", default=None)
args, others = parser.parse_known_args()
step = torch.load(args.resume)["step"] if args.resume else torch.load(others[0])["step"] if others else 0
torch.save({"step": step}, f"ckpt/step_{step}.pt")
"""


@pytest.mark.parametrize(
    ("lines", "resumes"),
    [
        ("python train.py ${NIGHTSHIFT_ARGS:-}", False),  # no template fills it
        ("python train.py $NIGHTSHIFT_ARGS", False),
        ("NIGHTSHIFT_ARGS=\npython train.py $NIGHTSHIFT_ARGS", False),
        ("echo from $NIGHTSHIFT_RESUME_FROM\npython train.py", False),
        ("echo step $NIGHTSHIFT_STEP\npython train.py", False),
        ("# python train.py --resume $NIGHTSHIFT_RESUME_FROM\npython train.py", False),
        ("python report.py $NIGHTSHIFT_RESUME_FROM\npython train.py", False),
        ("NIGHTSHIFT_RESUME_FROM=\npython train.py ${NIGHTSHIFT_RESUME_FROM:+--resume $NIGHTSHIFT_RESUME_FROM}", False),
        ("python train.py ${RESUME:+--resume $RESUME}", False),
        ('python train.py --resume "${1:-}"', False),
        ('python train.py "$@"', False),
        ("python train.py ${NIGHTSHIFT_RESUME_FROM:+--resume $NIGHTSHIFT_RESUME_FROM}", True),
        ('R=()\n[ -n "$NIGHTSHIFT_RESUME_FROM" ] && R+=(--resume "$NIGHTSHIFT_RESUME_FROM")\npython train.py "${R[@]}"', True),
        ("export CKPT=$NIGHTSHIFT_RESUME_FROM\npython train.py --resume $CKPT", True),
        ('go() { python train.py "$@"; }\ngo ${NIGHTSHIFT_RESUME_FROM:+--resume $NIGHTSHIFT_RESUME_FROM}', True),
        ("python train.py --resume ${NIGHTSHIFT_RESUME_FROM:-ckpt/last.pt}", True),
        ("python train.py --resume ckpt/step_$NIGHTSHIFT_STEP.pt", True),
        ("python report.py\npython train.py --resume=$NIGHTSHIFT_RESUME_FROM", True),
        ('#NIGHTSHIFT resume="--resume {checkpoint}"\npython train.py ${NIGHTSHIFT_ARGS:-}', True),
        ("srun bash -c 'python train.py --resume $NIGHTSHIFT_RESUME_FROM'", True),
    ],
)
def test_a_variable_of_a_restart_counts_where_it_reaches_what_trains(lines: str, resumes: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BY_PATH)
    (tmp_path / "report.py").write_text("import sys\nprint(sys.argv)\n")
    one = job(tmp_path, lines)
    assert (resume_way(one, programs_of(one)).means is ResumeMeans.ARGUMENT) is resumes
