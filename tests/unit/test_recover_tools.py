"""The tools that bring a job back, on the simulated cluster: resubmission, verification, storage, reports."""

from __future__ import annotations

import os
import pickle
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.records import Checkpoint, JobSpec, JobState
from assistant.recover.joblog import SkipWish, window_to_skip
from assistant.schedulers.simulated_run import SimulatedRun, write_checkpoint
from assistant.tooling import find_tool
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.report import escalate, tell_owner
from assistant.tools.resubmit import resubmit_job
from assistant.tools.verification import job_ended, job_progress, live_run, loss_continues, wait_storage
from tests.unit.failed_job import TAG, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).passes(60)


def test_a_resubmission_goes_on_from_the_checkpoint_and_carries_the_tag(world: World) -> None:
    made = resubmit_job(world.context, world.job, exclude=["node02"], blamed=["node02"])
    new = world.cluster.job(made["job"])
    assert new.comment == f"run 7 {TAG}"
    assert new.spec is not None
    assert new.spec.environment["NIGHTSHIFT_RESUME_FROM"] == str(world.saved / "iter_0000040")
    assert "node02" not in new.nodes
    assert (made["step"], made["attempt"], made["exclude"]) == (40, 1, ["node02"])


def test_after_a_crash_the_resubmission_is_found_by_its_tag(world: World) -> None:
    find = resubmit_job.find
    assert find is not None
    arguments = resubmit_job.checked({"job": world.job})
    assert find(world.context, TAG, **arguments) is None
    made = resubmit_job(world.context, world.job)
    found = find(world.context, TAG, **arguments)
    assert {**found, "note": ""} == {**made, "note": ""}
    assert find(world.context, "nightshift:teststore:3:1", **arguments) is None


def test_after_a_crash_people_hear_of_jobs_that_still_wait_for_the_old_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    resubmit_job(world.context, world.job)  # and then it was killed, before it moved what waits
    waiting = replace(world.cluster.job(world.job), id="91", user="ada")
    for name, answer in {"dependents": [waiting], "lost_dependents": []}.items():
        monkeypatch.setattr(world.cluster, name, lambda _job, answer=answer: answer, raising=False)
    monkeypatch.setattr(world.cluster, "move_dependent", pytest.fail, raising=False)
    assert resubmit_job.find is not None
    found = resubmit_job.find(world.context, TAG, **resubmit_job.checked({"job": world.job}))
    (sentence,) = found["left_behind"]
    assert sentence.startswith(f"job 91 of ada still waits for {world.job}, which failed, and not for {found['job']}: ")
    assert sentence in found["note"]


def test_the_preview_names_the_checkpoint_and_changes_nothing(world: World) -> None:
    show = resubmit_job.show
    assert show is not None
    before = list(world.cluster.changes)
    shown = show(world.context, **resubmit_job.checked({"job": world.job, "exclude": "node02"}))
    command, release = shown.commands
    assert command.startswith("sbatch --job-name=llm --nodes=2 ")
    assert f" --exclude=node02 --comment='run 7 {TAG}' --hold " in command
    assert f"NIGHTSHIFT_RESUME_FROM={world.saved}/iter_0000040" in command
    assert release == "scontrol release NEW_JOB_ID"
    assert f"again from {world.saved}/iter_0000040 (step 40)" in shown.note
    assert world.cluster.changes == before


def test_a_second_resubmission_of_the_same_run_is_refused(world: World) -> None:
    made = resubmit_job(world.context, world.job)
    assert resubmit_job(world.context, world.job)["job"] == made["job"], "the same call, asked again, has made it already"
    with pytest.raises(ToolError, match="is the same run already"):
        resubmit_job(replace(world.context, tag="nightshift:teststore:3:9"), world.job)


def test_a_running_job_is_not_submitted_again(tmp_path: Path) -> None:
    world = World(tmp_path).passes(10)
    with pytest.raises(ToolError, match="is running: cancel it first"):
        resubmit_job(world.context, world.job)


@pytest.mark.parametrize(
    ("checkpoint", "words"), [("", "no checkpoint of job"), ("/nowhere/iter_0000001", "does not exist"), ("iter_9", "is not there")]
)
def test_a_checkpoint_that_cannot_be_used_is_refused(world: World, checkpoint: str, words: str) -> None:
    path = str(world.saved / checkpoint) if checkpoint.startswith("iter") else checkpoint
    with pytest.raises(ToolError, match=words):
        resubmit_job(world.context, world.job, checkpoint=path)


