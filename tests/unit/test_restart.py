"""Planning a restart: what is kept, what is added, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.records import Checkpoint, Job, JobSpec, JobState, Node, NodeState
from assistant.recover.joblog import samples_of
from assistant.recover.restart import Skip, attempt_of, can_skip, plan_restart, restart_problem

TAG = "nightshift:3:17"
SCRIPT = """\
#!/bin/bash
#SBATCH -N 2
#NIGHTSHIFT resume="--load {checkpoint} --ckpt-step {step}" skip="--skip {from}:{to}"
export OMP_NUM_THREADS=1
srun python train.py --lr 1e-4 \\
  --bf16
echo done
"""
SPEC = JobSpec("llm", SCRIPT, nodes=2, work_dir=Path("/work"), environment={"A": "1"}, exclude=("node09",), comment="run 7")
CHECKPOINT = Checkpoint(Path("/ckpt/iter_0000040"), 40, "megatron", 1, datetime(2026, 3, 1, tzinfo=UTC), True, ())


def job(state: JobState = JobState.FAILED, spec: JobSpec = SPEC, job_id: str = "7") -> Job:
    return Job(
        id=job_id, name="llm", user="ada", state=state, partition="gpu", nodes=("node01", "node02"), log=None,
        work_dir=Path("/work"), submitted=None, started=None, ended=None, exit_code=1, signal=None, spec=spec,
    )  # fmt: skip


def planned(
    spec: JobSpec = SPEC, checkpoint: Checkpoint | None = CHECKPOINT, exclude: tuple[str, ...] = (), skip: Skip | None = None
) -> JobSpec:
    return plan_restart(job(spec=spec), spec, checkpoint, exclude=exclude, skip=skip, attempt=attempt_of(spec) + 1, tag=TAG)


def test_everything_that_is_not_named_is_kept() -> None:
    spec = planned(exclude=("node02", "node09"))
    assert (spec.name, spec.nodes, spec.work_dir, spec.environment["A"]) == ("llm", 2, Path("/work"), "1")
    assert spec.exclude == ("node09", "node02")
    assert spec.comment == f"run 7 {TAG}"


def test_the_script_learns_of_the_restart_by_its_environment() -> None:
    spec = planned(skip=Skip(41, 60, (1280, 1888)))
    assert {name: value for name, value in spec.environment.items() if name != "A"} == {
        "NIGHTSHIFT_ATTEMPT": "1",
        "NIGHTSHIFT_RESUME_FROM": "/ckpt/iter_0000040",
        "NIGHTSHIFT_STEP": "40",
        "NIGHTSHIFT_SKIP_FROM": "1280",
        "NIGHTSHIFT_SKIP_TO": "1888",
        "NIGHTSHIFT_SKIP_FROM_STEP": "41",
        "NIGHTSHIFT_SKIP_TO_STEP": "60",
        "NIGHTSHIFT_ARGS": "--load /ckpt/iter_0000040 --ckpt-step 40 --skip 1280:1888",
    }


def test_the_launch_command_takes_the_arguments_at_its_end() -> None:
    lines = planned().script.splitlines()
    assert lines[4:6] == ["srun python train.py --lr 1e-4 \\", "  --bf16 ${NIGHTSHIFT_ARGS:-}"]
    assert len(lines) == len(SCRIPT.splitlines())


def test_a_second_restart_adds_nothing_twice() -> None:
    again = planned(planned())
    assert again.script == planned().script
    assert again.comment == f"run 7 {TAG}"
    assert again.environment["NIGHTSHIFT_ATTEMPT"] == "2"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun python t.py > out.log 2>&1", "srun python t.py ${NIGHTSHIFT_ARGS:-} > out.log 2>&1"),
        ("srun python t.py 2> err.log", "srun python t.py ${NIGHTSHIFT_ARGS:-} 2> err.log"),
        ("torchrun t.py | tee log", "torchrun t.py ${NIGHTSHIFT_ARGS:-} | tee log"),
        ("python t.py --name 'a > b' &", "python t.py --name 'a > b' ${NIGHTSHIFT_ARGS:-} &"),
        ("python t.py  # go", "python t.py ${NIGHTSHIFT_ARGS:-} # go"),
    ],
)
def test_arguments_stand_before_a_redirection(line: str, expected: str) -> None:
    script = f'#!/bin/bash\n#NIGHTSHIFT resume="--load {{checkpoint}}"\n{line}\n'
    assert planned(replace(SPEC, script=script)).script.splitlines()[2] == expected


@pytest.mark.parametrize(
    "line", ["python train.py $NIGHTSHIFT_ARGS", 'python t.py ${NIGHTSHIFT_RESUME_FROM:+--load "$NIGHTSHIFT_RESUME_FROM"}']
)
def test_a_script_that_asks_for_them_itself_is_left_alone(line: str) -> None:
    script = f'#!/bin/bash\n#NIGHTSHIFT resume="--load {{checkpoint}}"\n{line}\n'
    assert planned(replace(SPEC, script=script)).script == script


def test_a_script_without_templates_is_left_alone() -> None:
    script = "#!/bin/bash\npython train.py --load latest\n"
    spec = planned(replace(SPEC, script=script))
    assert spec.script == script
    assert "NIGHTSHIFT_ARGS" not in spec.environment


@pytest.mark.parametrize(
    "script", ['#NIGHTSHIFT resume="--load {checkpoint}"\n./run.sh\n', "#NIGHTSHIFT resume='-l {step}'\nbash -c \"python \\\nx\n"]
)
def test_a_launch_line_that_cannot_be_told_is_said(script: str) -> None:
    with pytest.raises(ToolError, match=r"write \$\{NIGHTSHIFT_ARGS:-\} there"):
        planned(replace(SPEC, script=script))


def test_a_path_that_a_shell_would_change_is_refused() -> None:
    with pytest.raises(ToolError, match="characters that a shell would change"):
        planned(checkpoint=replace(CHECKPOINT, path=Path("/ckpt/$(rm -rf)/iter_0000040")))


def test_a_value_is_never_read_as_a_template_again() -> None:
    spec = planned(checkpoint=replace(CHECKPOINT, path=Path("/ckpt/step/iter_0000040")))
    assert spec.environment["NIGHTSHIFT_ARGS"] == "--load /ckpt/step/iter_0000040 --ckpt-step 40"


def test_samples_that_are_not_known_are_not_guessed() -> None:
    with pytest.raises(ToolError, match="does not tell how many samples a step takes"):
        planned(skip=Skip(41, 60))


def test_steps_do_where_the_script_counts_in_steps() -> None:
    script = '#NIGHTSHIFT skip="--skip-batches {from_step}-{to_step}"\npython t.py\n'
    assert planned(replace(SPEC, script=script), skip=Skip(41, 60)).environment["NIGHTSHIFT_ARGS"] == "--skip-batches 41-60"


@pytest.mark.parametrize(("script", "can"), [(SCRIPT, True), ("python t.py", False), ("t.py $NIGHTSHIFT_SKIP_FROM", True)])
def test_whether_a_job_can_skip_is_read_off_its_script(script: str, can: bool) -> None:
    assert can_skip(replace(SPEC, script=script)) is can


def test_from_the_start_nothing_of_an_older_restart_is_left() -> None:
    spec = planned(planned(), checkpoint=None)
    assert not {"NIGHTSHIFT_RESUME_FROM", "NIGHTSHIFT_STEP", "NIGHTSHIFT_ARGS"} & set(spec.environment)


LOG = [f" iteration {step:8}/ 200 | consumed samples: {step * 32:12} | global batch size: 32 | loss: 2" for step in range(1, 80)]


@pytest.mark.parametrize(
    ("lines", "first", "end", "samples"),
    [
        (LOG, 61, 72, (60 * 32, 71 * 32)),
        (LOG, 1, 11, (0, 320)),
        (LOG, 70, 100, (69 * 32, 99 * 32)),
        (["global batch size: 16"], 3, 5, (32, 64)),
        (["step 3 loss 2"], 1, 2, None),
    ],
)
def test_samples_of_steps_are_read_off_the_log(lines: list[str], first: int, end: int, samples: tuple[int, int] | None) -> None:
    assert samples_of(lines, first, end) == samples


def nodes(*states: NodeState) -> list[Node]:
    return [Node(f"node{number:02}", state, "gpu") for number, state in enumerate(states, 1)]


IDLE = (NodeState.IDLE,) * 4


def test_a_sound_plan_has_no_problem() -> None:
    assert restart_problem(job(), planned(), jobs=[job()], nodes=nodes(*IDLE), checkpoint=CHECKPOINT, blamed=()) is None


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
def test_the_same_run_is_never_started_twice(state: JobState) -> None:
    problem = restart_problem(job(), planned(), jobs=[job(), job(state, job_id="8")], nodes=nodes(*IDLE))
    assert problem == f"job 8 ({state}) is the same run already: a second one would write over its checkpoints"


def test_a_node_at_fault_must_be_out() -> None:
    problem = restart_problem(job(), planned(), jobs=[], nodes=nodes(*IDLE), blamed=["node02"])
    assert problem == "node node02 was found at fault, and is neither cordoned nor excluded"
    out = nodes(NodeState.IDLE, NodeState.DRAINING, NodeState.IDLE)
    assert restart_problem(job(), planned(), jobs=[], nodes=out, blamed=["node02"]) is None
    assert restart_problem(job(), planned(exclude=("node02",)), jobs=[], nodes=nodes(*IDLE), blamed=["node02"]) is None


def test_too_few_nodes_are_said() -> None:
    out = nodes(NodeState.DRAINED, NodeState.DOWN, NodeState.ALLOCATED)
    problem = restart_problem(job(), planned(), jobs=[], nodes=out)
    assert problem == "the job needs 2 nodes and 1 of 3 may be used; repair and uncordon some first"


@pytest.mark.parametrize(("attempt", "reached", "stale"), [(2, 40, True), (1, 40, False), (2, 41, False), (2, None, False)])
def test_the_same_checkpoint_is_not_tried_for_ever(attempt: int, reached: int | None, stale: bool) -> None:
    environment = {"NIGHTSHIFT_RESUME_FROM": str(CHECKPOINT.path), "NIGHTSHIFT_ATTEMPT": str(attempt)}
    failed = job(spec=replace(SPEC, environment=environment))
    problem = restart_problem(failed, planned(), jobs=[], nodes=nodes(*IDLE), checkpoint=CHECKPOINT, reached_step=reached)
    assert (problem is not None) is stale
