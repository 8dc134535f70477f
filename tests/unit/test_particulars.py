"""Advice made from the case: memory accounts, the place in the job's own code, NaN from the first step."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from bench.diagnosis import own_cases

FILES = sorted((Path(__file__).parents[1] / "cases" / "particulars").glob("*.toml"))
CASES = [case for path in FILES for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. "
OOM += "GPU 2 has a total capacity of 79.15 GiB of which {free} is free."
OWN = " Including non-PyTorch memory, this process has {own} memory in use. "
OWN += "Of the allocated memory {own} is allocated by PyTorch, and {loose} is reserved by PyTorch but unallocated."


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def advised(folder: Path, knowledge: Knowledge, *lines: str) -> str:
    (folder / "job.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return diagnose(Case.from_path(folder), knowledge).advice


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ((OOM + OWN).format(wanted="2.00 GiB", free="1.10 GiB", own="78.01 GiB", loose="0.30 GiB"), "Lower the batch"),
        ((OOM + OWN).format(wanted="2.00 GiB", free="1.10 GiB", own="78.01 GiB", loose="9.30 GiB"), "expandable_segments"),
        (
            (OOM + OWN).format(wanted="2.00 GiB", free="1.10 GiB", own="20.05 GiB", loose="0.30 GiB"),
            "About 58.0 GiB are held by other",
        ),
        (
            OOM.format(wanted="64.00 MiB", free="12.00 MiB")
            + " Process 4711 has 60.00 GiB memory in use."
            + OWN.format(own="19.10 GiB", loose="1.00 MiB"),
            "About 60.0 GiB are held by processes 4711",
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; "
            "14.25 GiB already allocated; 4.75 MiB free; 14.60 GiB reserved in total by PyTorch)",
            "GPU 0 has 15.8 GiB, of which 0.00 GiB were free when 20.00 MiB more were wanted",
        ),
    ],
)
def test_the_account_of_memory_decides_what_to_change(tmp_path: Path, knowledge: Knowledge, message: str, words: str) -> None:
    assert words in advised(tmp_path, knowledge, "step 3 loss 2.1", message)


def test_the_place_is_the_innermost_frame_of_the_jobs_own_code(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/ada/run/train.py", line 41, in main',
        "    loss = model(batch)",
        '  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward',
        "    return F.linear(input, self.weight, self.bias)",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 768x10)",
    )
    advice = advised(tmp_path, knowledge, *lines)
    assert "takes 768 features and gets 512" in advice
    place = "It is on the way from /home/ada/run/train.py:41 in main(). The line is `loss = model(batch)`."
    assert advice.endswith(f"{place} A restart alone does not help.")


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        ("/home/ada/run/fused_rope.py", True),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/functional.py", False),
    ],
)
def test_a_device_error_names_the_jobs_own_call_at_which_it_showed(
    tmp_path: Path, knowledge: Knowledge, frame: str, named: bool
) -> None:
    own = '  File "/home/ada/run/train.py", line 41, in <module>'
    last = f'  File "{frame}", line 6, in forward'
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    advice = advised(
        tmp_path, knowledge, "Traceback (most recent call last):", own, "    loss = model(x)", last, "    y = f(x)", error
    )
    assert ("It showed at /home/ada/run/fused_rope.py:6 in forward(), " in advice) is named
    assert frame in advice or not named
    assert "site-packages" not in advice


def test_a_run_that_was_never_finite_is_not_sent_back_to_its_own_checkpoint(tmp_path: Path, knowledge: Knowledge) -> None:
    assert "no checkpoint of this run helps" in advised(
        tmp_path, knowledge, *(f"{{'loss': 0.0, 'grad_norm': nan, 'step': {step}}}" for step in range(1, 40))
    )
    later = [f"step {step} loss {3 - step / 50:.3f} grad_norm 0.9" for step in range(1, 60)]
    later += [f"step {step} loss nan grad_norm nan" for step in range(60, 90)]
    assert advised(tmp_path, knowledge, *later).startswith("Go back to a checkpoint before the spike")


@pytest.mark.parametrize(
    ("line", "went_on"),
    [
        ("Resuming training from out/ckpt_000040.pt (iter 40)", True),
        ("loading checkpoint at iteration 40", True),
        ("restored ckpt/step_00040", True),
        ("Initializing a new model from scratch", False),
        ("loading tokenizer from gpt2", False),
        ("loaded 3 steps of warm-up", False),
    ],
)
def test_a_run_that_was_not_finite_behind_its_save_is_sent_to_one_before(
    line: str, *, went_on: bool, tmp_path: Path, knowledge: Knowledge
) -> None:
    advice = advised(tmp_path, knowledge, line, *(f"iter {step}: loss nan, time 12.00ms" for step in range(41, 81)))
    assert ("that checkpoint may hold the damage already" in advice) is went_on, advice
    assert ("no checkpoint of this run helps" in advice) is not went_on


def test_a_line_that_names_nothing_is_quoted_and_no_remedy_is_made_up(tmp_path: Path, knowledge: Knowledge) -> None:
    advice = advised(tmp_path, knowledge, "RuntimeError: the flux capacitor is out of phase")
    said = "All that the log says is job.log:1: RuntimeError: the flux capacitor is out of phase."
    assert advice == f"{said} A restart alone does not help."


@pytest.mark.parametrize(
    ("saves", "words"),
    [
        (
            ("Saving model checkpoint to out/checkpoint-40",),
            "The last save that the log shows: job.log:2: Saving model checkpoint to out/checkpoint-40.",
        ),
        ((), "The log shows no save: where there is none, it begins at the start."),
        (("could not save checkpoint",), "The log shows no save"),
    ],
)
def test_a_restart_from_a_checkpoint_names_the_one_that_the_log_shows(
    tmp_path: Path, knowledge: Knowledge, saves: tuple[str, ...], words: str
) -> None:
    end = "RuntimeError: NCCL error: remote process exited or there was a network error"
    assert words in advised(tmp_path, knowledge, "step 40 loss 2.1", *saves, "step 41 loss 2.0", end)


def test_where_only_a_library_speaks_its_line_is_named_as_such(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/site-packages/lab/reader.py", line 7, in read',
        "    raise ValueError(name)",
        "ValueError: odd header",
    )
    assert "Raised inside lab, at /opt/env/lib/python3.11/site-packages/lab/reader.py:7 in read()" in advised(
        tmp_path, knowledge, *lines
    )


def test_a_restart_that_would_meet_the_same_wall_is_not_advised(tmp_path: Path, knowledge: Knowledge) -> None:
    bus = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
    (tmp_path / "job.log").write_text(f"step 3 loss 2.1\n{bus}\n", encoding="utf-8")
    found = diagnose(Case.from_path(tmp_path), knowledge)
    assert (found.reason, found.action) == ("dataloader_killed", "fix_and_resubmit")
    assert found.advice.startswith("/dev/shm is too small")
    assert found.advice.endswith("A restart alone does not help.")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_advice_says_what_the_case_allows_and_no_more(tmp_path: Path, knowledge: Knowledge, case: Any) -> None:
    advice = advised(tmp_path, knowledge, *case["lines"])
    assert [words for words in case["says"] if words not in advice] == [], advice
    assert [words for words in case.get("never", ()) if words in advice] == [], advice


DIRECTION = re.compile(r"(?:^|[.!?] )(?:Restart|Start it again|Wait until|Set \S+ aside and|Go back to a checkpoint)\b")
"""How the sentence of an action other than to mend begins."""
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def contradictions(action: str, advice: str) -> list[str]:
    """Return sentences that say another thing than the action, and those that are said twice."""
    sentences = [sentence.strip() for sentence in SENTENCE.split(advice)]
    twice = [sentence for sentence in set(sentences) if len(sentence) > 12 and sentences.count(sentence) > 1]
    mends = "Do not restart: the owner has to change something first" in advice or "A restart alone does not help" in advice
    starts = DIRECTION.search(advice) is not None
    return [
        *twice,
        *(["starts and mends"] if mends and starts else []),
        *(["mends"] if mends and action != "fix_and_resubmit" else []),
    ]


def test_no_advice_contradicts_its_action_or_says_a_sentence_twice(tmp_path: Path, knowledge: Knowledge) -> None:
    wrong = {}
    for number, case in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "job.log").write_text("\n".join(case["lines"]) + "\n", encoding="utf-8")
        found = diagnose(Case.from_path(folder), knowledge)
        wrong[case["name"]] = contradictions(found.action, found.advice)
    for folder, _ in own_cases():
        found = diagnose(Case.from_path(folder), knowledge)
        wrong[folder.name] = contradictions(found.action, found.advice)
    assert {name: sentences for name, sentences in wrong.items() if sentences} == {}


@pytest.mark.parametrize(
    ("action", "advice"),
    [
        (
            "restart_same_nodes",
            "Restart from the last healthy checkpoint. Do not restart: the owner has to change something first.",
        ),
        ("wait_and_retry", "Do not restart: the owner has to change something first."),
        ("restart_same_nodes", "Restart from the last healthy checkpoint. A restart alone does not help."),
        ("none", "Look at the first line of it. Look at the first line of it."),
    ],
)
def test_a_contradiction_is_seen(action: str, advice: str) -> None:
    assert contradictions(action, advice)


def test_what_a_program_met_behind_a_lost_gpu_asks_for_no_change_of_code(knowledge: Knowledge) -> None:
    folder = Path(__file__).parents[1] / "cases" / "diagnose" / "cuda_error" / "launch_failure_of_a_lost_gpu"
    advice = diagnose(Case.from_path(folder), knowledge).advice
    assert advice.startswith("Set gpu001 aside")
    assert "dcgmi diag -r 3" in advice
    assert "CUDA_LAUNCH_BLOCKING" not in advice