def test_a_checkpoint_that_was_damaged_meanwhile_is_refused(world: World) -> None:
    write_checkpoint(world.saved, 60)
    (world.saved / "iter_0000060" / "model.bin").write_bytes(b"x")
    with pytest.raises(ToolError, match=r"must not be loaded: model\.bin has 1 bytes"):
        resubmit_job(world.context, world.job, checkpoint=str(world.saved / "iter_0000060"))


def test_too_few_nodes_left_is_said_before_anything_is_submitted(world: World) -> None:
    for node in ("node01", "node02", "node03"):
        world.cluster.cordon(node, "nightshift: test")
    with pytest.raises(ToolError, match="needs 2 nodes and 1 of 4 may be used"):
        resubmit_job(world.context, world.job)


def test_data_around_a_spike_is_left_out_in_samples(tmp_path: Path) -> None:
    stated = f'checkpoints={tmp_path / "ckpt"} skip="--skip {{from}}:{{to}}"'
    script = f"#NIGHTSHIFT {stated}\npython t.py $NIGHTSHIFT_RESUME_FROM $NIGHTSHIFT_ARGS\n"
    world = World(tmp_path, SimulatedRun(spikes_at=67), script=script).passes(90)
    world.cluster.cancel(world.job)
    chosen = choose_checkpoint(world.context, world.job, which="before_step", step=67, margin=5)
    made = resubmit_job(world.context, world.job, checkpoint=chosen["restart_from"], skip_around_step=67)
    new = world.cluster.job(made["job"])
    assert new.spec is not None
    assert (made["step"], made["skipped_steps"]) == (60, [61, 268])
    assert new.spec.environment["NIGHTSHIFT_ARGS"] == f"--skip {60 * 32}:{267 * 32}"


@pytest.mark.parametrize(
    ("wish", "checkpoint_step", "reached", "left_out"),
    [
        (SkipWish(0, 0, 1000, 200), 900, 1050, (901, 1201)),
        (SkipWish(0, 0, 1000, 200), 400, 1050, (900, 1201)),
        (SkipWish(0, 0, 1000, 200), 900, 1350, (901, 1351)),
        (SkipWish(0, 0, 1000, 200), 900, 5000, (901, 1501)),
        (SkipWish(0, 0, 1000, 0), 900, 1050, (901, 1051)),
        (SkipWish(0, 0, 1000, 300), 900, None, (901, 1301)),
        (SkipWish(0, 0, 67, 200), None, 90, (1, 268)),
    ],
    ids=["least", "old_checkpoint", "as_far_as_it_came", "most", "none_more", "reached_unknown", "no_checkpoint"],
)
def test_the_window_of_data_to_leave_out(
    tmp_path: Path, wish: SkipWish, checkpoint_step: int | None, reached: int | None, left_out: tuple[int, int]
) -> None:
    start = None
    if checkpoint_step is not None:
        start = Checkpoint(tmp_path, checkpoint_step, "plain", 1, datetime(2026, 1, 1, tzinfo=UTC), healthy=True, problems=())
    job = World(tmp_path, SimulatedRun()).cluster.job("1")
    skip = window_to_skip(job, wish, start, reached)
    assert skip is not None
    assert (skip.first, skip.end) == left_out


@pytest.mark.parametrize(("after_s", "refused"), [(20, False), (90, True)], ids=["tear_down", "somebody_writes"])
def test_nothing_is_started_beside_whoever_saves_after_the_job_has_ended(after_s: float, refused: bool, world: World) -> None:
    ended = world.cluster.job(world.job).ended
    assert ended is not None
    for file in world.saved.rglob("*"):
        os.utime(file, (ended.timestamp() + after_s,) * 2)
    world.passes(200)
    if not refused:
        assert resubmit_job(world.context, world.job)["job"] == "2"
        return
    with pytest.raises(ToolError, match=r"was saved at .* after job 1 had ended"):
        resubmit_job(world.context, world.job)
    assert world.cluster.changes == ["submit 1"]


def test_a_save_that_appears_while_the_restart_waits_held_withdraws_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = world.cluster.job(world.job).ended
    assert ended is not None
    world.passes(200)
    submit = world.cluster.submit

    def submitted(spec: JobSpec) -> str:
        for file in world.saved.rglob("*"):
            os.utime(file, (ended.timestamp() + 150,) * 2)
        return submit(spec)

    monkeypatch.setattr(world.cluster, "submit", submitted)
    with pytest.raises(ToolError, match="was saved at"):
        resubmit_job(world.context, world.job)
    assert [one.held for one in world.cluster.jobs() if one.id != world.job] == [True]


