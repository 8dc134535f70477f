"""What a batch script would choose by looking into folders: worked out, as bash does, and what follows for a restart."""

from __future__ import annotations

import os
import pickle
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.batch_script import launches_of
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.job_program import FileReader, programs_now, programs_of, saves_nothing
from assistant.recover.job_reading import read_script
from assistant.recover.resume.plan import ResumePlan, resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.shell.folders import UNRESOLVED, FolderView, listed_folder

FILE = Path(__file__).parents[1] / "cases" / "checkpoints" / "shell_choices.toml"
CASES: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["case"]
START = 1_700_000_000


def lay_out(folder: Path, case: dict[str, Any]) -> None:
    for name, seconds in case["files"].items():
        path = folder / name.partition(" -> ")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        if " -> " in name:
            path.symlink_to(name.partition(" -> ")[2])
        elif name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(case.get("texts", {}).get(name, "x"))
        os.utime(path, (START + seconds, START + seconds), follow_symlinks=False)


def rounds(folder: Path, script: str) -> Iterator[str]:
    """Yield what the script chooses, then what it would choose if that were not there, and so on."""
    hidden: frozenset[str] = frozenset()
    while True:
        view = FolderView(lambda path: listed_folder("", path), hidden)

        def read(path: str) -> str | None:
            return Path(path).read_text() if Path(path).is_file() else None

        run = [
            launch
            for launch in launches_of(
                f'{script}\nrun "$PICK"\n',
                environment={},
                work_dir=str(folder),
                read=read,
                exists=lambda letter, path: None,
                view=view,
            )
            if launch.words[0] == "run"
        ]
        yield "?" if UNRESOLVED in run[-1].words[1] else run[-1].words[1]
        if view.origins <= hidden:
            return
        hidden |= view.origins


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_a_script_would_choose_is_worked_out(case: dict[str, Any], tmp_path: Path) -> None:
    lay_out(tmp_path, case)
    assert list(rounds(tmp_path, case["script"]))[: len(case["picks"])] == case["picks"]


@pytest.mark.parametrize("case", [case for case in CASES if case.get("agrees", True)], ids=lambda case: case["name"])
def test_bash_chooses_the_same(case: dict[str, Any], tmp_path: Path) -> None:
    lay_out(tmp_path, case)
    ran = subprocess.run(
        ["bash", "-c", f'{case["script"]}\nprintf %s "$PICK"'], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout == case["picks"][0]


SAVED = {"step_20.pt": 20, "step_40.pt": 40, "step_60.pt": 60}
LAUNCH = "python3 -m other.trainer --out ckpt --resume $CK\n"


def planned(folder: Path, script: str, chosen: int, *, names: dict[str, int] | None = None) -> tuple[ResumePlan, str]:
    """Return what a restart needs, and how the script goes on; the checkpoint of step 60 is damaged."""
    (folder / "ckpt").mkdir(exist_ok=True)
    for name, step in (names or SAVED).items():
        with zipfile.ZipFile(folder / "ckpt" / name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"step": step}))
        os.utime(folder / "ckpt" / name, (START + step, START + step))
    newest = folder / "ckpt" / "step_60.pt"
    newest.write_bytes(newest.read_bytes()[:-9])
    os.utime(newest, (START + 60, START + 60))
    spec = JobSpec("gpt", script, work_dir=folder)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, folder, None, None, None, 1, None, spec=spec)
    way = resume_way(job, programs_now(job, programs_of(job)))
    held = inventory(folder / "ckpt", now=datetime.now(UTC))
    plan = resume_plan(way, held, next(one for one in held.checkpoints if one.step == chosen))
    return plan, way.sentence


