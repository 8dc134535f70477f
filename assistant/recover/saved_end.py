"""Tell whether the end of a training is saved, and whether what failed behind it was nothing but the program's exit.

A program may log in epochs only, or not at all at its last step: then what lies on the disk tells. A checkpoint that says of itself
that it is of the last step (`trainer_state.json`: `global_step`, `max_steps`), or a model that was written beside the checkpoints
after the newest of them, is the end of the training whose log says that it is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.errors import InputError
from assistant.records import Checkpoint, Job, JobState
from assistant.recover.checkpoints.inventory import Inventory
from assistant.untrusted import list_folder, read_json, status_of

__all__ = ["aborted_at_exit", "saved_end"]

STATE_FILE = "trainer_state.json"
"""Source: transformers, trainer_callback.py (TrainerState)."""
STATE_BYTES = 4 << 20
MOST_NAMES = 2_000
MODEL = re.compile(
    r"(?:(?:pytorch_|adapter_|tf_|flax_)?model(?:-\d{1,6}-of-\d{1,6})?|(?:final|last)[\w.-]{0,40}|consolidated[\w.-]{0,20})"
    r"\.(?:safetensors|bin|pt|pth|ckpt|h5|keras|msgpack|npz)"
)
LATE = timedelta(minutes=2)
"""After the end of a job what it wrote may still be on its way; what is written later is another job's."""


def saved_end(job: Job, saves: Inventory) -> str:
    """Return what proves that the last step of a job is saved, in words; empty where nothing does.

    Call it inside `reading_as(job.account)`.

    Args:
        job: That has ended, and whose log says that its training is over.
        saves: Its checkpoints.
    """
    if job.started is None:
        return ""
    began = job.started
    own = [checkpoint for checkpoint in saves.checkpoints if checkpoint.healthy and checkpoint.saved_at >= began]
    for checkpoint in reversed(own[-3:]):
        if (steps := _last_of(checkpoint)) is not None:
            return f"{checkpoint.path.name} is of its last step ({STATE_FILE}: step {steps[0]} of {steps[1]})"
    newest = max((checkpoint.saved_at for checkpoint in saves.checkpoints), default=None)
    return _final_model(job, saves.folder, newest) if newest is not None else ""


def _last_of(checkpoint: Checkpoint) -> tuple[int, int] | None:
    """Return the step of a checkpoint and the last of all, where they are one by its own state; None where they are not."""
    try:
        state = read_json(checkpoint.path / STATE_FILE, STATE_BYTES)
    except (OSError, InputError, ValueError):
        return None
    step, last = (state.get(name) if isinstance(state, dict) else None for name in ("global_step", "max_steps"))
    if isinstance(step, int) and isinstance(last, int) and step >= last > 0 and step == checkpoint.step:
        return step, last
    return None


def _final_model(job: Job, folder: Path, newest: datetime) -> str:
    """Return the model that a job wrote beside its checkpoints after the newest of them."""
    try:
        entries = list_folder(folder, MOST_NAMES)
    except (OSError, InputError):
        return ""
    for entry in sorted(entries):
        if not MODEL.fullmatch(entry.name):
            continue
        try:
            status = status_of(entry)
        except (OSError, InputError):
            continue
        written = datetime.fromtimestamp(status.st_mtime, UTC)
        if not status.st_size or (job.ended is not None and written > job.ended + LATE):
            continue
        if written >= newest and job.started is not None and written >= job.started:
            return f"{entry.name} was written after its last checkpoint"
    return ""


ABORTED = re.compile(
    r"terminate called|\bAborted\b|\bSIG(?:ABRT|SEGV|BUS)\b|Segmentation fault|\bcore dumped\b|Signal: (?:Aborted|Segmentation)"
    r"|free\(\): |double free or corruption|corrupted (?:size|double)|munmap_chunk\(\)|malloc\(\): |corrupted unsorted",
)
"""How a program says that it was ended by an abort or a fault of memory."""
_OF_EXIT = re.compile(
    r"^\s{0,200}$|what\(\):|Exception raised from |\bframe #\d|Process received signal|End of error message"
    r"|Signal(?: code)?:|Failing at address"
    r"|^\s{0,8}\[ ?\d{1,3}\] |^\*{3,} train metrics \*|Fatal Python error"
    r"|^(?:Current )?[Tt]hread 0x|^\s{1,8}File \".{1,400}\", line \d{1,9} in "
    r"|Extension modules:|<no Python frame>|driver shutting down|^\s{0,8}\S{1,40} \w{0,8}\(?0x[0-9a-f]{6,}"
    r"|srun: (?:error|Terminating|launch)|slurmstepd: |destroy_process_group|resource_tracker|leaked \w{1,20} objects|^wandb:"
    r"|train_(?:runtime|loss|samples|steps)|total_flos|^\s{0,8}epoch\s{0,20}[:=]"
    r"|\b(?:[Mm]odel|[Ww]eights|[Cc]heckpoint|[Tt]okenizer|[Cc]onfiguration)\b.{0,200}\b(?:saved|written|stored)\b"
    r"|\b(?:[Ss]av(?:ed|ing)|[Ww]rote)\b.{0,200}\b(?:model|weights|checkpoint|tokenizer|config\w{0,8})\b"
    r"|^\s{0,8}(?:\[\w{1,40}\]:?\s{0,4})?(?:\w{1,20} )?(?:[Dd]one|[Ff]inished|[Bb]ye|[Ee]xiting)\b.{0,20}$"
)
"""Lines behind a training that tell of its last saves, of its end and of the program's exit, and of no other work."""
TAIL = 400
"""Lines from the end of each log that are looked at."""


def aborted_at_exit(job: Job, logs: Iterable[Sequence[str]], end_line: str) -> str:
    """Return the line by which a program says that it was aborted at its exit; empty where anything else may have failed.

    Behind the end of the training nothing but its last saves, the abort and the words of its launcher may stand, in the log that
    tells of the end; no other log may hold a traceback.

    Args:
        job: That ended badly.
        logs: Lines of each of its logs.
        end_line: By which its log says that training is over.
    """
    if job.state is not JobState.FAILED:
        return ""
    line, ended = "", False
    for texts in logs:
        tail = list(texts)[-TAIL:]
        places = [number for number, text in enumerate(tail) if text.strip()[:200] == end_line]
        after_end = tail[places[-1] + 1 :] if places else tail
        ended |= bool(places)
        if any(text.lstrip().startswith("Traceback (most recent call last)") for text in after_end):
            return ""
        aborts = [text.strip() for text in after_end if ABORTED.search(text)]
        if places and not all(ABORTED.search(text) or _OF_EXIT.search(text) for text in after_end):
            return ""
        line = line or next(iter(aborts), "")[:200]
    return line if ended else ""
