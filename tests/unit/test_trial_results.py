"""What a trial start has shown binds the choice, the submission and what is moved aside; one that could not run binds nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Call, CallStatus, Outcome
from assistant.recover.joblog import SkipWish
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.trial.marks import marks_of
from assistant.recover.trial.trial import TrialWay, spec_digest
from assistant.tools import checkpoints, resubmit
from assistant.tools.aside import setting_aside
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.resubmit import plan_submission
from assistant.tools.trial_results import start_digest, start_words, way_after_trials
from tests.no_history import MadeCalls
from tests.unit.failed_job import START, World
from tests.unit.test_trial import JOB, checkpoint, made

NEWEST = ResumeWay(ResumeMeans.NEWEST, "glob() in x.py, line 3", home_made=True, trial_variables=("FROM={checkpoint}",))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A failed job of which only its own source says that it takes the newest, on a cluster whose nodes can start its script."""
    world = World(tmp_path, script=f"#!/bin/bash\nexport CKPT={tmp_path}/ckpt\nsrun python x.py --save {tmp_path}/ckpt\n").passes(
        60
    )
    monkeypatch.setattr(checkpoints, "read_way", lambda job, search: NEWEST)
    monkeypatch.setattr(checkpoints, "TRIAL_TRANSPORTS", (world.context.transport.name,))
    return world


def after(world: World, **answer: Any) -> World:
    spec = world.context.scheduler.job(world.job).spec
    assert spec is not None
    marks = marks_of(map(Path, answer.get("refused", ())), "")
    value = {"submission": spec_digest(spec), "note": "tried in a sandbox on n3", "marks": marks, **answer}
    call = Call(18, 3, "trial_start", {"job": world.job}, "", "playbook:p", START, CallStatus.DONE)
    history = MadeCalls(call, ends=[Outcome(18, True, value, "", START)])
    world.context = replace(world.context, history=history)
    return world


def submission(world: World, path: str) -> Any:
    return plan_submission(world.context, world.job, checkpoint=path, exclude=(), skip=SkipWish(0, 0, 0), read=False)


def test_what_a_start_died_of_is_refused_and_the_one_before_it_chosen(world: World) -> None:
    newest = choose_checkpoint(world.context, world.job)["path"]
    why = "torn or of no use: it is the newest, and a start of its script read it in a sandbox and died: 'EOFError: x'"
    chosen = choose_checkpoint(after(world, refuted="yes", refused={newest: why}).context, world.job, try_first=True)
    assert chosen["restart_from"] == "", "a start that was refuted is not submitted"
    assert why in chosen["note"], "and the person is told what it died of"
    assert Path(chosen["path"]).name < Path(newest).name
    with pytest.raises(ToolError, match="must not be loaded: torn or of no use"):
        submission(world, newest)


def test_a_file_that_no_rule_takes_for_a_checkpoint_is_one_once_a_start_has_died_of_it(world: World) -> None:
    crash = world.saved / "crash.sav"
    crash.write_bytes(b"x" * 90)
    with pytest.raises(ToolError, match="no checkpoint of a known form"):
        setting_aside(world.context, world.job, [str(crash)])
    refused = {str(crash): "torn: 90 bytes, each of the others at least 4,000"}
    newest = choose_checkpoint(world.context, world.job)["path"]
    world = after(world, proven="yes", refused=refused, checkpoint=newest, variable="", argument="", set_aside=[str(crash)])
    chosen = choose_checkpoint(world.context, world.job, try_first=True)
    assert (chosen["restart_from"], chosen["set_aside"]) == (newest, [str(crash)])
    assert "crash.sav refused: torn: 90 bytes" in chosen["note"]
    assert "crash.sav" in setting_aside(world.context, world.job, [str(crash)]).text
    with pytest.raises(ToolError, match="it would load or meet crash"):
        plan_submission(world.context, world.job, checkpoint=newest, exclude=(), skip=SkipWish(0, 0, 0))
    crash.rename(world.saved.parent / "crash.sav")
    assert choose_checkpoint(world.context, world.job)["set_aside"] == [], "it is gone, and nothing is in the way any more"