@pytest.mark.parametrize(
    "looks",
    [
        "CK=$(ls -t ckpt/step_*.pt | head -1)",
        "CK=$(find ckpt -name 'step_*.pt' | sort -V | tail -1)",
        "CK=$PWD/$(ls -v ckpt/*.pt | tail -n1)",
        "N=$(ls ckpt | sed -n 's/step_\\([0-9]*\\).pt/\\1/p' | sort -n | tail -1)\nCK=ckpt/step_$N.pt",
        "ALL=(ckpt/step_*.pt)\nCK=${ALL[-1]}",
        "CK=\"\"\nif ls ckpt/*.pt >/dev/null 2>&1; then CK=$(ls -v ckpt/*.pt | tail -1); fi\nCK=$(ls -v ckpt/*.pt | tail -1)",
    ],
)  # fmt: skip
def test_what_a_script_would_take_before_the_chosen_one_is_set_aside(looks: str, tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, f"{looks}\n{LAUNCH}", 40)
    assert not plan.refusal
    assert [path.name for path in plan.set_aside] == ["step_60.pt"]
    (tmp_path / "ckpt" / "step_60.pt").rename(tmp_path / "gone.pt")
    again, _ = planned(tmp_path, f"rm gone\n{looks}\n{LAUNCH}", 40, names={"step_20.pt": 20, "step_40.pt": 40, "step_60.pt": 60})
    assert [path.name for path in again.set_aside] == ["step_60.pt"]


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ("CK=$(ls -tr ckpt/step_*.pt | head -1)", "of an older step"),
        ("CK=$(find ckpt -name '*.pt' | head -1)", "only when it runs"),
        ("CK=$(python3 newest.py)", "only when it runs"),
        ("CK=$(ls -t ckpt/best*.pt 2>/dev/null | head -1)", "does not resume"),
        ("CK=$(ls -t ckpt/step_6*.pt | head -1)", "never step_40.pt"),
        ("CK=$(ls -t other/step_4*.pt | head -1)", "no checkpoint that is known"),  # of the same name, and another run's
        ("for f in $(ls ckpt/*.pt); do CK=$f; done", "only when it runs"),
        ("while read -r f; do CK=$f; done < <(ls -v ckpt/*.pt)", "only when it runs"),
        ("newest() { ls -t $1/*.pt | head -1; }\nCK=$(newest ckpt)", "only when it runs"),
        ("CK=$(ls -t ckpt/*.pt | head -1 | tee last.txt)", "only when it runs"),
        ("CK=$(find ckpt -name '*.pt' -newer ckpt/step_20.pt | sort -V | tail -1)", "only when it runs"),
        ("CK=$(ls -t nowhere/*.pt | head -1 || echo ckpt/step_20.pt)", "only when it runs"),
        ("CK=$(ls -t ckpt/*.pt | sed -n 3p)", "of an older step"),
        ("CK=$(ls -t ckpt/*.pt | head -1)\npython -m prep --resume $CK\nCK=''", "begins at the start"),
        ("CK=$(ls -t ckpt/../other/*.pt | head -1)", "no checkpoint that is known"),
    ],
)
def test_what_would_be_loaded_otherwise_is_left_to_a_person(looks: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "base.pt").write_text("x")
    (tmp_path / "other" / "step_40.pt").write_text("x")
    os.utime(tmp_path / "other" / "step_40.pt", (START, START))
    plan, sentence = planned(tmp_path, f"{looks}\n{LAUNCH}", 40)
    assert words in plan.refusal + sentence, plan
    assert plan.refusal


TASKS: dict[str, Any] = tomllib.loads((FILE.parent / "array_tasks.toml").read_text("utf-8"))
TASK = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "90", "SLURM_JOB_ID": "90"}


