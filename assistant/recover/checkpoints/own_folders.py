"""Which folder of new checkpoints is a job's own, of those that a walk found where several runs may write side by side."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from assistant.errors import ToolError
from assistant.records import Job
from assistant.recover.checkpoints.layout import entries
from assistant.recover.checkpoints.run_claims import run_claims
from assistant.recover.checkpoints.task_folders import folder_of_task, late_margin_s
from assistant.recover.checkpoints.walks import Walk

MOST_SHOWN = 3
"""Folders that an error names."""
PART_OF_RUN = re.compile(
    r"check_?points?|ckpts?|models?|weights?|saves?|states?|best|last|latest|final|top_?\d*|ema|rank[-_]?\d+|(?:epoch|step|iter)[-_=]?\d+",
    re.IGNORECASE,
)
"""Folders below the one of a run, of which one run may have several."""


ARRAY_TASK = re.compile(r"\d{1,18}_\d{1,18}")


class SeveralRuns(ToolError):
    """Checkpoints of several runs were found where those of one were looked for."""


class OtherRuns(ToolError):
    """All checkpoints that were found where a job saves are those of other runs, by their own logs."""

    def __init__(self, message: str, silent_folder: Path | None, how: str = "which its log names") -> None:
        super().__init__(message)
        self.silent_folder, self.how = silent_folder, how


def own_folder(walk: Walk, job: Job, texts: Sequence[str], forms: Collection[str] = ()) -> Path | None:
    """Return the folder of new checkpoints that is this job's, None where there is none: several runs may write side by side.

    Folders of one run (`best` and `last` beside each other) count as one, of which the last changed is taken. Of several runs
    those that were still written after the job had ended are out, and the others where its log names the newest checkpoint of some,
    or one folder, and no log of another attempt has that for itself.

    Raises:
        SeveralRuns: More than one is left.
        OtherRuns: Each is another run's.
    """
    end = job.ended.timestamp() if job.ended is not None and job.state.ended else float("inf")
    own = [folder for folder in walk.folders if walk.changed.get(folder, 0.0) <= end + late_margin_s(job, folder)]
    if len({_run_folder(folder) for folder in own}) > 1:
        own = [folder for folder in own if _named_in(folder, texts, forms)] or own
    runs, run_folders = {_run_folder(folder) for folder in own}, {_run_folder(folder) for folder in walk.folders}
    if not run_folders:
        return None
    claims = run_claims(job, run_folders, texts)
    if walk.complete and run_folders <= claims.foreign:
        sentence = f"the checkpoints written since job {job.id} began are other runs', by their logs: in {_listed(run_folders)}"
        raise OtherRuns(sentence, claims.silent_folder)
    task_folder = folder_of_task(job, run_folders)
    if task_folder is not None and task_folder not in claims.foreign and claims.own <= {task_folder}:
        if walk.complete and task_folder not in run_folders:
            sentence = f"the checkpoints written since job {job.id} began lie in those of other tasks: in {_listed(run_folders)}"
            raise OtherRuns(sentence, task_folder, "by its name beside those of the other tasks")
        own = [folder for folder in own if _run_folder(folder) == task_folder]
        if own:
            return own[0]
    if walk.complete and not own and task_folder is None and ARRAY_TASK.fullmatch(job.id):
        sentence = f"the checkpoints written since job {job.id} began were written after it had ended: in {_listed(run_folders)}"
        raise OtherRuns(sentence, None)
    own = [folder for folder in own if _run_folder(folder) not in claims.foreign]
    runs -= claims.foreign
    if len(runs) > 1 or (claims.own and not runs & claims.own):
        if len(runs & claims.own) != 1:
            raise SeveralRuns(f"checkpoints of several runs were written since job {job.id} began: in {_listed(run_folders)}")
        own = [folder for folder in own if _run_folder(folder) in claims.own]
    return own[0] if own else None


def _listed(folders: Collection[Path]) -> str:
    return ", ".join(sorted(map(str, folders))[:MOST_SHOWN]) + (", …" if len(folders) > MOST_SHOWN else "")


def _run_folder(folder: Path) -> Path:
    """Return the folder of a run, without the parts below it that one run has several of."""
    while PART_OF_RUN.fullmatch(folder.name) and folder.name:
        folder = folder.parent
    return folder


def _named_in(folder: Path, texts: Sequence[str], forms: Collection[str]) -> bool:
    """Tell whether a log names the newest checkpoint of a folder: the other runs of a script are at other steps."""
    newest = re.compile(rf"(?<![\w.]){re.escape(entries(folder, depth=0, forms=forms)[-1].path.name)}(?!\d)")
    return any(newest.search(text) for text in texts)
