"""Jobs that queue themselves again: by which words that is seen, and how far attempts came in a log that they append to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.engine.outcomes.pending_jobs import requeues_itself, steps_of_attempts
from assistant.logs.attempt import job_logs
from assistant.ports import JumpingClock
from assistant.records import JobState
from assistant.store import Store
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_requeue_records import AGAIN, Night

GAN = """
trap 'requeue=1; kill -USR1 $pid' USR1
wait $pid; rc=$?
if [ $rc = 85 ]; then
  echo "[wrap] requeue of $SLURM_JOB_ID"
  scontrol requeue $SLURM_JOB_ID
fi
"""
ENDED = "slurmstepd-gpu001: error: *** JOB 812 ON gpu001 CANCELLED AT 2026-11-27T03:57:20 DUE TO JOB REQUEUE ***\n"
PREEMPTED = "slurmstepd: error: *** STEP 812.0 ON gpu001 CANCELLED AT 2026-11-27T04:02:57 DUE TO PREEMPTION ***\n"


def ticks(first: int, last: int) -> str:
    return "".join(f"tick {tick:<5d} kimg {tick * 0.4:<8.1f} Loss/G 1.{tick}\n" for tick in range(first, last + 1, 10))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (GAN, "scontrol requeue $SLURM_JOB_ID"),
        ("/usr/bin/scontrol requeuehold 812", "/usr/bin/scontrol requeuehold 812"),
        ("# scontrol requeue $SLURM_JOB_ID", ""),
        ('echo "run scontrol requeue by hand"', ""),
        ("scontrol show job $SLURM_JOB_ID", ""),
        ("#SBATCH --requeue\nsrun x", ""),
    ],
)
def test_a_script_shows_that_it_queues_itself_again(script: str, words: str, tmp_path: Path) -> None:
    before = job_in(tmp_path, script)
    assert requeues_itself(replace(before, attempt=1, state=JobState.PENDING), before) == words


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        ("requeing job 812...", True),
        ("INFO requeueing job 812", True),
        ("[wrap] requeue of 812", True),
        ("requeue of 813", False),
        ("the requests of 812 are queued", False),
        (ENDED.strip(), False),  # Slurm's own line does not tell who
    ],
)
def test_a_log_shows_that_its_job_queues_itself_again(line: str, is_shown: bool, tmp_path: Path) -> None:
    before = job_in(tmp_path, "srun x")
    write(tmp_path / "slurm-812.out", f"{ticks(10, 40)}{line}\n")
    assert requeues_itself(replace(before, attempt=1, state=JobState.PENDING), before) == (line if is_shown else "")


@pytest.mark.parametrize(
    ("text", "attempt", "last", "own"),
    [
        (ticks(10, 170) + ENDED + "Resuming: tick 171\n" + ticks(180, 200), 1, 170, [180, 190, 200]),
        (ticks(10, 60) + PREEMPTED + "got SIGTERM, saved at step 65\n" + ticks(70, 80), 1, 60, [70, 80]),
        (ticks(10, 60) + ENDED + ticks(40, 50), 1, 60, [40, 50]),
        (ticks(10, 60) + PREEMPTED + ENDED + ticks(70, 90), 1, 60, [70, 80, 90]),  # step and job are one end
        (ticks(10, 60) + ENDED + ticks(70, 90) + ENDED + ticks(100, 110), 2, 90, [100, 110]),
        ("step 5 loss 2.0\nstep 6 loss 1.9\n" + ENDED + "step 7 loss 1.8\n", 1, 6, [7]),
        (ticks(10, 60) + ENDED + "loading\n", 1, 60, []),
        (ticks(10, 60) + ticks(70, 90), 1, None, []),  # nothing tells the attempts apart
        (ticks(10, 60) + ENDED + ticks(70, 90), 2, None, []),  # an end that Slurm did not write
        (ticks(10, 60) + ENDED.replace("812", "813") + ticks(70, 90), 1, None, []),
        ("reading\n" + ENDED + "reading\n", 1, None, []),
        (ticks(10, 60), 0, None, []),
    ],
)
def test_the_attempts_in_one_log_are_told_apart_by_slurms_own_lines(
    text: str, attempt: int, last: int | None, own: list[int], tmp_path: Path
) -> None:
    write(tmp_path / "slurm-812.out", text)
    steps = steps_of_attempts(job_in(tmp_path, attempt=attempt, appends=True, started=START))
    assert (steps.last if steps is not None else None, list(steps.own) if steps is not None else []) == (last, own)


@pytest.mark.parametrize(("first", "lost"), [(180, "lost: 0 steps, "), (140, "lost: 31 steps, ")])
def test_what_a_requeue_cost_is_counted_by_what_the_log_itself_counts(first: int, lost: str, tmp_path: Path) -> None:
    clock = JumpingClock(START)
    with Store(tmp_path / "state/s.db", clock) as store:
        night = Night(tmp_path, store, clock)
        write(tmp_path / "slurm-812.out", ticks(10, 170), START + timedelta(minutes=1))
        night.job = job_in(tmp_path, GAN, appends=True)
        night.look(None)
        night.look(None, attempt=1, state=JobState.PENDING)
        [incident] = store.incidents(job="812")
        assert "by its own script, as it seems (`scontrol requeue $SLURM_JOB_ID`)" in incident.note
        write(tmp_path / "slurm-812.out", ticks(10, 170) + ENDED, AGAIN)
        assert night.look(None, started=AGAIN, state=JobState.RUNNING) == []
        write(tmp_path / "slurm-812.out", ticks(10, 170) + ENDED + ticks(first, first), AGAIN + timedelta(seconds=30))
        night.look(None)
        write(tmp_path / "slurm-812.out", ticks(10, 170) + ENDED + ticks(first, 200), AGAIN + timedelta(seconds=60))
        [said] = night.look(None)
        assert said.startswith(lost)


REQUEUED = "slurmstepd-gpu001: error: *** {what} ON gpu001 CANCELLED AT {at:%Y-%m-%dT%H:%M:%S} DUE TO JOB REQUEUE ***\n"
LAST_WORDS = "srun: forcing job termination\nsrun: error: gpu001: task 0: Terminated\n"
MISFIT = (
    "=> resuming from runs/last.pth (iter 80)\nTraceback (most recent call last):\n"
    '  File "/work/train.py", line 20, in <module>\n    model.load_state_dict(ck["model"])\n'
    "RuntimeError: Error(s) in loading state_dict for ConvNet:\n"
    '\tMissing key(s) in state_dict: "stages.0.grn.gamma". \n'
    + "".join(
        f"\tsize mismatch for stages.{n}.dwconv.weight: copying a param with shape torch.Size([{48 * 2**n}, 1, 7, 7]) from "
        f"checkpoint, the shape in current model is torch.Size([{64 * 2**n}, 1, 7, 7]).\n"
        for n in range(4)
    )
    + "srun: error: gpu001: task 0: Exited with exit code 1\n"
)


def requeue_line(seconds: int, what: str = "JOB 812") -> str:
    """Return Slurm's line of a requeue, so many seconds before (-) or after the second attempt began, by this machine's clock."""
    return REQUEUED.format(what=what, at=(AGAIN + timedelta(seconds=seconds)).astimezone())


@pytest.mark.parametrize(
    ("before", "own", "attempt"),
    [
        (ticks(10, 170) + requeue_line(-9, "STEP 812.0") + requeue_line(-9) + LAST_WORDS, MISFIT, 1),
        (requeue_line(-9), "srun: error: gpu001: task 0: Exited with exit code 1\n", 1),
        (requeue_line(-900) + ticks(10, 60) + requeue_line(-9), MISFIT, 2),
        (requeue_line(-9), MISFIT + requeue_line(60), 1),  # looked at as it was before it was queued again once more
        (ticks(10, 60) + requeue_line(-9), MISFIT, 3),  # two ends that Slurm did not write
        ("", ticks(10, 60) + requeue_line(-9).replace("812", "813") + MISFIT, 1),
        ("", ticks(10, 60) + MISFIT, 1),
        ("", ticks(10, 60) + requeue_line(60), 3),  # behind its own start there is no end of one before it
    ],
)
def test_an_attempt_begins_in_a_log_that_is_appended_to_where_slurm_ended_the_one_before(
    before: str, own: str, attempt: int, tmp_path: Path
) -> None:
    log = write(tmp_path / "dogs.log", before + own, AGAIN + timedelta(seconds=1))
    job = job_in(tmp_path, log=log, appends=True, attempt=attempt, started=AGAIN, nodes=("gpu001",))
    (file,) = job_logs(job).files
    assert (file.begin, file.sure) == (len(before), False)


def test_a_second_attempt_is_diagnosed_by_its_own_lines(tmp_path: Path) -> None:
    text = ticks(10, 170) + requeue_line(-9, "STEP 812.0") + requeue_line(-9) + LAST_WORDS + MISFIT
    job = job_in(tmp_path, log=write(tmp_path / "dogs.log", text, AGAIN), appends=True, attempt=1, started=AGAIN, nodes=("gpu001",))
    job = replace(job, state=JobState.FAILED, ended=AGAIN + timedelta(seconds=1), exit_code=1)
    case = Case.from_parts(job.log, "", "", None, job, None).with_logs(job_logs(job))
    assert diagnose(case, Knowledge.load()).reason == "model_loading_error"


def test_the_file_of_a_step_that_is_appended_to_begins_behind_slurms_end_as_well(tmp_path: Path) -> None:
    before = ticks(10, 170) + requeue_line(-9, "STEP 812.0")
    write(tmp_path / "batch.out", "", AGAIN + timedelta(seconds=1))
    write(tmp_path / "log_812_0.out", before + "building the index\n", AGAIN + timedelta(seconds=1))
    script = 'srun --open-mode=append --output "log_%j_%t.out" python3 train.py'
    job = job_in(tmp_path, script, log=tmp_path / "batch.out", attempt=1, started=AGAIN, nodes=("gpu001",))
    step = next(file for file in job_logs(job).files if file.path.name == "log_812_0.out")
    assert (step.begin, step.sure) == (len(before), False)