def task_folder(folder: Path) -> None:
    for name, text in TASKS["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def task_starts(folder: Path, script: str, *, looking: bool) -> list[list[str]]:
    """Return the words of each `run` of a script, with or without a view of folders."""
    launches = launches_of(
        script,
        environment=TASK,
        work_dir=str(folder),
        read=lambda path: Path(path).read_text() if Path(path).is_file() else None,
        exists=(lambda letter, path: None) if looking else None,
        view=FolderView(lambda path: listed_folder("", path)) if looking else None,
    )
    return [list(launch.words[1:]) for launch in launches if launch.words[0] == "run"]


@pytest.mark.parametrize("case", TASKS["case"], ids=lambda case: case["script"].strip().splitlines()[-1])
def test_what_a_task_of_an_array_starts_is_worked_out(case: dict[str, Any], tmp_path: Path) -> None:
    task_folder(tmp_path)
    assert task_starts(tmp_path, case["script"], looking=True) == case["starts"]
    blind = task_starts(tmp_path, case["script"], looking=False)
    if case.get("only_looking"):
        assert any(UNRESOLVED in word for words in blind for word in words)
    else:
        assert blind == case["starts"]


@pytest.mark.parametrize("case", TASKS["case"], ids=lambda case: case["script"].strip().splitlines()[-1])
def test_bash_starts_the_same_in_a_task(case: dict[str, Any], tmp_path: Path) -> None:
    task_folder(tmp_path)
    ran = subprocess.run(
        ["bash", "-c", 'run() { printf "%s\\0" "$#" "$@"; }\n' + case["script"]],
        cwd=tmp_path,
        env={**TASK, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    starts, rest = [], ran.stdout.split("\0")[:-1]
    while rest:
        end = 1 + int(rest[0])
        starts.append(rest[1:end])
        rest = rest[end:]
    assert starts == case["starts"]


@pytest.mark.parametrize(
    "script",
    [
        "LR=old\nread LR < nothing.txt\nrun $LR",
        "i=0\nwhile [ $i -lt 3 ]; do i=$((i+1)); done\nrun $i",
        "LR=old\ntail -1 lrs.txt | while read LR; do run $LR; done",
        "[ -e $UNKNOWN ] && declare -x LR=1 || true\nrun $LR",
        "LR=1\n[ $UNKNOWN = 1 ] && export LR=2\nrun $LR",
        "A=(1 2)\nA[$UNKNOWN]=3\nrun ${A[0]}",
        "case $UNKNOWN in a) LR=1;; *) LR=2;; esac\nrun $LR",
        "A=($UNKNOWN b)\nrun ${A[1]}",
        "run $((1 / 0))",
        "L1=(a b)\ndeclare -n R=L1\nrun ${R[0]}",
        "read A <<END\n$HOMEX\nEND\nrun $A",
        "run $((UNKNOWN + 1))",
        "for ((i=0; i<2; i++)); do run $i; done",
        "while [ $# -gt 0 ]; do case $1 in a) X=1;; esac; shift; done\nrun $X",
        "run $(awk 'BEGIN { print 3 }')",
        "run $(cat one.txt)",  # a note of one line may be written by a run
    ],
)
def test_what_only_a_run_tells_is_not_made_up(script: str, tmp_path: Path) -> None:
    task_folder(tmp_path)
    starts = task_starts(tmp_path, script, looking=False)
    assert starts
    assert all(UNRESOLVED in " ".join(words) for words in starts), starts


@pytest.mark.parametrize(
    "text",
    ["$((" * 3000, "${A[" * 3000, "A[" + "${x}" * 400 + "=1\n", "((" * 2000 + "1", "x=$((" + "(" * 300 + "1" + ")" * 300 + "))",
     "while :\n do i=$i\n" * 3000, "case a in\n" * 3000, "{1..9}" * 50, "for i in " + "{1..9}" * 50 + "; do :; done",
     "A=(" + "[1]=" * 3000 + ")", "read -r " + "a " * 3000 + "<<< 'b'\n", "mkdir a\n[ -f a ] && b=1\n" * 1500, "( " * 3000],
    ids=lambda text: text[:16],
)  # fmt: skip
def test_a_script_that_is_made_to_be_hard_is_read_to_an_end(text: str, tmp_path: Path) -> None:
    looks: list[str] = []

    def exists(letter: str, path: str) -> bool | None:
        looks.append(path)
        return None

    launches_of(text, environment={}, work_dir=str(tmp_path), exists=exists)
    assert len(looks) <= 50_000


TRAINER = (
    "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--resume', default=None)\np.add_argument('--out')\n"
    "a = p.parse_args()\nif a.resume:\n    torch.load(a.resume)\ntorch.save(0, a.out + '/last.pt')\n"
)


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("", True),
        ("mkdir -p ckpt logs", True),
        ("cp config.yaml ckpt/", True),
        ("nvidia-smi; ls ckpt; du -sh ckpt", True),
        ("python reads.py --data tok", True),
        ("pip install -e .", True),
        ("[ -f absent ] && rm -rf ckpt", True),
        ("rm -f ckpt/last.pt", False),
        ("rm -rf ckpt", False),
        ("rm -f ckpt/*.pt", False),
        ("mv ckpt/last.pt ckpt/old.pt", False),
        ("cp backup/last.pt ckpt/", False),
        ("rsync -a backup/ ckpt/", False),
        ("ln -sfn run7 ckpt", False),
        ("touch ckpt/last.pt", False),
        ("echo 1 > ckpt/last.pt", False),
        ("python reads.py --out ckpt", False),
        ("python reads.py --out=ckpt", False),
        ("python clears.py", False),
        ("python -m unknown.stage", False),
        ("srun -n 2 ./prepare --target ckpt/last.pt", False),
        ("python - <<'END'\nimport os; os.remove('ckpt/last.pt')\nEND", False),
    ],
)
def test_a_test_of_a_file_that_a_command_before_it_may_change_is_not_answered(before: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "reads.py").write_text("import sys\nprint(open(sys.argv[-1]).read())\n")
    (tmp_path / "clears.py").write_text("import shutil\nshutil.rmtree('ckpt')\n")
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "last.pt").write_text("x")
    script = f'{before}\nif [ -f ckpt/last.pt ]; then R="--resume ckpt/last.pt"; fi\npython train.py --out ckpt $R\n'
    spec = JobSpec("gpt", script, work_dir=tmp_path)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, tmp_path, None, None, None, 1, None, spec=spec)
    program = programs_now(job, programs_of(job))[-1]
    assert (UNRESOLVED not in " ".join(program.launch.words)) is told


