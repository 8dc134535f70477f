"""What a start of a script as it is costs where it does not go on: steps, and checkpoints that it writes over or rotates away.

Told to people who may start it by hand. From the settings of its programs and the names that lie there; nothing is opened. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from assistant.records import Checkpoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.job_program import JobProgram, Option
from assistant.recover.resume.means import NO, ResumeMeans, ResumeWay

LIMITS = frozenset(
    "save_total_limit checkpoints_total_limit total_limit save_top_k keep_last_n keep_last keep_last_k max_to_keep "
    "max_keep_ckpts keep_latest_k save_num_checkpoints_to_keep num_checkpoints_to_keep keep_checkpoints".split()
)
"""Settings of trainers that say how many checkpoints stay."""
OVERWRITES = frozenset("overwrite_output_dir overwrite save_overwrite allow_overwrite".split())
"""Settings of trainers that let a run save into a folder that holds something."""
MOST_NAMED = 3


def plain_start_words(
    way: ResumeWay, programs: Sequence[JobProgram], folder: Inventory, checkpoint: Checkpoint, reached: int | None
) -> str:
    """Return what a start without the chosen checkpoint costs, as sentences; empty where a script goes on by itself.

    Args:
        way: How it resumes.
        programs: What its script starts.
        folder: What lies where it saves.
        checkpoint: The chosen one.
        reached: The step that the attempt came to; None where no log tells it.
    """
    if way.means not in (ResumeMeans.NONE, ResumeMeans.UNKNOWN):
        return ""
    words: list[str] = []
    if reached is not None and reached >= checkpoint.step:
        lost = reached - checkpoint.step
        words.append(f"it came to step {reached}: from {checkpoint.path.name} {lost} steps are lost, without it all {reached}")
    names = [save.path.name for save in folder.checkpoints]
    examples = names if len(names) <= MOST_NAMED else [*names[:1], "…", names[-1]]
    words.append(f"a start as it is may begin at step 0 and write over {', '.join(examples)} when it comes to their steps")
    settings = [option for program in programs for option in (*program.options, *program.settings)]
    overwrites = next((option for option in settings if option.last in OVERWRITES and option.value.lower() not in NO), None)
    if overwrites is not None:
        words.append(f"{_setting_text(overwrites)} lets it")
    limit = next((option for option in settings if option.last in LIMITS and option.value.isdecimal() and int(option.value)), None)
    if limit is not None:
        words.append(f"with {_setting_text(limit)} its own saves rotate them away")
    return "; ".join(words)


def _setting_text(option: Option) -> str:
    """Return a setting as it stands where it is set."""
    return f"{option.where} ({option.value})" if option.value else option.where
