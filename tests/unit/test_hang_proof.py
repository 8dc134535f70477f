"""What proves a hang, and what a log says of how long its silence may last; cases as files."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.logs.phases import LogPhase, announced_size, phase_begun, phase_over
from assistant.records import Job, JobState
from assistant.watch.hang import HangLimits, Still, Suspicion
from assistant.watch.progress import PaceLimits, SpikeLimits
from assistant.watch.view import ViewLimits, view_of
from assistant.watch.witness import WitnessVote, proofs_of_hang, unobserved, witness_of

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "hang_proof" / "proofs.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_only_what_was_seen_proves_a_hang(case: dict[str, Any]) -> None:
    gpus = stacks = processes = None
    if "gpus" in case:
        nodes = {node: {"gpus": [{"state": state} for state in states]} for node, states in case["gpus"].items()}
        gpus = {"text": "", "nodes": nodes, "unknown": case.get("gpus_unknown", {})}
    if {"ranks", "stacks_unknown", "cpu"} & set(case):
        classes = [{"where": where, "ranks": ranks, "waits": waits} for where, ranks, waits in case.get("ranks", ())]
        seen = sum(one["ranks"] for one in classes)
        stacks = {"seen": seen, "expected": seen, "moved": case.get("moved", 0), "classes": classes}
        stacks |= {"busy": case.get("busy", 0), "cpu": case.get("cpu", {})}
        stacks["unknown"] = case.get("stacks_unknown", {})
    if {"gone", "stopped"} & set(case):
        processes = {"programs": {"node01": ["sleep"]}, "gone": case.get("gone", ""), "stopped": case.get("stopped", [])}
    plausible, stopped = case.get("plausible", False), case.get("beat_stopped", False)
    suspicion = Suspicion(
        Still.SILENT, START, 1900, 1800, LogPhase.TRAINING, certain=True, plausible=plausible, beat_stopped=stopped
    )
    witness = witness_of(gpus, stacks, processes)
    assert list(proofs_of_hang(suspicion, witness)) == case["proofs"]
    assert unobserved(witness) == case["unseen"]
    assert witness.vote is not WitnessVote.HUNG or case["proofs"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("  Num examples = 48000", ("examples", 48_000)),
        ("Number of validation batches: 1,200", ("batches", 1_200)),
        ("INFO evaluating 5_000 test prompts", ("prompts", 5_000)),
        ("Running validation at step 100 on 640 samples", ("samples", 640)),
        ("Tokenizing 120000 documents with 8 workers", ("documents", 120_000)),
        ("  Num Epochs = 3", None),
        ("generated on 48 samples/s", None),
        ("step 120/260 loss: 2.9291", None),
        ("  Num examples = 0", None),
        ("evaluation after 1000 steps", None),
    ],
)
def test_a_line_announces_a_size(text: str, size: tuple[str, int] | None) -> None:
    assert announced_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["Compiling the model with torch.compile", "Tokenizing train dataset", "> building train, validation, and test datasets ..."],
)
def test_a_line_says_that_it_prepares(text: str) -> None:
    assert phase_begun(text) is LogPhase.PREPARATION


def test_a_line_says_that_it_is_prepared() -> None:
    text = ">>> done with compiling the dataset index builder. Compilation time: 0.051 seconds"
    assert phase_over(text, LogPhase.PREPARATION)
    assert phase_begun(text) is None
    assert not phase_over("Tokenizing train dataset", LogPhase.PREPARATION)


def _steps(first: int, last: int, begin: datetime) -> list[str]:
    return [
        f"{begin + timedelta(seconds=step - first):%m/%d/%Y %H:%M:%S} - INFO - step {step}/500 loss: 2.5"
        for step in range(first, last)
    ]


@pytest.mark.parametrize(
    ("first", "second", "silent_s", "suspected", "plausible"),
    [
        # sizes of the first and the second evaluation; the first took 25 s, ten times as much may take 250 s, and half again that
        (4800, 48_000, 240, False, False),
        (4800, 48_000, 400, True, False),
        (4800, 4800, 190, True, False),
        (None, 48_000, 190, True, True),
        (4800, None, 190, True, False),
    ],
)
def test_an_announced_size_lengthens_the_wait(
    tmp_path: Path, first: int | None, second: int | None, silent_s: float, suspected: bool, plausible: bool
) -> None:
    log = tmp_path / "job.log"
    job = Job("7", "llm", "alice", JobState.RUNNING, "gpu", ("node01",), log, None, START, START, None, None, None)

    def evaluation(size: int | None) -> list[str]:
        return ["***** Running evaluation *****", *([f"  Num examples = {size}"] if size else [])]

    begin = START + timedelta(seconds=54)
    lines = [
        *_steps(1, 31, START),
        *evaluation(first),
        "perplexity: 9.81 eval_loss: 2.28",
        *_steps(31, 61, begin),
        *evaluation(second),
    ]
    log.write_text("".join(f"{line}\n" for line in lines))
    view = view_of(job, ViewLimits(HangLimits(180, 5), SpikeLimits(persist_steps=20), PaceLimits()), metrics=False)
    now = datetime.now(UTC)
    view.read(now)
    assert view.life_at is not None
    found = view.suspicion(view.life_at + timedelta(seconds=silent_s))
    assert (found is not None, bool(found and found.plausible)) == (suspected, plausible)