def test_what_lies_behind_the_part_of_a_script_that_is_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    script = "python train.py\n" + ": one two three four\n" * 9_000 + "rm -rf ckpt\n"
    spec = JobSpec("gpt", script, work_dir=tmp_path)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, tmp_path, None, None, None, 1, None, spec=spec)
    programs = programs_of(job)
    assert programs[0].unread_behind
    way = resume_way(job, programs)
    assert "as far as its" in way.sentence
    reading = read_script(script, work_dir=tmp_path, read=FileReader(""))
    assert not reading.ready
    assert any("as far as its" in gap.text for gap in reading.gaps)
    assert not saves_nothing(replace(job, spec=replace(spec, script=script.partition("\n")[2])))
    short = replace(job, spec=replace(spec, script="python train.py\n"))
    assert not programs_of(short)[0].unread_behind


@pytest.mark.parametrize(("changed_s", "folder"), [(-3600, "out/b"), (3600, None)])
def test_a_table_that_was_changed_since_the_job_began_tells_nothing(changed_s: int, folder: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "names.txt").write_text("a\nb\n")
    began = datetime.fromtimestamp(START, UTC)
    os.utime(tmp_path / "names.txt", (START + changed_s, START + changed_s))
    spec = JobSpec("gpt", "python train.py --out out/$(sed -n ${SLURM_ARRAY_TASK_ID}p names.txt)\n", work_dir=tmp_path)
    job = Job("9_2", "gpt", "", JobState.FAILED, "", (), None, tmp_path, began, began, None, 1, None, spec=spec)
    [program] = programs_of(job)
    word = program.launch.words[-1]
    assert (None if UNRESOLVED in word else word) == folder


@pytest.mark.parametrize(
    ("before", "means"),
    [("", "newest"), ("rm -f ckpt/last.pt", "unknown"), ("python -m unknown.stage", "unknown"), ("mkdir -p ckpt", "newest")],
)
def test_a_test_inside_a_command_is_answered_as_one_before_it(before: str, means: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "last.pt").write_text("x")
    script = f"{before}\npython train.py --out ckpt --resume $([ -f ckpt/last.pt ] && echo ckpt/last.pt || echo none)\n"
    spec = JobSpec("gpt", script, work_dir=tmp_path)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, tmp_path, None, None, None, 1, None, spec=spec)
    assert resume_way(job, programs_now(job, programs_of(job))[-1:]).means == means
