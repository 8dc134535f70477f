"""What a program loads out of a listing: the newest of what it saves, or something that is not proven to be that."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.recover.job_program import programs_of
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from tests.unit.test_strangers_runs import job

NEWEST, NONE, UNKNOWN = ResumeMeans.NEWEST, ResumeMeans.NONE, ResumeMeans.UNKNOWN
HEAD = """\
import argparse, glob, os, re
from pathlib import Path
import torch
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="out")
args = parser.parse_args()
accelerator = Accelerator()
done = 0
"""
TAIL = """
while done < 100:
    done += 1
    accelerator.save_state(os.path.join(args.output_dir, f"step_{done}"))
"""
PADDED = TAIL.replace("{done}", "{done:06d}")
SCAN = 'dirs = [f.name for f in os.scandir(args.output_dir) if f.is_dir() and f.name.startswith("step_")]\n'
BY_STEP = 'key=lambda d: int(d.split("_")[-1])'
LOAD = "accelerator.load_state(os.path.join(args.output_dir, path))\n"
FUNCTION = """\
def newest(folder):
    dirs = sorted(glob.glob(os.path.join(folder, "step_*")), key=step_of)
    return dirs[-1] if dirs else None
def step_of(name):
    return int(re.findall(r"\\d+", name)[-1])
path = newest(args.output_dir)
if path is not None:
    accelerator.load_state(path)
