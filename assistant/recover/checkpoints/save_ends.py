"""What a job itself shows of its last saves: that each had ended before the job did.

Needed only of files that no reader knows, where nothing was saved behind them. Compared are times of one file system: when the
checkpoint was last written to, and the log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory, is_before
from assistant.recover.checkpoints.place import NO_SAVE
from assistant.recover.job_program import JobProgram
from assistant.recover.trainer_source import SourceCall, TrainerSource
from assistant.untrusted import reading_as, status_of

QUIET_S = 10.0
"""Nothing was written to a file for so long while its job went on: a save that goes on writes."""
FLUSHED_S = 60.0
"""After so long a file that was renamed lies on the disk, also where its writer did not wait for that."""
SAVED = re.compile(r"\b(?:saved|wrote|written|stored)\b", re.IGNORECASE)
TEMPORARY = re.compile(r"te?mp|part|\bnew|unfinished|incomplete|staging", re.IGNORECASE)
BINARY = re.compile(r"[wx]b\+?|[wx]\+?b")
WRITES = re.compile(r"save|dump|write_bytes|savez|savez_compressed")


def save_ends(listing: Inventory, job: Job, texts: Sequence[str], programs: Sequence[JobProgram]) -> Mapping[Path, str]:
    """Return of the checkpoints of an inventory that nobody can judge what shows that their saves had ended, in plain words.

    Args:
        listing: The job's own checkpoints.
        job: The job.
        texts: Lines of the log of its last attempt, in order.
        programs: Those of its script.
    """
    undecided = [checkpoint for checkpoint in listing.checkpoints if checkpoint.undecided]
    last_sign = _last_sign(job) if undecided and job.dated_logs else None
    if last_sign is None:
        return {}
    points = list(metric_points(Line(number, text) for number, text in enumerate(texts, 1)))
    renames = any(_puts_in_place(program.sources) for program in programs)
    proofs = {checkpoint.path: _end(checkpoint, texts, points, last_sign=last_sign, renames=renames) for checkpoint in undecided}
    return {path: words for path, words in proofs.items() if words}


def _last_sign(job: Job) -> datetime | None:
    """Return when the log was last written to; None where that is not known. A scheduler may notice an end minutes later."""
    if job.log is None:
        return None
    try:
        with reading_as(job.account):
            return datetime.fromtimestamp(status_of(job.log).st_mtime, UTC)
    except (OSError, InputError, ValueError, OverflowError):
        return None


def _end(checkpoint: Checkpoint, texts: Sequence[str], points: Sequence[MetricPoint], *, last_sign: datetime, renames: bool) -> str:
    quiet_s = (last_sign - checkpoint.saved_at).total_seconds()
    if quiet_s < QUIET_S:
        return ""
    name = re.compile(rf"(?<![\w.]){re.escape(checkpoint.path.name)}(?!\w)")
    if any(name.search(text) and SAVED.search(text) and not NO_SAVE.search(text) for text in texts):
        return f"the job's log says that it was saved, and went on for {quiet_s:.0f} s"
    later = next(
        (point for point in reversed(points) if not point.counted and is_before(checkpoint, point.step, point.epoch)), None
    )
    if later is not None:
        return f"the job went on behind it to step {later.step}, for {quiet_s:.0f} s"
    return (
        f"its program puts each file in place by a rename, {quiet_s:.0f} s before the log ended"
        if renames and quiet_s >= FLUSHED_S
        else ""
    )


def _puts_in_place(sources: Sequence[TrainerSource]) -> bool:
    """Tell whether all that a program writes as bytes is written under another name and put in place by a rename."""
    own = {
        f"{owner}{name}" for source in sources for name in source.functions for owner in ("", "self.", f"{Path(source.path).stem}.")
    }
    writing: list[list[SourceCall]] = []
    for source in sources:
        functions = [function for same_name in source.functions.values() for function in same_name]
        bodies = [[call for call in source.calls if _lies_in(call, function)] for function in functions]
        bodies.append([call for call in source.calls if not any(_lies_in(call, function) for function in functions)])
        writing += [calls for calls in bodies if any(_writes(call) for call in calls if call.name not in own)]
    read = bool(sources) and all(source.parsed for source in sources)
    return read and bool(writing) and all(any(map(_renames, calls)) for calls in writing)


def _lies_in(call: SourceCall, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.lineno <= call.line <= (function.end_lineno or function.lineno)


def _writes(call: SourceCall) -> bool:
    if call.method == "open":
        modes = [*call.positional[:2], *(value for name, value in call.keywords.items() if name == "mode")]
        return any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and BINARY.fullmatch(mode.value) for mode in modes
        )
    return WRITES.fullmatch(call.method) is not None and call.name not in ("json.dump", "yaml.dump")


def _renames(call: SourceCall) -> bool:
    """Tell whether a call renames a temporary file: `os.replace(tmp, path)`, `tmp.rename(path)`."""
    owner = call.name.rpartition(".")[0]
    by_module = owner in ("os", "shutil", "") and call.method in ("replace", "rename", "renames", "move")
    # of a path, which takes the new name alone; of a text `replace` takes two words
    by_path = bool(owner) and call.method in ("replace", "rename") and len(call.positional) == 1
    return (by_module or by_path) and TEMPORARY.search(" ".join([owner, *map(ast.unparse, call.positional)])) is not None