def test_a_result_counts_for_nothing_where_the_file_or_the_attempt_is_another(world: World) -> None:
    newest = choose_checkpoint(world.context, world.job)["path"]
    after(world, refuted="yes", refused={newest: "torn: 90 bytes"})
    assert choose_checkpoint(world.context, world.job)["path"] != newest
    after(world, refuted="yes", refused={newest: "torn: 90 bytes"}, attempt=f"{world.job} 2020-01-01T00:00:00+00:00")
    assert choose_checkpoint(world.context, world.job)["path"] == newest, "the job was put back into the queue since"
    after(world, refuted="yes", refused={newest: "torn: 90 bytes"}, marks={})
    assert choose_checkpoint(world.context, world.job)["path"] == newest, "what was tried is not known"
    after(world, refuted="yes", refused={newest: "torn: 90 bytes"})
    for file in Path(newest).rglob("*"):
        os.utime(file, (1_900_000_000, 1_900_000_000))
    chosen = choose_checkpoint(world.context, world.job)
    assert (chosen["path"], chosen["refused"]) == (newest, []), "the file was written again since"


def test_the_start_that_was_proven_is_submitted_and_no_other(world: World) -> None:
    newest = choose_checkpoint(world.context, world.job)["path"]
    proof = {
        "proven": "yes",
        "variable": "FROM={checkpoint}",
        "argument": "",
        "checkpoint": newest,
        "command": f"FROM={newest} sbatch x.sh",
    }
    plan = submission(after(world, **proof), newest)
    assert plan.spec.environment["FROM"] == newest, "in the way that was proven, though reading says that it takes the newest"
    digest = start_digest(plan.spec)
    assert start_digest(replace(plan.spec, environment={**plan.spec.environment, "NIGHTSHIFT_SKIP_FROM_STEP": "4"})) == digest
    submission(after(world, **proof, start=digest), newest)
    with pytest.raises(ToolError, match="would not be the start that was proven"):
        submission(after(world, **proof, start="another"), newest)
    with pytest.raises(ToolError, match="was chosen since"):
        submission(after(world, **{**proof, "checkpoint": "/elsewhere/step_1"}), newest)
    submission(
        after(world, **{**proof, "checkpoint": "/elsewhere/step_1", "step": 1, "start": "of step 1"}), newest
    )  # it saved once more


def test_a_refusal_behind_a_proof_tells_the_person_the_command_that_was_proven(world: World) -> None:
    newest = choose_checkpoint(world.context, world.job)["path"]
    proof = {"proven": "yes", "variable": "FROM={checkpoint}", "checkpoint": "/elsewhere/step_1", "command": "FROM=/a sbatch x.sh"}
    world = after(world, **proof)
    with pytest.raises(ToolError, match="proven in a sandbox is: FROM=/a sbatch x"):
        resubmit.resubmit_job(world.context, world.job, checkpoint=newest)


@pytest.mark.parametrize(
    ("answer", "means", "variable"),
    [
        ({"proven": "yes", "variable": "FROM={checkpoint}"}, ResumeMeans.ARGUMENT, "FROM={checkpoint}"),
        ({"proven": "yes", "variable": "", "argument": ""}, ResumeMeans.NEWEST, ""),
        ({"refuted": "yes"}, ResumeMeans.UNKNOWN, ""),
        ({"note": "users may have no namespaces of their own here"}, ResumeMeans.NEWEST, ""),
    ],
    ids=["another way", "as it was read", "refuted", "it could not run"],
)
def test_the_way_after_a_trial_is_the_one_that_it_has_shown(answer: dict[str, str], means: ResumeMeans, variable: str) -> None:
    assert JOB.spec is not None
    context: Any = type("C", (), {"incident": 1, "history": made({**answer, "submission": spec_digest(JOB.spec)})})
    way = way_after_trials(context, JOB, NEWEST)
    assert (way.means, way.variable) == (means, variable)


def test_a_start_is_told_as_a_person_types_it() -> None:
    words = start_words(JOB, TrialWay(variable="FROM={checkpoint}"), checkpoint(40))
    assert words == "submit job 7 again as the first time, with FROM=/w/ckpt/step_40 in its environment"