def test_progress_is_seen_once_the_restart_step_is_passed(world: World) -> None:
    made = resubmit_job(world.context, world.job)
    assert job_progress(world.context, made["job"], restart_step=40, timeout_s=0)["status"] == "waiting"
    seen = job_progress(world.context, made["job"], restart_step=40, timeout_s=60)
    assert (seen["status"], seen["step"] > 40) == ("past_restart_step", True)


def test_a_later_step_may_have_to_be_passed_as_well(world: World) -> None:
    made = resubmit_job(world.context, world.job)
    seen = job_progress(world.context, made["job"], restart_step=40, past_step=50, timeout_s=60)
    assert (seen["status"], seen["step"] >= 51) == ("past_restart_step", True)


def test_a_restart_that_fails_at_once_is_a_failure(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50), SimulatedRun(fails_at=40)).passes(60)
    made = resubmit_job(world.context, world.job)
    assert job_progress(world.context, made["job"], restart_step=40, timeout_s=60)["status"] == "failed"


def test_the_loss_goes_on_from_where_it_was(world: World) -> None:
    made = resubmit_job(world.context, world.job)
    assert loss_continues(world.context, made["job"], world.job, restart_step=40, timeout_s=0)["status"] == "waiting"
    seen = loss_continues(world.context, made["job"], world.job, restart_step=40, timeout_s=60)
    assert seen["status"] == "continues", seen


def test_a_loss_that_is_high_again_is_a_jump(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50), SimulatedRun(spikes_at=41)).passes(60)
    made = resubmit_job(world.context, world.job)
    assert loss_continues(world.context, made["job"], world.job, restart_step=40, timeout_s=60)["status"] == "jumped"


def test_a_job_that_the_scheduler_never_queues_again_is_not_waited_for_unless_its_owner_brings_it_back(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50, state=JobState.PREEMPTED)).passes(60)
    assert live_run(world.context, world.job)["status"] == "waiting"
    world.spec = replace(world.spec, options=("--no-requeue",))
    job = world.cluster.submit(world.spec)
    world.passes(60)
    assert live_run(world.context, job)["status"] == "gone"
    back = world.cluster.submit(world.spec)
    assert live_run(world.context, job)["job"] == back


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.TIMEOUT])
def test_a_job_that_the_scheduler_calls_failed_is_never_waited_for(state: JobState, tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50, state=state)).passes(60)
    seen = live_run(world.context, world.job)
    assert (seen["status"], seen["job"]) == ("gone", "")
    assert f"the scheduler calls it {state}" in seen["note"]


def test_a_run_that_comes_back_by_itself_is_seen(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=50, state=JobState.NODE_FAIL)).passes(60)
    assert live_run(world.context, world.job)["status"] == "waiting"
    back = world.cluster.submit(world.spec)
    assert live_run(world.context, world.job) == {"status": "alive", "note": f"job {back} is running", "step": None, "job": back}


def test_the_end_of_a_job_is_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path).passes(10)
    assert job_ended(world.context, world.job, timeout_s=0)["status"] == "waiting"
    assert job_ended(world.context, world.job, timeout_s=600)["status"] == "ended"


def test_storage_that_answers_is_seen_and_left_as_it_was(world: World) -> None:
    before = sorted(world.saved.rglob("*"))
    assert wait_storage(world.context, world.job, timeout_s=0)["status"] == "storage_answers"
    assert sorted(world.saved.rglob("*")) == before


@pytest.mark.parametrize(
    ("doubt", "written"), [("its script takes RUN from the shell", "{folder} can"), ("", "{folder}/runs/debug can")]
)
def test_no_file_is_written_into_a_folder_that_may_be_another_runs(tmp_path: Path, doubt: str, written: str) -> None:
    script = "OUT=runs/${RUN:-debug}\nsrun python t.py --output_dir $OUT\n"
    world = World(tmp_path, script=script)
    other = tmp_path / "runs" / "debug"
    other.mkdir(parents=True)
    spec = replace(world.spec, doubt=doubt)
    world.cluster._jobs[world.job] = replace(world.cluster.job(world.job), spec=spec, log=tmp_path / "job.log")
    os.utime(other, (0, 0))
    assert written.format(folder=tmp_path) in wait_storage(world.context, world.job, timeout_s=0)["note"]
    assert (other.stat().st_mtime == 0) is bool(doubt)


def test_storage_that_is_said_to_be_down_is_waited_for(world: World) -> None:
    (world.saved / "storage_down_until").write_text(str(world.clock.now().timestamp() + 30))
    assert wait_storage(world.context, world.job, timeout_s=5)["status"] == "waiting"
    assert wait_storage(world.context, world.job, timeout_s=60)["status"] == "storage_answers"


