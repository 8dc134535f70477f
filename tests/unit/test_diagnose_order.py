"""In which phase it failed, which node failed first, which rank is not like the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.first_failure import phase_of
from assistant.records import Diagnosis, NodePattern, PatternKind

STEPS = [f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |" for n in range(1, 30)]
OOM = "RuntimeError: CUDA error: an illegal memory access was encountered"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def told(tmp_path: Path, knowledge: Knowledge, lines: Sequence[str]) -> Diagnosis:
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n")
    return diagnose(Case.from_path(tmp_path), knowledge)


def of_kind(found: Diagnosis, kind: PatternKind) -> list[NodePattern]:
    return [pattern for pattern in found.patterns if pattern.kind is kind]


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        pytest.param(["building model"], "start", id="nothing trained yet"),
        pytest.param(["loading checkpoint from /ckpt at iteration 400"], "loading", id="loading"),
        pytest.param(["loading checkpoint from /ckpt", "successfully loaded checkpoint from /ckpt"], "start", id="loaded"),
        pytest.param(STEPS[:1], "first_step", id="one step"),
        pytest.param(STEPS, "training", id="training"),
        pytest.param([*STEPS, "saving checkpoint at iteration 29 to /ckpt"], "checkpoint", id="saving"),
        pytest.param([*STEPS, "saving checkpoint at iteration 29", "successfully saved checkpoint"], "training", id="saved"),
        pytest.param([*STEPS[:9], "saving checkpoint at iteration 9", *STEPS[9:]], "training", id="saved and trained on"),
        pytest.param([*STEPS, "***** Running Evaluation *****"], "evaluation", id="evaluation"),
        pytest.param([*STEPS, "  eval_interval ............ 100", "  evaluation_strategy=steps"], "training", id="settings"),
        pytest.param([*STEPS, "training finished after 29 iterations"], "end", id="after the last step"),
        pytest.param(["[GPU0] Epoch 6 | Batchsize: 32 | Steps: 64"], "", id="epochs alone"),
        pytest.param(["Engine 000: Avg prompt throughput: 1210.4 tokens/s", "Running: 8 reqs"], "", id="a server at work"),
        pytest.param(["Epoch 0: starting"], "start", id="the epoch that begins it"),
        pytest.param([f"Outer step {step}" for step in range(3, 60, 3)], "training", id="a counter on a line of its own"),
        pytest.param([f"(PolicyActor pid=88) Outer step {step}" for step in range(3, 60, 3)], "training", id="of an actor of Ray"),
        pytest.param(
            [f"(PolicyActor pid=88, ip=10.0.0.7) Outer step {step}: {{'reward': 0.{step}}}" for step in range(3, 60, 3)],
            "training",
            id="of an actor of Ray, with values",
        ),
        pytest.param([f"(PolicyActor pid={88 + rank}) rank {rank} is up" for rank in range(8)], "start", id="ranks of actors"),
        pytest.param([f"(PolicyActor pid={88 + rank}) engine is up" for rank in range(8)], "start", id="process ids of actors"),
        pytest.param([f"(PolicyActor pid=88) retry {attempt} of step" for attempt in range(8)], "start", id="retries of an actor"),
        pytest.param([f"(PolicyActor pid=88) attempt {number}" for number in range(8)], "start", id="attempts of an actor"),
        pytest.param(
            [f"(PolicyActor pid=88) Loading shard {number} of 9" for number in range(8)], "start", id="shards of an actor"
        ),
        pytest.param(["iteration 9 | lm loss: 2.5E+00"], "training", id="one step of a run that is not at its first"),
        pytest.param(
            [*STEPS, "[rank1]: up", "saving checkpoint at iteration 29", "[rank0]: successfully saved checkpoint"],
            "",
            id="one rank of several saved",
        ),
        pytest.param(
            [
                *STEPS,
                "Saving model checkpoint to /out/checkpoint-29",
                "Traceback (most recent call last):",
                '  File "/w/train.py", line 3, in step',
                "    loss.backward()",
            ],
            "training",
            id="raised behind a save",
        ),
        pytest.param(
            [
                *STEPS,
                "Saving model checkpoint to /out/checkpoint-29",
                "Traceback (most recent call last):",
                '  File "/w/train.py", line 3, in save_checkpoint',
                "    torch.save(state, path)",
            ],
            "checkpoint",
            id="raised in a save",
        ),
    ],
)
def test_the_phase_is_what_was_begun_and_not_ended(tmp_path: Path, knowledge: Knowledge, before: list[str], phase: str) -> None:
    error = OOM if any(line.startswith("Traceback") for line in before) else f"[rank0]: {OOM}"
    (tmp_path / "job.log").write_text("\n".join([*before, error]) + "\n")
    assert phase_of(gather(Case.from_path(tmp_path), knowledge), len(before) + 1) == phase


def test_a_job_that_did_not_fail_has_no_phase(tmp_path: Path, knowledge: Knowledge) -> None:
    found = told(tmp_path, knowledge, [*STEPS, "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T03:00:00 ***"])
    assert (found.reason, found.phase, found.patterns) == ("cancelled", "", ())


def test_a_diagnosis_says_in_which_phase_it_failed(tmp_path: Path, knowledge: Knowledge) -> None:
    assert (
        told(tmp_path, knowledge, [*STEPS, "saving checkpoint at iteration 29 to /ckpt", f"[rank0]: {OOM}"]).phase == "checkpoint"
    )


def watchdog(rank: int, second: int, node: str = "") -> str:
    mark = f"{node}: " if node else ""
    return (
        f"{mark}[rank{rank}]:[E2026-03-01 03:10:{second:02}.000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective"
        f" operation timeout: WorkNCCL(SeqNum=880, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600032 ms"
    )


def hosted(rank: int) -> str:
    return f"node{rank // 4:02}:{100 + rank}:{200 + rank} [{rank % 4}] NCCL INFO comm 0x1 rank {rank} nranks 16 cudaDev {rank % 4}"


def test_the_one_rank_that_does_not_time_out_is_named_with_its_node(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = [*map(hosted, range(16)), *STEPS, *(watchdog(rank, 30) for rank in range(16) if rank != 9)]
    [differs] = of_kind(told(tmp_path, knowledge, lines), PatternKind.DIFFERS)
    assert differs.nodes == ("node02",)
    assert differs.text == "15 of 16 ranks print that a collective timed out, rank 9 on node02 does not"


def test_nobody_is_missing_when_all_time_out_or_many_are_silent(tmp_path: Path, knowledge: Knowledge) -> None:
    head = [*map(hosted, range(16)), *STEPS]
    assert not of_kind(told(tmp_path, knowledge, [*head, *(watchdog(rank, 30) for rank in range(16))]), PatternKind.DIFFERS)
    assert not of_kind(told(tmp_path, knowledge, [*head, *(watchdog(rank, 30) for rank in range(8))]), PatternKind.DIFFERS)


def test_the_node_whose_errors_come_well_before_the_others_failed_first(tmp_path: Path, knowledge: Knowledge) -> None:
    head = [*map(hosted, range(16)), *STEPS]
    early = f"2026-03-01 03:10:05 [rank6]: {OOM}"
    later = [f"2026-03-01 03:10:{20 + rank} [rank{rank}]: {OOM}" for rank in range(16) if rank // 4 != 1]
    [first] = of_kind(told(tmp_path, knowledge, [*head, early, *later]), PatternKind.FIRST)
    assert first.nodes == ("node01",)
    assert "node01 (rank 6) printed the first error, 15 s before the next of 4 nodes" in first.text


def test_errors_of_the_same_moment_have_no_order(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = [*map(hosted, range(16)), *STEPS, *(f"2026-03-01 03:10:05 [rank{rank}]: {OOM}" for rank in range(16))]
    assert not of_kind(told(tmp_path, knowledge, lines), PatternKind.FIRST)


SANITY = "Sanity Checking DataLoader 0:   0%|          | 0/2 [00:00<?, ?it/s]"
EPISODE = (
    "Traceback (most recent call last):",
    '  File "/w/fit.py", line 9, in run',
    "    out = net(x)",
    "ValueError: odd width",
)


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        (("reading the corpus",), "start"),
        (("part A Ep: 0 lr0.01 Loss alignment: 4.021972 Loss T 0.47",), ""),
        (("W0418 20:36:27.010259  2316 context.cc:362] device 1", "[WARNING 2021-04-20 14:48:00,369 feed.py:346] slow"), ""),
        (("W0418 20:36:27.010259  2316 context.cc:362] device 1", "[WARNING 2021-04-18 20:37:00,369 feed.py:346] slow"), "start"),
        ((SANITY + "Epoch 0:  3%|#         | 140/3999 [08:06<3:48:39,  2.31it/s, v_num=0]" * 12,), ""),
        ((SANITY,), "evaluation"),
        (("Running evaluation on 40 samples",), "evaluation"),
    ],
)
def test_a_phase_is_named_only_where_nothing_shows_another(
    tmp_path: Path, knowledge: Knowledge, before: tuple[str, ...], phase: str
) -> None:
    assert told(tmp_path, knowledge, [*before, *EPISODE]).phase == phase


def test_an_inference_fails_in_no_training(tmp_path: Path, knowledge: Knowledge) -> None:
    steps = [f"step {step} loss 0.{step}1" for step in range(1, 9)]
    trace = [line.replace("fit.py", "inference.py").replace("in run", "in score") for line in EPISODE]
    assert told(tmp_path, knowledge, [*steps, *EPISODE]).phase == "training"
    assert told(tmp_path, knowledge, [*steps, *trace]).phase == ""
