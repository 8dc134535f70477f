"""Trial starts: what is tried, what a node is asked, and what its answer proves."""

from __future__ import annotations

import base64
import json
import random
import string
import subprocess
import sys
import tomllib
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.source.settings import requeue_words
from assistant.recover.trial.judgement import TrialAnswer, judge_trial, removed_besides, trial_answer
from assistant.recover.trial.trial import TrialWay, longest_s, program_text, spec_digest, trial_command, trials_of
from assistant.tools.checkpoints import resume_of

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/trials.toml").read_text())["case"]
SAVED = datetime(2026, 11, 27, 3, 0, tzinfo=UTC)
SPEC = JobSpec("x", "#!/bin/bash\n#SBATCH -n 4 --gres=gpu:a100:8\nsrun python3 x.py\n", nodes=2, work_dir=Path("/w"), user="ada")
JOB = Job("7", "x", "ada", JobState.FAILED, "gpu", ("n1", "n2"), None, Path("/w"), None, None, None, 1, 0, spec=SPEC)


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(Path(f"/w/ckpt/step_{step}"), step, Format.PLAIN, 3000, SAVED, healthy=True, problems=())


def inventory_of(*steps: int) -> Inventory:
    entries = tuple(Entry(checkpoint(step).path, step, Format.PLAIN, {}) for step in steps)
    return Inventory(Path("/w/ckpt"), tuple(map(checkpoint, steps)), (), entries=entries)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_two_witnesses_prove_where_a_script_goes_on(case: dict[str, Any]) -> None:
    answer = TrialAnswer(
        case.get("problem", ""),
        case.get("exit"),
        30.0,
        tuple(case.get("read", ())),
        tuple(case.get("saved", ())),
        tuple(case.get("changed", ())),
        tuple(case.get("texts", ())),
        tuple(case.get("removed", ())),
    )
    held = inventory_of(20, 40, 60, 80)
    verdict = judge_trial(answer, checkpoint(40), held)
    assert verdict.proven is case["proven"], verdict.note
    assert case["note"] in verdict.note


@pytest.mark.parametrize(
    ("way", "labels"),
    [
        (ResumeWay(ResumeMeans.UNKNOWN, "?"), ["as it is"]),
        (ResumeWay(ResumeMeans.UNKNOWN, "?", trial_variables=("CKPT={checkpoint}",)), ["as it is", "CKPT={checkpoint}"]),
        (ResumeWay(ResumeMeans.NONE, "?", trial_arguments=("--from={checkpoint}",)), ["--from={checkpoint}"]),
        (ResumeWay(ResumeMeans.NONE, "begins at the start"), []),
        (ResumeWay(ResumeMeans.NEWEST, "its source"), []),
        (ResumeWay(ResumeMeans.UNKNOWN, "?", repeats="a stage would run again"), []),
        (ResumeWay(ResumeMeans.UNKNOWN, "?", destroys="its old checkpoints are written over"), []),
    ],
)
def test_only_what_reading_leaves_open_is_tried(way: ResumeWay, labels: list[str]) -> None:
    assert [trial.label for trial in trials_of(way)] == labels


def request_of(**changes: Any) -> dict[str, Any]:
    command = trial_command(
        JOB, replace(SPEC, **changes), uid=2001, folder=Path("/w/ckpt"), hidden=(Path("/w/ckpt/step_60"),), seconds=90
    )
    value: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(command[4])))
    return value


def test_the_request_holds_the_script_its_owner_and_what_slurm_tells() -> None:
    request = request_of(environment={"LR": "1e-3"})
    assert (request["user"], request["uid"], request["work_dir"], request["hidden"]) == ("ada", 2001, "/w", ["/w/ckpt/step_60"])
    environment = request["environment"]
    assert environment["LR"] == "1e-3"
    assert (environment["SLURM_NTASKS"], environment["SLURM_NNODES"], environment["SLURM_JOB_NODELIST"]) == ("4", "2", "n[1-2]")
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"


def test_a_trial_may_take_longer_than_it_was_given_up_to_a_cap() -> None:
    assert request_of()["longest"] == 270
    assert [longest_s(seconds) for seconds in (20, 400, 900)] == [60, 900, 900]