def test_a_missing_folder_is_storage_that_does_not_answer(world: World, tmp_path: Path) -> None:
    seen = wait_storage(world.context, folder=str(tmp_path / "gone"), timeout_s=0)
    assert (seen["status"], "No such file" in seen["note"]) == ("waiting", True)


def never_made(folder: Path, lines: tuple[str, ...] = ()) -> World:
    """Return a job that failed and whose checkpoint folder, below `lus`, is not there."""
    (folder / "lus").mkdir()
    missing = folder / "lus" / "run" / "ckpt"
    script = f"#NIGHTSHIFT checkpoints={missing}\nsrun python t.py $NIGHTSHIFT_RESUME_FROM $NIGHTSHIFT_ARGS\n"
    return World(folder, SimulatedRun(fails_at=10, lines=lines), SimulatedRun(), script=script).passes(30)


@pytest.mark.parametrize(
    ("holds", "lines", "status"),
    [
        (("others",), (), "storage_answers"),
        ((), (), "waiting"),  # an empty mount point
        (("others",), ("saved checkpoint to {}/step_5.pt",), "waiting"),  # it was there
        (("others", "run"), (), "waiting"),  # what stands lowest may be the mount point
    ],
)
def test_a_folder_that_a_job_never_made_is_no_storage_that_is_away(
    tmp_path: Path, holds: tuple[str, ...], lines: tuple[str, ...], status: str
) -> None:
    world = never_made(tmp_path, tuple(line.format(tmp_path / "lus" / "run" / "ckpt") for line in lines))
    for name in holds:
        (tmp_path / "lus" / name).mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert wait_storage(world.context, world.job, timeout_s=0)["status"] == status
    assert sorted(tmp_path.rglob("*")) == before


def test_the_owner_gets_the_line_and_the_advice(world: World) -> None:
    said = tell_owner(world.context, world.job, "type_error", "divide by the count", root_line="job.log:9: TypeError", owner="#llm")
    assert said["text"].splitlines() == [
        f"#llm: job {world.job} (llm) failed: type_error.",
        "divide by the count",
        "Evidence: job.log:9: TypeError",
        said["saved"],
        "Nightshift did not restart it; submit it again when that is done.",
    ]
    assert "iter_0000040 (step 40). This script resumes from the checkpoint that it is given" in said["saved"]
    assert escalate(world.context, "no node is left", "repair one")["note"] == "no node is left: repair one"


@pytest.mark.parametrize(
    ("run", "saved"),
    [
        (SimulatedRun(fails_at=50), "The newest whole checkpoint is {}/iter_0000040 (step 40)."),
        (
            SimulatedRun(fails_at=50, cut=(40,)),
            "The newest whole checkpoint is {}/iter_0000020 (step 20); not to be loaded: iter_0000040: has no manifest.json: "
            "the save did not finish, it is written last.",
        ),
        (
            SimulatedRun(fails_at=50, cut=(20, 40)),
            "No checkpoint of it is whole; not to be loaded: iter_0000020: holds empty files",
        ),
        (SimulatedRun(fails_at=10), "never saved"),
    ],
)
def test_whoever_has_to_act_is_told_what_the_job_left_to_go_on_from(tmp_path: Path, run: SimulatedRun, saved: str) -> None:
    world = World(tmp_path, run).passes(60)
    for message in (tell_owner(world.context, world.job, "type_error", "mend it"), escalate(world.context, "why", job=world.job)):
        assert saved.format(world.saved) in message["saved"]


def test_undo_of_a_resubmission_ends_the_new_job(world: World) -> None:
    made = resubmit_job(world.context, world.job)
    undo = find_tool(str(resubmit_job.undo))
    undo(world.context, made["job"])
    assert world.cluster.job(made["job"]).state is JobState.CANCELLED


def test_a_program_that_begins_anew_is_given_the_argument_by_which_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nout_dir = 'out'\ninit_from = 'scratch'\nexec(open('configurator.py').read())\n"
        "if init_from == 'resume':\n    torch.load(out_dir + '/ckpt.pt')\ntorch.save({}, out_dir + '/ckpt.pt')\n"
    )
    (tmp_path / "nano").mkdir()
    with zipfile.ZipFile(tmp_path / "nano" / "ckpt.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"iter_num": 40}))
    world = World(tmp_path, script="srun python train.py --out_dir=nano 2>&1 | tee train.log\n").passes(60)
    made = resubmit_job(world.context, world.job)
    new = world.cluster.job(made["job"])
    assert new.spec is not None
    assert (made["step"], new.spec.environment["NIGHTSHIFT_ARGS"]) == (40, "--init_from=resume")
    assert "--out_dir=nano ${NIGHTSHIFT_ARGS:-} 2>&1" in new.spec.script