"""

CASES = {
    "max of a scan, joined": (f"{SCAN}if dirs:\n    path = max(dirs, {BY_STEP})\n    {LOAD}{TAIL}", NEWEST),
    "sorted in place, the last": (f"{SCAN}dirs.sort({BY_STEP})\nif dirs:\n    path = dirs[-1]\n    {LOAD}{TAIL}", NEWEST),
    "sorted anew under its own name": (f"{SCAN}dirs = sorted(dirs, {BY_STEP})\npath = dirs[-1]\n{LOAD}{TAIL}", NEWEST),
    "a function and a key of the same file": (f"{FUNCTION}{TAIL}", NEWEST),
    "pathlib, descending": (
        'found = sorted(Path(args.output_dir).glob("step_*"), key=lambda p: p.stat().st_mtime, reverse=True)\n'
        f"if found:\n    accelerator.load_state(str(found[0])){TAIL}",
        NEWEST,
    ),
    "the highest number, formatted": (
        'steps = [int(d.split("_")[1]) for d in os.listdir(args.output_dir) if d.startswith("step_")]\n'
        f'if steps:\n    last = max(steps)\n    accelerator.load_state(f"{{args.output_dir}}/step_{{last}}"){TAIL}',
        NEWEST,
    ),
    "a key that turns the order, the first": (
        f'{SCAN}order = sorted(dirs, key=lambda d: -int(d.split("_")[1]))\npath = order[0]\n{LOAD}{TAIL}',
        NEWEST,
    ),
    "text order of padded numbers": (f"{SCAN}order = sorted(dirs)\npath = order[-1]\n{LOAD}{PADDED}", NEWEST),
    "text order of numbers that are not padded": (f"{SCAN}order = sorted(dirs)\npath = order[-1]\n{LOAD}{TAIL}", UNKNOWN),
    "the first of an ascending order": (f"{SCAN}order = sorted(dirs, {BY_STEP})\npath = order[0]\n{LOAD}{TAIL}", UNKNOWN),
    "a key that turns the order, the last": (
        f'{SCAN}order = sorted(dirs, key=lambda d: -int(d.split("_")[1]))\npath = order[-1]\n{LOAD}{TAIL}',
        UNKNOWN,
    ),
    "the one before the last": (f"{SCAN}order = sorted(dirs, {BY_STEP})\npath = order[-2]\n{LOAD}{TAIL}", UNKNOWN),
    "a folder that only a run knows": (
        f'cfg = read_settings()\naccelerator.load_state(max(glob.glob(f"{{cfg.out}}/step_*"), key=os.path.getmtime)){TAIL}',
        NEWEST,
    ),
    "a method, by time": (
        "class Run:\n    def newest(self):\n        saved = glob.glob(args.output_dir + '/step_*')\n"
        "        return max(saved, key=os.path.getmtime) if saved else None\n"
        f"path = Run().newest()\nif path:\n    accelerator.load_state(path){TAIL}",
        NEWEST,
    ),
    "a loop that binds the name again": (
        f"{SCAN}path = max(dirs, {BY_STEP})\nfor path in dirs:\n    break\n{LOAD}{TAIL}",
        UNKNOWN,
    ),
    "turned round in place": (f"{SCAN}order = sorted(dirs, {BY_STEP})\norder.reverse()\npath = order[-1]\n{LOAD}{TAIL}", UNKNOWN),
    "the newest taken away": (f"{SCAN}order = sorted(dirs, {BY_STEP})\norder.pop()\npath = order[-1]\n{LOAD}{TAIL}", UNKNOWN),
    "a key that is no step": (f'{SCAN}path = max(dirs, key=lambda d: int(d.split("_")[1]) % 100)\n{LOAD}{TAIL}', UNKNOWN),
    "any of them": (
        "import random\nall_of_them = os.listdir(args.output_dir)\n"
        f"accelerator.load_state(os.path.join(args.output_dir, random.choice(all_of_them))){TAIL}",
        UNKNOWN,
    ),
    "all but the last are left": (
        f"{SCAN}dirs = sorted(dirs, {BY_STEP})\ndirs = dirs[:-1]\npath = dirs[-1]\n{LOAD}{TAIL}",
        UNKNOWN,
    ),
    "not ordered": (f"{SCAN}path = dirs[-1]\n{LOAD}{TAIL}", UNKNOWN),
    "the best by its loss": (f"{SCAN}path = max(dirs, key=lambda d: int(loss_of(d)))\n{LOAD}{TAIL}", UNKNOWN),
    "another folder": (
        f'dirs = os.listdir("/models/start")\npath = max(dirs, {BY_STEP})\n'
        f'accelerator.load_state(os.path.join("/models/start", path)){TAIL}',
        UNKNOWN,
    ),
    "listed here and loaded there": (
        f'{SCAN}path = max(dirs, {BY_STEP})\naccelerator.load_state(os.path.join("/models/start", path)){TAIL}',
        UNKNOWN,
    ),
    "another value where there is none": (
        f'{SCAN}path = max(dirs, {BY_STEP}, default="/models/start")\n{LOAD}{TAIL}',
        UNKNOWN,
    ),
    "a constant in one branch": (
        f'{SCAN}path = "step_0"\nif len(dirs) > 3:\n    path = max(dirs, {BY_STEP})\n{LOAD}{TAIL}',
        UNKNOWN,
    ),
    "filtered down to one": (
        f'dirs = [d for d in os.listdir(args.output_dir) if d == "step_20"]\npath = max(dirs, {BY_STEP})\n{LOAD}{TAIL}',
        UNKNOWN,
    ),
    "only with a switch that is not known": (
        f"cfg = read_settings()\n{SCAN}if cfg.resume:\n    path = max(dirs, {BY_STEP})\n    {LOAD}{TAIL}",
        UNKNOWN,
    ),
    "listed to be cleared away, loaded is something else": (
        f"{SCAN}old = min(dirs, {BY_STEP})\nweights = torch.load(settings().weights)\n{TAIL}",
        UNKNOWN,
    ),
    "listed to be cleared away, nothing is loaded": (f"{SCAN}old = min(dirs, {BY_STEP})\n{TAIL}", NONE),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_out_of_a_listing(name: str, tmp_path: Path) -> None:
    source, means = CASES[name]
    (tmp_path / "train.py").write_text(HEAD + source, encoding="utf-8")
    shown = job(tmp_path, "python train.py --output_dir out")
    way = resume_way(shown, programs_of(shown))
    assert way.means is means, way.sentence
    if means is NEWEST:
        assert way.prefix in ("step_", "")


def test_the_names_that_a_listing_looks_at_are_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + FUNCTION + TAIL, encoding="utf-8")
    shown = job(tmp_path, "python train.py")
    way = resume_way(shown, programs_of(shown))
    assert way.sees("step_20")
    assert not way.sees("epoch_1")


def test_a_trainer_of_transformers_is_given_the_choice_of_a_function(tmp_path: Path) -> None:
    program = (
        "import os\nfrom transformers import Trainer, TrainingArguments\n"
        "def pick(folder):\n    dirs = [d for d in os.listdir(folder) if d.startswith('checkpoint-')]\n"
        "    dirs.sort(key=lambda d: int(d.split('-')[1]))\n    return os.path.join(folder, dirs[-1]) if dirs else None\n"
        "training = TrainingArguments(output_dir='out-ft', save_steps=20)\n"
        "start = pick('out-ft')\ntrainer = Trainer(args=training)\ntrainer.train(resume_from_checkpoint=start)\n"
    )
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    shown = job(tmp_path, "python train.py")
    way = resume_way(shown, programs_of(shown))
    assert (way.means, way.prefix) == (NEWEST, "checkpoint-")


TRAINED = """
import torch
from pathlib import Path