@pytest.mark.parametrize(
    "answer",
    [
        TrialAnswer("", None, 270.0, cpu_seconds=41.0),
        TrialAnswer("", None, 90.0, ("/w/ckpt/step_40/a",), (), (), ("reading the model\n",)),
    ],
)
def test_a_trial_that_was_cut_off_leaves_it_open_whether_the_script_goes_on(answer: TrialAnswer) -> None:
    verdict = judge_trial(answer, checkpoint(40), inventory_of(20, 40, 60, 80))
    assert (verdict.proven, verdict.refuted, verdict.cut_off) == (False, False, True)
    assert f"cut off after {answer.seconds:.0f} s" in verdict.note
    assert "not known" in verdict.note


def test_a_script_that_does_not_fit_into_a_command_is_refused() -> None:
    with pytest.raises(ToolError, match="too large"):
        request_of(script="".join(random.Random(1).choices(string.printable, k=200_000)))


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply("n3", False, None, "", "no route to host"), "no route to host"),
        (Reply("n3", True, 0, "NIGHTSHIFT-TRIAL [1]\n", ""), "no object"),
        (Reply("n3", True, 0, "NIGHTSHIFT-TRIAL {\n", ""), "cannot be read"),
        (Reply("n3", True, 0, 'NIGHTSHIFT-TRIAL {"status": "impossible", "why": "no user"}\n', ""), "no user"),
    ],
)
def test_an_answer_that_tells_nothing_is_a_problem(reply: Reply, problem: str) -> None:
    assert problem in trial_answer(reply).problem


def test_of_an_answer_what_was_written_and_removed_is_told_apart() -> None:
    value = {
        "status": "ran", "exit": None, "seconds": 12.5, "opened": ["/w/ckpt/step_40/a"], "removed": ["/w/ckpt/step_20"],
        "changed": [{"path": "/w/ckpt/step_60/a", "size": 3, "was": None}, {"path": "/w/log", "size": 9, "was": 4}],
        "output": "step 41\n", "logs": {"/w/log": "step 42\n"},
    }  # fmt: skip
    answer = trial_answer(Reply("n3", True, 0, f"noise\nNIGHTSHIFT-TRIAL {json.dumps(value)}\n", ""))
    assert answer == TrialAnswer(
        "",
        None,
        12.5,
        ("/w/ckpt/step_40/a",),
        ("/w/ckpt/step_60/a",),
        ("/w/log", "/w/ckpt/step_20"),
        ("step 41\n", "step 42\n"),
        ("/w/ckpt/step_20",),
    )


def test_a_proven_way_is_taken_as_tried_and_no_longer_refused() -> None:
    way = TrialWay(variable="CKPT={checkpoint}").way("tried in a sandbox")
    assert (way.means, way.variable, way.tried) == (ResumeMeans.ARGUMENT, "CKPT={checkpoint}", True)
    assert TrialWay().way("tried").means is ResumeMeans.NEWEST
    assert spec_digest(SPEC) != spec_digest(replace(SPEC, environment={"LR": "1"}))


