"""What a batch script would choose by looking into folders: worked out, as bash does, and what follows for a restart."""

from __future__ import annotations

import os
import pickle
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.batch_script import launches_of
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.job_program import _listed, programs_now, programs_of
from assistant.recover.resume import resume_way
from assistant.recover.resume_plan import ResumePlan, resume_plan
from assistant.recover.shell_folders import FolderView
from assistant.recover.shell_words import UNRESOLVED

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
        view = FolderView(lambda path: _listed("", path), hidden)

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