def mean_of(paths, model):
    for path in paths:
        model.load_state_dict(torch.load(path))

def main():
    folder = Path("kept")
    for step in range(900):
        loss = model(batch)
        loss.backward()
        if step % 50 == 0:
            torch.save(model.state_dict(), folder / f"ckpt_{step:05d}.pt")
    last = sorted(folder.glob("ckpt_*.pt"))[-3:]
    mean_of(last, model)

main()
"""


def test_what_is_loaded_once_the_training_is_over_is_not_where_it_begins() -> None:
    from assistant.recover.source.load_calls import is_after_training, training_functions
    from assistant.recover.source.trainer_source import parse_source

    class Program:
        sources = (parse_source(TRAINED, path="/w/train.py"),)

    source = Program.sources[0]
    training = training_functions(Program)  # type: ignore[arg-type]
    lines = {call.name: call.line for call in source.calls}
    assert is_after_training(Program, source, lines["folder.glob"], training)  # type: ignore[arg-type]
    assert is_after_training(Program, source, lines["torch.load"], training)  # type: ignore[arg-type]
    assert not is_after_training(Program, source, lines["torch.save"], training)  # type: ignore[arg-type]
    loads_first = TRAINED.replace("    for step", "    mean_of(folder.glob('ckpt_*.pt'), model)\n    for step")
    before = parse_source(loads_first, path="/w/train.py")
    Program.sources = (before,)
    first = next(call.line for call in before.calls if call.name == "torch.load")
    assert not is_after_training(Program, before, first, training)  # type: ignore[arg-type]


def test_names_made_from_each_other_are_worked_out_in_a_moment() -> None:
    from assistant.recover.source.declared_settings import UNKNOWN as ONLY_A_RUN_TELLS
    from assistant.recover.source.trainer_source import parse_source

    lines = [f"a{i} = os.path.join(a{(i + 1) % 6}, a{(i + 2) % 6}, a{(i + 3) % 6}, a{i})" for i in range(6) for _ in range(4)]
    text = "\n".join(lines)
    source = parse_source(text, path="/w/train.py")
    assert source.named("a0") is ONLY_A_RUN_TELLS


GUARDED = """\
import argparse, pathlib, torch
def newest(folder):
    saves = sorted(pathlib.Path(folder).glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
    return saves[-1] if saves else None
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--resume_from")
    parser.add_argument("--overwrite", action="store_true")
    args = parser.parse_args()
    out = pathlib.Path(args.output_dir)
    resume = args.resume_from
    if resume in ("latest", "True"):
        resume = newest(out)
    if not resume and out.is_dir() and {check}:
        if not args.overwrite:
            raise ValueError(f"{{out}} is not empty")
    state = torch.load(resume) if resume else None
    for step in range(100):
        torch.save(state, out / f"step_{{step}}")
main()
"""


@pytest.mark.parametrize(
    "check",
    [
        "any(out.iterdir())",
        "len(list(out.iterdir())) > 0",
        "bool(list(out.iterdir()))",
        "os.listdir(out)",
        "os.listdir(out) and not args.overwrite",
        "(not args.overwrite and list(out.iterdir()))",
        "not (not os.listdir(out))",
    ],
)
def test_a_choice_under_a_word_that_is_not_given_and_a_look_whether_anything_lies_there_choose_nothing(
    check: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(GUARDED.format(check=check))
    plain = job(tmp_path, "python3 train.py ${RESUME:+--resume_from $RESUME}")
    assert resume_way(plain, programs_of(plain)).means is not NEWEST
    latest = job(tmp_path, "python3 train.py --resume_from latest")
    assert resume_way(latest, programs_of(latest)).means is NEWEST