@pytest.mark.parametrize(
    ("name", "words", "ranks"),
    [
        ("srun", ["-n", "2", "--label"], [("0", "2", "0"), ("1", "2", "0")]),
        ("srun", ["-N2", "--ntasks-per-node=1"], [("0", "2", "0"), ("1", "2", "1")]),
        (
            "torchrun",
            ["--nnodes", "1", "--nproc_per_node=2", "--rdzv_endpoint", "n1:29500", "--no-python"],
            [("0", "2", ""), ("1", "2", "")],
        ),
        ("mpirun", ["-np", "2", "-x", "LR", "--bind-to", "none"], [("0", "2", ""), ("1", "2", "")]),
    ],
)
def test_the_launcher_starts_the_ranks_that_a_launcher_would(
    tmp_path: Path, name: str, words: list[str], ranks: list[tuple[str, str, str]]
) -> None:
    launcher = tmp_path / name
    launcher.write_text(f"#!{sys.executable}\n{program_text('launcher_program')}")
    launcher.chmod(0o755)
    show = 'echo "${RANK:-$SLURM_PROCID} ${WORLD_SIZE:-$SLURM_NTASKS} $SLURM_NODEID"'
    done = subprocess.run(
        [launcher, *words, "sh", "-c", show], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert sorted(tuple(line.split(" ")) for line in done.stdout.splitlines()) == ranks


def test_the_launcher_ends_as_its_worst_rank(tmp_path: Path) -> None:
    launcher = tmp_path / "srun"
    launcher.write_text(f"#!{sys.executable}\n{program_text('launcher_program')}")
    launcher.chmod(0o755)
    done = subprocess.run(
        [launcher, "-n", "2", "sh", "-c", "exit $((SLURM_PROCID * 3))"], env={"PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("way", "labels"),
    [
        (ResumeWay(ResumeMeans.NEWEST, "its source", home_made=True), ["as it is"]),
        (ResumeWay(ResumeMeans.TRACKER, "its source", home_made=True), ["as it is"]),
        (ResumeWay(ResumeMeans.ARGUMENT, "load()", variable="AT={step}", home_made=True), ["AT={step}"]),
        (ResumeWay(ResumeMeans.ARGUMENT, "load()", config="/w/c.json", config_key="warm", home_made=True), ["warm in a copy of"]),
        (ResumeWay(ResumeMeans.FIXED, "--load", "/w/ckpt", trial_variables=("TAG={name}",)), ["TAG={name}"]),
        (ResumeWay(ResumeMeans.NEWEST, "tried", home_made=True, tried=True), []),
        (ResumeWay(ResumeMeans.ARGUMENT, "Megatron-LM", variable="AT={step}"), []),
    ],
)
def test_what_only_home_made_source_tells_is_tried_in_that_very_way(way: ResumeWay, labels: list[str]) -> None:
    trials = trials_of(way)
    assert len(trials) == len(labels)
    assert all(trial.label.startswith(label) for trial, label in zip(trials, labels, strict=True))


def test_a_proven_word_that_names_no_checkpoint_means_the_newest() -> None:
    way = TrialWay(variable="MORE=1").way("tried in a sandbox")
    assert (way.means, way.variable) == (ResumeMeans.NEWEST, "MORE=1")


@pytest.mark.parametrize(
    ("answer", "refuted"),
    [
        (TrialAnswer("", None, 30.0, ("/w/ckpt/step_40/a",), ("/w/ckpt/step_20b/a", "/w/ckpt/step_10/a")), True),
        (TrialAnswer("", None, 30.0, ("/w/ckpt/step_40/a",), (), ("/w/ckpt/step_40/a",)), True),
        (TrialAnswer("", None, 30.0, (), (), (), ("step 1 loss 3.1\nstep 2 loss 3.0\nstep 3 loss 2.9\nstep 4 loss 2.9\n",)), True),
        (TrialAnswer("", None, 90.0), False),
        (TrialAnswer("", 1, 3.0, (), (), (), ("no CUDA device\n",)), False),
        (
            TrialAnswer(
                "", 1, 3.0, (), (), (), ("ValueError: out/a already exists and is not empty. Use --overwrite or --resume\n",)
            ),
            True,
        ),
        (TrialAnswer("", 2, 3.0, (), (), (), ("fatal: run folder not empty, refusing to start\n",)), True),
        (TrialAnswer("", 0, 3.0, (), (), (), ("out/a already exists, nothing to do\n",)), False),
        (TrialAnswer("users may have no namespaces of their own here"), False),
    ],
)
def test_only_what_went_on_from_something_else_is_refuted(answer: TrialAnswer, *, refuted: bool) -> None:
    verdict = judge_trial(answer, checkpoint(40), Inventory(Path("/w/ckpt"), (checkpoint(20), checkpoint(40)), ()))
    assert not verdict.proven
    assert verdict.refuted is refuted, verdict.note


def made(value: dict[str, Any] | None, *, ok: bool = True) -> SimpleNamespace:
    """Return what the store holds of an incident in which one trial start was made."""
    call = SimpleNamespace(id=1, tool="trial_start", arguments={"job": "7"})
    outcome = SimpleNamespace(ok=ok, value=value)
    return SimpleNamespace(calls=lambda incident: [call] if value is not None else [], outcome=lambda number: outcome)


@pytest.mark.parametrize(
    ("value", "means", "home_made"),
    [
        (None, ResumeMeans.NEWEST, True),
        ({"proven": "yes", "submission": spec_digest(SPEC), "note": "it read step_40"}, ResumeMeans.NEWEST, False),
        ({"proven": "", "refuted": "yes", "submission": spec_digest(SPEC), "note": "it began anew"}, ResumeMeans.UNKNOWN, False),
        ({"proven": "", "refuted": "", "submission": spec_digest(SPEC), "note": "no GPU"}, ResumeMeans.NEWEST, True),
        ({"proven": "", "refuted": "yes", "submission": "another job's", "note": "it began anew"}, ResumeMeans.NEWEST, True),
    ],
)
def test_a_trial_of_this_incident_proves_or_refutes_what_was_read(
    value: dict[str, Any] | None, means: ResumeMeans, *, home_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ResumeWay(ResumeMeans.NEWEST, "glob() in x.py", home_made=True)
    monkeypatch.setattr("assistant.tools.checkpoints.read_way", lambda job, search: read)
    context: Any = SimpleNamespace(incident=1, history=made(value))
    search: Any = None
    way = resume_of(context, JOB, search)
    assert (way.means, way.home_made) == (means, home_made)


def test_a_start_that_removes_more_than_it_has_to_proves_nothing() -> None:
    logged = ("resumed from /w/ckpt/step_40\nstep 41 loss 2.0\n",)
    answer = TrialAnswer("", None, 30.0, ("/w/ckpt/step_40/a",), (), ("/w/results",), logged, ("/w/results", "/w/a.tmp"))
    assert removed_besides(answer, Path("/w/ckpt")) == "/w/results"
    assert removed_besides(replace(answer, removed=("/w/x/__pycache__/a.pyc", "/tmp/a", "/w/ckpt/step_20")), Path("/w/ckpt")) == ""
    entry = Entry(Path("/w/ckpt/step_20"), 20, Format.PLAIN, {})
    held = Inventory(Path("/w/ckpt"), (checkpoint(20), checkpoint(40)), (), entries=(entry,))
    assert judge_trial(answer, checkpoint(40), held).proven
    verdict = judge_trial(replace(answer, removed=("/w/ckpt/step_20",)), checkpoint(40), held)
    assert (verdict.proven, verdict.refuted) == (False, True)


@pytest.mark.parametrize(
    ("line", "own"), [("srun python3 -u -m submitit.core._submit /w/logs", True), ("srun python3 train.py", False)]
)
def test_a_call_of_submitit_is_tried_under_the_id_by_which_it_is_looked_up(line: str, own: bool) -> None:
    spec = JobSpec("dino", f"#!/bin/bash\n{line}\n", work_dir=Path("/w"))
    job = Job("3", "dino", "ada", JobState.FAILED, "", ("n1",), None, Path("/w"), None, None, None, 1, None, spec=spec)
    words = trial_command(job, spec, uid=1000, folder=Path("/w/out"), hidden=(), seconds=9)
    request = json.loads(zlib.decompress(base64.b64decode(words[-2])))
    assert (request["environment"]["SLURM_JOB_ID"] == "3") is own
    assert requeue_words(job) == (
        "it is a job of submitit, which runs again under its own id alone: scontrol requeue 3" if own else ""
    )


@pytest.mark.parametrize(
    ("removed", "texts", "proven"),
    [
        ((), ("resuming from ckpt/last.pt\nstep 41 loss 2.5\n",), True),
        ((), ("warming up\n",), False),  # nothing tells that it went on from it
        (("/w/ckpt/last.pt",), ("resuming from ckpt/last.pt\nstep 41 loss 2.5\n",), False),
        ((), ("step 0 loss 9.5\nstep 1 loss 9.4\nstep 2 loss 9.3\n",), False),
    ],
)
def test_a_run_that_keeps_one_file_may_save_over_it_once_it_has_gone_on_from_it(
    removed: tuple[str, ...], texts: tuple[str, ...], proven: bool
) -> None:
    last = Checkpoint(Path("/w/ckpt/last.pt"), 40, Format.PLAIN, 3000, SAVED, healthy=True, problems=())
    answer = TrialAnswer("", None, 30.0, ("/w/ckpt/last.pt",), (), ("/w/ckpt/last.pt",), texts, removed)
    held = Inventory(Path("/w/ckpt"), (last,), (), entries=(Entry(last.path, 40, Format.PLAIN, {}),))
    assert judge_trial(answer, last, held).proven is proven
