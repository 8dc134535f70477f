"""What a person is told about a job that never saved: what beginning again costs, and which line makes it save. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assistant.records import Action, Diagnosis, Job
from assistant.recover.job_program import JobProgram
from assistant.recover.job_reading import framework_of
from assistant.recover.source.reruns import skips_what_is_there

INTERVALS = (
    "save_interval",
    "save_steps",
    "save_every",
    "save_freq",
    "checkpoint_interval",
    "ckpt_interval",
    "checkpoint.interval",
)
"""Options that say after how many steps a program saves."""
ONE_PIECE_LOST = "A restart does only what is missing, and loses the piece that it was at."
"""Of a job that is proven to pass over finished pieces."""
_HOW_TO_SAVE = {
    "megatron": "--save FOLDER --save-interval STEPS",
    "torchtitan": "--checkpoint.enable --checkpoint.interval STEPS",
    "huggingface": "--save_strategy steps --save_steps STEPS",
    "accelerate": "--checkpointing_steps STEPS, where the program knows it, else accelerator.save_state(FOLDER) in its loop",
    "lightning": "callbacks=[ModelCheckpoint(dirpath=FOLDER, every_n_train_steps=STEPS, save_top_k=-1)]",
    "deepspeed": "model_engine.save_checkpoint(FOLDER) every STEPS steps",
    "composer": "--save_folder FOLDER --save_interval STEPSba",
    "nemo": "exp_manager.create_checkpoint_callback=True",
    "litgpt": "--train.save_interval STEPS",
    "nanogpt": "--always_save_checkpoint=True --eval_interval=STEPS",
}
_ANY = "a call such as torch.save(state, FOLDER/step_N.pt) every STEPS steps"
_FROM_CHECKPOINT = re.compile(
    r"\bfrom (?:the|a) (?:last|newest|previous|latest) (?:healthy |complete )?checkpoint\b", re.IGNORECASE
)
_COMES_AGAIN = {
    Action.FIX_AND_RESUBMIT: "Unless its owner changes something it fails the same way again.",
    Action.ROLLBACK_AND_SKIP_DATA: "It meets the same data again.",
}


def cost_of_beginning(
    job: Job, reached: int | None, gpu_hours: float | None, programs: Sequence[JobProgram], action: Action | None = None
) -> str:
    """Return what a restart from step 0 costs, whether the failure comes again, and which line makes the job save.

    Args:
        job: The attempt that ended.
        reached: The last step that it showed; None where its log shows none.
        gpu_hours: What it has used; None where its GPUs are not known.
        programs: What its script starts.
        action: Of the diagnosis; None where there is none.
    """
    hours = f", {gpu_hours:.1f} GPU hours" if gpu_hours is not None else ""
    skips = skips_what_is_there(programs) if not reached else ""
    if skips:
        again = f" {_COMES_AGAIN[action]}" if action in _COMES_AGAIN else ""
        return f"A restart passes over the pieces that are there ({skips}), and loses only the one that it was at.{again}"
    if reached:
        sentences = [f"A restart begins at step 0 and makes the {reached} steps again that it had made{hours}."]
    else:
        sentences = [f"A restart begins anew{hours and f' after{hours[1:]}'}; its log shows no step."]
    if action in _COMES_AGAIN:
        sentences.append(_COMES_AGAIN[action])
    interval = next((option for program in programs if (option := program.option(*INTERVALS)) is not None), None)
    if interval is not None and interval.value.isdecimal() and reached is not None and int(interval.value) > reached:
        sentences.append(f"It was to save first at step {interval.value} ({interval.where}): a smaller number saves earlier.")
    else:
        script = job.spec.script if job.spec is not None else ""
        words = [*(word for program in programs for word in program.launch.words), script]
        words += [name for program in programs for source in program.sources for name in source.modules]
        sentences.append(f"It saves with: {_HOW_TO_SAVE.get(framework_of(chr(10).join(words)), _ANY)}.")
    return " ".join(sentences)


def without_checkpoint(found: Diagnosis, words: str) -> Diagnosis:
    """Return a diagnosis whose advice rests on no checkpoint: clauses about one are left out, words about a restart are added."""
    said = _FROM_CHECKPOINT.sub("from the start", found.advice)
    sentences = []
    for sentence in re.split(r"(?<=\.) ", said):
        parts = [part for part in sentence.rstrip(".").split("; ") if "checkpoint" not in part.lower()]
        if parts:
            text = "; ".join(parts)
            sentences.append(f"{text[0].upper()}{text[1:]}.")
    return replace(found, advice=" ".join([*dict.fromkeys(sentences), words]))
